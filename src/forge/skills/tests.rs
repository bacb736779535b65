//! Skills on a real disk.

use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use helmdeck_skills::Problem;

use super::*;
use crate::environment::ProjectEnvironment;
use crate::health::{self, Colour};
use crate::layout::CONFIG;
use crate::{init, repair};

const RFC: &str = include_str!("../../skills/fixtures/skill.toml");

struct Fixture {
    folder: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join(layout::SKILLS)).unwrap();
        Self { folder }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(layout::SKILLS).join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Writes a skill in the form of the RFC that is valid but for what is added to its manifest.
    fn skill(&self, name: &str, more: &str) {
        let text = format!(
            "[skill]\nname = \"{name}\"\ndescription = \"d\"\nversion = \"1.0.0\"\n[resources]\ninstructions = \"instructions.md\"\n{more}"
        );
        self.write(&format!("{name}/skill.toml"), &text);
        self.write(&format!("{name}/instructions.md"), &format!("Do {name}.\n"));
    }

    fn open(&self) -> Project {
        Project::open(self.folder.path(), ProjectEnvironment::default())
            .unwrap()
            .unwrap()
    }
}

fn samples_in(place: &Fixture) {
    for (path, text) in samples() {
        place.write(path.strip_prefix(".forge/skills/").unwrap(), text);
    }
}

fn codes(problems: &[Problem]) -> Vec<&str> {
    problems
        .iter()
        .map(|problem| problem.code.as_str())
        .collect()
}

/// Returns the names of the files that were opened while something ran.
fn opened(folder: &Path, run: impl FnOnce()) -> Vec<String> {
    let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, folder, WatchFlags::OPEN).unwrap();
    run();
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(&watch, &mut buffer);
    let mut names = Vec::new();
    while let Ok(event) = reader.next() {
        let is_folder = event.events().contains(ReadFlags::ISDIR);
        names.extend(
            event
                .file_name()
                .filter(|_| !is_folder)
                .map(|name| name.to_string_lossy().into_owned()),
        );
    }
    names.sort();
    names.dedup();
    names
}

#[test]
fn list_and_match_open_no_instructions() {
    let place = Fixture::new();
    place.skill(
        "code-generation",
        "[triggers]\nkeywords = [\"implement\"]\n",
    );
    let project = place.open();
    let folder = place.folder.path().join(".forge/skills/code-generation");
    let names = opened(&folder, || {
        assert_eq!(Skills::new(&project).list().unwrap().len(), 1);
        let query = Query {
            task: "implementing a parser".to_owned(),
            ..Query::default()
        };
        assert_eq!(
            Skills::new(&project).matching(&query).unwrap()[0].skill,
            "code-generation"
        );
    });
    assert_eq!(names, ["skill.toml"]);
    let names = opened(&folder, || {
        drop(Skills::new(&project).show("code-generation").unwrap())
    });
    assert_eq!(
        names,
        ["instructions.md", "skill.toml"],
        "the watch sees what is opened"
    );
}

#[test]
fn shown_skill_names_its_files_and_its_order() {
    let place = Fixture::new();
    samples_in(&place);
    place.skill(
        "toml-form",
        "templates = \"templates/\"\n[dependencies]\nbefore = [\"git-workflow\"]\n",
    );
    place.write("toml-form/templates/a.txt", "a");
    place.write("toml-form/.DS_Store", "a");
    let project = place.open();
    let shown = Skills::new(&project).show("code-generation").unwrap();
    assert!(
        shown.instructions.starts_with("# Code generation\n"),
        "{}",
        shown.instructions
    );
    // One empty line follows the front matter.
    assert_eq!(
        shown.skill.tokens.instructions,
        helmdeck_skills::estimate(1 + shown.instructions.len() as u64)
    );
    assert_eq!(shown.skill.path, ".forge/skills/code-generation/SKILL.md");
    assert_eq!(shown.order, ["code-generation", "qa-review"]);
    assert_eq!(
        shown.files,
        [".forge/skills/code-generation/templates/module.rs"]
    );
    let shown = Skills::new(&project).show("toml-form").unwrap();
    assert_eq!(
        (shown.instructions.as_str(), shown.skill.path.as_str()),
        ("Do toml-form.\n", ".forge/skills/toml-form/skill.toml")
    );
    assert_eq!(shown.order, ["git-workflow", "toml-form"]);
    assert_eq!(shown.files, [".forge/skills/toml-form/templates/a.txt"]);
    assert_eq!(
        Skills::new(&project).show("nobody").unwrap_err().category,
        Category::NotFound
    );
}

