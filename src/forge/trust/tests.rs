use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::environment::ProjectEnvironment;
use crate::features::{self, Features};
use crate::git::fixture::{Repository, run_at};
use crate::runner::{self, Line};

const LONG: Duration = Duration::from_secs(60);

fn open(root: &Path, folder: &Path) -> Project {
    let environment = ProjectEnvironment {
        trust: Trust::Kept(folder.to_owned()),
        ..ProjectEnvironment::default()
    };
    Project::open(root, environment).unwrap().unwrap()
}

fn is_trusted(root: &Path, folder: &Path) -> bool {
    let project = open(root, folder);
    let trusted = state(&project).unwrap().trusted;
    assert_eq!(check(&project).is_ok(), trusted);
    trusted
}

/// A repository with a commit, and the folder of the records.
struct Fixture {
    repository: Repository,
    kept: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let repository = Repository::new();
        drop(repository.project());
        repository.write("t.sh", "echo one\n");
        repository.write(
            ".forge/config.toml",
            "[verify]\nrunner = \"true {prefix}\"\ncommands = [\"sh t.sh\"]\n",
        );
        repository.commit("Begin");
        Self {
            repository,
            kept: tempfile::tempdir().unwrap(),
        }
    }

    fn agreed() -> Self {
        let fixture = Self::new();
        fixture.agree(fixture.root());
        fixture
    }

    fn root(&self) -> &Path {
        self.repository.path()
    }

    fn agree(&self, root: &Path) {
        let project = open(root, self.kept.path());
        agree(&project, &state(&project).unwrap()).unwrap();
        assert!(self.is_trusted(root));
    }

    fn is_trusted(&self, root: &Path) -> bool {
        is_trusted(root, self.kept.path())
    }

    fn state(&self) -> TrustState {
        state(&open(self.root(), self.kept.path())).unwrap()
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.kept.path().join(name)
    }
}

/// Copies a folder as `cp -a` does.
fn copy(from: &Path, to: &Path) {
    let done = std::process::Command::new("cp")
        .arg("-a")
        .arg(from)
        .arg(to)
        .status()
        .unwrap();
    assert!(done.success());
}

#[test]
fn trust_is_for_commands_that_were_shown() {
    let fixture = Fixture::new();
    let project = open(fixture.root(), fixture.kept.path());
    let refused = runner::check(&project, Line::Project("touch ran", None), LONG).unwrap_err();
    assert_eq!(
        (refused.code, refused.category),
        ("E_UNTRUSTED", Category::Refused)
    );
    let before = fixture.state();
    assert!(
        !before.trusted && before.new == before.commands && before.changed.is_empty(),
        "{before:?}"
    );
    fixture.agree(fixture.root());

    // Part of a trusted clone or not: what nobody saw does not run.
    for line in [
        "touch ran",
        "sh:touch ran",
        "sh t.sh x",
        "sh ./t.sh",
        "true",
        "true {prefix} {prefix}",
    ] {
        let error = runner::check(&project, Line::Project(line, None), LONG).unwrap_err();
        assert!(
            error.code == "E_UNTRUSTED" && error.message.contains("is new"),
            "{line}: {error}"
        );
    }
    assert!(!fixture.root().join("ran").exists());
    for line in [
        Line::Project("sh t.sh", None),
        Line::Project("true {prefix}", Some("a b")),
        Line::Caller("true"),
    ] {
        assert!(
            runner::check(&project, line, LONG).unwrap().passed(),
            "{line:?}"
        );
    }

    // A new command needs a new agreement; the earlier ones stay trusted.
    let config = fs::read(fixture.root().join(".forge/config.toml")).unwrap();
    fixture
        .repository
        .write(".forge/config.toml", "[verify]\nrunner = \"sh:id\"\n");
    let changed = fixture.state();
    assert_eq!(
        (changed.trusted, changed.new.len()),
        (false, 3),
        "{changed:?}"
    );
    assert!(
        changed
            .changed
            .iter()
            .any(|change| change == "`sh -c id` is new"),
        "{changed:?}"
    );
    fixture.repository.write(".forge/config.toml", config);
    assert!(fixture.state().trusted);

    assert!(revoke(&project).unwrap());
    assert!(!fixture.state().trusted && !revoke(&project).unwrap());
}

