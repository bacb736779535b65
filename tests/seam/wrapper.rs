//! `contrib/process_seam.py`: callers in Python use the program unchanged.

use std::path::Path;
use std::process::Command;

use super::{Ended, Place};

/// Prepares a run of Python; `None` where there is none.
fn python(place: &Place, arguments: &[&str]) -> Option<Command> {
    if Command::new("python3").arg("-V").output().is_err() {
        println!("python3 is missing: the wrapper was not tried");
        return None;
    }
    let mut command = Command::new("python3");
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", place.path("home"));
    command.env("MEMORY_VAULT_PATH", place.path("vault")).env("HELMDECK_BIN", env!("CARGO_BIN_EXE_helmdeck"));
    command.env("PYTHONPATH", contrib()).env("PYTHONDONTWRITEBYTECODE", "1");
    command.args(["-S"]).args(arguments).current_dir(place.path("repo")).stdin(std::process::Stdio::null());
    Some(command)
}

fn contrib() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib")
}

fn script() -> String {
    contrib().join("process_seam.py").display().to_string()
}

#[test]
fn as_a_program_it_is_the_command() {
    let place = Place::new();
    for words in [
        &["recall-here"][..],
        &["state-path", "plan"],
        &["state-path", "plan", "--plan", "../a"],
        &["bogus"],
        &["plans"],
    ] {
        let script = script();
        let Some(mut command) = python(&place, &[&[script.as_str()][..], words].concat()) else { return };
        assert_eq!(Ended::of(&mut command), place.run(words), "{words:?}");
    }
}

#[test]
fn without_the_program_it_says_so() {
    let place = Place::new();
    let script = script();
    let Some(mut command) = python(&place, &[&script, "state-path", "plan"]) else { return };
    let ended = Ended::of(command.env("HELMDECK_BIN", "/nowhere/helmdeck"));
    ended.is_loud(2, "no-helmdeck");
}

#[test]
fn as_a_module_it_has_the_three_calls() {
    let place = Place::new();
    place.write("bound/.harness/active-plan", "gone");
    place.write("vault/projects/tasked/tasks/001-a/plan.md", "x");
    place.write("tasked/.harness/project.json", "{\"vault_project\": \"tasked\"}");
    let code = r##"
import pathlib, sys
import process_seam as seam

text = seam.recall_here(None)
assert "Auto-context recall" in text and "phase: work" in text, text
assert text == seam.recall_here({"phase": "not-a-real-phase"}, query="words", limit=0)
assert "phase: review" in seam.recall_here({"phase": "review"})

candidate = {"kind": "fix", "body": "b"}
[offer] = seam.offer_save_here({"phase": "review"}, candidate)
assert offer["project"] == "seam-fixture" and offer["phase"] == "review" and "seam-fixture" in offer["target"], offer
assert candidate == {"kind": "fix", "body": "b"}
assert seam.offer_save_here({}, "words")[0]["body"] == "words"
assert [seam.offer_save_here({}, nothing) for nothing in (None, "", {})] == [[], [], []]

path = seam.state_path({}, "plan")
assert isinstance(path, pathlib.Path) and path.name == "PLAN.md", path
assert seam.state_path({"plan": "foo", "cwd": pathlib.Path(".")}, "progress").name == "progress-foo.md"
assert seam.state_path({"plan": " "}, "plan").name == "PLAN.md"

def raises(kind, context, which="plan"):
    try:
        seam.state_path(context, which)
    except kind as error:
        return str(error)
    raise AssertionError((kind, context))

raises(ValueError, {}, "bogus")
assert "unsafe plan name" in raises(ValueError, {"plan": "../escape"})
assert "active-plan" in raises(seam.ActivePlanError, {"cwd": "../bound"})
raises(seam.TaskNameRequired, {"cwd": "../tasked"})

import os
os.environ["HELMDECK_BIN"] = "/nowhere/helmdeck"
assert seam.recall_here({}) == "" and seam.offer_save_here({}, candidate) == []
raises(FileNotFoundError, {})
print("well", end="")
"##;
    let Some(mut command) = python(&place, &["-c", code]) else { return };
    let ended = Ended::of(&mut command);
    assert_eq!((ended.code, ended.stdout.as_str()), (0, "well"), "{}", ended.stderr);
}
