//! Tests that `helmdeck run` serves no answer older than its pack allows.
//!
//! They cover renewals, edits, long tags and sessions.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::support::program::Home;
use crate::support::{KEY, wait_for};

/// A program that counts its runs.
///
/// From the second one on it waits until there is a file `go` in its folder.
const COUNTS: &str = "#!/bin/sh\nn=$(($(cat count 2>/dev/null || echo 0) + 1))\necho $n > count\n\
                      while [ $n -gt 1 ] && [ ! -e go ]; do sleep 0.02; done\necho \"{\\\"n\\\":$n}\"\n";

/// A home with a pack whose answers are stale at once, and may be served stale for an hour.
fn stale_home() -> Home {
    let home = Home::new();
    home.install("test.stale", COUNTS, "stale_while_revalidate = \"1h\"");
    let manifest = home.packs().join("test.stale.toml");
    let text = std::fs::read_to_string(&manifest)
        .unwrap()
        .replace("ttl = \"1h\"", "ttl = \"1ms\"");
    std::fs::write(manifest, text).unwrap();
    assert_eq!(home.call(KEY, &["test.stale"]).0, "miss");
    home
}

/// Starts a run, and returns it with the outcome that it printed.
fn started(home: &Home) -> (std::process::Child, Value) {
    let mut run = home
        .command(KEY, &["run", "test.stale", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(run.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    (run, serde_json::from_str(&line).unwrap())
}

#[test]
fn run_prints_stale_answer_then_finishes_the_renewal() {
    let home = stale_home();
    let (mut run, outcome) = started(&home);
    assert_eq!(
        (&outcome["cache"]["status"], &outcome["output"]["n"]),
        (&"stale".into(), &1.into())
    );
    assert!(
        run.try_wait().unwrap().is_none(),
        "the renewal waits for its file"
    );
    std::fs::write(home.packs().join("go"), "").unwrap();
    assert!(run.wait().unwrap().success());
    let (status, output) = home.call(KEY, &["test.stale"]);
    assert_eq!(
        (status.as_str(), &output["n"]),
        ("stale", &2.into()),
        "what the second run renewed"
    );
}

#[test]
fn interrupt_ends_a_run_that_renews() {
    let home = stale_home();
    let (mut run, _) = started(&home);
    wait_for("the renewal to begin", || {
        std::fs::read_to_string(home.packs().join("count")).unwrap() == "2\n"
    });
    let kill = std::process::Command::new("kill")
        .args(["-INT", &run.id().to_string()])
        .status()
        .unwrap();
    assert!(kill.success());
    assert!(!run.wait().unwrap().success());
}

#[test]
fn edited_tree_is_mapped_anew_at_once() {
    let home = Home::new();
    let folder = home.packs().join("tree");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("a.py"), "def alpha():\n    pass\n").unwrap();
    let path = format!("path={}", folder.display());
    let map = || home.call(KEY, &["repo.map", &path]);
    assert_eq!([map().0, map().0], ["miss", "revalidated"]);
    std::fs::write(
        folder.join("a.py"),
        "def alpha():\n    pass\n\n\ndef beta():\n    pass\n",
    )
    .unwrap();
    let (status, output) = map();
    assert_eq!(status, "miss");
    assert!(output["map"].as_str().unwrap().contains("beta"), "{output}");
    assert_eq!(map().0, "revalidated");
}

#[test]
fn long_tag_is_stored_and_purged_from_the_shell() {
    let home = Home::new();
    home.install(
        "test.long",
        "#!/bin/sh\necho '{}'\n",
        "tags = [\"svc:{repo}\"]",
    );
    let repo = "R".repeat(300);
    let call = || home.call(KEY, &["test.long", &format!("repo={repo}")]).0;
    assert_eq!([call(), call()], ["miss", "hit"]);
    let purged = home.run(
        KEY,
        &["cache", "purge", "--tag", &format!("svc:{repo}"), "--yes"],
    );
    assert_eq!(purged.code, 0, "{}", purged.stderr);
    assert_eq!(call(), "miss");
}

#[test]
fn run_without_session_says_why_nothing_is_cached() {
    let home = Home::new();
    home.install(
        "test.session",
        "#!/bin/sh\necho '{}'\n",
        "scope = \"session\"",
    );
    for _ in 0..2 {
        let run = home.run(KEY, &["run", "test.session"]);
        assert!(
            run.stderr.contains("cache bypass (no session)"),
            "{}",
            run.stderr
        );
    }
    let explained = home.run(KEY, &["cache", "explain", "test.session"]);
    assert!(
        explained.code != 0 && explained.stderr.contains("--session"),
        "{}",
        explained.stderr
    );
    let call = |session: &str| home.call(KEY, &["test.session", "--session", session]).0;
    assert_eq!([call("a"), call("a"), call("b")], ["miss", "hit", "miss"]);
}

#[test]
fn pack_check_warns_about_a_tag_that_may_lack_its_value() {
    let home = Home::new();
    home.install("test.write", "#!/bin/sh\necho '{}'\n", "");
    let manifest = home.packs().join("test.write.toml");
    let text = std::fs::read_to_string(&manifest)
        .unwrap()
        .replace("read_only = true\n", "");
    let (head, _) = text.split_once("[memory]").unwrap();
    for (tag, warns) in [
        ("svc:{repo}", true),
        ("svc:{repo|all}", false),
        ("svc:all", false),
    ] {
        std::fs::write(
            &manifest,
            format!("{head}[memory]\ninvalidates = [\"{tag}\"]\n"),
        )
        .unwrap();
        let check = home.run(KEY, &["pack", "check"]);
        assert_eq!(
            (check.code, check.stderr.contains("warning: invalidates")),
            (0, warns),
            "{tag}: {}",
            check.stderr
        );
    }
}
