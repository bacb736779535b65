//! The shell for people and for scripts: lists, errors, progress, quiet, and fields from files.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::program::{Home, Run};
use crate::support::{KEY, wait_for};
use crate::terminal::{bare, on_a_terminal};

const HELMDECK: &str = env!("CARGO_BIN_EXE_helmdeck");

/// Runs the program with a text on stdin.
fn with_stdin(home: &Home, arguments: &[&str], text: &str) -> Run {
    let mut command = home.command(KEY, arguments);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    Run::of(child.wait_with_output().unwrap())
}

#[test]
fn family_and_nothing_propose_packs() {
    let home = Home::new();
    let family = home.run(KEY, &["run", "repo"]);
    assert_eq!(family.code, 3);
    let lines: Vec<&str> = family.stderr.lines().collect();
    assert_eq!(
        lines[0],
        "error: not_found: pack \"repo\" is a family of packs"
    );
    assert!(
        lines[1].starts_with("  repo.fetch  ") && lines[2].starts_with("  repo.map    "),
        "{}",
        family.stderr
    );
    assert!(
        lines
            .last()
            .unwrap()
            .starts_with("  hint: `helmdeck pack show repo.fetch`"),
        "{}",
        family.stderr
    );
    for arguments in [&["run"][..], &["cache", "explain"]] {
        let nothing = home.run(KEY, arguments);
        assert_eq!(nothing.code, 2, "{}", nothing.stderr);
        assert!(
            nothing
                .stderr
                .starts_with("error: no pack is named\n  conversation  "),
            "{}",
            nothing.stderr
        );
        assert!(
            nothing
                .stderr
                .contains("\n  test          .echo .plain .slow\n"),
            "{}",
            nothing.stderr
        );
        assert!(nothing.stderr.contains(&format!(
            "hint: `helmdeck {} conversation`",
            arguments.join(" ")
        )));
    }
    let near = home.run(KEY, &["run", "repo.mapp"]);
    assert!(
        near.stderr
            .contains("did you mean \"repo.map\"?\n  hint: `helmdeck pack show repo.map`"),
        "{}",
        near.stderr
    );
    let near = home.run(KEY, &["run", "repo__map"]);
    assert!(
        near.stderr
            .contains("did you mean \"repo.map\"?\n  hint: `helmdeck pack show repo.map`"),
        "{}",
        near.stderr
    );
}

#[test]
fn hint_names_the_real_pack() {
    let home = Home::new();
    let key = home.run(KEY, &["run", "test.echo", "rpo=a"]);
    let expected = "error: the pack takes no \"rpo\"; did you mean \"repo\"?\n  hint: `helmdeck pack show test.echo` prints what it takes\n";
    assert_eq!((key.code, key.stderr.as_str()), (2, expected));
    let json = home.run(KEY, &["run", "test.echo", "--input", "{\"rpo\": \"a\"}"]);
    assert!(
        json.stderr
            .contains("\n  at /: \"rpo\" is not known; did you mean \"repo\"?\n"),
        "{}",
        json.stderr
    );
    let typed = home.run(KEY, &["run", "test.echo", "--input", "{\"repo\": 1}"]);
    assert!(typed.stderr.contains("\n  at /repo: "), "{}", typed.stderr);
    assert!(
        typed
            .stderr
            .ends_with("\n  hint: `helmdeck pack show test.echo` prints what the pack takes\n"),
        "{}",
        typed.stderr
    );
    home.configure("[server]\nlisen = \"x\"\n[log]\nlevle = \"info\"\n");
    let config = home.run(KEY, &["pack", "list"]);
    let lines: Vec<&str> = config.stderr.lines().collect();
    assert_eq!(
        (config.code, lines[0]),
        (78, "error: the configuration has 2 mistakes")
    );
    for place in [
        "helmdeck.toml:2: unknown key",
        "helmdeck.toml:4: unknown key",
    ] {
        assert!(
            lines[1..3].iter().any(|line| line.contains(place)),
            "{lines:?}"
        );
    }
}

