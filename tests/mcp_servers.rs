//! Servers of other projects, from npm, behind helmdeck.
//!
//! The real program runs over pipes and over HTTP.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::mcp::{EVERYTHING, Programs};
use crate::support::program::{Answer, Home, Server};
use crate::support::{KEY, wait_for};

const FILESYSTEM: &str = "@modelcontextprotocol/server-filesystem/dist/index.js";

/// Runs a server as it is, and counts on the way what it is asked: its folder gets the file
/// `asked`, and `group` with the id of its process group.
const COUNTING: &str =
    "#!/bin/sh\ncd \"$(dirname \"$0\")\"\necho $$ >group\ntee -a asked | \"$@\"\n";

/// A home with one server and a folder of notes.
struct Fixture {
    home: Home,
    folder: tempfile::TempDir,
}

impl Fixture {
    /// Adds a server from npm with `helmdeck mcp add`; the argument `notes` becomes the folder of
    /// notes.
    fn with(name: &str, script: &str, arguments: &[&str]) -> Self {
        let fixture = Self {
            home: Home::new(),
            folder: tempfile::tempdir().unwrap(),
        };
        fixture.write("counting.sh", COUNTING);
        fixture.write("notes/a.txt", "note a");
        fixture.write("notes/b.txt", "note b");
        let (counting, notes) = (fixture.path("counting.sh"), fixture.path("notes"));
        let program = Programs::installed().node_script(script);
        let mut words = vec![
            "mcp",
            "add",
            name,
            "--",
            "/bin/sh",
            counting.to_str().unwrap(),
        ];
        words.extend(program.iter().map(String::as_str));
        words.extend(arguments.iter().map(|word| {
            if *word == "notes" {
                notes.to_str().unwrap()
            } else {
                word
            }
        }));
        let run = fixture.home.run(KEY, &words);
        assert_eq!(run.code, 0, "{}", run.stderr);
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        std::fs::write(self.path(name), text).unwrap();
    }

    fn put(&self, name: &str, server: &str, tool: &str, top: &str, memory: &str) {
        let manifest = format!(
            "name = \"{name}\"\nversion = \"v1\"\ndescription = \"For tests\"\n{top}\n[handler]\nmcp = {{ server = \"{server}\", tool = \"{tool}\" }}\n{memory}\n"
        );
        std::fs::write(self.home.packs().join(format!("{name}.toml")), manifest).unwrap();
    }

    /// Returns how often a tool was really called.
    fn asked(&self, tool: &str) -> usize {
        let text = std::fs::read_to_string(self.path("asked")).unwrap_or_default();
        let is_call = |line: &&str| {
            let message: Value = serde_json::from_str(line).unwrap();
            message["method"] == "tools/call" && message["params"]["name"] == tool
        };
        text.lines().filter(is_call).count()
    }

    fn group(&self) -> String {
        std::fs::read_to_string(self.path("group"))
            .unwrap()
            .trim()
            .to_owned()
    }
}

const CACHED: &str = "[memory]\ncache = true\nttl = \"1h\"\n";

fn post(server: &Server, pack: &str, input: &Value) -> Answer {
    server.ask(&format!("POST /api/v1/packs/{pack}"), &input.to_string())
}

/// Kills a process group.
fn kill_group(group: &str) {
    let group: i32 = group.parse().unwrap();
    assert!(group > 1);
    // Without `--`, the `kill` of procps 4.0 takes `-9 -12345` for "signal 9 to all processes":
    // kill(-1, SIGKILL).
    assert!(
        Command::new("kill")
            .args(["-9", "--", &format!("-{group}")])
            .status()
            .unwrap()
            .success()
    );
}

fn lives(pid: &str) -> bool {
    // What has ended and was not waited for yet has no program any more.
    Path::new("/proc").join(pid).join("exe").exists()
}

