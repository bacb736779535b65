//! Skills on a real disk.

use std::os::unix::fs::PermissionsExt as _;

use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use super::*;
use crate::environment::ProjectEnvironment;
use crate::skills::Skills;

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

    /// Writes a skill that is valid but for what is added to its manifest.
    fn skill(&self, name: &str, more: &str) {
        let text = format!(
            "[skill]\nname = \"{name}\"\ndescription = \"d\"\nversion = \"1.0.0\"\n[resources]\ninstructions = \"instructions.md\"\n{more}"
        );
        self.write(&format!("{name}/skill.toml"), &text);
        self.write(&format!("{name}/instructions.md"), &format!("Do {name}.\n"));
    }

    fn open(&self) -> Project {
        Project::open(self.folder.path(), ProjectEnvironment::default()).unwrap().unwrap()
    }
}

fn samples_in(place: &Fixture) {
    for (path, text) in samples() {
        place.write(path.strip_prefix(".forge/skills/").unwrap(), text);
    }
}

fn codes(problems: &[Problem]) -> Vec<&str> {
    problems.iter().map(|problem| problem.code.as_str()).collect()
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
        names.extend(event.file_name().filter(|_| !is_folder).map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    names.dedup();
    names
}

#[test]
fn listing_and_matching_open_no_instructions() {
    let place = Fixture::new();
    samples_in(&place);
    let project = place.open();
    let folder = place.folder.path().join(".forge/skills/code-generation");
    let query = Query { text: "implement it".to_owned(), ..Query::default() };
    let names = opened(&folder, || {
        assert_eq!(Skills::new(&project).list().unwrap().len(), 4);
        assert_eq!(Skills::new(&project).matching(&query).unwrap()[0].skill, "code-generation");
        assert_eq!(Skills::new(&project).plan(&["code-generation"]).unwrap(), ["code-generation", "qa-review"]);
    });
    assert_eq!(names, ["skill.toml"]);
    let names = opened(&folder, || drop(Skills::new(&project).show("code-generation").unwrap()));
    assert_eq!(names, ["instructions.md", "skill.toml"], "the watch sees what is opened");
}

#[test]
fn skill_and_resources_are_shown_separately() {
    let place = Fixture::new();
    samples_in(&place);
    let project = place.open();
    let shown = Skills::new(&project).show("qa-review").unwrap();
    assert!(shown.instructions.starts_with("# Review\n"));
    assert_eq!(shown.skill.tokens.instructions, estimate(shown.instructions.len() as u64));
    let list = Skills::new(&project).resource("qa-review", "checklists/change.md").unwrap();
    assert!(list.starts_with(b"# A change\n"));
    for (skill, path, category) in [
        ("nobody", "x", Category::NotFound),
        ("qa-review", "absent.md", Category::NotFound),
        ("qa-review", "checklists", Category::Usage),
        ("qa-review", "../code-generation/skill.toml", Category::Refused),
        ("qa-review", "/etc/passwd", Category::Refused),
    ] {
        assert_eq!(Skills::new(&project).resource(skill, path).unwrap_err().category, category, "{skill} {path}");
    }
    std::os::unix::fs::symlink("/etc/passwd", place.folder.path().join(".forge/skills/qa-review/out")).unwrap();
    assert_eq!(Skills::new(&project).resource("qa-review", "out").unwrap_err().category, Category::Refused);
}

#[test]
fn one_bad_skill_hides_no_other() {
    let place = Fixture::new();
    place.skill("good", "");
    place.skill("odd", "[odd]\nx = 1\n[dependencies]\nafter = [\"absent\"]\n");
    place.skill("needs", "[dependencies]\nrequires = [\"absent\"]\n");
    place.skill("one", "[dependencies]\nrequires = [\"two\"]\n");
    place.skill("two", "[dependencies]\nrequires = [\"one\"]\n");
    place.skill("Bad_Name", "");
    place.skill("empty", "");
    place.write("empty/instructions.md", "");
    place.skill("outside", "");
    place.write("secret.md", "x");
    let outside = place.folder.path().join(".forge/skills/outside/instructions.md");
    std::fs::remove_file(&outside).unwrap();
    std::os::unix::fs::symlink("../secret.md", &outside).unwrap();
    place.write("none/readme.md", "x");
    place.write("broken/skill.toml", "[skill\n");
    std::fs::create_dir_all(place.folder.path().join(".forge/skills/binary")).unwrap();
    std::fs::write(place.folder.path().join(".forge/skills/binary/skill.toml"), [0xff, 0xfe]).unwrap();
    place.write("other/skill.toml", RFC);
    std::os::unix::fs::symlink("good", place.folder.path().join(".forge/skills/link")).unwrap();
    place.skill("large", "");
    place.write("large/instructions.md", &"x".repeat(20_001));
    place.skill("huge", "");
    place.write("huge/instructions.md", &"x".repeat(80_001));
    let skills = Skills::new(&place.open()).list().unwrap();
    let found: Vec<_> = skills
        .iter()
        .map(|skill| (skill.name.as_str(), skill.valid, codes(&skill.errors), codes(&skill.warnings)))
        .collect();
    let expected: Vec<(&str, bool, Vec<&str>, Vec<&str>)> = vec![
        ("Bad_Name", false, vec!["name", "name"], vec![]),
        ("binary", false, vec!["manifest"], vec![]),
        ("broken", false, vec!["not_toml"], vec![]),
        ("empty", false, vec!["instructions"], vec![]),
        ("good", true, vec![], vec![]),
        ("huge", false, vec!["instructions_too_large"], vec![]),
        ("large", true, vec![], vec!["instructions_large"]),
        ("link", false, vec!["link"], vec![]),
        ("needs", false, vec!["requires"], vec![]),
        ("none", false, vec!["manifest"], vec![]),
        ("odd", true, vec![], vec!["unknown_table", "chained_absent"]),
        ("one", false, vec!["cycle"], vec![]),
        ("other", false, vec!["name", "missing", "requires"], vec!["missing"]),
        ("outside", false, vec!["outside"], vec![]),
        ("two", false, vec!["cycle"], vec![]),
    ];
    assert_eq!(found, expected);
    let project = place.open();
    assert_eq!(Skills::new(&project).show("huge").unwrap_err().code, "E_TOO_LARGE");
    assert_eq!(Skills::new(&project).show("needs").unwrap_err().code, "E_SKILL_INVALID");
    Skills::new(&project).show("large").unwrap();
}

#[test]
fn without_a_folder_there_is_no_skill() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".forge")).unwrap();
    let project = Project::open(folder.path(), ProjectEnvironment::default()).unwrap().unwrap();
    assert_eq!(Skills::new(&project).list().unwrap(), []);
    assert_eq!(Skills::new(&project).matching(&Query::default()).unwrap(), []);
}

