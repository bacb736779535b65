//! Long packs as MCP tasks of the real program, over HTTP and over stdio: a client that knows tasks
//! gets one at once, asks for it, finds what came of it as a result and as a resource, and cancels;
//! the program that ran ends with its task.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::mcp::Programs;
use crate::support::program::{Home, Server};
use crate::support::{KEY, STUCK, wait_for};

const NEWEST: &str = "2026-07-28";
const EXTENSION: &str = "io.modelcontextprotocol/tasks";
/// Says who it is, waits until it is let go, and answers with its input.
const LONG: &str = "#!/bin/sh\ninput=$(cat)\necho $$ >pid.new\nmv pid.new pid\nwhile [ ! -e go ]; do sleep 0.02; done\n\
    printf '{\"done\":true,\"input\":%s}' \"$input\"\n";

/// A home with the pack `test.long`.
fn home() -> Home {
    let home = Home::new();
    let program = home.packs().join("long.sh");
    std::fs::write(&program, LONG).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let manifest = "name = \"test.long\"\nversion = \"v1\"\ndescription = \"Takes long\"\nasync = true\n\
        [handler]\ncommand = [\"./long.sh\"]\ntimeout = \"10m\"\n";
    std::fs::write(home.packs().join("long.toml"), manifest).unwrap();
    home
}

/// A client of the newest revision that knows tasks.
enum Client<'a> {
    Http(&'a Server),
    Stdio {
        child: Child,
        input: ChildStdin,
        output: BufReader<ChildStdout>,
    },
}

