//! A credential of the vault on its ways out: in a header of an `http` pack, in a header of an MCP
//! server, and in the environment of one over stdio. Each says it back in every way, over REST and
//! over MCP, and it is nowhere to be seen.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::http_kind::{Asked, Host, answer};
use crate::support::program::{Home, Run, Server};
use crate::support::raw_mcp::{McpClient, bearer};
use crate::support::{KEY, wait_for};
use crate::vault::{Canaries, VAULT_KEY, base64, feed, files, processes, set};

/// A program that returns its input in every way.
///
/// The ways are a text, an error of the tool, an error of the protocol, progress and stderr.
const STDIO: &str = r#"#!/bin/sh
hex=$(printf %s "$TOKEN" | od -An -tx1 | tr -d ' \n')
said="$TOKEN $hex"
echo "given $said" >&2
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
  answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
  case $line in
  *'"method":"initialize"'*)
    answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"said '"$said"'","version":"1"}}' ;;
  *'"method":"tools/list"'*)
    answer '{"tools":[{"name":"say","description":"says '"$said"'","inputSchema":{"type":"object"}}]}' ;;
  *'"method":"tools/call"'*)
    case $line in
    *is_error*) answer '{"content":[{"type":"text","text":"'"$said"'"}],"isError":true}' ;;
    *failure*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"%s"}}\n' "$id" "$said" ;;
    *) answer '{"content":[{"type":"text","text":"'"$said"'"}]}' ;;
    esac ;;
  esac
done
"#;

/// Returns what was given, in the ways in which it could be said back.
fn said(asked: &Asked) -> String {
    let given = asked
        .headers
        .get("authorization")
        .cloned()
        .unwrap_or_default();
    let hex: String = given.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{given} {} {hex}", base64(given.as_bytes()))
}

fn reply(status: &str, body: &Value) -> String {
    answer(
        status,
        "content-type: application/json\r\n",
        &body.to_string(),
    )
}

/// An upstream: an MCP server at `/mcp`, one at `/broken` that cannot be started, and any other
/// path for an `http` pack.
fn upstream(asked: &Asked) -> String {
    let said = said(asked);
    if asked.line.ends_with("/broken") {
        return reply("500 Internal Server Error", &json!({ "said": said }));
    }
    if !asked.line.ends_with("/mcp") {
        let status = if asked.line.ends_with("failure") {
            "500 Internal Server Error"
        } else {
            "200 OK"
        };
        return reply(status, &json!({ "said": said }));
    }
    if !asked.line.starts_with("POST") {
        return answer("405 Method Not Allowed", "", "");
    }
    let message: Value = serde_json::from_str(&asked.body).unwrap();
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": said, "version": "1"}}),
        "tools/list" => {
            json!({"tools": [{"name": "say", "description": said, "inputSchema": {"type": "object"}}]})
        }
        "tools/call" => match message["params"]["arguments"]["id"].as_str() {
            Some("failure") => {
                let error = json!({"code": -32603, "message": said});
                return reply(
                    "200 OK",
                    &json!({"jsonrpc": "2.0", "id": message["id"], "error": error}),
                );
            }
            id => {
                json!({"content": [{"type": "text", "text": said}], "isError": id == Some("is_error")})
            }
        },
        _ => return answer("202 Accepted", "", ""),
    };
    reply(
        "200 OK",
        &json!({"jsonrpc": "2.0", "id": message["id"], "result": result}),
    )
}

fn write_files(home: &Home, address: &str) {
    let script = home.packs().join("said.sh");
    std::fs::write(&script, STDIO).unwrap();
    std::fs::write(
        home.packs().join("../helmdeck.toml"),
        format!(
            "[[mcp.servers]]\nname = \"pipe\"\ncommand = [\"/bin/sh\", \"{}\"]\nenv = {{ TOKEN = \"credential:api\" }}\n\
             [[mcp.servers]]\nname = \"web\"\nurl = \"http://{address}/mcp\"\nheaders = {{ Authorization = \"Bearer {{credential:api}}\" }}\n\
             [[mcp.servers]]\nname = \"broken\"\nurl = \"http://{address}/broken\"\nheaders = {{ Authorization = \"Bearer {{credential:api}}\" }}\n",
            script.display()
        ),
    )
    .unwrap();
    std::fs::write(
        home.packs().join("shop.say.toml"),
        format!(
            "name = \"shop.say\"\nversion = \"v1\"\ndescription = \"For tests\"\nread_only = true\ncredentials = [\"api\"]\n\
             [handler.http]\nurl = \"http://{address}/say/{{id}}\"\nheaders = {{ Authorization = \"Bearer {{credential:api}}\" }}\n\
             [input]\ntype = \"object\"\n[input.properties]\nid = {{ type = \"string\" }}\n[memory]\ncache = true\nttl = \"1h\"\n"
        ),
    )
    .unwrap();
}

