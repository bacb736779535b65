//! `helmdeck init`, `key` and `status` in an empty home, with the real program.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::mcp::Programs;
use crate::support::program::Run;
use crate::support::{KEY, PATIENT};

const HELMDECK: &str = env!("CARGO_BIN_EXE_helmdeck");

/// An empty home folder.
struct Empty(tempfile::TempDir);

impl Empty {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(home.path("work")).unwrap();
        std::fs::write(
            home.path("work/a.py"),
            "def one():\n    return two()\n\ndef two():\n    return 1\n",
        )
        .unwrap();
        home
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(HELMDECK);
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.0.path())
            .env("PATH", "/usr/bin:/bin");
        command
            .envs(PATIENT)
            .current_dir(self.path("work"))
            .stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn run(&self, arguments: &[&str], code: i32) -> Run {
        self.run_with(arguments, &[], code)
    }

    #[track_caller]
    fn run_with(&self, arguments: &[&str], env: &[(&str, &str)], code: i32) -> Run {
        let run = Run::of(
            self.command(arguments)
                .envs(env.iter().copied())
                .output()
                .unwrap(),
        );
        assert_eq!(run.code, code, "{} {}", run.stdout, run.stderr);
        run
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let run = self.run(&[arguments, &["--json"]].concat(), 0);
        serde_json::from_str(&run.stdout).unwrap()
    }

    fn config(&self) -> PathBuf {
        self.path(".config/helmdeck/helmdeck.toml")
    }

    fn key(&self) -> PathBuf {
        self.path(".config/helmdeck/memory.key")
    }

    fn store(&self) -> PathBuf {
        self.path(".local/share/helmdeck/memory.db")
    }
}

#[test]
fn without_yes_there_is_no_key() {
    let home = Empty::new();
    for arguments in [&["init"][..], &["init", "--no-memory"], &["init", "--json"]] {
        let run = home.run(arguments, 0);
        assert!(
            !home.key().exists() && !home.store().exists(),
            "{}",
            run.stdout
        );
    }
    assert!(home.config().is_file());
    let again = home.run(&["init"], 0);
    assert!(
        again.stdout.contains("nothing was changed") && again.stdout.contains("memory is off"),
        "{}",
        again.stdout
    );
    assert_eq!(home.json(&["memory", "status"])["enabled"], false);
    home.run(&["check"], 0);
}