#[test]
fn bad_skill_hides_no_other() {
    let place = Fixture::new();
    place.skill("good", "");
    place.skill(
        "odd",
        "[odd]\nx = 1\n[dependencies]\nafter = [\"absent\"]\n",
    );
    place.skill("needs", "[dependencies]\nrequires = [\"absent\"]\n");
    place.skill("one", "[dependencies]\nrequires = [\"two\"]\n");
    place.skill("two", "[dependencies]\nrequires = [\"one\"]\n");
    place.skill("Bad_Name", "");
    place.skill("empty", "");
    place.write("empty/instructions.md", "");
    place.write("bare/SKILL.md", "---\nname: bare\ndescription: d\n---\n\n");
    place.skill("both", "");
    place.write(
        "both/SKILL.md",
        "---\nname: both\ndescription: d\n---\nDo both.\n",
    );
    place.write("front/SKILL.md", "---\nname: front\n");
    place.skill("outside", "");
    place.write("secret.md", "x");
    let outside = place
        .folder
        .path()
        .join(".forge/skills/outside/instructions.md");
    std::fs::remove_file(&outside).unwrap();
    std::os::unix::fs::symlink("../secret.md", &outside).unwrap();
    place.skill("escapes", "more = \"../good\"\n");
    place.write("none/readme.md", "x");
    place.write("broken/skill.toml", "[skill\n");
    std::fs::create_dir_all(place.folder.path().join(".forge/skills/binary")).unwrap();
    std::fs::write(
        place.folder.path().join(".forge/skills/binary/skill.toml"),
        [0xff, 0xfe],
    )
    .unwrap();
    place.write("other/skill.toml", RFC);
    std::os::unix::fs::symlink("good", place.folder.path().join(".forge/skills/link")).unwrap();
    place.skill("large", "");
    place.write("large/instructions.md", &"x".repeat(20_001));
    place.skill("huge", "");
    place.write("huge/instructions.md", &"x".repeat(80_001));
    let skills = Skills::new(&place.open()).list().unwrap();
    let found: Vec<_> = skills
        .iter()
        .map(|skill| {
            (
                skill.name.as_str(),
                codes(&skill.errors),
                codes(&skill.warnings),
            )
        })
        .collect();
    let expected: Vec<(&str, Vec<&str>, Vec<&str>)> = vec![
        ("Bad_Name", vec!["name"], vec![]),
        ("bare", vec!["instructions"], vec![]),
        ("binary", vec!["not_text"], vec![]),
        ("both", vec![], vec!["two_manifests"]),
        ("broken", vec!["not_toml"], vec![]),
        ("empty", vec!["instructions"], vec![]),
        ("escapes", vec!["outside"], vec![]),
        ("front", vec!["no_front_matter"], vec![]),
        ("good", vec![], vec![]),
        ("huge", vec!["instructions_too_large"], vec![]),
        ("large", vec![], vec!["instructions_large"]),
        ("link", vec!["link"], vec![]),
        ("needs", vec!["requires"], vec![]),
        ("none", vec!["manifest"], vec![]),
        ("odd", vec![], vec!["unknown_key", "chained_absent"]),
        ("one", vec!["cycle"], vec![]),
        (
            "other",
            vec!["name", "missing", "requires"],
            vec!["missing"],
        ),
        ("outside", vec!["outside"], vec![]),
        ("two", vec!["cycle"], vec![]),
    ];
    assert_eq!(found, expected);
    let project = place.open();
    assert_eq!(
        Skills::new(&project).show("huge").unwrap_err().code,
        "E_TOO_LARGE"
    );
    assert_eq!(
        Skills::new(&project).show("needs").unwrap_err().code,
        "E_SKILL_INVALID"
    );
    assert_eq!(
        Skills::new(&project).show("both").unwrap().instructions,
        "Do both.\n"
    );
    Skills::new(&project).show("large").unwrap();
}

