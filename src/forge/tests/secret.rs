//! A credential in any text from outside: it is refused or redacted, and no file contains it.

use std::collections::BTreeSet;
use std::path::Path;

use crate::artifacts::{Artifacts, Kind, Put};
use crate::checkpoints::{Checkpoints, Create};
use crate::environment::ProjectEnvironment;
use crate::error::Result;
use crate::events;
use crate::features::{Add, BlockedBy, Edit, Features};
use crate::focus::{Focused, SetFocus};
use crate::git::fixture::Repository;
use crate::git::{Commits, NewCommit, Origin};
use crate::init::{self, Init};
use crate::knowledge::{Knowledge, Learning, What};
use crate::progress::Progress;
use crate::project::Project;
use crate::recovery::{Ack, Apply, By, Recovery};
use crate::repair;
use crate::secrets;
use crate::sessions::{End, Log, Sessions, Start};
use crate::subjects::Subject;

/// A project in which there is something of everything.
struct Scene {
    repository: Repository,
    project: Project,
}

impl Scene {
    fn new() -> Self {
        let repository = Repository::new();
        for (name, value) in [("user.name", "Ann"), ("user.email", "ann@example.com")] {
            repository.run(&["config", name, value]);
        }
        repository.write("a.txt", "one\n");
        let (project, _) = init::init(
            repository.path(),
            ProjectEnvironment::default(),
            &Init::default(),
        )
        .unwrap();
        repository.write(crate::layout::CONFIG, "[verify]\ncommands = [\"true\"]\n");
        repository.commit("first");
        let project = Project::open(project.root(), ProjectEnvironment::default())
            .unwrap()
            .unwrap();
        let add = |id: &str| Add {
            id: Some(id.into()),
            name: "It works".into(),
            ..Add::default()
        };
        Features::new(&project).add(&add("A-001"), None).unwrap();
        Knowledge::new(&project)
            .add(&learned("context", "approach"), None)
            .unwrap();
        Sessions::new(&project)
            .start(&Start {
                no_probe: true,
                ..Start::default()
            })
            .unwrap();
        Focused::new(&project).set(&task("Work")).unwrap();
        Self {
            repository,
            project,
        }
    }

    /// Writes a file for as long as something is done.
    fn with_file<T>(&self, path: &str, text: &str, work: impl FnOnce() -> T) -> T {
        self.repository.write(path, text);
        let done = work();
        std::fs::remove_file(self.repository.path().join(path)).unwrap();
        done
    }

    fn environment(&self) -> ProjectEnvironment {
        self.project.environment().clone()
    }

    fn open(&self, environment: ProjectEnvironment) -> Project {
        Project::open(self.project.root(), environment)
            .unwrap()
            .unwrap()
    }

    /// Returns the files and git objects that contain a text.
    fn places_of(&self, text: &str) -> Vec<String> {
        let mut places = Vec::new();
        walk(self.repository.path(), text.as_bytes(), &mut places);
        let objects =
            self.repository
                .run(&["cat-file", "--batch", "--batch-all-objects", "--unordered"]);
        if objects.contains(text) {
            places.push("an object of git".to_owned());
        }
        places
    }
}

fn walk(folder: &Path, text: &[u8], places: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .to_string_lossy()
            .as_bytes()
            .windows(text.len())
            .any(|window| window == text)
        {
            places.push(format!("the name of {}", path.display()));
        }
        if path.is_dir() {
            walk(&path, text, places);
        } else if std::fs::read(&path)
            .unwrap()
            .windows(text.len())
            .any(|window| window == text)
        {
            places.push(path.display().to_string());
        }
    }
}

fn task(task: &str) -> SetFocus {
    SetFocus {
        task: Some(task.to_owned()),
        ..SetFocus::default()
    }
}

fn learned(context: &str, approach: &str) -> Learning {
    Learning::new(What::Successful {
        context: context.to_owned(),
        approach: approach.to_owned(),
    })
}

fn learns(scene: &Scene, learning: &Learning) -> Result<()> {
    Knowledge::new(&scene.project).add(learning, None).map(drop)
}

fn adds(scene: &Scene, add: Add) -> Result<()> {
    let name = if add.name.is_empty() {
        "Another".to_owned()
    } else {
        add.name
    };
    Features::new(&scene.project)
        .add(&Add { name, ..add }, None)
        .map(drop)
}

fn edits(scene: &Scene, edit: &Edit) -> Result<()> {
    Features::new(&scene.project)
        .set("A-001", edit, None)
        .map(drop)
}