#[test]
fn credential_appears_only_where_it_is_used() {
    let (home, canaries) = (Home::new(), Canaries::new());
    let host = Host::start("127.0.0.1", upstream);
    set(&home, "api", Canaries::API_KEY);
    write_files(&home, &host.address);
    let settings = [
        ("HELMDECK_LOG", "trace"),
        ("HELMDECK_EGRESS_ALLOW", "127.0.0.1"),
        ("HELMDECK_AUTH__API_TOKENS", "true"),
        ("HELMDECK_VAULT_KEY", VAULT_KEY),
    ];
    let run = |arguments: &[&str]| {
        let run = feed(home.command(KEY, arguments).envs(settings), "");
        canaries.absent(
            &format!("{arguments:?}"),
            (run.stdout.clone() + &run.stderr).as_bytes(),
        );
        run
    };
    let scope = "packs:run memory:read metrics:read";
    let made = run(&[
        "token", "create", "--tenant", "local", "--user", "local", "--scope", scope,
    ]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let token = made.stdout.trim_end().to_owned();
    let mut server = Server::start_with(&home, KEY, &settings);

    let ask = |route: &str, body: &str| {
        let answer = server.ask(&format!("{route}\n{}", bearer(&token)), body);
        canaries.absent(&format!("{route} {body}"), answer.body.as_bytes());
        canaries.absent(
            &format!("headers of {route} {body}"),
            answer.head.as_bytes(),
        );
        answer
    };
    let client = McpClient::open(&server, &token);
    for pack in ["shop.say", "mcp.web.say", "mcp.pipe.say"] {
        for (id, code) in [
            ("fine", 200),
            ("failure", 502),
            ("is_error", if pack == "shop.say" { 200 } else { 502 }),
        ] {
            let input = json!({ "id": id });
            let answer = ask(&format!("POST /api/v1/packs/{pack}"), &input.to_string());
            assert_eq!(answer.code, code, "{pack} {id}: {}", answer.body);
            assert!(
                code != 200 || answer.body.contains("[secret]"),
                "{pack} {id}: {}",
                answer.body
            );
            let result = client.call(pack, &input, "default");
            canaries.absent(
                &format!("{pack} {id} over MCP"),
                result.to_string().as_bytes(),
            );
            assert_eq!(
                result["isError"] == true,
                code != 200,
                "{pack} {id}: {result}"
            );
            assert!(
                code != 200 || result.to_string().contains("[secret]"),
                "{pack} {id}: {result}"
            );
        }
    }
    let broken = ask("POST /api/v1/packs/mcp.broken.say", "{}");
    assert!(broken.code >= 400, "{}", broken.body);
    canaries.absent(
        "the tools over MCP",
        client.ask("tools/list", &json!({})).to_string().as_bytes(),
    );
    for route in [
        "GET /metrics",
        "GET /readyz",
        "GET /api/v1/packs",
        "GET /api/v1/memory/entries",
        "GET /api/v1/openapi.json",
    ] {
        ask(route, "");
    }
    for arguments in [
        &["mcp", "list", "--json"][..],
        &["pack", "list"],
        &["pack", "check"],
        &["check"],
        &["vault", "log"],
    ] {
        run(arguments);
    }
    run(&["run", "mcp.broken.say"]);
    run(&["run", "mcp.pipe.say", "id=failure"]);

    // In the environment of the one program whose `env` names it, by design; in no other and in no
    // arguments.
    let mut given = 0;
    for (id, arguments, environment) in processes(server.pid()) {
        canaries.absent(&format!("cmdline of {id}"), &arguments);
        if String::from_utf8_lossy(&arguments).contains("said.sh") {
            let holds = environment
                .split(|byte| *byte == 0)
                .filter(|line| line.starts_with(b"TOKEN="))
                .count();
            assert_eq!(holds, 1, "it has what it was given");
            let others: Vec<&[u8]> = environment
                .split(|byte| *byte == 0)
                .filter(|line| !line.starts_with(b"TOKEN="))
                .collect();
            canaries.absent("the rest of its environment", &others.join(&0));
            given += 1;
        } else {
            canaries.absent(&format!("environ of {id}"), &environment);
        }
    }
    assert_eq!(given, 1, "the server over stdio runs");
    look_into(&canaries, &home);
    server.signal("-TERM");
    assert_eq!(server.ended(), Some(0));
    look_into(&canaries, &home);
    let log = server.log();
    assert!(
        log.contains("hyper")
            && log.contains("wrote to stderr")
            && log.contains("cannot be started"),
        "{log}"
    );
    canaries.absent("the log", log.as_bytes());
}

fn look_into(canaries: &Canaries, home: &Home) {
    let data = home.data();
    let root: &Path = data.ancestors().nth(3).unwrap();
    let all = files(root);
    assert!(all.len() > 5);
    for file in all {
        canaries.absent(&file.display().to_string(), &std::fs::read(&file).unwrap());
    }
}

#[test]
fn secret_being_set_is_in_no_process_list() {
    let (home, canaries) = (Home::new(), Canaries::new());
    let mut command = home.command(
        KEY,
        &[
            "vault",
            "set",
            "api",
            "--type",
            "api_key",
            "--host",
            "127.0.0.1",
        ],
    );
    command
        .env("HELMDECK_VAULT_KEY", VAULT_KEY)
        .env("HELMDECK_LOG", "trace");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(Canaries::API_KEY.as_bytes()).unwrap();
    let read = |name: &str| std::fs::read(format!("/proc/{}/{name}", child.id())).unwrap();
    wait_for("the program to run", || {
        read("cmdline").windows(5).any(|part| part == b"vault")
    });
    // It waits for the end of its input, so it is running now.
    let (arguments, environment) = (read("cmdline"), read("environ"));
    assert!(
        environment
            .windows(18)
            .any(|part| part == b"HELMDECK_VAULT_KEY")
    );
    canaries.absent("cmdline", &arguments);
    canaries.absent("environ", &environment);
    assert_eq!(child.try_wait().unwrap(), None);
    drop(stdin);
    let run = Run::of(child.wait_with_output().unwrap());
    assert_eq!(run.code, 0, "{}", run.stderr);
    canaries.absent("its output", (run.stdout + &run.stderr).as_bytes());
}