#[test]
fn read_tools_are_cached_and_write_tools_never() {
    let fixture = Fixture::with("files", FILESYSTEM, &["notes"]);
    let notes = fixture.path("notes");
    let path = |name: &str| json!({"path": notes.join(name)});

    // One command was enough: the tools are packs.
    let run = fixture.home.run(
        KEY,
        &[
            "run",
            "mcp.files.read_text_file",
            &format!("path={}", notes.join("a.txt").display()),
            "--json",
        ],
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    let outcome: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(outcome["output"], json!({"content": "note a"}));
    assert_eq!(
        outcome["cache"],
        Value::Null,
        "a tool by its own name is never cached"
    );
    let listed = fixture.home.run(KEY, &["mcp", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(
        listed["servers"][0]["server"], "secure-filesystem-server 0.2.0",
        "{listed}"
    );
    assert_eq!(fixture.asked("read_text_file"), 1);

    fixture.put(
        "team.read",
        "files",
        "read_text_file",
        "read_only = true",
        CACHED,
    );
    fixture.put("team.write", "files", "write_file", "", "");
    fixture.put(
        "team.lie",
        "files",
        "write_file",
        "read_only = true",
        CACHED,
    );
    fixture.put(
        "team.slip",
        "files",
        "write_file",
        "read_only = false",
        CACHED,
    );
    let check = fixture.home.run(KEY, &["pack", "check"]);
    assert_eq!(check.code, 1);
    assert!(
        check
            .stdout
            .contains("the MCP server \"files\" says that its tool \"write_file\" writes"),
        "{}",
        check.stdout
    );
    assert!(
        check
            .stdout
            .contains("a pack that writes can never be cached"),
        "{}",
        check.stdout
    );

    let server = Server::start(&fixture.home, KEY);
    let (first, output) = server.call("team.read", &path("a.txt"));
    assert_eq!(
        (first.as_str(), &output),
        ("miss", &json!({"content": "note a"}))
    );
    let (second, again) = server.call("team.read", &path("a.txt"));
    assert_eq!((second.as_str(), &again), ("hit", &output));
    assert_eq!(
        fixture.asked("read_text_file"),
        2,
        "one by its own name, one behind the cache"
    );

    let (server, input) = (&server, &path("b.txt"));
    let statuses: Vec<String> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..50)
            .map(|_| scope.spawn(|| server.call("team.read", input)))
            .collect();
        callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .map(|(status, output)| {
                assert_eq!(output, json!({"content": "note b"}));
                status
            })
            .collect()
    });
    assert_eq!(
        fixture.asked("read_text_file"),
        3,
        "50 callers are one call of the server: {statuses:?}"
    );
    assert_eq!(
        statuses.iter().filter(|status| *status == "miss").count(),
        1,
        "{statuses:?}"
    );

    let write = json!({"path": notes.join("c.txt"), "content": "new"});
    for pack in ["team.write", "team.write", "mcp.files.write_file"] {
        let answer = post(server, pack, &write);
        assert_eq!(answer.code, 200, "{}", answer.body);
        assert_eq!(answer.json()["cache"], Value::Null);
    }
    assert_eq!(fixture.asked("write_file"), 3, "each write is one");
    assert_eq!(std::fs::read_to_string(notes.join("c.txt")).unwrap(), "new");

    // The tool's own failure: outside its folder. Never stored.
    for _ in 0..2 {
        let answer = post(server, "team.read", &json!({"path": "/etc/hostname"}));
        assert_eq!(
            (answer.code, answer.status().as_str()),
            (502, "handler_failed"),
            "{}",
            answer.body
        );
        assert!(answer.body.contains("Access denied"), "{}", answer.body);
    }
    // The record of what the server was asked is written beside the answers.
    wait_for("the record", || fixture.asked("read_text_file") == 5);
    assert!(
        server.says("Secure MCP Filesystem Server running on stdio"),
        "stderr goes to the log"
    );
    let metrics = server.ask("GET /metrics", "").body;
    assert!(
        metrics.contains("helmdeck_mcp_server_up{server=\"files\"} 1"),
        "{metrics}"
    );
}

