//! A hostile repository: what its `.forge` says or holds reaches nothing outside of `.forge`.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::fixture::Fixture;

/// Commands that write, each to another kind of file.
const WRITING: &[&[&str]] = &[
    &["session", "start", "--no-probe"],
    &["session", "log", "hello"],
    &["knowledge", "add", "--context", "Links", "--approach", "Follow none"],
    &["features", "add", "A feature", "--test", "adding"],
    &["focus", "set", "work"],
    &["artifact", "put", "src/lib.rs", "--kind", "code"],
    &["doctor", "--fix"],
    &["session", "end"],
];

/// Everything below `.git` but objects, the index and logs of refs, with its content.
fn insides(git: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![git.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(git).unwrap();
            if name.starts_with("objects") || name.starts_with("logs") || name == Path::new("index") {
                continue;
            }
            match path.is_dir() {
                true => folders.push(path),
                false => found.push((name.to_owned(), std::fs::read(&path).unwrap())),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn links_into_git_folder_are_never_followed() {
    for (target, at) in [
        ("../../.git/hooks/post-commit", ".forge/.local/journal.jsonl"),
        ("../../../.git/HEAD", ".forge/memory/short-term/progress.txt"),
        ("../../../.git/packed-refs", ".forge/memory/short-term/progress.txt"),
        ("../../../.git/config", ".forge/memory/short-term/progress.txt"),
        ("../../.git/hooks", ".forge/memory/artifacts"),
        ("../.git/hooks", ".forge/.local"),
    ] {
        let fixture = Fixture::light("");
        let path = fixture.root().join(at);
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, &path).unwrap();
        fixture.git(&["add", "--force", "--all", "."]);
        fixture.git(&["commit", "--quiet", "-m", "A gift"]);
        let victim = fixture.beside("victim");
        fixture.git_in(fixture.root().parent().unwrap(), &["clone", "--quiet", "sums", "victim"]);
        fixture.git_in(&victim, &["pack-refs", "--all"]);
        let hook = victim.join(".git/hooks/post-commit");
        std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
        std::fs::write(&hook, "#!/bin/sh\n: hook\n").unwrap();
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();

        let before = insides(&victim.join(".git"));
        let refused = WRITING.iter().filter(|words| fixture.run_in(&victim, words).code != 0).count();
        assert!(refused > 0, "{at}: nothing was refused");
        let after = insides(&victim.join(".git"));
        // Commands may make refs of their own (`refs/...`); what was there is as it was, and no hook is new.
        for (name, content) in &before {
            assert!(
                after.iter().any(|(other, now)| other == name && now == content),
                "{at}: {} changed",
                name.display()
            );
        }
        for (name, _) in after.iter().filter(|found| !before.iter().any(|(name, _)| *name == found.0)) {
            assert!(!name.starts_with("hooks"), "{at}: {} is new", name.display());
        }
    }
}

#[test]
fn committed_local_folder_is_refused() {
    let fixture = Fixture::light("");
    fixture.write(".forge/.local/journal.jsonl", "{\"somebody\": \"else's\"}\n");
    fixture.git(&["add", "--force", ".forge/.local/journal.jsonl"]);
    fixture.git(&["commit", "--quiet", "-m", "A gift"]);
    let victim = fixture.beside("victim");
    fixture.git_in(fixture.root().parent().unwrap(), &["clone", "--quiet", "sums", "victim"]);
    let ended = fixture.run_in(&victim, &["session", "start", "--no-probe"]);
    assert_ne!(ended.code, 0);
    assert!(ended.stderr.contains("git rm --cached -r .forge/.local"), "{}", ended.stderr);
    let ended = fixture.run_in(&victim, &["doctor"]);
    assert!(ended.stdout.contains("local_tracked") || ended.stderr.contains("local_tracked"), "{}", ended.stdout);
    // The way out that it names works.
    fixture.git_in(&victim, &["rm", "--quiet", "--cached", "-r", ".forge/.local"]);
    std::fs::remove_dir_all(victim.join(".forge/.local")).unwrap();
    let ended = fixture.run_in(&victim, &["session", "start", "--no-probe"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

/// Clones a repository whose settings run a program, and returns the clone.
fn gift(fixture: &Fixture) -> std::path::PathBuf {
    let settings = "[verify]\nrunner = \"sh:touch PWN_runner; echo ran {prefix}\"\ncount_regex = \"ran\"\n\
                    commands = [\"touch PWN_command\"]\n";
    fixture.forge(&["features", "add", "A feature", "--test", "adding"]);
    fixture.forge(&["features", "verify", "FORGE-001"]);
    fixture.forge(&["knowledge", "add", "--invariant", "It holds", "--check", "touch PWN_invariant"]);
    fixture.write(".forge/config.toml", settings);
    fixture.write(".forge/init.sh", "#!/bin/sh\ntouch PWN_init\n");
    fixture.git(&["add", "--all", "."]);
    fixture.git(&["commit", "--quiet", "-m", "A gift"]);
    let victim = fixture.beside("victim");
    fixture.git_in(fixture.root().parent().unwrap(), &["clone", "--quiet", "sums", "victim"]);
    victim
}

fn planted(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("PWN")).collect()
}

#[test]
fn untrusted_clone_runs_nothing() {
    let fixture = Fixture::light("");
    let victim = gift(&fixture);
    let started = fixture.run_in(&victim, &["session", "start", "--bootstrap"]);
    assert_eq!(started.code, 0, "{}", started.stderr);
    assert!(format!("{}{}", started.stdout, started.stderr).contains("helmdeck forge trust"), "{}", started.stdout);
    for words in [
        &["features", "verify", "FORGE-001"][..],
        &["invariants"],
        &["recover", "assess"],
        &["checkpoint", "create", "--key", "SUM-1", "-m", "x"],
    ] {
        let ended = fixture.run_in(&victim, words);
        assert_ne!(ended.code, 0, "{words:?}");
    }
    assert_eq!(planted(&victim), Vec::<String>::new());

    // No person is there to ask, and showing agrees to nothing.
    assert_ne!(fixture.run_in(&victim, &["trust"]).code, 0);
    let shown = fixture.run_in(&victim, &["trust", "--show"]);
    for command in ["touch PWN_runner", "touch PWN_command", "touch PWN_invariant", ".forge/init.sh"] {
        assert!(shown.stdout.contains(command), "{}", shown.stdout);
    }
    assert_eq!(fixture.forge_in(&victim, &["trust", "--show"])["trusted"], false);

    // Once agreed to it runs, until it says something else.
    assert_eq!(fixture.forge_in(&victim, &["trust", "--yes"])["trusted"], true);
    fixture.forge_in(&victim, &["features", "verify", "FORGE-001"]);
    assert_eq!(planted(&victim), ["PWN_runner"]);
    fixture.write(
        ".forge/config.toml",
        "[verify]\nrunner = \"sh:touch PWN_new; echo ran {prefix}\"\ncount_regex = \"ran\"\n",
    );
    fixture.git(&["commit", "--quiet", "--all", "-m", "Another gift"]);
    fixture.git_in(&victim, &["pull", "--quiet", "--no-rebase"]);
    let ended = fixture.run_in(&victim, &["features", "verify", "FORGE-001"]);
    assert_ne!(ended.code, 0, "{}", ended.stdout);
    let state = fixture.forge_in(&victim, &["trust", "--show"]);
    let new: Vec<&str> = state["new"].as_array().unwrap().iter().map(|one| one["for"].as_str().unwrap()).collect();
    assert!(new.contains(&"verify.runner"), "{state}");
    assert_eq!(planted(&victim), ["PWN_runner"]);
    assert_eq!(fixture.forge_in(&victim, &["trust", "--revoke"])["revoked"], true);
}

#[test]
fn trust_survives_own_changes_not_other_clones() {
    let fixture = Fixture::light("");
    fixture.forge(&["knowledge", "add", "--invariant", "It holds", "--check", "true"]);
    assert_eq!(fixture.forge(&["trust", "--show"])["trusted"], true);
    fixture.forge(&["invariants"]);
    // A work tree of the same clone is the same person's.
    let tree = fixture.beside("tree");
    fixture.git(&["add", "--all", "."]);
    fixture.git(&["commit", "--quiet", "-m", "An invariant"]);
    fixture.git(&["worktree", "add", "--quiet", tree.to_str().unwrap()]);
    assert_eq!(fixture.forge_in(&tree, &["trust", "--show"])["trusted"], true);
    fixture.git_in(fixture.root().parent().unwrap(), &["clone", "--quiet", "sums", "other"]);
    assert_eq!(fixture.forge_in(&fixture.beside("other"), &["trust", "--show"])["trusted"], false);
}