impl Client<'_> {
    fn over_stdio(home: &Home) -> Self {
        let mut child = home
            .command(KEY, &["mcp"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (
            child.stdin.take().unwrap(),
            BufReader::new(child.stdout.take().unwrap()),
        );
        Self::Stdio {
            child,
            input,
            output,
        }
    }

    /// Sends a request and returns its answer.
    fn ask(&mut self, method: &str, mut params: Value) -> Value {
        let name = ["name", "uri", "taskId"]
            .iter()
            .find_map(|key| Some(params[key].as_str()?.to_owned()));
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": NEWEST,
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}},
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        });
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        match self {
            Self::Http(server) => {
                let name = name
                    .map(|name| format!("\r\nMcp-Name: {name}"))
                    .unwrap_or_default();
                let head = format!(
                    "POST /mcp\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: {NEWEST}\r\n\
                     Mcp-Method: {method}{name}"
                );
                let answer = server.exchange(&head, &request.to_string()).unwrap();
                answer.json()
            }
            Self::Stdio { input, output, .. } => {
                input.write_all(format!("{request}\n").as_bytes()).unwrap();
                let mut line = String::new();
                output.read_line(&mut line).unwrap();
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
            }
        }
    }

    fn begin(&mut self, arguments: Value) -> String {
        let begun = self.ask(
            "tools/call",
            json!({"name": "test__long", "arguments": arguments}),
        );
        assert_eq!(begun["result"]["resultType"], "task", "{begun}");
        begun["result"]["taskId"].as_str().unwrap().to_owned()
    }

    fn get(&mut self, id: &str) -> Value {
        self.ask("tasks/get", json!({"taskId": id}))["result"].clone()
    }

    /// Asks until the task has ended.
    fn ended(&mut self, id: &str) -> Value {
        let begun = std::time::Instant::now();
        loop {
            let task = self.get(id);
            if task["status"] != "working" {
                return task;
            }
            assert!(begun.elapsed() < STUCK, "{task}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn is_running(pid: &str) -> bool {
    Path::new("/proc").join(pid).join("exe").exists()
}

/// Waits for the program of a task and returns its process id.
fn pid(home: &Home) -> String {
    let file = home.packs().join("pid");
    wait_for("the program to run", || file.exists());
    let pid = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    std::fs::remove_file(file).unwrap();
    pid
}

fn a_task_is_begun_followed_read_and_cancelled(home: &Home, client: &mut Client<'_>) {
    let id = client.begin(json!({"n": 1}));
    assert!(is_running(&pid(home)));
    assert_eq!(client.get(&id)["status"], "working");
    std::fs::write(home.packs().join("go"), "").unwrap();
    let task = client.ended(&id);
    assert_eq!(task["status"], "completed", "{task}");
    assert_eq!(
        task["result"]["structuredContent"],
        json!({"done": true, "input": {"n": 1}}),
        "{task}"
    );
    let read = client.ask(
        "resources/read",
        json!({"uri": format!("helmdeck://jobs/{id}")}),
    );
    let read: Value =
        serde_json::from_str(read["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(
        read["outcome"]["output"], task["result"]["structuredContent"],
        "{read}"
    );
    std::fs::remove_file(home.packs().join("go")).unwrap();

    let id = client.begin(json!({"n": 2}));
    let program = pid(home);
    assert_eq!(
        client.ask("tasks/cancel", json!({"taskId": id}))["result"],
        json!({"resultType": "complete"})
    );
    assert_eq!(client.ended(&id)["status"], "cancelled");
    wait_for("the program to end", || !is_running(&program));
    let unknown = client.ask("tasks/get", json!({"taskId": "0".repeat(32)}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}

#[test]
fn over_http() {
    let home = home();
    let server = Server::start(&home, KEY);
    a_task_is_begun_followed_read_and_cancelled(&home, &mut Client::Http(&server));
}

#[test]
fn over_stdio() {
    let home = home();
    let mut client = Client::over_stdio(&home);
    a_task_is_begun_followed_read_and_cancelled(&home, &mut client);

    // A task ends with the program that runs it, and reports that afterwards.
    let id = client.begin(json!({"n": 3}));
    let program = pid(&home);
    let Client::Stdio {
        mut child,
        input,
        output,
    } = client
    else {
        unreachable!()
    };
    drop((input, output));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    wait_for("the program to end", || !is_running(&program));
    let failed = Client::over_stdio(&home).ended(&id);
    assert_eq!(
        (&failed["status"], &failed["error"]["data"]["retry"]),
        (&"failed".into(), &"later".into()),
        "{failed}"
    );
}

#[test]
fn task_outlives_client_and_killed_server() {
    let home = home();
    let (first, second, program) = {
        let server = Server::start(&home, KEY);
        let mut client = Client::Http(&server);
        let first = client.begin(json!({"n": 1}));
        std::fs::write(home.packs().join("go"), "").unwrap();
        assert_eq!(client.ended(&first)["status"], "completed");
        std::fs::remove_file(home.packs().join("go")).unwrap();
        let _ = std::fs::remove_file(home.packs().join("pid"));
        let second = client.begin(json!({"n": 2}));
        let program = pid(&home);
        server.signal("-KILL");
        (first, second, program)
    };
    // What a killed server ran is an orphan that waits for a file; let it go.
    std::fs::write(home.packs().join("go"), "").unwrap();
    let server = Server::start(&home, KEY);
    let mut client = Client::Http(&server);
    let kept = client.get(&first);
    assert_eq!(
        kept["result"]["structuredContent"]["input"],
        json!({"n": 1}),
        "{kept}"
    );
    let lost = client.ended(&second);
    assert_eq!(
        (&lost["status"], &lost["error"]["data"]["retry"]),
        (&"failed".into(), &"later".into()),
        "{lost}"
    );
    wait_for("the orphan to end", || !is_running(&program));
}

/// The official package for tasks, on the official TypeScript client.
#[test]
fn official_client_follows_a_task() {
    let home = home();
    let server = Server::start(&home, KEY);
    let plan = json!({"url": server.url("/mcp"), "name": "test__long", "arguments": {"n": 1}});
    let answer = std::thread::scope(|scope| {
        let asking = scope.spawn(|| Programs::installed().tasks(&plan));
        pid(&home);
        std::fs::write(home.packs().join("go"), "").unwrap();
        asking.join().unwrap()
    });
    assert_eq!(answer["kind"], "task", "{answer}");
    assert_eq!(
        answer["result"]["structuredContent"],
        json!({"done": true, "input": {"n": 1}}),
        "{answer}"
    );
}
