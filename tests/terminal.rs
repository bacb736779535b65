//! Tests of `helmdeck run` at a real terminal, over a pack that works in steps.
//!
//! The pack is an MCP server, and hostile where it can be.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::program::Home;
use crate::support::{KEY, wait_for};

/// Reports four steps, one of them twice and one that would steer the terminal, and answers with a
/// diff of five lines, one of which would, too. The tool `hang` reports one step, answers nothing
/// and does not end when it is asked to.
const SERVER: &str = r##"#!/bin/sh
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
step() {
  printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%s,"total":100,"message":"%s"}}\n' "$token" "$1" "$2"
  sleep 0.05
}
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  token=$(printf '%s' "$line" | sed -n 's/.*"progressToken":\([0-9]*\).*/\1/p')
  case $line in
  *'"method":"initialize"'*)
    answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"steps","version":"1"}}' ;;
  *'"method":"tools/list"'*)
    answer '{"tools":[{"name":"solve","inputSchema":{"type":"object"}},{"name":"hang","inputSchema":{"type":"object"}}]}' ;;
  *'"name":"solve"'*)
    step 10 'cloning the repository'
    step 40 '1/30 grep -n needle haystack.py -> 0'
    step 60 '1/30 grep -n needle haystack.py -> 0'
    step 70 '2/30 \u001b]0;owned\u0007\u001b[2J\r\n\u009b31m\u202egnp.exe'
    step 90 '3/30 sed -i s/a-very-long-pattern-that-does-not-fit/another-very-long-text/ some/long/path/to/a/file.py -> 7'
    answer '{"content":[],"structuredContent":{"success":false,"summary":"tried \u001b[5mhard","patch":"diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@ def f():\n same\n-old\n+new\u001b[2J\n"}}' ;;
  *'"name":"hang"'*)
    trap '' TERM
    echo $$ >"$(dirname "$0")/pid"
    step 10 'thinking for ever'
    while :; do sleep 0.1; done ;;
  esac
done
"##;

fn home() -> Home {
    let home = Home::new();
    let program = home.packs().join("steps.sh");
    std::fs::write(&program, SERVER).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(
        home.run(
            KEY,
            &["mcp", "add", "steps", "--", program.to_str().unwrap()]
        )
        .code,
        0
    );
    for tool in ["solve", "hang"] {
        let manifest = format!(
            "name = \"test.{tool}\"\nversion = \"v1\"\ndescription = \"For tests\"\nasync = true\n\
             [handler]\nmcp = {{ server = \"steps\", tool = \"{tool}\" }}\ntimeout = \"10m\"\n\
             [output]\ntype = \"object\"\n[output.properties]\npatch = {{ type = \"string\", contentMediaType = \"text/x-diff\" }}\n"
        );
        std::fs::write(home.packs().join(format!("{tool}.toml")), manifest).unwrap();
    }
    home
}

/// Runs a line of shell on a terminal of 24 lines and 60 columns, types Ctrl-C each time that the
/// next of these texts is shown, and returns all that was shown.
pub(crate) fn on_a_terminal(
    home: &Home,
    line: &str,
    environment: &[(&str, &str)],
    interrupt_at: &[&str],
) -> String {
    let mut command = Command::new("script");
    let line = format!("stty rows 24 cols 60; trap : INT; {line}; echo code $?");
    command
        .args(["-qec", &line, "/dev/null"])
        .env_clear()
        .envs(home.environment(KEY))
        .env("SHELL", "/bin/sh");
    command
        .env("TERM", "xterm-256color")
        .envs(environment.iter().copied())
        .current_dir(home.packs());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut shown, mut piece, mut texts) = (Vec::new(), [0; 4096], interrupt_at.iter().peekable());
    loop {
        let count = stdout.read(&mut piece).unwrap();
        if count == 0 {
            break;
        }
        shown.extend_from_slice(&piece[..count]);
        if texts
            .next_if(|text| String::from_utf8_lossy(&shown).contains(**text))
            .is_some()
        {
            stdin.write_all(b"\x03").unwrap();
        }
    }
    assert!(
        texts.next().is_none(),
        "{}",
        String::from_utf8_lossy(&shown)
    );
    child.wait().unwrap();
    String::from_utf8(shown).unwrap()
}

fn run(tool: &str) -> String {
    format!("{} run test.{tool}", env!("CARGO_BIN_EXE_helmdeck"))
}

/// Removes from the output all that helmdeck itself sends to a terminal.
///
/// That is colours, and how a line is written over.
pub(crate) fn bare(shown: &str) -> String {
    let (mut text, mut rest) = (String::new(), shown);
    while let Some((before, after)) = rest.split_once("\x1b[") {
        text.push_str(before);
        let end = after.find(|c: char| c.is_ascii_alphabetic()).unwrap();
        // Erasing a line or what is below, moving up or to a column, colours; never the screen, and
        // nothing else.
        let (parameters, last) = (&after[..end], &after[end..=end]);
        assert!(
            matches!(last, "m" | "K" | "A" | "B" | "G") || (last == "J" && parameters != "2"),
            "{after:?}"
        );
        rest = &after[end + 1..];
    }
    text + rest
}