#[test]
fn what_fired_and_what_was_used_is_noted() {
    let place = Fixture::new();
    samples_in(&place);
    let project = place.open();
    let query = Query { text: "implement the parser".to_owned(), ..Query::default() };
    Skills::new(&project).ask(&query, "agent").unwrap();
    Skills::new(&project).ask(&query, "agent").unwrap();
    Skills::new(&project).matching(&query).unwrap();
    let done = Skills::new(&project).activate("code-generation", "person").unwrap();
    assert_eq!(done.plan, ["code-generation", "qa-review"]);
    let stats = Skills::new(&project).stats().unwrap();
    let short: Vec<_> = stats.iter().map(|stat| (stat.skill.as_str(), stat.matched, stat.activated)).collect();
    assert_eq!(
        short,
        [("code-generation", 2, 1), ("git-workflow", 0, 0), ("linear-integration", 0, 0), ("qa-review", 0, 0)]
    );
    assert_eq!(Skills::new(&project).activate("nobody", "person").unwrap_err().category, Category::NotFound);
}

#[test]
fn skill_md_round_trips() {
    let place = Fixture::new();
    let project = place.open();
    let body = "\n# Forms\r\n\nFill them in.\u{e9}\n\n";
    let text = format!("---\nname: pdf-work\ndescription: Fill in forms\ntriggers: [pdf]\n---\n{body}");
    let taken = Skills::new(&project).import(&text).unwrap();
    let files = ["skill.toml", "instructions.md", "front-matter.yaml"];
    assert_eq!(taken.files, files.map(|file| format!(".forge/skills/pdf-work/{file}")));
    let shown = Skills::new(&project).show("pdf-work").unwrap();
    assert_eq!((shown.instructions.as_str(), shown.skill.triggers.keywords), (body, vec!["pdf".to_owned()]));
    let out = Skills::new(&project).export("pdf-work").unwrap();
    assert_eq!(out, text, "the same bytes come back");
    assert_eq!(import(&out).unwrap().instructions, body);
    assert_eq!(Skills::new(&project).import(&text).unwrap_err().code, "E_EXISTS");
    // Killed between its two files, it is done again. A folder that holds anything else is left as it is.
    project.files().remove(".forge/skills/pdf-work/skill.toml").unwrap();
    assert_eq!(Skills::new(&project).import(&text.replace("Fill them", "Burn them")).unwrap_err().code, "E_EXISTS");
    Skills::new(&project).import(&text).unwrap();
    assert_eq!(Skills::new(&project).export("pdf-work").unwrap(), out);
    assert_eq!(Skills::new(&project).import("no front matter").unwrap_err().category, Category::Usage);
    assert_eq!(
        Skills::new(&project).import("---\nname: a\ndescription: d\n---\n \n").unwrap_err().category,
        Category::Usage
    );
}

