use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::*;
use crate::error::Category;
use crate::features::{Features, FeaturesFile};
use crate::fixture::made;
use crate::init;
use crate::knowledge::KnowledgeFile;
use crate::layout::{FEATURES, FORGE, INIT, KNOWLEDGE_ENTRIES, LOCAL, SCRATCH};

fn git(folder: &Path, args: &[&str]) {
    let output = Command::new("git")
        .args(args)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .envs([
            ("GIT_AUTHOR_NAME", "a"),
            ("GIT_AUTHOR_EMAIL", "a@a"),
            ("GIT_COMMITTER_NAME", "a"),
            ("GIT_COMMITTER_EMAIL", "a@a"),
        ])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn repository() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    git(folder.path(), &["init", "-q", "-b", "main"]);
    folder
}

fn init(folder: &Path, options: &Init) -> (Project, Initialised) {
    init::init(folder, ProjectEnvironment::default(), options).unwrap()
}

/// Returns everything below a folder: contents and modification times.
fn everything(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut all = BTreeMap::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let about = path.symlink_metadata().unwrap();
            // Lock files do not belong to the memory.
            if path.ends_with(".forge/.local") {
                continue;
            }
            let bytes = if about.is_dir() {
                Vec::new()
            } else {
                std::fs::read(&path).unwrap()
            };
            if about.is_dir() {
                todo.push(path.clone());
            }
            all.insert(path, (bytes, about.modified().unwrap()));
        }
    }
    all
}