#[test]
fn changed_files_of_a_command_ask_again() {
    let fixture = Fixture::agreed();
    fixture.repository.write("other.sh", "echo\n");
    assert!(fixture.state().trusted, "no command names it");
    fixture.repository.write("t.sh", "echo two\n");
    let state = fixture.state();
    assert_eq!(state.changed, ["t.sh, which `sh t.sh` names, changed"]);
    let project = open(fixture.root(), fixture.kept.path());
    let refused = runner::check(&project, Line::Project("sh t.sh", None), LONG).unwrap_err();
    assert!(refused.message.contains("t.sh, which"), "{refused}");
    fixture.repository.write("t.sh", "echo one\n");
    assert!(fixture.state().trusted, "it is as it was");
    fs::remove_file(fixture.root().join("t.sh")).unwrap();
    assert_eq!(
        fixture.state().changed,
        ["a file that `sh t.sh` named is gone"]
    );
    symlink("/bin/true", fixture.root().join("t.sh")).unwrap();
    assert!(
        !fixture.state().trusted,
        "a link is trusted by what it leads to"
    );
}

#[test]
fn files_are_found_in_every_form_of_a_command() {
    let fixture = Fixture::new();
    for path in ["run.sh", "web/run.sh", "a b.sh", "Makefile", "x=y"] {
        fixture.repository.write(path, path);
    }
    for (line, named) in [
        ("sh run.sh", vec!["run.sh"]),
        ("./run.sh {prefix}", vec!["./run.sh"]),
        ("sh 'a b.sh'", vec!["a b.sh"]),
        ("make --file=Makefile", vec!["Makefile"]),
        ("run.sh", vec![]),
        ("sh:./run.sh; exit", vec!["./run.sh"]),
        ("sh:. run.sh && (sh \"run.sh\")", vec!["run.sh"]),
        ("sh:cd web && ./run.sh", vec!["web/./run.sh"]),
        ("sh:exec sh<run.sh>out", vec!["run.sh"]),
        ("sh web", vec![]),
        ("/bin/sh -c true", vec![]),
        ("sh absent.sh", vec![]),
        ("sh 'x=y'", vec!["x=y"]),
    ] {
        let found = wanted::command(fixture.root(), "", line).unwrap();
        for name in named {
            assert!(found.files.contains_key(name), "{line}: {found:?}");
        }
        let before = found.files.clone();
        if let Some(first) = before.keys().next() {
            fs::write(fixture.root().join(first), format!("changed for {line}")).unwrap();
            let now = wanted::command(fixture.root(), "", line).unwrap();
            assert!(
                now.command == found.command && now.files != before,
                "{line}"
            );
        } else {
            assert!(!line.contains("./") && !line.contains("cd "), "{line}");
        }
    }
    // What a line only reads changes with the work.
    fixture.repository.write("notes.txt", "one");
    for line in [
        "sh:grep -q {prefix} notes.txt && echo ran",
        "sh:test -e notes.txt",
        "sh:cat <notes.txt",
    ] {
        assert_eq!(
            wanted::command(fixture.root(), "", line)
                .unwrap()
                .files
                .len(),
            0,
            "{line}"
        );
    }
    for line in [
        "sh:sh notes.txt",
        "sh notes.txt",
        "sh:. notes.txt",
        "sh:cd . && sh notes.txt",
        "make --file=notes.txt",
    ] {
        let found = wanted::command(fixture.root(), "", line).unwrap();
        assert!(found.files.contains_key("notes.txt"), "{line}: {found:?}");
    }
    let absolute = format!("sh {}/run.sh", fixture.root().display());
    assert_eq!(
        wanted::command(fixture.root(), "", &absolute)
            .unwrap()
            .files
            .len(),
        1
    );
}

