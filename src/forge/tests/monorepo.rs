//! Ten projects in one repository: random work in all of them, with kills among it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::checkpoints::{Checkpoints, Create};
use crate::environment::ProjectEnvironment;
use crate::features::{Add, Features};
use crate::fixture::{given, start};
use crate::git::fixture::Repository;
use crate::knowledge::{Knowledge, Learning, What};
use crate::project::Project;
use crate::recovery::{Apply, Assess, Class, Recovery, Unknown};
use crate::repair;
use crate::sessions::{End, Sessions, Start};

const FOLDERS: [&str; 10] = [
    "web",
    "api",
    "worker",
    "mobile",
    "docs site",
    "infra/net",
    "infra/db",
    "lib/a",
    "lib/b",
    "lib/a-b",
];
const STEPS: u64 = 300;

/// A reproducible source of numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// What is known of a project.
#[derive(Default)]
struct Model {
    /// Contexts of what was learned.
    learned: Vec<String>,
    /// The committed code, and that of each checkpoint.
    code: String,
    checkpoints: BTreeMap<String, String>,
    /// Whether an untracked file is there.
    is_dirty: bool,
}

fn open(repository: &Repository, folder: &str) -> Project {
    Project::open(
        &repository.path().join(folder),
        ProjectEnvironment::default(),
    )
    .unwrap()
    .unwrap()
}

fn learn(project: &Project, context: &str) {
    let what = What::Successful {
        context: context.to_owned(),
        approach: "again".to_owned(),
    };
    Knowledge::new(project)
        .add(&Learning::new(what), None)
        .unwrap();
}

fn create(project: &Project) -> crate::error::Result<String> {
    let create = Create {
        key: Some("A-1".to_owned()),
        ..Create::default()
    };
    Ok(Checkpoints::new(project).create(&create)?.tag)
}

/// Not a test: the process that is killed.
#[test]
#[ignore = "run by the test below in a process of its own"]
fn worker() {
    let Some((project, number)) = given() else {
        return;
    };
    for count in 0.. {
        learn(&project, &format!("killed {number} {count}"));
        // Its code may be broken or not committed.
        let _ = create(&project);
    }
}

#[test]
fn ten_projects_of_one_repository_do_not_see_each_other() {
    let repository = Repository::new();
    for (name, value) in [("user.name", "Ann"), ("user.email", "ann@example.com")] {
        repository.run(&["config", name, value]);
    }
    let mut models: Vec<Model> = Vec::new();
    for folder in FOLDERS {
        repository.write(&format!("{folder}/app.txt"), "good 0\n");
        repository.write(
            &format!("{folder}/.forge/.gitignore"),
            ".local/\nmemory/short-term/*\n",
        );
        let config = "[verify]\ncommands = [\"sh: ! grep -q BAD app.txt\"]\n";
        repository.write(&format!("{folder}/.forge/config.toml"), config);
        models.push(Model {
            code: "good 0\n".to_owned(),
            ..Model::default()
        });
    }
    repository.commit("first");
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    for step in 1..=STEPS {
        let at = usize::try_from(dice.below(10)).unwrap();
        let (folder, what) = (FOLDERS[at], format!("step {step} in {}", FOLDERS[at]));
        let project = open(&repository, folder);
        let model = &mut models[at];
        let file = format!("{folder}/app.txt");
        match dice.below(9) {
            0 => {
                learn(&project, &what);
                model.learned.push(what.clone());
            }
            kind @ (1 | 2) => {
                model.code = format!("{} {step}\n", if kind == 1 { "good" } else { "BAD" });
                repository.write(&file, &model.code);
                repository.run(&["commit", "-q", "-m", &what, "--", &file]);
            }
            3 => match create(&project) {
                Ok(tag) => {
                    assert!(!model.is_dirty && model.code.starts_with("good"), "{what}");
                    model.checkpoints.insert(tag, model.code.clone());
                }
                Err(error) if error.code == "E_DIRTY" => assert!(model.is_dirty, "{what}: {error}"),
                Err(error) => assert!(
                    error.code == "E_CHECK" && model.code.starts_with("BAD"),
                    "{what}: {error}"
                ),
            },
            4 => {
                let newest = Checkpoints::new(&project).newest_usable().unwrap();
                let Some(newest) = newest else { continue };
                let asked = Apply {
                    checkpoint: Some(newest.tag.clone()),
                    why: Some(what.clone()),
                };
                Recovery::new(&project).apply(&asked).unwrap();
                let code = std::fs::read_to_string(repository.path().join(&file)).unwrap();
                assert!(code.starts_with("good"), "{what}: {code}");
                if let Some(known) = model.checkpoints.get(&newest.tag) {
                    assert_eq!(code, *known, "{what}");
                }
                model.code = code;
            }
            5 => {
                let report = Recovery::new(&project).assess(Assess::default()).unwrap();
                let young = report
                    .unknown
                    .iter()
                    .all(|reason| reason.reason == Unknown::NoCheckpoint);
                assert!(report.class != Class::Unknown || young, "{what}: {report}");
            }
            6 => {
                let started = Sessions::new(&project)
                    .start(&Start {
                        no_probe: true,
                        ..Start::default()
                    })
                    .unwrap();
                assert_eq!(started.paused, None, "{what}");
                let end = End {
                    leave_dirty: Some("a file".to_owned()),
                    ..End::default()
                };
                Sessions::new(&project).end(&end).unwrap();
            }
            7 => {
                let add = Add {
                    name: what.clone(),
                    tests: vec!["a".to_owned()],
                    ..Add::default()
                };
                Features::new(&project).add(&add, None).unwrap();
                let stray = repository.path().join(folder).join("stray.txt");
                model.is_dirty = !model.is_dirty;
                if model.is_dirty {
                    std::fs::write(stray, "x\n").unwrap()
                } else {
                    std::fs::remove_file(stray).unwrap()
                }
            }
            _ => {
                let mut child = start(
                    project.root(),
                    "tests::monorepo::worker",
                    usize::try_from(step).unwrap(),
                );
                std::thread::sleep(Duration::from_millis(20 + dice.below(200)));
                child.kill().unwrap();
                child.wait().unwrap();
            }
        }
    }
    for (folder, model) in FOLDERS.iter().zip(&models) {
        let project = open(&repository, folder);
        assert!(project.check_not_paused().is_ok(), "{folder}");
        assert_eq!(repair::damaged(&project).unwrap(), [""; 0], "{folder}");
        let known = Knowledge::new(&project).read().unwrap().patterns.successful;
        for context in &model.learned {
            assert!(
                known.iter().any(|entry| entry.context == *context),
                "{folder} lost {context}"
            );
        }
        assert_eq!(
            repository.run(&["show", &format!("HEAD:{folder}/app.txt")]),
            model.code.trim_end(),
            "{folder}"
        );
        let listed = Checkpoints::new(&project).list().unwrap();
        for tag in model.checkpoints.keys() {
            assert!(
                listed
                    .iter()
                    .any(|one| one.tag == *tag && one.can_rollback_to),
                "{folder}: {tag}"
            );
        }
        let prefix = format!("checkpoint/{}/", crate::checkpoints::encode(folder));
        assert!(
            listed.iter().all(|one| one.tag.starts_with(&prefix)),
            "{folder}"
        );
    }
}