#[test]
fn one_field_comes_from_file_or_stdin() {
    let home = Home::new();
    std::fs::write(home.packs().join("text"), "one\ntwo\n").unwrap();
    let file = format!("repo=@{}", home.packs().join("text").display());
    let of = |run: Run| -> Value {
        assert_eq!(run.code, 0, "{}", run.stderr);
        serde_json::from_str::<Value>(&run.stdout).unwrap()["output"]["input"]["repo"].clone()
    };
    assert_eq!(
        of(home.run(KEY, &["run", "test.echo", &file, "--json"])),
        "one\ntwo\n"
    );
    assert_eq!(
        of(with_stdin(
            &home,
            &["run", "test.echo", "repo=@-", "--json"],
            "typed\n"
        )),
        "typed\n"
    );
    assert_eq!(
        of(with_stdin(
            &home,
            &["run", "test.echo", "repo:=@-", "--json"],
            "\"raw\""
        )),
        "raw"
    );
    assert_eq!(
        of(home.run(KEY, &["run", "test.echo", "repo=@@me", "--json"])),
        "@me"
    );
    let absent = home.run(KEY, &["run", "test.echo", "repo=@none"]);
    assert!(
        absent.code == 3 && absent.stderr.contains("hint: repo=@@none is the text"),
        "{}",
        absent.stderr
    );
    let twice = with_stdin(&home, &["run", "test.echo", "repo=@-", "repo=@-"], "x");
    assert!(
        twice.code == 2 && twice.stderr.contains("stdin can be read once"),
        "{}",
        twice.stderr
    );
}

#[test]
fn terminal_list_is_grouped_and_cut() {
    let home = Home::new();
    let shown = on_a_terminal(&home, &format!("{HELMDECK} pack list"), &[], &[]);
    assert!(
        shown.contains("\x1b[1mgithub\x1b[0m\r\n  github."),
        "{shown:?}"
    );
    let text = bare(&shown);
    assert!(
        text.lines()
            .all(|line| line.trim_end().chars().count() <= 60),
        "{text}"
    );
    assert!(
        text.contains("…") && text.contains("wait for something: `helmdeck pack list --all`"),
        "{text}"
    );
    let long = bare(&on_a_terminal(
        &home,
        &format!("{HELMDECK} pack list repo.map --long"),
        &[],
        &[],
    ));
    assert!(
        long.contains("\n  repo.map v1  builtin  reads\r\n    ") && !long.contains('…'),
        "{long}"
    );
    assert!(
        long.lines()
            .all(|line| line.trim_end().chars().count() <= 60),
        "{long}"
    );

    let piped = home.run(KEY, &["pack", "list", "repo."]).stdout;
    let names: Vec<&str> = piped
        .lines()
        .map(|line| line.split("  ").next().unwrap())
        .collect();
    assert_eq!(
        names,
        ["PACK", "repo.fetch", "repo.map", "repo.push"],
        "{piped}"
    );
    let two = "name = \"test.two\"\nversion = \"v1\"\ndescription = \"\"\"First\nSecond\"\"\"\n[handler]\ncommand = [\"true\"]\n";
    std::fs::write(home.packs().join("two.toml"), two).unwrap();
    let line = |arguments: &[&str]| {
        home.run(KEY, arguments)
            .stdout
            .lines()
            .nth(1)
            .unwrap()
            .to_owned()
    };
    assert!(line(&["pack", "list", "test.two"]).ends_with("  First"));
    assert!(line(&["pack", "list", "test.two", "--long"]).ends_with("  First Second"));
    let none = home.run(KEY, &["pack", "list", "gihub"]);
    assert_eq!(
        none.stderr,
        "no pack has \"gihub\" in its name; did you mean \"github\"?\n"
    );
}