#[test]
fn triggers_of_other_clients_are_taken_over() {
    let place = Fixture::new();
    samples_in(&place);
    let project = place.open();
    let text = "---\nname: x\ntriggers:\n  - Create\n  - scaffold\npaths: [\"src/**/*.rs\"]\n---\n";
    let synced = Skills::new(&project).sync_triggers("code-generation", text).unwrap();
    assert!(synced.changed);
    assert_eq!(synced.keywords, ["generate", "implement", "add function", "Create", "scaffold"]);
    assert_eq!(synced.file_patterns, ["src/**/*.rs"]);
    assert!(!Skills::new(&project).sync_triggers("code-generation", text).unwrap().changed);
    let bad = "---\npaths: [\"{a\"]\n---\n";
    assert_eq!(Skills::new(&project).sync_triggers("code-generation", bad).unwrap_err().category, Category::Usage);
    let file = place.folder.path().join(".forge/skills/code-generation/skill.toml");
    assert!(std::fs::read_to_string(file).unwrap().contains("# Chain to QA after generation"));
}

#[test]
fn many_skills_are_all_there_in_their_order() {
    let place = Fixture::new();
    let names: Vec<String> = (0..650).map(|number| format!("skill-{number:03}")).collect();
    for name in &names {
        place.skill(name, "");
    }
    std::fs::remove_file(place.folder.path().join(".forge/skills/skill-333/skill.toml")).unwrap();
    let found = scan(place.folder.path()).unwrap();
    assert_eq!(found.iter().map(|skill| &skill.name).collect::<Vec<_>>(), names.iter().collect::<Vec<_>>());
    let invalid: Vec<_> = found.iter().filter(|skill| !skill.valid).map(|skill| skill.name.as_str()).collect();
    assert_eq!(invalid, ["skill-333"]);
}

