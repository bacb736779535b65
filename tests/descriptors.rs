//! Descriptors that helmdeck inherited reach no program that it starts; by the real program.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::Value;

use crate::support::KEY;
use crate::support::program::{Home, Run};

/// Prints the open descriptors of this process. The folder that it reads them from is one of them,
/// the lowest that is free.
const LIST: &str =
    "import json, os\nprint(json.dumps({'open': sorted(map(int, os.listdir('/proc/self/fd')))}))\n";

/// Runs helmdeck as a careless wrapper does.
///
/// A key file stays open as descriptor 8, a folder of the host as 9.
fn careless(home: &Home, arguments: &[&str]) -> Run {
    let folder = home.data();
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("key"), KEY).unwrap();
    let mut command = Command::new("/bin/bash");
    command
        .args(["-c", "exec 8<\"$0/key\" 9<\"$0\"; exec \"$@\""])
        .arg(&folder)
        .arg(env!("CARGO_BIN_EXE_helmdeck"))
        .args(arguments)
        .env_clear()
        .envs(home.environment(KEY))
        .current_dir(home.packs());
    Run::of(command.output().unwrap())
}

fn script(home: &Home, name: &str, text: &str) -> String {
    let path = home.packs().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn command_packs_and_sessions_inherit_no_descriptor() {
    let home = Home::new();
    script(&home, "list.py", &format!("#!/usr/bin/python3\n{LIST}"));
    let manifest = "name = \"test.list\"\nversion = \"v1\"\ndescription = \"For tests\"\n[handler]\ncommand = [\"./list.py\"]\n\
                    [session]\npreserve = true\ntimeout = \"1h\"\n";
    fs::write(home.packs().join("test.list.toml"), manifest).unwrap();
    let run = careless(&home, &["run", "test.list", "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let outcome: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        outcome["output"]["open"],
        serde_json::json!([0, 1, 2, 3]),
        "{outcome}"
    );

    let id = outcome["session_id"].as_str().unwrap();
    let run = careless(&home, &["session", "exec", id, "--", "python3", "-c", LIST]);
    assert_eq!(
        (run.code, run.stdout.trim()),
        (0, "{\"open\": [0, 1, 2, 3]}"),
        "{}",
        run.stderr
    );
    assert_eq!(home.run(KEY, &["session", "end", id]).code, 0);
}

#[test]
fn mcp_servers_inherit_no_descriptor() {
    let home = Home::new();
    let server = script(
        &home,
        "server.py",
        &format!("#!/usr/bin/python3\nimport sys\nsys.stdout = open('seen', 'w')\n{LIST}"),
    );
    let folder = home.packs();
    home.configure(&format!(
        "[[mcp.servers]]\nname = \"lister\"\ncommand = [\"{server}\"]\ncwd = \"{}\"\n",
        folder.display()
    ));
    // It ends before it speaks the protocol: what it saw is in a file. That file and the folder are
    // its own descriptors.
    let run = careless(&home, &["run", "mcp.lister.any", "--json"]);
    assert_ne!(run.code, 0, "{}", run.stdout);
    let seen: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("seen")).unwrap()).unwrap();
    assert_eq!(seen["open"], serde_json::json!([0, 1, 2, 3, 4]), "{seen}");
}