#[test]
fn killed_server_is_typed_error_then_restarted() {
    let fixture = Fixture::with("every", EVERYTHING, &["stdio"]);
    let mut server = Server::start(&fixture.home, KEY);
    let slow = "mcp.every.trigger-long-running-operation";
    let quick = json!({"duration": 0.1, "steps": 1});
    assert_eq!(post(&server, slow, &quick).code, 200);
    let first = fixture.group();
    let answer = std::thread::scope(|scope| {
        let calling = scope.spawn(|| post(&server, slow, &json!({"duration": 50, "steps": 1})));
        wait_for("the call to be under way", || {
            fixture.asked("trigger-long-running-operation") == 2
        });
        kill_group(&first);
        calling.join().unwrap()
    });
    assert_eq!(
        (answer.code, answer.status().as_str()),
        (502, "handler_failed"),
        "{}",
        answer.body
    );
    assert_eq!(answer.json()["retry"], "later");
    assert!(
        answer.body.contains("it was killed by signal 9"),
        "{}",
        answer.body
    );
    let answer = post(&server, slow, &quick);
    assert_eq!(answer.code, 200, "{}", answer.body);
    let second = fixture.group();
    assert_ne!(first, second, "another process");

    server.signal("-TERM");
    assert_eq!(server.ended(), Some(0));
    wait_for("the server to end with helmdeck", || !lives(&second));
}

#[test]
fn fifty_callers_make_one_tool_call() {
    let fixture = Fixture::with("every", EVERYTHING, &["stdio"]);
    let tool = "trigger-long-running-operation";
    fixture.put("team.slow", "every", tool, "read_only = true", CACHED);
    let server = Server::start(&fixture.home, KEY);
    // Started and listed already: what takes long is the tool.
    assert_eq!(
        post(
            &server,
            &format!("mcp.every.{tool}"),
            &json!({"duration": 0.1, "steps": 1})
        )
        .code,
        200
    );
    let input = json!({"duration": 3, "steps": 1});
    let (server, input) = (&server, &input);
    let statuses: Vec<String> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..50)
            .map(|_| scope.spawn(|| server.call("team.slow", input).0))
            .collect();
        callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .collect()
    });
    let count = |status: &str| statuses.iter().filter(|found| *found == status).count();
    assert_eq!(
        fixture.asked(tool),
        2,
        "one before, and one for all: {statuses:?}"
    );
    // A call that is late on a busy machine finds the answer.
    assert_eq!(
        (count("miss"), count("coalesced") + count("hit")),
        (1, 49),
        "all wait for the same call: {statuses:?}"
    );
    assert!(count("coalesced") > 0, "{statuses:?}");
}

/// A server over HTTP, killed when it is dropped.
struct Web(Child);

impl Web {
    fn start(port: u16) -> Self {
        let program = Programs::installed().node_script(EVERYTHING);
        let child = Command::new(&program[0])
            .args([&program[1], "streamableHttp"])
            .env("PORT", port.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("the server to listen", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Self(child)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn http_server_is_found_again_after_restart() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let web = Web::start(port);
    let home = Home::new();
    let url = format!("http://127.0.0.1:{port}/mcp");
    assert_eq!(
        home.run(
            KEY,
            &[
                "mcp",
                "add",
                "web",
                "--url",
                &url,
                "--header",
                "X-Team=blue"
            ]
        )
        .code,
        0
    );
    let run = home.run(KEY, &["run", "mcp.web.echo", "message=hi"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("Echo: hi"), "{}", run.stdout);

    let server = Server::start(&home, KEY);
    let echo = |message: &str| post(&server, "mcp.web.echo", &json!({"message": message}));
    assert_eq!(
        echo("one").json()["output"]["content"][0]["text"],
        "Echo: one"
    );
    drop(web);
    let answer = echo("two");
    assert_eq!(
        (answer.code, answer.status().as_str()),
        (502, "handler_failed"),
        "{}",
        answer.body
    );
    let _web = Web::start(port);
    // The session is gone; whether the first call notices or already has a new one, soon one works.
    let mut answer = echo("three");
    wait_for("a call to work again", || {
        if answer.code != 200 {
            assert_eq!(answer.status(), "handler_failed", "{}", answer.body);
            std::thread::sleep(Duration::from_millis(20));
            answer = echo("three");
        }
        answer.code == 200
    });
    assert_eq!(answer.json()["output"]["content"][0]["text"], "Echo: three");
}