fn focuses(scene: &Scene, change: &SetFocus) -> Result<()> {
    Focused::new(&scene.project).set(change).map(drop)
}

fn puts(scene: &Scene, bytes: &[u8], put: &Put) -> Result<()> {
    Artifacts::new(&scene.project).put(bytes, put).map(drop)
}

fn report(name: &str) -> Put {
    Put::new(Kind::Reports, name)
}

fn makes(scene: &Scene, create: &Create) -> Result<()> {
    Checkpoints::new(&scene.project).create(create).map(drop)
}

fn ends(scene: &Scene, end: &End) -> Result<()> {
    Sessions::new(&scene.project).end(end).map(drop)
}

fn commits(scene: &Scene, new: NewCommit) -> Result<()> {
    let some = NewCommit {
        key: Some("SX9-1".into()),
        subject: "Change it".into(),
        what: vec!["It is changed".into()],
        why: "It must be.".into(),
        paths: vec!["b.txt".into()],
        ..NewCommit::default()
    };
    let new = NewCommit {
        key: new.key.or(some.key),
        subject: if new.subject.is_empty() {
            some.subject
        } else {
            new.subject
        },
        what: if new.what.is_empty() {
            some.what
        } else {
            new.what
        },
        why: if new.why.is_empty() {
            some.why
        } else {
            new.why
        },
        paths: some.paths,
        ..new
    };
    let origin = Origin {
        session: "2025-12-24-session-001".to_owned(),
        session_id: "0193f8a0-0000-7000-8000-000000000000".to_owned(),
        checkpoint: None,
    };
    scene.with_file("b.txt", "two\n", || {
        Commits::new(&scene.project).create(&new, &origin).map(drop)
    })
}

/// How it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// Refused, as a secret: exit 7.
    Secret,
    /// Refused, because a text of that form is invalid there.
    Form,
    /// Done, with the text redacted or not needed.
    Withheld,
}

use Ends::{Form, Secret, Withheld};

type Deed = fn(&Scene, &str) -> Result<()>;