#[test]
fn init_script_and_built_in_runners_are_shown() {
    let fixture = Fixture::agreed();
    fixture
        .repository
        .write(".forge/init.sh", "#!/bin/sh\nid\n");
    let state = fixture.state();
    assert_eq!((state.trusted, state.new.len()), (false, 1));
    assert!(
        state.new[0].purpose == ".forge/init.sh"
            && state.new[0].files.contains_key(".forge/init.sh"),
        "{state:?}"
    );
    fs::remove_file(fixture.root().join(".forge/init.sh")).unwrap();

    for (name, word) in [
        ("cargo", "cargo test {prefix}"),
        ("pytest", "pytest {prefix}"),
        ("go", "go test ./... -json -run {prefix}"),
        ("node", "node --test {prefix}"),
        ("npm", "npm test -- {prefix}"),
        ("pnpm", "pnpm test {prefix}"),
        ("yarn", "yarn test {prefix}"),
        ("bun", "bun test {prefix}"),
    ] {
        let fixture = Fixture::agreed();
        let features = format!(
            "{{\"schema_version\": \"1.0\", \"features\": [{{\"id\": \"A-001\", \"name\": \"a\", \"status\": \"failing\", \"tests\": [\"{name}:unit\"]}}]}}"
        );
        fixture
            .repository
            .write(".forge/memory/long-term/features.json", features);
        let state = fixture.state();
        assert_eq!(
            (state.trusted, state.new.len()),
            (false, 1),
            "{name}: {state:?}"
        );
        let shown = word.replace("{prefix}", "'{prefix}'");
        let (purpose, command) = (
            format!("built-in runner {name}"),
            state.new[0].command.clone(),
        );
        assert_eq!(
            (state.new[0].purpose.as_str(), command.replace('\'', "")),
            (&*purpose, shown.replace('\'', ""))
        );
        let project = open(fixture.root(), fixture.kept.path());
        assert_eq!(
            Features::new(&project).verify("A-001").unwrap_err().code,
            "E_UNTRUSTED",
            "{name}"
        );
        let refused = runner::check(&project, Line::Project(word, Some("unit")), LONG).unwrap_err();
        assert_eq!(refused.code, "E_UNTRUSTED", "{name}");
        // Once it is agreed to, it is looked up like every other; whether the program is installed
        // is another matter.
        fixture.agree(fixture.root());
        let project = open(fixture.root(), fixture.kept.path());
        super::check_command(&project, word).unwrap();
    }
}

#[test]
fn own_changes_of_a_trusted_clone_stay_trusted() {
    let fixture = Fixture::agreed();
    let project = open(fixture.root(), fixture.kept.path());
    let add = features::Add {
        name: "One".into(),
        tests: vec!["npm:unit".into()],
        ..features::Add::default()
    };
    Features::new(&project).add(&add, None).unwrap();
    assert!(fixture.state().trusted);
    crate::init::set_check(&project, "make check").unwrap();
    let state = fixture.state();
    assert!(
        state.trusted && state.commands.iter().any(|one| one.command == "make check"),
        "{state:?}"
    );
    // Those of a clone that is not trusted make it no more trusted.
    revoke(&project).unwrap();
    let add = features::Add {
        name: "Two".into(),
        tests: vec!["go:Unit".into()],
        ..features::Add::default()
    };
    Features::new(&project).add(&add, None).unwrap();
    assert!(!fixture.state().trusted);
}

#[test]
fn every_setting_that_is_not_harmless_asks_again() {
    let known = toml::Table::try_from(crate::config::Config::default()).unwrap();
    let mut names: Vec<String> = [
        "events.use",
        "tracker.use",
        "linear.team",
        "linear.me",
        "github.repository",
        "github.prefix",
    ]
    .map(str::to_owned)
    .to_vec();
    names.extend(
        [
            "git.base",
            "linear.states.Open",
            "later.a",
            "git.later",
            "verify.later",
            "verify.runners.x.later",
        ]
        .map(str::to_owned),
    );
    names.extend(known.iter().flat_map(|(table, all)| {
        all.as_table()
            .into_iter()
            .flat_map(|all| all.keys())
            .map(move |name| format!("{table}.{name}"))
    }));
    let mut table = toml::Table::new();
    for name in &names {
        let parts: Vec<&str> = name.split('.').collect();
        let (last, tables) = parts.split_last().unwrap();
        let at = tables.iter().fold(&mut table, |table, part| {
            let inner = table
                .entry(*part)
                .or_insert_with(|| toml::Table::new().into());
            inner.as_table_mut().unwrap()
        });
        at.entry(*last).or_insert_with(|| "x".into());
    }
    let mut found = std::collections::BTreeSet::new();
    let config = crate::config::Config {
        raw: table,
        ..crate::config::Config::default()
    };
    let fixture = Fixture::new();
    found.extend(wanted::all(&open(fixture.root(), fixture.kept.path()), &config).unwrap());
    let shown: Vec<&str> = found
        .iter()
        .filter(|one| one.purpose == SETTING)
        .map(|one| one.command.split(" = ").next().unwrap())
        .collect();
    for name in &names {
        let harmless = [
            "files.",
            "health.",
            "artifacts.",
            "session.",
            "recovery.files",
            "recovery.lines",
            "recovery.commits",
            "verify.runner",
            "verify.commands",
            "verify.count_regex",
            "verify.timeout_s",
            "verify.invariant_timeout_s",
            "git.enabled",
            "git.timeout_s",
            "linear.me",
        ];
        let is_table = names
            .iter()
            .any(|other| other.starts_with(&format!("{name}.")));
        let expected = !is_table
            && (name.ends_with(".later") || !harmless.iter().any(|one| name.starts_with(one)));
        assert_eq!(
            shown.contains(&name.as_str()),
            expected,
            "{name}: {shown:?}"
        );
    }
}

