//! The hooks of git that keep the protocol, as git runs them.

use super::fixture::Fixture;

#[test]
fn oversized_or_binary_message_stays_unchanged() {
    let fixture = Fixture::light("");
    fixture.forge(&["session", "start"]);
    let message = fixture.root().join(".git/MESSAGE");
    let prepared = |bytes: &[u8]| {
        std::fs::write(&message, bytes).unwrap();
        fixture.forge(&["hook", "run", "prepare-commit-msg", ".git/MESSAGE"]);
        std::fs::read(&message).unwrap()
    };
    let short = prepared(b"Halve a number\n");
    assert!(
        String::from_utf8(short)
            .unwrap()
            .contains("Forge-Session: ")
    );
    let long = format!(
        "Halve a number\n\n{}\n# what git says\n",
        "words ".repeat(200_000)
    );
    let latin = b"Halve a n\xfcmber\n";
    for whole in [long.as_bytes(), latin] {
        assert!(prepared(whole) == whole, "{} bytes", whole.len());
    }
}

/// Fixture: memory that travels with the work, the hook, and an entry that no commit has.
fn travelling() -> Fixture {
    let fixture = Fixture::light("");
    fixture.forge(&["hook", "install", "pre-commit"]);
    fixture.forge(&[
        "knowledge",
        "add",
        "--context",
        "Rounding",
        "--approach",
        "Test -1",
    ]);
    fixture.write("src/lib.rs", "//! Sums.\n");
    fixture.write("foreign.txt", "not staged\n");
    fixture
}

/// Returns the paths of the last commit, and those that git still reports.
fn committed(fixture: &Fixture) -> (String, String) {
    (
        fixture.git(&["show", "--format=", "--name-only", "HEAD"]),
        fixture.git(&["status", "--porcelain"]),
    )
}

#[test]
fn plain_git_commit_takes_the_memory_along() {
    for arguments in [
        &["commit", "-q", "-a", "-m", "[SUM-1] One"][..],
        &["commit", "-q", "-m", "[SUM-1] One"],
    ] {
        let fixture = travelling();
        if arguments[2] != "-a" {
            fixture.git(&["add", "src/lib.rs"]);
        }
        fixture.git(arguments);
        let (paths, left) = committed(&fixture);
        assert!(
            paths.contains("src/lib.rs") && paths.contains(".forge/memory/long-term/knowledge"),
            "{paths}"
        );
        assert_eq!(left, "?? foreign.txt", "{arguments:?}");
        // An amended commit takes what was learned since.
        fixture.forge(&[
            "knowledge",
            "add",
            "--context",
            "Halving",
            "--approach",
            "Divide",
        ]);
        fixture.git(&["commit", "-q", "--amend", "--no-edit"]);
        assert_eq!(committed(&fixture).1, "?? foreign.txt");
        assert_eq!(
            fixture.git(&["log", "--format=%s"]).lines().next(),
            Some("[SUM-1] One")
        );
    }
}

#[test]
fn commit_of_paths_leaves_the_memory_alone() {
    let fixture = travelling();
    fixture.git(&["commit", "-q", "-m", "[SUM-1] One", "src/lib.rs"]);
    let (paths, left) = committed(&fixture);
    assert_eq!(paths, "src/lib.rs");
    assert!(
        left.contains(" .forge/memory/long-term/knowledge") && !left.contains("lib.rs"),
        "{left}"
    );
}

#[test]
fn rebased_commits_get_no_memory() {
    let fixture = travelling();
    fixture.git(&["commit", "-q", "-m", "[SUM-1] One", "src/lib.rs"]);
    fixture.git(&["switch", "-q", "-c", "other", "HEAD~1"]);
    fixture.git(&[
        "commit",
        "-q",
        "--allow-empty",
        "--no-verify",
        "-m",
        "[SUM-1] Other",
    ]);
    fixture.git(&["cherry-pick", "main"]);
    assert_eq!(committed(&fixture).0, "src/lib.rs");
}

#[test]
fn secret_keeps_memory_out_but_commit_is_made() {
    let fixture = travelling();
    let token = format!("{}{}", concat!("gh", "p_"), "a1B2".repeat(9));
    fixture.write(
        ".forge/memory/long-term/architecture.md",
        &format!("# Built\n\n{token}\n"),
    );
    let mut commit = fixture.prepare(
        "git",
        &fixture.root(),
        &["commit", "-q", "-m", "[SUM-1] One", "--allow-empty"],
    );
    let output = commit.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && stderr.contains("the memory is not in this commit"),
        "{stderr}"
    );
    assert!(!stderr.contains(&token) && committed(&fixture).0.is_empty());
}

#[test]
fn agent_setup_needs_a_yes() {
    let fixture = Fixture::light("");
    let refused = fixture.ends_with(&fixture.root(), 9, &["init", "--agent", "claude"]);
    assert_eq!(refused["code"], "E_NOT_AGREED", "{refused}");
    assert!(
        refused["hint"]
            .as_str()
            .unwrap()
            .contains("hook run agent-stop claude"),
        "{refused}"
    );
    assert!(!fixture.root().join(".claude").exists() && !fixture.root().join("CLAUDE.md").exists());
    let done = fixture.forge(&["init", "--agent", "claude", "--yes"]);
    assert_eq!(
        done["agent"]["changed"].as_array().unwrap().len(),
        2,
        "{done}"
    );
    fixture.forge(&["init", "--agent", "claude", "--remove"]);
    assert!(!fixture.root().join(".claude").exists() && !fixture.root().join("CLAUDE.md").exists());
}

#[test]
fn agent_hooks_run_as_their_settings_say() {
    let fixture = Fixture::light("");
    fixture.forge(&["init", "--agent", "gemini", "--yes"]);
    fixture.git(&["add", "-A"]);
    fixture.git(&["commit", "--quiet", "-m", "Set up the agent"]);
    let settings = std::fs::read(fixture.root().join(".gemini/settings.json")).unwrap();
    let settings: serde_json::Value = serde_json::from_slice(&settings).unwrap();
    let hook = |event: &str| {
        let command = settings["hooks"][event][0]["hooks"][0]["command"]
            .as_str()
            .unwrap();
        let mut shell = fixture.prepare("sh", &fixture.root(), &["-c", command]);
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_helmdeck"))
            .parent()
            .unwrap();
        shell.env("PATH", format!("{}:/usr/bin:/bin", program.display()));
        let output = shell.output().unwrap();
        assert!(
            output.status.success(),
            "{event}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    fixture.forge(&["session", "start"]);
    let briefing = hook("SessionStart");
    let text = briefing["hookSpecificOutput"]["additionalContext"]
        .as_str()
        .unwrap();
    assert!(text.contains("session: "), "{briefing}");
    hook("PreCompress");
    hook("SessionEnd");
    let status = fixture.forge(&["status"]);
    assert_eq!(status["sessions"].as_array().unwrap().len(), 0, "{status}");
}