const DEEDS: &[(&str, Ends, Deed)] = &[
    ("knowledge context", Secret, |scene, text| {
        learns(scene, &learned(text, "a"))
    }),
    ("knowledge approach", Secret, |scene, text| {
        learns(scene, &learned("c", text))
    }),
    ("knowledge issue", Secret, |scene, text| {
        let (context, resolution) = ("c".into(), "r".into());
        learns(
            scene,
            &Learning::new(What::Failed {
                context,
                issue: text.into(),
                resolution,
            }),
        )
    }),
    ("knowledge resolution", Secret, |scene, text| {
        let (context, issue) = ("c".into(), "i".into());
        learns(
            scene,
            &Learning::new(What::Failed {
                context,
                issue,
                resolution: text.into(),
            }),
        )
    }),
    ("knowledge decision", Secret, |scene, text| {
        let (context, rationale) = ("c".into(), "r".into());
        learns(
            scene,
            &Learning::new(What::Decision {
                context,
                decision: text.into(),
                rationale,
            }),
        )
    }),
    ("knowledge rationale", Secret, |scene, text| {
        let (context, decision) = ("c".into(), "d".into());
        learns(
            scene,
            &Learning::new(What::Decision {
                context,
                decision,
                rationale: text.into(),
            }),
        )
    }),
    ("knowledge invariant", Secret, |scene, text| {
        learns(
            scene,
            &Learning::new(What::Invariant {
                text: text.into(),
                check: None,
                severity: None,
            }),
        )
    }),
    ("knowledge check", Secret, |scene, text| {
        let check = Some(format!("curl {text}"));
        learns(
            scene,
            &Learning::new(What::Invariant {
                text: "It holds".into(),
                check,
                severity: None,
            }),
        )
    }),
    ("knowledge severity", Form, |scene, text| {
        let severity = Some(text.into());
        learns(
            scene,
            &Learning::new(What::Invariant {
                text: "It holds".into(),
                check: None,
                severity,
            }),
        )
    }),
    ("knowledge session", Secret, |scene, text| {
        learns(
            scene,
            &Learning {
                session: Some(text.into()),
                ..learned("s", "a")
            },
        )
    }),
    ("knowledge issue key", Secret, |scene, text| {
        learns(
            scene,
            &Learning {
                linear: Some(text.into()),
                ..learned("l", "a")
            },
        )
    }),
    ("knowledge commit", Secret, |scene, text| {
        learns(
            scene,
            &Learning {
                commit: Some(text.into()),
                ..learned("h", "a")
            },
        )
    }),
    ("knowledge path", Secret, |scene, text| {
        let path = format!("src/{}", text.replace(['/', ':', '"', '\\'], "."));
        let path = if secrets::scan(&path).is_empty() {
            text.to_owned()
        } else {
            path
        };
        learns(
            scene,
            &Learning {
                paths: vec![path],
                ..learned("p", "a")
            },
        )
    }),
    ("knowledge id", Form, |scene, text| {
        Knowledge::new(&scene.project).confirm(text, None).map(drop)
    }),
    ("knowledge in its place", Secret, |scene, text| {
        let id = Knowledge::new(&scene.project)
            .read()
            .unwrap()
            .entries()
            .next()
            .unwrap()
            .id();
        Knowledge::new(&scene.project)
            .supersede(&id, &learned("context", text), None)
            .map(drop)
    }),
    ("feature name", Secret, |scene, text| {
        adds(
            scene,
            Add {
                name: text.into(),
                ..Add::default()
            },
        )
    }),
    ("feature test", Secret, |scene, text| {
        adds(
            scene,
            Add {
                tests: vec![text.into()],
                ..Add::default()
            },
        )
    }),
    ("feature step", Secret, |scene, text| {
        adds(
            scene,
            Add {
                steps: vec![text.into()],
                ..Add::default()
            },
        )
    }),
    ("feature category", Secret, |scene, text| {
        adds(
            scene,
            Add {
                category: Some(text.into()),
                ..Add::default()
            },
        )
    }),
    ("feature blocker", Secret, |scene, text| {
        adds(
            scene,
            Add {
                blocked_by: Some(BlockedBy::One(format!("waits for {text}"))),
                ..Add::default()
            },
        )
    }),
    ("feature id", Form, |scene, text| {
        adds(
            scene,
            Add {
                id: Some(text.into()),
                ..Add::default()
            },
        )
    }),
    ("feature reason", Secret, |scene, text| {
        edits(
            scene,
            &Edit {
                reason: Some(text.into()),
                ..Edit::default()
            },
        )
    }),
    ("feature new name", Secret, |scene, text| {
        edits(
            scene,
            &Edit {
                name: Some(text.into()),
                ..Edit::default()
            },
        )
    }),
    ("focus task", Secret, |scene, text| {
        focuses(scene, &task(text))
    }),
    ("focus issue", Form, |scene, text| {
        focuses(
            scene,
            &SetFocus {
                linear_issue: Some(text.into()),
                ..SetFocus::default()
            },
        )
    }),
    ("focus blocker", Secret, |scene, text| {
        focuses(
            scene,
            &SetFocus {
                blockers: Some(vec![text.into()]),
                ..SetFocus::default()
            },
        )
    }),
    ("focus skill", Secret, |scene, text| {
        focuses(
            scene,
            &SetFocus {
                active_skill: Some(text.into()),
                ..SetFocus::default()
            },
        )
    }),
    ("focus reason", Secret, |scene, text| {
        let n = Focused::new(&scene.project)
            .show()?
            .map_or(0, |shown| shown.focus.files.len());
        let files = Some((0..=n).map(|n| format!("f{n}")).collect());
        focuses(
            scene,
            &SetFocus {
                files,
                reason: Some(text.into()),
                ..SetFocus::default()
            },
        )
    }),
    ("progress", Secret, |scene, text| {
        Progress::new(&scene.project).log(text).map(drop)
    }),
    ("progress checkpoint", Secret, |scene, text| {
        Progress::new(&scene.project).checkpoint(text).map(drop)
    }),
    ("progress next", Secret, |scene, text| {
        Progress::new(&scene.project).next(text).map(drop)
    }),
    ("artifact", Secret, |scene, text| {
        puts(scene, text.as_bytes(), &report("a.txt"))
    }),
    ("artifact name", Secret, |scene, text| {
        puts(scene, b"a\n", &report(text))
    }),
    ("artifact session", Secret, |scene, text| {
        puts(
            scene,
            b"b\n",
            &Put {
                session: Some(text.into()),
                ..report("b.txt")
            },
        )
    }),
    ("artifact issue", Secret, |scene, text| {
        puts(
            scene,
            b"c\n",
            &Put {
                linear: Some(text.into()),
                ..report("c.txt")
            },
        )
    }),
    ("artifact skill", Secret, |scene, text| {
        puts(
            scene,
            b"d\n",
            &Put {
                skill: Some(text.into()),
                ..report("d.txt")
            },
        )
    }),
    ("artifact file", Secret, |scene, text| {
        let path = scene.repository.path().join("up.txt");
        scene.with_file("up.txt", text, || {
            Artifacts::new(&scene.project)
                .put_file(&path, &report("up.txt"))
                .map(drop)
        })
    }),
    ("agent", Secret, |scene, text| {
        let project = scene.open(ProjectEnvironment {
            agent: text.into(),
            ..scene.environment()
        });
        Artifacts::new(&project)
            .put(b"e\n", &report("e.txt"))
            .map(drop)
    }),
    ("agent of a session", Secret, |scene, text| {
        let project = scene.open(ProjectEnvironment {
            agent: text.into(),
            ..scene.environment()
        });
        Sessions::new(&project)
            .start(&Start {
                join: true,
                no_probe: true,
                ..Start::default()
            })
            .map(drop)
    }),
    ("session log", Secret, |scene, text| {
        Sessions::new(&scene.project)
            .log(&Log {
                text: text.into(),
                next: None,
            })
            .map(drop)
    }),
    ("session log next", Secret, |scene, text| {
        Sessions::new(&scene.project)
            .log(&Log {
                text: "Done".into(),
                next: Some(text.into()),
            })
            .map(drop)
    }),
    ("session learn", Secret, |scene, text| {
        Sessions::new(&scene.project)
            .learn(learned("c", text))
            .map(drop)
    }),
    ("session end learned", Secret, |scene, text| {
        ends(
            scene,
            &End {
                learned: vec![learned("c", text)],
                ..End::default()
            },
        )
    }),
    ("session end next", Secret, |scene, text| {
        ends(
            scene,
            &End {
                next: Some(text.into()),
                ..End::default()
            },
        )
    }),
    ("session end dirty", Secret, |scene, text| {
        ends(
            scene,
            &End {
                leave_dirty: Some(text.into()),
                ..End::default()
            },
        )
    }),
    ("session end key", Form, |scene, text| {
        ends(
            scene,
            &End {
                key: Some(text.into()),
                ..End::default()
            },
        )
    }),
    ("checkpoint message", Secret, |scene, text| {
        makes(
            scene,
            &Create {
                message: Some(text.into()),
                ..Create::default()
            },
        )
    }),
    ("checkpoint command", Secret, |scene, text| {
        makes(
            scene,
            &Create {
                verify: vec![format!("sh: : {text}")],
                ..Create::default()
            },
        )
    }),
    ("checkpoint key", Form, |scene, text| {
        makes(
            scene,
            &Create {
                key: Some(text.into()),
                ..Create::default()
            },
        )
    }),
    ("checkpoint closes", Secret, |scene, text| {
        makes(
            scene,
            &Create {
                closes: vec![text.into()],
                ..Create::default()
            },
        )
    }),
    ("commit subject", Secret, |scene, text| {
        commits(
            scene,
            NewCommit {
                subject: text.into(),
                ..NewCommit::default()
            },
        )
    }),
    ("commit what", Secret, |scene, text| {
        commits(
            scene,
            NewCommit {
                what: vec![text.into()],
                ..NewCommit::default()
            },
        )
    }),
    ("commit why", Secret, |scene, text| {
        commits(
            scene,
            NewCommit {
                why: text.into(),
                ..NewCommit::default()
            },
        )
    }),
    ("commit learned", Secret, |scene, text| {
        commits(
            scene,
            NewCommit {
                learned: vec![text.into()],
                ..NewCommit::default()
            },
        )
    }),
    ("commit invariant", Secret, |scene, text| {
        commits(
            scene,
            NewCommit {
                invariants: vec![text.into()],
                ..NewCommit::default()
            },
        )
    }),
    ("commit key", Form, |scene, text| {
        commits(
            scene,
            NewCommit {
                key: Some(text.into()),
                ..NewCommit::default()
            },
        )
    }),
    ("commit parent", Form, |scene, text| {
        commits(
            scene,
            NewCommit {
                parent: Some(text.into()),
                ..NewCommit::default()
            },
        )
    }),
    ("commit of a file", Secret, |scene, text| {
        scene.with_file("src/key.rs", text, || {
            let new = NewCommit {
                key: Some("SX9-1".into()),
                subject: "Change it".into(),
                what: vec!["It is changed".into()],
                why: "It must be.".into(),
                paths: vec!["src".into()],
                ..NewCommit::default()
            };
            Commits::new(&scene.project)
                .create(&new, &Origin::default())
                .map(drop)
        })
    }),
    ("recovery why", Secret, |scene, text| {
        let checkpoint = Some(
            Checkpoints::new(&scene.project)
                .create(&Create::default())
                .unwrap()
                .tag,
        );
        Recovery::new(&scene.project)
            .apply(&Apply {
                why: Some(text.into()),
                checkpoint,
            })
            .map(drop)
    }),
    ("recovery ack", Secret, |scene, text| {
        Recovery::new(&scene.project)
            .pause("Somebody must look", None)
            .unwrap();
        let ack = |reason: &str| Ack {
            reason: reason.to_owned(),
            by: By::Terminal,
        };
        let done = Recovery::new(&scene.project).ack(&ack(text)).map(drop);
        Recovery::new(&scene.project)
            .ack(&ack("All is well"))
            .unwrap();
        done
    }),
    ("recovery pause", Withheld, |scene, text| {
        Recovery::new(&scene.project).pause(text, None).unwrap();
        Recovery::new(&scene.project)
            .ack(&Ack {
                reason: "All is well".into(),
                by: By::Terminal,
            })
            .map(drop)
    }),
    ("event", Withheld, |scene, text| {
        events::emit(&scene.project, Subject::Learning, text);
        Ok(())
    }),
    ("features of another tool", Withheld, |scene, text| {
        let list = serde_json::json!([{ "description": text, "passes": false }]).to_string();
        scene.with_file("feature_list.json", &list, || {
            init::init(
                scene.project.root(),
                scene.environment(),
                &Init {
                    adopt: true,
                    ..Init::default()
                },
            )
            .map(drop)
        })
    }),
    ("progress of another tool", Withheld, |scene, text| {
        scene.with_file("claude-progress.txt", text, || {
            init::init(
                scene.project.root(),
                scene.environment(),
                &Init {
                    adopt: true,
                    ..Init::default()
                },
            )
            .map(drop)
        })
    }),
    ("notes of another tool", Withheld, |scene, text| {
        scene.with_file("MEMORY.md", &format!("# Notes\n\n- {text}\n"), || {
            init::init(
                scene.project.root(),
                scene.environment(),
                &Init {
                    adopt: true,
                    ..Init::default()
                },
            )
            .map(drop)
        })
    }),
    ("settings that are mended", Secret, |scene, text| {
        // The content of a file that somebody else wrote is not copied.
        let path = ".forge/.local/outbox.events.jsonl";
        let lines = format!("{}\n{{torn\n", serde_json::json!({ "data": text }));
        scene.with_file(path, &lines, || {
            let mend = crate::repair::RepairRequest {
                yes: true,
                from: None,
            };
            repair::repair(&scene.project, path, mend).map(drop)
        })
    }),
];