#[test]
fn settings_are_agreed_to_by_value() {
    let fixture = Fixture::agreed();
    let config = fs::read_to_string(fixture.root().join(".forge/config.toml")).unwrap();
    fixture.repository.write(
        ".forge/config.toml",
        format!("{config}timeout_s = 5\n[events]\nuse = \"team\"\n"),
    );
    assert_eq!(
        fixture.state().changed,
        ["the setting `events.use = \"team\"` is new"]
    );
    fixture.agree(fixture.root());
    fixture.repository.write(
        ".forge/config.toml",
        format!("{config}[events]\nuse = \"other\"\n"),
    );
    assert!(!fixture.state().trusted);
}

#[test]
fn another_repository_in_the_place_of_a_clone_is_not_trusted() {
    let fixture = Fixture::agreed();
    let (place, hostile) = (fixture.beside("review"), fixture.beside("hostile"));
    for folder in [&place, &hostile] {
        run_at(
            fixture.kept.path(),
            &[
                "clone",
                "--quiet",
                fixture.root().to_str().unwrap(),
                folder.to_str().unwrap(),
            ],
        );
    }
    assert!(
        !fixture.is_trusted(&place),
        "a clone of a trusted clone is another one"
    );
    fixture.agree(&place);
    fs::remove_dir_all(&place).unwrap();
    fs::rename(&hostile, &place).unwrap();
    assert!(!fixture.is_trusted(&place));
}

#[test]
fn moved_clones_and_work_trees_stay_trusted_and_copies_do_not() {
    let fixture = Fixture::agreed();
    let [first, second, copied, tree] =
        ["first", "second", "copied", "tree"].map(|name| fixture.beside(name));
    run_at(
        fixture.kept.path(),
        &[
            "clone",
            "--quiet",
            fixture.root().to_str().unwrap(),
            "first",
        ],
    );
    fixture.agree(&first);
    fs::rename(&first, &second).unwrap();
    assert!(fixture.is_trusted(&second), "it was moved");

    copy(&second, &copied);
    let copy_state = state(&open(&copied, fixture.kept.path())).unwrap();
    assert!(
        !copy_state.trusted && copy_state.changed[0].starts_with("this is a copy of"),
        "{copy_state:?}"
    );
    fixture.agree(&copied);
    assert!(
        fixture.is_trusted(&second) && fixture.is_trusted(&copied),
        "each has an id of its own"
    );

    run_at(
        &second,
        &["worktree", "add", "--quiet", tree.to_str().unwrap()],
    );
    assert!(
        fixture.is_trusted(&tree),
        "a work tree belongs to its repository"
    );
    fs::write(tree.join("t.sh"), "echo other\n").unwrap();
    assert!(
        !fixture.is_trusted(&tree) && fixture.is_trusted(&second),
        "its files are its own"
    );
}

