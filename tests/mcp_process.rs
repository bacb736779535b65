//! `helmdeck mcp` as a process: what it keeps, what it leaves running, how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::support::program::Home;
use crate::support::wait_for;

const KEY: &str = "1111111111111111111111111111111111111111111111111111111111111111";
/// Starts a child, prints its process id, and waits for both for ever.
const STUBBORN: &str = "#!/bin/sh\ncat >/dev/null\nsleep 1000 &\necho $! >child\nwait\n";

/// The program, spoken to as a client of revision 2025-11-25.
pub(crate) struct Spoken {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Spoken {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut spoken = Self {
            child,
            input,
            output,
        };
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        assert_eq!(
            spoken.ask(0, "initialize", params)["result"]["serverInfo"]["name"],
            "helmdeck"
        );
        spoken.tell("notifications/initialized", json!({}));
        spoken
    }

    fn send(&mut self, message: &Value) {
        self.input
            .as_mut()
            .unwrap()
            .write_all(format!("{message}\n").as_bytes())
            .unwrap();
    }

    fn tell(&mut self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    pub(crate) fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    pub(crate) fn ask(&mut self, id: u32, method: &str, params: Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let message = self.receive();
            // What is announced meanwhile is no answer.
            if message.get("method").is_none() {
                return message;
            }
        }
    }

    pub(crate) fn call(&mut self, id: u32, tool: &str) -> Value {
        self.ask(
            id,
            "tools/call",
            json!({"name": tool, "arguments": {"repo": "a"}}),
        )
    }

    /// Closes our end, and returns the exit code and the rest of stdout and stderr.
    pub(crate) fn leave(mut self) -> (Option<i32>, String, String) {
        drop(self.input.take());
        self.end()
    }

    fn end(mut self) -> (Option<i32>, String, String) {
        let (mut rest, mut log) = (String::new(), String::new());
        self.output.read_to_string(&mut rest).unwrap();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut log)
            .unwrap();
        (self.child.wait().unwrap().code(), rest, log)
    }

    fn signal(&self, name: &str) {
        assert!(
            Command::new("kill")
                .args([name, &self.child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
    }
}

#[test]
fn answers_are_stored_when_the_client_leaves() {
    let home = Home::new();
    let mut spoken = Spoken::start(home.command(KEY, &["mcp"]));
    assert_eq!(
        spoken.call(1, "test__echo")["result"]["_meta"]["helmdeck/cache"]["status"],
        "miss"
    );
    assert_eq!(
        spoken.call(2, "test__echo")["result"]["_meta"]["helmdeck/cache"]["status"],
        "hit"
    );
    assert_eq!(spoken.leave(), (Some(0), String::new(), String::new()));
    // The shell is the same caller, and another process.
    assert_eq!(home.call(KEY, &["test.echo", "repo=a"]).0, "hit");
}

#[test]
fn signal_ends_mcp_like_serve() {
    let home = Home::new();
    for (signal, code) in [("-INT", 130), ("-TERM", 0)] {
        let spoken = Spoken::start(home.command(KEY, &["mcp"]));
        let sent = Command::new("kill")
            .args([signal, &spoken.child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
        assert_eq!(
            spoken.end().0,
            Some(code),
            "{signal}, while the client holds stdin open"
        );
    }
}

#[test]
fn without_key_no_member_and_no_file() {
    let home = Home::new();
    let mut command = home.command(KEY, &["mcp"]);
    command.env_remove("HELMDECK_MEMORY_KEY");
    let mut spoken = Spoken::start(command);
    let answer = spoken.call(1, "test__echo");
    assert!(
        answer["result"].get("_meta").is_none() && answer["result"]["isError"] == false,
        "{answer}"
    );
    assert_eq!(spoken.leave(), (Some(0), String::new(), String::new()));
    assert!(!home.data().exists());
}

#[test]
fn failed_start_answers_the_first_request() {
    let home = Home::new();
    home.call(KEY, &["test.echo", "repo=a"]);
    let wrong = home.command(&"2".repeat(64), &["mcp"]);
    let unreadable = {
        let mut command = home.command(KEY, &["mcp"]);
        command.env("HELMDECK_MEMORY_KEY", "canary");
        command
    };
    for (mut command, reason) in [(wrong, "written with key"), (unreadable, "64 hex")] {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        writeln!(
            input,
            "{}",
            json!({"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {}})
        )
        .unwrap();
        // The client keeps its end open.
        let ended = child.wait_with_output().unwrap();
        drop(input);
        let answer: Value = serde_json::from_slice(&ended.stdout).unwrap();
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(
            answer["id"] == 7 && message.contains(reason) && !message.contains("canary"),
            "{answer}"
        );
        assert_eq!(ended.status.code(), Some(78));
        assert!(String::from_utf8(ended.stderr).unwrap().contains(reason));
    }
}

#[test]
fn cancelled_call_kills_its_process_group() {
    let home = Home::new();
    home.install("test.stubborn", STUBBORN, "");
    let child_file = home.packs().join("child");
    let alive = |process: &str| std::path::Path::new("/proc").join(process).exists();
    let mut spoken = Spoken::start(home.command(KEY, &["mcp"]));
    let call = |progress: Value| json!({"name": "test__stubborn", "arguments": {"repo": "a"}, "_meta": progress});
    for (id, progress) in [(1, json!({})), (2, json!({"progressToken": "p"}))] {
        spoken.send(
            &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call(progress)}),
        );
        wait_for("the program's child", || {
            std::fs::read_to_string(&child_file).is_ok_and(|text| text.ends_with('\n'))
        });
        let process = std::fs::read_to_string(&child_file)
            .unwrap()
            .trim()
            .to_owned();
        assert!(alive(&process));
        spoken.tell("notifications/cancelled", json!({"requestId": id}));
        wait_for("the end of the program's child", || !alive(&process));
        std::fs::remove_file(&child_file).unwrap();
    }
    // No answer of either came; the next line is that of the next request.
    assert_eq!(spoken.ask(3, "ping", json!({}))["id"], 3);
    assert_eq!(spoken.leave().0, Some(0));
}

#[test]
fn a_signal_ends_it_in_good_order() {
    let home = Home::new();
    let mut spoken = Spoken::start(home.command(KEY, &["mcp"]));
    spoken.call(1, "test__echo");
    spoken.signal("-TERM");
    let (code, rest, log) = spoken.end();
    assert_eq!((code, rest.as_str()), (Some(0), ""), "{log}");
    assert_eq!(home.call(KEY, &["test.echo", "repo=a"]).0, "hit");
}

#[test]
fn log_has_no_content_stdout_only_messages() {
    let home = Home::new();
    let mut command = home.command(KEY, &["mcp", "-vvv"]);
    command.env("HELMDECK_LOG", "trace");
    let mut spoken = Spoken::start(command);
    let canary = "canary".repeat(2);
    let params = json!({"name": "test__plain", "arguments": {"repo": canary}, "_meta": {"progressToken": 1}});
    assert_eq!(
        spoken.ask(1, "tools/call", params)["result"]["isError"],
        false
    );
    spoken.tell(&format!("notifications/{canary}"), json!({}));
    assert!(spoken.ask(2, &format!("x/{canary}"), json!({}))["error"]["code"] == -32601);
    let (code, rest, log) = spoken.leave();
    assert_eq!((code, rest.as_str()), (Some(0), ""));
    assert!(!log.is_empty() && !log.contains(&canary), "{log}");
}