#[test]
fn slow_call_moves_at_a_terminal_only() {
    let home = Home::new();
    home.install(
        "test.nap",
        "#!/bin/sh\ncat >/dev/null\nsleep 2\necho '{}'\n",
        "",
    );
    let run = format!("{HELMDECK} run test.nap --no-cache");
    let shown = on_a_terminal(&home, &run, &[], &[]);
    assert!(
        shown.contains(" 0:00 ") || shown.contains(" 0:01 "),
        "{shown:?}"
    );
    assert!(
        bare(&shown).contains("test.nap v1: 2"),
        "the time that it took: {shown:?}"
    );
    for (flag, environment) in [("-q", &[][..]), ("", &[("TERM", "dumb")]), ("2>err", &[])] {
        let shown = on_a_terminal(&home, &format!("{run} {flag}"), environment, &[]);
        assert!(
            !shown.contains(" 0:0") && shown.contains("code 0"),
            "{flag}: {shown:?}"
        );
        assert_eq!(
            shown.contains("test.nap v1: "),
            flag.is_empty(),
            "{flag}: {shown:?}"
        );
    }
    let piped = std::fs::read_to_string(home.packs().join("err")).unwrap();
    assert!(
        piped.starts_with("test.nap v1: ") && piped.lines().count() == 1,
        "{piped:?}"
    );
}

#[test]
fn terminal_gets_colours_and_no_json_log() {
    let home = Home::new();
    std::fs::write(home.packs().join("wrong.toml"), "name = 1\n").unwrap();
    let run = format!("{HELMDECK} run test.ech");
    let shown = on_a_terminal(&home, &run, &[], &[]);
    assert!(
        shown.contains("\x1b[31merror:\x1b[0m not_found")
            && shown.contains("\x1b[36mhint:\x1b[0m "),
        "{shown:?}"
    );
    assert!(
        shown.contains("WARN") && shown.contains("wrong.toml") && !shown.contains("{\""),
        "{shown:?}"
    );
    for environment in [("NO_COLOR", "1"), ("CLICOLOR", "0"), ("TERM", "dumb")] {
        let shown = on_a_terminal(&home, &format!("{run} -q"), &[environment], &[]);
        assert!(
            shown.contains("error: not_found") && !shown.contains('\x1b'),
            "{environment:?}: {shown:?}"
        );
        assert!(!shown.contains("WARN"), "{shown:?}");
    }
    let asked = on_a_terminal(&home, &run, &[("HELMDECK_LOG__FORMAT", "json")], &[]);
    assert!(asked.contains("{\"timestamp\""), "{asked:?}");
}

#[test]
fn quiet_server_says_nothing() {
    let home = Home::new();
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut command = home.command(KEY, &["serve", "-q", "--listen", &free.to_string()]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("an answer of the server", || {
        let Ok(mut stream) = TcpStream::connect(free) else {
            return false;
        };
        let mut answer = String::new();
        stream
            .write_all(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
            .unwrap();
        stream
            .read_to_string(&mut answer)
            .is_ok_and(|_| answer.contains(" 200 "))
    });
    assert!(
        Command::new("kill")
            .args(["-TERM", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let ended = Run::of(child.wait_with_output().unwrap());
    assert_eq!(
        (ended.code, ended.stdout.as_str(), ended.stderr.as_str()),
        (0, "", "")
    );
}

#[test]
fn empty_lists_say_what_to_do() {
    let home = Home::new();
    for (arguments, remedy) in [
        (&["artifact", "list"][..], "helmdeck artifact list --all"),
        (&["token", "list"], "helmdeck token create"),
        (&["cache", "ls"], "helmdeck memory status"),
    ] {
        let run = home.run(KEY, arguments);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert!(
            run.stdout.lines().count() == 1 && run.stdout.contains(remedy),
            "{arguments:?}: {}",
            run.stdout
        );
    }
}

#[test]
fn new_pack_has_a_folder_of_its_own() {
    let home = Home::new();
    let made = home.run(KEY, &["pack", "new", "team.look_up"]);
    let folder = home.packs().join("team.look_up");
    for file in ["team.look_up.toml", "team_look_up.sh"] {
        assert!(
            folder.join(file).is_file() && made.stdout.contains(&format!("team.look_up/{file}")),
            "{}",
            made.stdout
        );
    }
    assert_eq!(home.run(KEY, &["run", "team.look_up", "text=a"]).code, 0);
    let source = home.packs().join("source");
    let source = source.to_str().unwrap();
    let builtin = home
        .run(
            KEY,
            &[
                "pack",
                "new",
                "family.verb",
                "--kind",
                "builtin",
                "--dir",
                source,
            ],
        )
        .stdout;
    assert!(
        builtin.contains("pack!(\"family\", \"verb\", verb::Verb)")
            && !builtin.contains("Builtin {"),
        "{builtin}"
    );
}