#[test]
fn damaged_manifest_is_named_everywhere() {
    let repository = crate::git::fixture::Repository::new();
    let (project, _) = init::init(
        repository.path(),
        ProjectEnvironment::default(),
        &init::Init::default(),
    )
    .unwrap();
    assert_eq!(repair::damaged(&project).unwrap(), [""; 0]);
    assert_eq!(health::measure(&project).long_term.colour, Colour::Green);
    let path = ".forge/skills/qa-review/SKILL.md";
    repository.write(
        path,
        "---\nname: qa-review\ndescription: &d\n---\nReview.\n",
    );
    let said = "the skill cannot be used: line 3: an anchor";
    let doctor = init::doctor(&project, false).unwrap();
    let found = doctor
        .found
        .iter()
        .find(|found| found.path == path)
        .unwrap();
    assert!(
        !doctor.healthy && found.detail.starts_with(said),
        "{found:?}"
    );
    let damaged = repair::damaged_files(&project).unwrap();
    assert!(
        damaged[0].path == path && damaged[0].detail.starts_with(said),
        "{damaged:?}"
    );
    let long_term = health::measure(&project).long_term;
    assert!(
        long_term
            .reasons
            .iter()
            .any(|reason| reason.detail.contains(path)),
        "{long_term:?}"
    );
    assert_eq!(long_term.colour, Colour::Yellow);
}

#[test]
fn tracker_skill_fires_only_with_a_tracker() {
    let place = Fixture::new();
    samples_in(&place);
    let query = Query {
        task: "triage the issue in linear".to_owned(),
        ..Query::default()
    };
    let names = || -> Vec<String> {
        let found = Skills::new(&place.open()).matching(&query).unwrap();
        found.into_iter().map(|found| found.skill).collect()
    };
    assert_eq!(names(), [""; 0]);
    std::fs::write(
        place.folder.path().join(CONFIG),
        "[linear]\nmode = \"live\"\n",
    )
    .unwrap();
    assert_eq!(names(), ["linear-integration"]);
}

#[test]
fn without_a_folder_there_is_no_skill() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".forge")).unwrap();
    let project = Project::open(folder.path(), ProjectEnvironment::default())
        .unwrap()
        .unwrap();
    assert_eq!(Skills::new(&project).list().unwrap(), []);
    assert_eq!(
        Skills::new(&project).matching(&Query::default()).unwrap(),
        []
    );
}

#[test]
fn many_skills_are_listed_in_order() {
    let place = Fixture::new();
    let names: Vec<String> = (0..650)
        .map(|number| format!("skill-{number:03}"))
        .collect();
    for name in &names {
        place.skill(name, "");
    }
    std::fs::remove_file(
        place
            .folder
            .path()
            .join(".forge/skills/skill-333/skill.toml"),
    )
    .unwrap();
    let found = scan(place.folder.path()).unwrap();
    assert_eq!(
        found.iter().map(|skill| &skill.name).collect::<Vec<_>>(),
        names.iter().collect::<Vec<_>>()
    );
    let invalid: Vec<_> = found
        .iter()
        .filter(|skill| !skill.is_valid())
        .map(|skill| skill.name.as_str())
        .collect();
    assert_eq!(invalid, ["skill-333"]);
}