#[test]
fn memory_flag_turns_memory_on_for_every_command() {
    let home = Empty::new();
    let first = home.json(&["init", "--memory"]);
    assert_eq!(
        (&first["changed"], &first["memory"]["created"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(first["demo"]["error"], Value::Null, "{first}");
    let runs: Vec<_> = first["demo"]["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["cache"])
        .collect();
    assert_eq!(runs[0], "miss");
    assert_eq!(runs[1], "hit", "{first}");
    assert_eq!(
        std::fs::metadata(home.key()).unwrap().permissions().mode() & 0o777,
        0o600
    );

    let (config, key) = (
        std::fs::read(home.config()).unwrap(),
        std::fs::read_to_string(home.key()).unwrap(),
    );
    let again = home.json(&["init", "--memory"]);
    assert_eq!(
        (&again["changed"], &again["demo"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(
        (
            std::fs::read(home.config()).unwrap(),
            std::fs::read_to_string(home.key()).unwrap()
        ),
        (config, key.clone())
    );

    let id = first["memory"]["key_id"].as_str().unwrap();
    let status = home.json(&["status"]);
    assert_eq!(status["memory"]["key_id"], id);
    assert_eq!(status["memory"]["source"], home.key().to_str().unwrap());
    assert_eq!(status["server"]["running"], false);
    assert!(status["store"]["rows"].as_u64().unwrap() > 0, "{status}");
    assert_eq!(
        home.run(&["key", "path"], 0).stdout.trim(),
        home.key().to_str().unwrap()
    );
    let shown = home.run(&["key", "show"], 0).stdout;
    assert!(shown.contains(id) && !shown.contains(key.trim()), "{shown}");
    let reveal = home.run(&["key", "show", "--reveal"], 9);
    assert!(!reveal.stderr.contains(key.trim()) && reveal.stdout.is_empty());
    let outcome = home.json(&["run", "repo.map", "path=.", "token_budget=500"]);
    assert!(outcome["cache"].is_object(), "{outcome}");

    home.run(&["memory", "reset"], 2);
    home.run(&["memory", "reset", "--yes"], 0);
    assert_eq!(home.json(&["status"])["store"]["rows"], 0);
}

#[test]
fn environment_key_wins_and_is_named() {
    let home = Empty::new();
    home.run(&["key", "init"], 0);
    let run = home.run_with(&["key", "show"], &[("HELMDECK_MEMORY_KEY", KEY)], 0);
    assert!(
        run.stdout
            .contains("HELMDECK_MEMORY_KEY wins over the key file"),
        "{}",
        run.stdout
    );
    let run = home.run_with(&["init", "--memory"], &[("HELMDECK_MEMORY_KEY", KEY)], 0);
    assert!(
        run.stdout.contains("set in this shell only"),
        "{}",
        run.stdout
    );
    let again = home.run(&["key", "init"], 0);
    assert!(
        again.stdout.contains("nothing was changed"),
        "{}",
        again.stdout
    );
}

#[test]
fn wrong_or_lost_key_writes_nothing() {
    let home = Empty::new();
    home.run_with(
        &["run", "memory.store", "key=a", "value=b"],
        &[("HELMDECK_MEMORY_KEY", KEY)],
        0,
    );
    for arguments in [&["init", "--memory"][..], &["key", "init"]] {
        let lost = home.run(arguments, 78);
        assert!(
            lost.stderr.contains("could not open them") && lost.stderr.contains("memory reset"),
            "{}",
            lost.stderr
        );
    }
    let other = "f".repeat(64);
    let wrong = home.run_with(&["init"], &[("HELMDECK_MEMORY_KEY", &other)], 78);
    assert!(
        wrong.stderr.contains("written with key"),
        "{}",
        wrong.stderr
    );
    let malformed = home.run_with(&["init"], &[("HELMDECK_MEMORY_KEY", "canary")], 78);
    assert!(
        malformed.stderr.contains("64 hex") && !malformed.stderr.contains("canary"),
        "{}",
        malformed.stderr
    );
    assert!(!home.config().exists() && !home.key().exists());

    home.run(&["memory", "reset", "--yes"], 0);
    home.run(&["init", "--memory"], 0);
    std::fs::remove_file(home.key()).unwrap();
    let missing = home.run(&["pack", "list"], 78);
    assert!(
        missing.stderr.contains("memory.key_file") && missing.stderr.contains("key file back"),
        "{}",
        missing.stderr
    );
    for arguments in [&["init", "--memory"][..], &["key", "init"]] {
        let lost = home.run(arguments, 78);
        assert!(
            lost.stderr.contains("could not open them") && lost.stderr.contains("memory reset"),
            "{}",
            lost.stderr
        );
    }
    home.run(&["memory", "reset", "--yes"], 0);
    home.run(&["key", "init"], 0);
    std::fs::remove_file(home.key()).unwrap();
    let remade = home.run(&["init", "--memory"], 0);
    assert!(
        remade.stdout.contains("wrote the memory key") && home.key().is_file(),
        "{}",
        remade.stdout
    );
}

#[test]
fn missing_or_unwritable_home_is_named() {
    let home = Empty::new();
    let none = Run::of(
        home.command(&["init", "--memory"])
            .env_remove("HOME")
            .output()
            .unwrap(),
    );
    assert!(
        none.code == 78 && none.stderr.contains("neither XDG_CONFIG_HOME nor HOME"),
        "{}",
        none.stderr
    );
    let status = Run::of(
        home.command(&["status"])
            .env_remove("HOME")
            .output()
            .unwrap(),
    );
    assert_eq!(
        status.stdout.matches("no data folder").count(),
        1,
        "{}",
        status.stdout
    );
    // Root may write anywhere, so a file stands where the folder would be.
    std::fs::write(home.path(".config"), "").unwrap();
    let blocked = home.run(&["init", "--memory"], 1);
    assert!(
        blocked.stderr.contains("cannot be written") && blocked.stderr.contains("XDG_CONFIG_HOME"),
        "{}",
        blocked.stderr
    );
    let other = home.path("other");
    home.run_with(
        &["init", "--memory"],
        &[("XDG_CONFIG_HOME", other.to_str().unwrap())],
        0,
    );
    assert!(other.join("helmdeck/memory.key").is_file());
}

#[test]
fn existing_configuration_keeps_everything() {
    let home = Empty::new();
    std::fs::create_dir_all(home.config().parent().unwrap()).unwrap();
    let own = "# mine\n[log]\nlevel = \"error\" # quiet\n";
    std::fs::write(home.config(), own).unwrap();
    home.run(&["init", "--no-memory"], 0);
    assert_eq!(std::fs::read_to_string(home.config()).unwrap(), own);
    home.run(&["init", "--memory"], 0);
    let new = std::fs::read_to_string(home.config()).unwrap();
    assert!(
        new.starts_with(own) && new.contains("key_file = \"memory.key\""),
        "{new}"
    );

    let newer = "[memory]\nkey_ring = \"of a later version\"\n";
    std::fs::write(home.config(), newer).unwrap();
    let refused = home.run(&["init", "--memory"], 78);
    assert!(
        refused.stderr.contains("memory.key_ring") && refused.stderr.contains("another version"),
        "{}",
        refused.stderr
    );
    assert_eq!(std::fs::read_to_string(home.config()).unwrap(), newer);
}

#[test]
fn clients_are_found_and_keep_their_settings() {
    let home = Empty::new();
    let files = [
        (
            "claude-code",
            ".claude.json",
            "{\"z\": 1, \"mcpServers\": {\"x\": {\"command\": \"y\"}}}",
        ),
        (
            "claude-desktop",
            ".config/Claude/claude_desktop_config.json",
            "{}",
        ),
        ("cursor", ".cursor/mcp.json", ""),
        (
            "vscode",
            ".config/Code/User/mcp.json",
            "{\n\t\"servers\": {},\n\t\"inputs\": []\n}\n",
        ),
        ("codex", ".codex/config.toml", "model = \"m\" # mine\n"),
        ("gemini", ".gemini/settings.json", "{\"theme\": \"dark\"}"),
    ];
    assert_eq!(home.json(&["init"])["clients"], json!([]));
    for (_, file, text) in files {
        std::fs::create_dir_all(home.path(file).parent().unwrap()).unwrap();
        std::fs::write(home.path(file), text).unwrap();
    }
    let found = home.json(&["init"]);
    let names: Vec<_> = found["clients"]
        .as_array()
        .unwrap()
        .iter()
        .map(|client| client["name"].clone())
        .collect();
    assert_eq!(names, files.map(|(name, ..)| name));
    for (name, file, text) in files {
        let write = ["init", "--client", name, "--write"];
        assert_eq!(home.json(&write)["clients"][0]["state"], "added", "{name}");
        let new = std::fs::read_to_string(home.path(file)).unwrap();
        assert!(new.contains(HELMDECK) && new.contains("\"mcp\""), "{new}");
        if file.ends_with("toml") {
            assert!(new.starts_with(text), "{new}");
        } else if !text.is_empty() {
            let (new, old): (Value, Value) = (
                serde_json::from_str(&new).unwrap(),
                serde_json::from_str(text).unwrap(),
            );
            assert!(
                old.as_object()
                    .unwrap()
                    .keys()
                    .all(|key| new.get(key).is_some()),
                "{new}"
            );
        }
        let again = home.json(&write);
        assert_eq!(
            (&again["changed"], &again["clients"][0]["state"]),
            (&json!(false), &json!("present"))
        );
        assert_eq!(std::fs::read_to_string(home.path(file)).unwrap(), new);
    }
    let cursor = home.path(".cursor/mcp.json");
    std::fs::write(
        &cursor,
        "{\"mcpServers\": {\"helmdeck\": {\"command\": \"old\"}}}",
    )
    .unwrap();
    let differs = home.run(&["init", "--client", "cursor", "--write"], 9);
    assert!(differs.stderr.contains("--force"), "{}", differs.stderr);
    home.run(&["init", "--client", "cursor", "--write", "--force"], 0);
    assert!(std::fs::read_to_string(&cursor).unwrap().contains(HELMDECK));
    let commented = "{\n  // mine\n  \"servers\": {}\n}\n";
    std::fs::write(home.path(".config/Code/User/mcp.json"), commented).unwrap();
    let refused = home.run(&["init", "--client", "vscode", "--write"], 9);
    assert!(
        refused.stderr.contains("comments") && refused.stderr.contains("code --add-mcp"),
        "{}",
        refused.stderr
    );
    assert_eq!(
        std::fs::read_to_string(home.path(".config/Code/User/mcp.json")).unwrap(),
        commented
    );
}

#[test]
fn written_entry_gives_a_client_a_hit() {
    let home = Empty::new();
    home.run(&["init", "--memory", "--client", "cursor", "--write"], 0);
    // What a client starts is what stands in its file, with little more than a home.
    let file = std::fs::read_to_string(home.path(".cursor/mcp.json")).unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    let entry = &file["mcpServers"]["helmdeck"];
    let arguments = entry["args"].as_array().unwrap();
    let command: Vec<&Value> = [&entry["command"]].into_iter().chain(arguments).collect();
    let mut env = json!({"HOME": home.0.path(), "PATH": "/usr/bin:/bin"});
    PATIENT
        .iter()
        .for_each(|(name, value)| env[*name] = json!(value));
    let call = json!({"do": "call", "name": "text__count_tokens", "arguments": {"text": "Packs answer agents."}});
    let plan = json!({"target": {"command": command, "env": env}, "steps": [call, call]});
    let answer = Programs::installed().python(&plan);
    let status =
        |step: usize| &answer["steps"][step]["result"]["_meta"]["helmdeck/cache"]["status"];
    assert_eq!(
        (status(0), status(1)),
        (&json!("miss"), &json!("hit")),
        "{answer}"
    );
}

/// Runs a line of shell on a terminal, answers when the program asks, and returns all that was
/// shown.
fn on_a_terminal(home: &Empty, line: &str, asks: &str, answer: &str) -> String {
    let mut command = Command::new("script");
    command
        .args(["-qec", line, "/dev/null"])
        .env_clear()
        .env("HOME", home.0.path())
        .env("PATH", "/usr/bin:/bin");
    command
        .env("SHELL", "/bin/sh")
        .current_dir(home.path("work"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut shown, mut piece, mut asked) = (String::new(), [0; 4096], false);
    loop {
        let count = stdout.read(&mut piece).unwrap();
        if count == 0 {
            break;
        }
        shown.push_str(&String::from_utf8_lossy(&piece[..count]));
        if !asked && shown.contains(asks) {
            asked = true;
            stdin.write_all(answer.as_bytes()).unwrap();
        }
    }
    child.wait().unwrap();
    assert!(asked, "{shown}");
    shown
}

#[test]
fn terminal_is_asked_and_only_yes_counts() {
    for (answer, on) in [("\n", false), ("n\n", false), ("y\n", true)] {
        let home = Empty::new();
        let shown = on_a_terminal(
            &home,
            &format!("{HELMDECK} init"),
            "Turn memory on?",
            answer,
        );
        assert_eq!(home.key().exists(), on, "{shown}");
        assert_eq!(shown.contains("memory is on"), on, "{shown}");
    }
}

#[test]
fn serve_says_at_a_terminal_what_runs() {
    let home = Empty::new();
    let shown = on_a_terminal(
        &home,
        &format!("{HELMDECK} serve --listen localhost:0"),
        "folders  config",
        "\u{3}",
    );
    for text in [
        "REST http://127.0.0.1:",
        "/mcp",
        "/metrics",
        "auth     off",
        "memory   off",
        "0 refused",
        "data ",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let start: Vec<&str> = shown
        .lines()
        .take_while(|line| !line.contains("folders  config"))
        .collect();
    assert_eq!(start.len(), 4, "five lines and no other: {shown}");
}

#[test]
fn reset_empties_the_store_of_a_lost_key() {
    let home = Empty::new();
    home.run(&["init", "--memory"], 0);
    std::fs::remove_file(home.key()).unwrap();
    let lost = home.run(&["memory", "status"], 78);
    assert!(
        lost.stderr.contains("helmdeck memory reset"),
        "{}",
        lost.stderr
    );
    home.run(&["memory", "reset"], 2);
    let reset = home.run(&["memory", "reset", "--yes"], 0);
    assert!(
        reset.stdout.contains("the store takes the next key"),
        "{}",
        reset.stdout
    );
}