/// The piece of a credential by which it is found again.
fn piece(rule: &str, credential: &str) -> String {
    match rule {
        "private-key" => "PRIVATE KEY--".to_owned(),
        "assigned-password" => "Blue42".to_owned(),
        _ => {
            let runs = credential.split(|c: char| !c.is_ascii_alphanumeric());
            runs.max_by_key(|run| run.len()).unwrap().to_owned()
        }
    }
}

#[test]
fn a_credential_in_any_text_is_refused_or_withheld_and_stands_nowhere() {
    let scene = Scene::new();
    let mut wrong = Vec::new();
    let mut tried = BTreeSet::new();
    let credentials = helmdeck_core::leaks::samples::credentials();
    for (at, (name, ends, deed)) in DEEDS.iter().enumerate() {
        let (rule, credential) = &credentials[at % credentials.len()];
        tried.insert(*rule);
        let piece = piece(rule, credential);
        let done = deed(&scene, credential);
        let ended = match &done {
            Ok(()) => Withheld,
            Err(error) if error.category.exit_code() == 7 => Secret,
            Err(_) => Form,
        };
        if ended != *ends {
            wrong.push(format!(
                "{name} with {rule}: {ended:?}, expected {ends:?}: {done:?}"
            ));
        }
        if let Err(error) = &done
            && (format!("{error:?}{error}").contains(&piece)
                || serde_json::to_string(error).unwrap().contains(&piece))
        {
            wrong.push(format!("{name} with {rule}: shown"));
        }
        for place in scene.places_of(&piece) {
            wrong.push(format!("{name} with {rule}: stands in {place}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(
        tried,
        credentials.iter().map(|(rule, _)| *rule).collect(),
        "each kind is tried"
    );
    assert!(repair::damaged(&scene.project).unwrap().is_empty());
}