#[test]
fn folders_that_borrow_a_git_folder_are_not_trusted() {
    let fixture = Fixture::agreed();
    let git = fixture.root().join(".git");
    let tree = fixture.beside("tree");
    run_at(
        fixture.root(),
        &["worktree", "add", "--quiet", tree.to_str().unwrap()],
    );
    assert!(fixture.is_trusted(&tree));
    let entry = fs::read_to_string(tree.join(".git")).unwrap();
    type Borrow<'a> = Box<dyn Fn(&Path) + 'a>;
    let ways: [(&str, Borrow<'_>); 6] = [
        ("copied", Box::new(|to| copy(&git, &to.join(".git")))),
        (
            "link",
            Box::new(|to| symlink(&git, to.join(".git")).unwrap()),
        ),
        (
            "file",
            Box::new(|to| {
                fs::write(to.join(".git"), format!("gitdir: {}\n", git.display())).unwrap()
            }),
        ),
        (
            "tree's file",
            Box::new(|to| fs::write(to.join(".git"), &entry).unwrap()),
        ),
        (
            "link to the tree's file",
            Box::new(|to| symlink(tree.join(".git"), to.join(".git")).unwrap()),
        ),
        (
            "own folder that names the common one",
            Box::new(|to| {
                copy(&git, &to.join(".git"));
                fs::write(to.join(".git/commondir"), git.display().to_string()).unwrap();
            }),
        ),
    ];
    for (at, (name, borrow)) in ways.iter().enumerate() {
        let folder = fixture.beside(&format!("hostile{at}"));
        fs::create_dir(&folder).unwrap();
        copy(&fixture.root().join(".forge"), &folder.join(".forge"));
        copy(&fixture.root().join("t.sh"), &folder.join("t.sh"));
        borrow(&folder);
        assert!(!fixture.is_trusted(&folder), "{name}");
        assert!(fixture.is_trusted(fixture.root()), "{name}");
    }
}

#[test]
fn another_history_in_a_trusted_clone_asks_again() {
    let fixture = Fixture::agreed();
    fixture.repository.write("more", "more");
    fixture.repository.commit("More");
    assert!(fixture.state().trusted, "a pull is no other history");
    fixture
        .repository
        .run(&["checkout", "--quiet", "--orphan", "other"]);
    fixture.repository.commit("Begin anew");
    assert_eq!(
        fixture.state().changed,
        ["the history begins with another commit"]
    );
}

#[test]
fn first_commit_of_an_empty_repository_is_bound_when_it_is_made() {
    let fixture = Fixture {
        repository: Repository::new(),
        kept: tempfile::tempdir().unwrap(),
    };
    drop(fixture.repository.project());
    fixture.agree(fixture.root());
    fixture.repository.commit("Begin");
    assert!(fixture.state().trusted);
    fixture
        .repository
        .run(&["checkout", "--quiet", "--orphan", "other"]);
    fixture.repository.commit("Begin anew");
    assert!(!fixture.state().trusted);
}

#[test]
fn projects_without_git_are_trusted_by_their_folder() {
    let (folder, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = folder.path().join("a");
    fs::create_dir_all(root.join(".forge")).unwrap();
    let project = open(&root, kept.path());
    agree(&project, &state(&project).unwrap()).unwrap();
    assert!(is_trusted(&root, kept.path()));
    let (copied, linked) = (folder.path().join("b"), folder.path().join("c"));
    copy(&root, &copied);
    assert!(!is_trusted(&copied, kept.path()));
    fs::create_dir_all(linked.join(".forge")).unwrap();
    symlink(root.join(".forge/.local"), linked.join(".forge/.local")).unwrap();
    assert!(!is_trusted(&linked, kept.path()));
    fs::rename(&root, folder.path().join("d")).unwrap();
    assert!(is_trusted(&folder.path().join("d"), kept.path()));
}

#[test]
fn forged_ids_count_as_none() {
    let fixture = Fixture::agreed();
    let file = fixture.root().join(".git/helmdeck-clone");
    let id = fs::read(&file).unwrap();
    for forged in [
        &b""[..],
        b"x",
        &[b'a'; 31],
        &[b'z'; 32],
        &[b'0'; 32],
        &[0xff; 32],
    ] {
        fs::write(&file, forged).unwrap();
        assert!(!fixture.state().trusted, "{forged:?}");
    }
    fs::write(&file, &id).unwrap();
    assert!(fixture.state().trusted);
    fs::remove_file(&file).unwrap();
    fs::write(&file, &id).unwrap();
    assert!(!fixture.state().trusted, "another file with the same id");
    fs::remove_file(&file).unwrap();
    symlink("HEAD", &file).unwrap();
    fixture.agree(fixture.root());
    assert!(
        fs::read_to_string(fixture.root().join(".git/HEAD"))
            .unwrap()
            .starts_with("ref:"),
        "no link is followed"
    );
}

#[test]
fn concurrent_writes_of_a_record_all_succeed() {
    let kept = tempfile::tempdir().unwrap();
    let (path, record) = (kept.path().join("a.json"), record::Record::default());
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..10).try_for_each(|_| record::write(&path, &record))))
            .collect();
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
    });
    assert_eq!(
        fs::read_dir(kept.path()).unwrap().count(),
        1,
        "nothing is left beside the record"
    );
}

#[test]
fn damaged_records_ask_again() {
    let fixture = Fixture::agreed();
    let path = fs::read_dir(fixture.kept.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    for text in ["{\"clone\": \"/elsewhere\"}", "not json", ""] {
        fs::write(&path, text).unwrap();
        assert!(!fixture.state().trusted, "{text}");
    }
}