#[test]
fn new_project_has_the_rfc_tree() {
    use std::os::unix::fs::PermissionsExt;

    let folder = repository();
    let (project, done) = init(folder.path(), &Init::default());
    let forge = folder.path().join(FORGE);
    for path in [
        "memory/long-term/knowledge/",
        "memory/long-term/features/",
        "memory/long-term/architecture.md",
        "memory/short-term/progress.txt",
        "memory/short-term/focus.json",
        "memory/short-term/scratch/",
        "memory/artifacts/code/",
        "memory/artifacts/docs/",
        "memory/artifacts/reports/",
        "linear/active.json",
        "linear/history/",
        "linear/templates/feature.yaml",
        "linear/templates/bug.yaml",
        "git/commits.log",
        "git/branches.json",
        "git/checkpoints/",
        "init.sh",
        "skills/code-generation/SKILL.md",
        "skills/code-generation/templates/module.rs",
        "skills/qa-review/SKILL.md",
        "skills/qa-review/checklists/change.md",
        "skills/linear-integration/SKILL.md",
        "skills/linear-integration/forms/issue.md",
        "skills/git-workflow/SKILL.md",
        "skills/git-workflow/hooks/commit.txt",
        "config.toml",
        ".gitignore",
        ".gitattributes",
        ".local/",
    ] {
        let at = forge.join(path);
        assert!(at.exists() && at.is_dir() == path.ends_with('/'), "{path}");
    }
    assert_eq!(
        std::fs::metadata(forge.join("init.sh"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o755
    );
    assert!(done.created.contains(&KNOWLEDGE_ENTRIES.to_owned()) && done.settings.is_empty());
    assert_eq!(done.offers.len(), 2);
    let doctor = init::doctor(&project, false).unwrap();
    assert!(doctor.healthy, "{doctor:#?}");
    assert!(Config::unknown(include_str!("config.toml")).is_empty());
    let uncommented: String = include_str!("config.toml")
        .lines()
        .map(|line| line.strip_prefix("# ").unwrap_or(line))
        .skip(1)
        .fold(String::new(), |text, line| text + line + "\n");
    assert!(
        Config::unknown(&uncommented).is_empty(),
        "every setting that is shown exists"
    );
    assert!(Config::parse(&uncommented).is_ok());
}

#[test]
fn second_run_changes_nothing() {
    let folder = repository();
    std::fs::create_dir_all(folder.path().join(".forge/memory/long-term")).unwrap();
    let mine = "{\n  \"schema_version\": \"1.0\",\n  \"features\": [],\n  \"mine\": 1\n}\n";
    std::fs::write(folder.path().join(FEATURES), mine).unwrap();
    init(folder.path(), &Init::default());
    assert_eq!(
        std::fs::read_to_string(folder.path().join(FEATURES)).unwrap(),
        mine
    );
    let adopt = Init {
        adopt: true,
        ..Init::default()
    };
    init(folder.path(), &adopt);
    assert_eq!(made::<FeaturesFile>(folder.path()), mine);
    assert!(
        !folder.path().join(FEATURES).exists(),
        "its entries are files now"
    );
    let before = everything(folder.path());
    let (_, done) = init(&folder.path().join(".forge/memory"), &adopt);
    assert!(done.created.is_empty(), "{done:?}");
    assert_eq!(everything(folder.path()), before);
}

#[test]
fn where_the_memory_lies_depends_on_the_repository() {
    let plain = tempfile::tempdir().unwrap();
    let error = init::init(
        plain.path(),
        ProjectEnvironment::default(),
        &Init::default(),
    )
    .unwrap_err();
    assert_eq!(
        (error.code, error.category),
        ("E_NOT_A_REPO", Category::NotFound)
    );
    assert!(!plain.path().join(FORGE).exists());
    let (project, _) = init(
        plain.path(),
        &Init {
            no_git: true,
            ..Init::default()
        },
    );
    assert_eq!(project.git().unwrap_err().code, "E_NOT_A_REPO");
    assert!(!project.config().git.enabled && project.common_lock().is_ok());

    let bare = tempfile::tempdir().unwrap();
    git(bare.path(), &["init", "-q", "--bare"]);
    for no_git in [false, true] {
        let error = init::init(
            bare.path(),
            ProjectEnvironment::default(),
            &Init {
                no_git,
                ..Init::default()
            },
        )
        .unwrap_err();
        assert_eq!(
            (error.code, error.category),
            ("E_BARE_REPO", Category::Refused)
        );
    }

    // A work tree may be inside a bare repository.
    let holder = repository();
    git(
        holder.path(),
        &["commit", "-q", "--allow-empty", "-m", "begin"],
    );
    git(
        bare.path(),
        &[
            "fetch",
            "-q",
            holder.path().to_str().unwrap(),
            "HEAD:refs/heads/main",
        ],
    );
    git(bare.path(), &["worktree", "add", "-q", "main", "main"]);
    let (inside, _) = init(&bare.path().join("main"), &Init::default());
    assert_eq!(
        inside.root(),
        bare.path().join("main").canonicalize().unwrap()
    );

    let folder = repository();
    let root = folder.path().canonicalize().unwrap();
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    assert_eq!(init(&root.join("a/b"), &Init::default()).0.root(), root);
    let (here, done) = init(
        &root.join("a/b"),
        &Init {
            here: true,
            ..Init::default()
        },
    );
    assert_eq!(
        (here.root(), done.root.as_path()),
        (root.join("a/b").as_path(), root.join("a/b").as_path())
    );
    assert!(root.join("a/b/.forge/init.sh").is_file());

    git(&root, &["add", "-A"]);
    git(&root, &["commit", "-qm", "memory"]);
    let other = tempfile::tempdir().unwrap();
    let two = other.path().join("two");
    git(&root, &["worktree", "add", "-q", two.to_str().unwrap()]);
    let (two, done) = init(&two, &Init::default());
    assert!(
        done.created.contains(&crate::layout::PROGRESS.to_owned())
            && !done.created.contains(&KNOWLEDGE_ENTRIES.to_owned()),
        "{done:?}"
    );
    let guard = two.common_lock().unwrap();
    assert!(
        root.join(".git/forge/lock").is_file(),
        "shared with the other work tree"
    );
    drop(guard);
}

#[test]
fn git_ignores_files_of_one_clone() {
    let folder = repository();
    let (project, _) = init(folder.path(), &Init::default());
    project
        .files()
        .write(
            ".forge/memory/short-term/sessions/2025-12-24-session-001/progress.txt",
            b"a\n",
        )
        .unwrap();
    project
        .files()
        .write(".forge/linear/outbox.jsonl", b"{}\n")
        .unwrap();
    git(folder.path(), &["add", "-A"]);
    let output = Command::new("git")
        .args(["ls-files"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let tracked = String::from_utf8(output.stdout).unwrap();
    let tracked: Vec<&str> = tracked.lines().collect();
    for path in [
        ".forge/memory/long-term/features/.gitkeep",
        ".forge/memory/long-term/knowledge/.gitkeep",
        INIT,
        ".forge/.gitignore",
        ".forge/memory/short-term/sessions/2025-12-24-session-001/progress.txt",
    ] {
        assert!(tracked.contains(&path), "{path} is not in {tracked:?}");
    }
    for part in [
        ".local",
        "focus.json",
        "short-term/progress.txt",
        "scratch",
        "commits.log",
        "branches.json",
        "outbox",
    ] {
        assert!(
            !tracked.iter().any(|path| path.contains(part)),
            "{part} is in {tracked:?}"
        );
    }
    let attributes = |path: &str| {
        let output = Command::new("git")
            .args(["check-attr", "merge", "text", "--", path])
            .current_dir(folder.path())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(attributes(&format!("{KNOWLEDGE_ENTRIES}/a.json")).contains("merge: forge-json"));
    assert!(attributes(".forge/linear/active.json").contains("merge: forge-json"));
    assert!(
        attributes(".forge/memory/short-term/sessions/a/progress.txt").contains("merge: union")
    );
    assert!(
        attributes(".forge/memory/short-term/sessions/a/session.json")
            .contains("merge: forge-json")
    );
    assert!(attributes(".forge/memory/artifacts/code/a.rs").contains("text: unset"));
}

#[test]
fn repository_settings_are_set_on_request_only() {
    let folder = repository();
    let (project, done) = init(folder.path(), &Init::default());
    let setting = |project: &Project, name| project.git().unwrap().setting(name).unwrap();
    assert_eq!(setting(&project, "commit.cleanup"), None);
    assert_eq!(
        done.offers
            .iter()
            .map(|offer| offer.option)
            .collect::<Vec<_>>(),
        ["--scissors", "--merge-driver"]
    );
    let (project, done) = init(
        folder.path(),
        &Init {
            scissors: true,
            merge_driver: true,
            ..Init::default()
        },
    );
    assert_eq!(done.settings.len(), 2);
    assert_eq!(
        setting(&project, "commit.cleanup").as_deref(),
        Some("scissors")
    );
    assert!(
        setting(&project, "merge.forge-json.driver")
            .unwrap()
            .contains("%O %A %B")
    );
    let (_, done) = init(folder.path(), &Init::default());
    assert!(done.offers.is_empty() && done.settings.is_empty());
}

#[test]
fn adopted_features_are_never_passing() {
    let folder = repository();
    let put = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put(
        "feature_list.json",
        r#"[{"category":"functional","description":"New chat works","steps":["Open","Click"],"passes":true},
            {"category":"style","description":"Dark mode","steps":[],"passes":false}]"#,
    );
    put(
        "claude-progress.txt",
        "Session 1: made the chat\n[10:00] not a real entry of ours\n",
    );
    put(
        ".beads/issues.jsonl",
        "{\"id\":\"bd-1\",\"title\":\"Export\",\"status\":\"closed\",\"issue_type\":\"feature\"}\n\
         {\"id\":\"bd-2\",\"title\":\"Tidy\",\"status\":\"closed\",\"issue_type\":\"chore\"}\nbroken\n\
         {\"id\":\"bd-3\",\"title\":\"Import\",\"status\":\"open\",\"issue_type\":\"feature\"}\n",
    );
    let token = format!("{}{}", concat!("gh", "p_"), "aB3".repeat(12));
    put(
        "MEMORY.md",
        &format!(
            "# Notes\n- Always run the linter first\n- the token {token}\n```\n- not a note at all\n```\n"
        ),
    );
    let (project, done) = init(
        folder.path(),
        &Init {
            adopt: true,
            ..Init::default()
        },
    );
    let adopted = done.adopted.unwrap();
    assert_eq!(adopted.features, ["ADOPTED-001", "ADOPTED-002"]);
    assert_eq!(adopted.issues, ["LOCAL-1", "LOCAL-2", "LOCAL-3"]);
    let features = made::<FeaturesFile>(folder.path());
    assert!(!features.contains("passing"), "{features}");
    assert_eq!(features.matches("\"failing\"").count(), 1);
    assert_eq!(adopted.proposals.len(), 1);
    assert_eq!(adopted.proposals[0].text, "Always run the linter first");
    assert_eq!(adopted.progress.len(), 1);
    assert_eq!(adopted.skipped.len(), 2, "{:?}", adopted.skipped);
    assert!(!format!("{:?}", adopted.skipped).contains("aB3"));
    assert!(
        !std::fs::read_to_string(folder.path().join(SCRATCH).join("proposals.md"))
            .unwrap()
            .contains("aB3")
    );
    assert!(
        made::<KnowledgeFile>(folder.path()).len() < 200,
        "nothing is learned from notes"
    );
    assert!(init::doctor(&project, false).unwrap().healthy);
    let before = everything(folder.path());
    let (_, again) = init(
        folder.path(),
        &Init {
            adopt: true,
            ..Init::default()
        },
    );
    assert!(again.adopted.unwrap().features.is_empty());
    assert_eq!(everything(folder.path()), before);
}

#[test]
fn removed_adopted_features_stay_removed() {
    let folder = repository();
    let list = |names: &[&str]| {
        let items: Vec<String> = names
            .iter()
            .map(|name| format!(r#"{{"description":"{name}"}}"#))
            .collect();
        std::fs::write(
            folder.path().join("feature_list.json"),
            format!("[{}]", items.join(",")),
        )
        .unwrap();
    };
    let adopt = || {
        init(
            folder.path(),
            &Init {
                adopt: true,
                ..Init::default()
            },
        )
    };
    let ids = |done: Initialised| done.adopted.unwrap().features;
    list(&["One", "Two", "Three"]);
    let (project, done) = adopt();
    assert_eq!(ids(done), ["ADOPTED-001", "ADOPTED-002", "ADOPTED-003"]);
    Features::new(&project)
        .remove("ADOPTED-003", None, None)
        .unwrap();
    assert!(ids(adopt().1).is_empty());
    list(&["One", "Two", "Three", "Four"]);
    assert_eq!(ids(adopt().1), ["ADOPTED-004"], "no number is given again");
    Features::new(&project).list().unwrap();

    // Another work tree of the repository does not reuse a number that was assigned here.
    git(folder.path(), &["add", "-A"]);
    git(folder.path(), &["commit", "-qm", "memory"]);
    list(&["One", "Two", "Three", "Four", "Five"]);
    assert_eq!(ids(adopt().1), ["ADOPTED-005"]);
    let other = tempfile::tempdir().unwrap();
    let tree = other.path().join("tree");
    git(
        folder.path(),
        &["worktree", "add", "-q", tree.to_str().unwrap()],
    );
    std::fs::write(tree.join("feature_list.json"), r#"[{"description":"Six"}]"#).unwrap();
    assert_eq!(
        ids(init(
            &tree,
            &Init {
                adopt: true,
                ..Init::default()
            }
        )
        .1),
        ["ADOPTED-006"]
    );
}

#[test]
fn nothing_is_taken_over_into_a_damaged_file() {
    let folder = repository();
    init(folder.path(), &Init::default());
    std::fs::write(
        folder.path().join("feature_list.json"),
        r#"[{"description":"One"}]"#,
    )
    .unwrap();
    let damaged = r#"{"schema_version":"1.0","features":[{"id":"A-001","name":"n","status":"failing","blocked_by":"A-002"}]}"#;
    std::fs::write(folder.path().join(FEATURES), damaged).unwrap();
    let options = Init {
        adopt: true,
        ..Init::default()
    };
    let error = init::init(folder.path(), ProjectEnvironment::default(), &options).unwrap_err();
    assert_eq!(error.category, Category::Corrupt);
    assert_eq!(
        std::fs::read_to_string(folder.path().join(FEATURES)).unwrap(),
        damaged
    );
}

/// The file for which git keeps the folder of knowledge.
const KEPT: &str = ".forge/memory/long-term/knowledge/.gitkeep";

#[test]
fn doctor_creates_missing_files_only() {
    use std::os::unix::fs::PermissionsExt;

    let folder = repository();
    let (project, _) = init(folder.path(), &Init::default());
    std::fs::remove_file(folder.path().join(KEPT)).unwrap();
    std::fs::remove_dir(folder.path().join(SCRATCH)).unwrap();
    std::fs::write(folder.path().join(".forge/linear/notes.txt"), "mine").unwrap();
    std::fs::write(folder.path().join(FEATURES), "{").unwrap();
    std::fs::set_permissions(
        folder.path().join(INIT),
        std::fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    let before = everything(folder.path());
    let doctor = init::doctor(&project, false).unwrap();
    let seen: Vec<_> = doctor
        .found
        .iter()
        .map(|found| (found.path.as_str(), found.problem))
        .collect();
    assert_eq!(
        seen,
        [
            (INIT, Problem::WrongMode),
            (".forge/linear/notes.txt", Problem::Unexpected),
            (FEATURES, Problem::Damaged),
            (KEPT, Problem::Missing),
            (SCRATCH, Problem::NotYet),
        ]
    );
    assert_eq!(everything(folder.path()), before);
    let fixed = init::doctor(&project, true).unwrap();
    assert!(!fixed.healthy);
    assert_eq!(fixed.found.iter().filter(|found| found.fixed).count(), 2);
    assert!(folder.path().join(KEPT).is_file() && folder.path().join(SCRATCH).is_dir());
    assert_eq!(std::fs::read(folder.path().join(FEATURES)).unwrap(), b"{");
    assert_eq!(init::doctor(&project, false).unwrap().found.len(), 3);
}

#[test]
fn the_bootstrap_script_is_valid_and_starts_nothing() {
    let folder = repository();
    init(folder.path(), &Init::default());
    let run = |args: &[&str]| {
        Command::new("sh")
            .args(args)
            .arg(folder.path().join(INIT))
            .output()
            .unwrap()
    };
    assert!(run(&["-n"]).status.success());
    assert!(
        run(&[]).status.success(),
        "without anything to set up it does nothing"
    );
}

#[test]
fn fresh_clone_is_healthy_and_names_the_start() {
    let folder = repository();
    init(folder.path(), &Init::default());
    git(folder.path(), &["add", "-A"]);
    git(folder.path(), &["commit", "-q", "-m", "begin"]);
    let clones = tempfile::tempdir().unwrap();
    git(
        clones.path(),
        &["clone", "-q", folder.path().to_str().unwrap(), "clone"],
    );
    let clone = clones.path().join("clone");
    git(&clone, &["config", "merge.forge-json.driver", "true"]);
    let doctor = || {
        init::doctor(
            &Project::open(&clone, ProjectEnvironment::default())
                .unwrap()
                .unwrap(),
            false,
        )
        .unwrap()
    };
    let [local] = &doctor().found[..] else {
        panic!("{:#?}", doctor())
    };
    assert!(
        doctor().healthy && local.path == LOCAL && local.problem == Problem::NotYet,
        "{local:?}"
    );
    assert_eq!(local.next.as_deref(), Some("helmdeck forge session start"));
    std::fs::remove_file(clone.join(KEPT)).unwrap();
    assert!(
        !doctor().healthy,
        "what is part of every project is missed all the same"
    );
}

#[test]
fn secrets_are_adopted_only_if_allowed() {
    let folder = repository();
    let token = format!("{}{}", concat!("gh", "p_"), "a1B2".repeat(9));
    let list = format!("[{{\"description\":\"uses {token}\",\"passes\":false}}]");
    std::fs::write(folder.path().join("feature_list.json"), list).unwrap();
    std::fs::write(
        folder.path().join("MEMORY.md"),
        format!("- the token of tests is {token}\n"),
    )
    .unwrap();
    let adopts = |rules: &[&str]| {
        let allow_secrets = rules.iter().map(|rule| (*rule).to_owned()).collect();
        let (_, done) = init(
            folder.path(),
            &Init {
                adopt: true,
                allow_secrets,
                ..Init::default()
            },
        );
        done.adopted.unwrap()
    };
    let adopted = adopts(&["jwt"]);
    assert_eq!(
        (
            adopted.features.len(),
            adopted.proposals.len(),
            adopted.skipped.len()
        ),
        (0, 0, 2),
        "{adopted:?}"
    );
    let adopted = adopts(&["github-token"]);
    assert_eq!(
        (
            adopted.features.len(),
            adopted.proposals.len(),
            adopted.skipped.len()
        ),
        (1, 1, 0),
        "{adopted:?}"
    );
    let log = std::fs::read_to_string(folder.path().join(crate::layout::EXCEPTIONS)).unwrap();
    assert!(
        log.contains("github-token") && !log.contains("a1B2"),
        "{log}"
    );
}
