//! The soak in its small form: one fault of each kind that is short, against three real servers.

use std::path::Path;
use std::process::Command;

fn python(script: &str) -> Command {
    let mut command = Command::new("python3");
    command.arg(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("scripts/soak")
            .join(script),
    );
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[test]
fn checker_finds_planted_faults() {
    let checked = python("planted.py").output().unwrap();
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stderr)
    );
}

#[test]
fn small_soak_finds_nothing_wrong() {
    let mut command = python("soak.py");
    command.arg(env!("CARGO_BIN_EXE_helmdeck"));
    command.args([
        "--small",
        "--seed",
        "1",
        "--callers",
        "3",
        "--gap",
        "4",
        "--faults",
        "kill,drain,database",
    ]);
    // Calls fail that the killed server was at, and those that came while it died: two of each
    // caller, and none else.
    command.args(["--clients", "1", "--failed-calls", "6"]);
    let soak = command.output().unwrap();
    let said = String::from_utf8_lossy(&[soak.stdout, soak.stderr].concat()).into_owned();
    assert!(soak.status.success(), "{said}");
    println!("{said}");
}