#[test]
fn terminal_keeps_steps_and_colours_the_diff() {
    let home = home();
    let shown = on_a_terminal(&home, &run("solve"), &[], &[]);
    let text = bare(&shown);
    assert!(
        !text.contains(['\x1b', '\x07', '\u{9b}', '\u{202e}']),
        "{text:?}"
    );
    let steps = |of: &str| text.lines().filter(|line| line.contains(of)).count();
    assert_eq!(steps("cloning the repository"), 1, "{text}");
    assert_eq!(steps("grep -n needle"), 1, "a step is shown once: {text}");
    assert_eq!(
        steps(r"\u{1b}]0;owned\u{7}\u{1b}[2J\u{d} \u{9b}31m\u{202e}gnp.exe"),
        0,
        "it is longer than the line"
    );
    assert!(text.contains(r"2/30 \u{1b}]0;owned\u{7}"), "{text}");
    let long = text
        .lines()
        .find(|line| line.contains("3/30 sed"))
        .unwrap()
        .trim_end_matches('\r');
    let long = long.rsplit('\r').next().unwrap();
    assert!(
        long.contains('…') && long.ends_with("file.py -> 7") && long.chars().count() <= 60,
        "{long:?}"
    );

    assert!(shown.contains("\x1b[31msuccess: false\x1b[0m"), "{shown:?}");
    assert!(
        shown.contains("\x1b[1m+++ b/x.py\x1b[0m")
            && shown.contains("\x1b[36m@@ -1,2 +1,2 @@\x1b[0m def f():")
    );
    assert!(
        shown.contains("\x1b[31m-old\x1b[0m") && shown.contains("\x1b[32m+new\\u{1b}[2J\x1b[0m"),
        "{shown:?}"
    );
    let order: Vec<_> = [
        "success: false",
        "summary: tried",
        "patch:",
        "+new",
        "test.solve v1: ",
        "code 0",
    ]
    .map(|part| text.find(part).unwrap_or_else(|| panic!("{part}: {text}")))
    .to_vec();
    assert!(
        order.is_sorted(),
        "an outcome is an outcome, also one without success: {text}"
    );
}

#[test]
fn no_color_and_dumb_terminals_get_plain_lines() {
    let home = home();
    for environment in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let shown = on_a_terminal(&home, &run("solve"), &[environment], &[]);
        assert!(
            !shown.contains("\x1b[31m") && !shown.contains("\x1b[2m"),
            "{environment:?}: {shown:?}"
        );
        assert!(
            shown.contains("cloning the repository") && shown.contains("-old"),
            "{shown}"
        );
        if environment.0 == "TERM" {
            assert!(!shown.contains('\x1b'), "{shown:?}");
        }
    }
}

#[test]
fn piped_stdout_has_only_the_outcome() {
    let home = home();
    let plain = home.run(KEY, &["run", "test.solve"]);
    let expected = "success: false\nsummary: tried \\u{1b}[5mhard\npatch:\ndiff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n\
        @@ -1,2 +1,2 @@ def f():\n same\n-old\n+new\\u{1b}[2J\n";
    assert_eq!((plain.code, plain.stdout.as_str()), (0, expected));
    assert!(
        plain.stderr.starts_with("test.solve v1: ") && plain.stderr.lines().count() == 1,
        "{}",
        plain.stderr
    );
    let verbose = home.run(KEY, &["run", "test.solve", "-v"]);
    assert!(
        verbose.stderr.contains(" 10% cloning the repository"),
        "{}",
        verbose.stderr
    );

    // With stdout in a file, the terminal has the steps and the file the outcome.
    let shown = on_a_terminal(&home, &format!("{} --json >out", run("solve")), &[], &[]);
    let out = std::fs::read_to_string(home.packs().join("out")).unwrap();
    let outcome: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(outcome["output"]["success"], false);
    assert!(!bare(&shown).contains("  0:00  "), "{shown:?}");
    let shown = on_a_terminal(&home, &format!("{} >out", run("solve")), &[], &[]);
    assert!(bare(&shown).contains("cloning the repository"), "{shown:?}");
    assert_eq!(
        std::fs::read_to_string(home.packs().join("out")).unwrap(),
        expected
    );
}

#[test]
fn ctrl_c_cancels_and_second_ends_at_once() {
    let home = home();
    let shown = bare(&on_a_terminal(
        &home,
        &run("hang"),
        &[],
        &["thinking for ever"],
    ));
    assert!(
        shown.contains("stopping the call") && shown.contains("interrupted"),
        "{shown}"
    );
    assert!(
        shown.contains("code 130") && !shown.contains("before everything"),
        "{shown}"
    );
    let twice = bare(&on_a_terminal(
        &home,
        &run("hang"),
        &[],
        &["thinking for ever", "stopping the call"],
    ));
    assert!(
        twice.contains("interrupted before everything had come to its end"),
        "{twice}"
    );
    assert!(twice.contains("code 130"), "{twice}");
    let pid = std::fs::read_to_string(home.packs().join("pid")).unwrap();
    wait_for("the end of what the call ran", || {
        !Path::new("/proc").join(pid.trim()).join("exe").exists()
    });
}
