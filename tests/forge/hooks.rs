//! The hooks of git that keep the protocol, as git runs them.

use super::fixture::Fixture;

#[test]
fn oversized_or_binary_message_stays_unchanged() {
    let fixture = Fixture::light("");
    fixture.forge(&["session", "start"]);
    let message = fixture.root().join(".git/MESSAGE");
    let prepared = |bytes: &[u8]| {
        std::fs::write(&message, bytes).unwrap();
        fixture.forge(&["hook", "prepare-commit-msg", ".git/MESSAGE"]);
        std::fs::read(&message).unwrap()
    };
    let short = prepared(b"Halve a number\n");
    assert!(String::from_utf8(short).unwrap().contains("Forge-Session: "));
    let long = format!("Halve a number\n\n{}\n# what git says\n", "words ".repeat(200_000));
    let latin = b"Halve a n\xfcmber\n";
    for whole in [long.as_bytes(), latin] {
        assert!(prepared(whole) == whole, "{} bytes", whole.len());
    }
}

#[test]
fn agent_setup_needs_a_yes() {
    let fixture = Fixture::light("");
    let refused = fixture.ends_with(&fixture.root(), 9, &["init", "--agent", "claude"]);
    assert_eq!(refused["code"], "E_NOT_AGREED", "{refused}");
    assert!(refused["hint"].as_str().unwrap().contains("hook agent stop claude"), "{refused}");
    assert!(!fixture.root().join(".claude").exists() && !fixture.root().join("CLAUDE.md").exists());
    let done = fixture.forge(&["init", "--agent", "claude", "--yes"]);
    assert_eq!(done["agent"]["changed"].as_array().unwrap().len(), 2, "{done}");
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
        let command = settings["hooks"][event][0]["hooks"][0]["command"].as_str().unwrap();
        let mut shell = fixture.prepare("sh", &fixture.root(), &["-c", command]);
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_helmdeck")).parent().unwrap();
        shell.env("PATH", format!("{}:/usr/bin:/bin", program.display()));
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{event}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    fixture.forge(&["session", "start"]);
    let briefing = hook("SessionStart");
    let text = briefing["hookSpecificOutput"]["additionalContext"].as_str().unwrap();
    assert!(text.contains("session: "), "{briefing}");
    hook("PreCompress");
    hook("SessionEnd");
    let status = fixture.forge(&["session", "status"]);
    assert_eq!(status["sessions"].as_array().unwrap().len(), 0, "{status}");
}