/// Writes the folder of an Agent Skill outside of the project.
fn agent_skill(folder: &std::path::Path) {
    for (path, text) in [
        ("SKILL.md", "---\nname: pdf-work\ndescription: Fill in forms\n---\nRun scripts/x.py, see references/R.md\n"),
        ("scripts/x.py", "print(1)\n"),
        ("references/R.md", "# R\n"),
        (".DS_Store", "x"),
    ] {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let script = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.join("scripts/x.py"), script).unwrap();
}

#[test]
fn imported_folder_brings_scripts_and_references() {
    let (place, from) = (Fixture::new(), tempfile::tempdir().unwrap());
    let project = place.open();
    agent_skill(from.path());
    let taken = Skills::new(&project).import_path(from.path()).unwrap();
    let files = ["skill.toml", "instructions.md", "front-matter.yaml", "references/R.md", "scripts/x.py"];
    assert_eq!(taken.files, files.map(|file| format!(".forge/skills/pdf-work/{file}")));
    assert_eq!(Skills::new(&project).resource("pdf-work", "scripts/x.py").unwrap(), b"print(1)\n");
    let found: Vec<_> = taken.warnings.iter().map(|warning| warning.message.as_str()).collect();
    assert!(found.iter().any(|found| found.contains(".DS_Store")), "{found:?}");
    assert_eq!(Skills::new(&project).import_path(from.path()).unwrap_err().code, "E_EXISTS");
}

#[test]
fn exported_folder_equals_the_imported_one() {
    let (place, from, to) = (Fixture::new(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let project = place.open();
    agent_skill(from.path());
    Skills::new(&project).import_path(from.path()).unwrap();
    let files = Skills::new(&project).export_to("pdf-work", to.path()).unwrap();
    assert_eq!(files, ["SKILL.md", "references/R.md", "scripts/x.py"]);
    for file in &files {
        let read = |folder: &std::path::Path| std::fs::read(folder.join(file)).unwrap();
        assert_eq!(read(to.path()), read(from.path()), "{file}");
        let is_script = |folder: &std::path::Path| folder.join(file).metadata().unwrap().permissions().mode() & 0o100;
        assert_eq!(is_script(to.path()), is_script(from.path()), "{file}");
        assert_eq!(is_script(to.path()) != 0, file.ends_with(".py"), "{file}");
    }
    assert_eq!(Skills::new(&project).export_to("pdf-work", to.path()).unwrap_err().code, "E_EXISTS");
    // A changed manifest is exported as it is now.
    let changed = "---\ntriggers: [pdf]\n---\n";
    Skills::new(&project).sync_triggers("pdf-work", changed).unwrap();
    assert!(Skills::new(&project).export("pdf-work").unwrap().contains("helmdeck-triggers"));
}

#[test]
fn lone_skill_md_names_files_left_behind() {
    let (place, from) = (Fixture::new(), tempfile::tempdir().unwrap());
    agent_skill(from.path());
    let taken = Skills::new(&place.open()).import_path(&from.path().join("SKILL.md")).unwrap();
    assert_eq!(taken.files.len(), 3);
    let found = &taken.warnings[0].message;
    assert!(found.contains("`references`, `scripts`") && found.contains("import the folder"), "{found}");
}

#[test]
fn imported_folder_with_link_is_refused() {
    let (place, from) = (Fixture::new(), tempfile::tempdir().unwrap());
    let project = place.open();
    agent_skill(from.path());
    std::os::unix::fs::symlink("/etc/hostname", from.path().join("references/link.md")).unwrap();
    assert_eq!(Skills::new(&project).import_path(from.path()).unwrap_err().category, Category::Refused);
    assert!(!project.root().join(".forge/skills/pdf-work").exists());
    std::fs::remove_file(from.path().join("references/link.md")).unwrap();
    std::fs::write(from.path().join("references/large.md"), vec![b'a'; (1 << 20) + 1]).unwrap();
    assert_eq!(Skills::new(&project).import_path(from.path()).unwrap_err().category, Category::Refused);
}
