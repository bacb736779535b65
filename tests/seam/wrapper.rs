//! `contrib/process_seam.py`: callers in Python use the program unchanged.

use std::path::Path;
use std::process::Command;

use super::{Ended, Fixture};

/// Prepares a run of Python.
fn python(place: &Fixture, arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", place.path("home"));
    command
        .env("MEMORY_VAULT_PATH", place.path("vault"))
        .env("HELMDECK_BIN", env!("CARGO_BIN_EXE_helmdeck"));
    command
        .env("PYTHONPATH", contrib())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
        .args(["-S"])
        .args(arguments)
        .current_dir(place.path("repo"))
        .stdin(std::process::Stdio::null());
    command
}

fn contrib() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("contrib")
}

fn script() -> String {
    contrib().join("process_seam.py").display().to_string()
}

#[test]
fn as_a_program_it_is_the_command() {
    let place = Fixture::new();
    for words in [
        &["recall-here"][..],
        &["state-path", "plan"],
        &["state-path", "plan", "--plan", "../a"],
        &["bogus"],
        &["plans"],
    ] {
        let script = script();
        let mut command = python(&place, &[&[script.as_str()][..], words].concat());
        assert_eq!(Ended::of(&mut command), place.run(words), "{words:?}");
    }
}

#[test]
fn main_in_process_returns_exit_code() {
    let place = Fixture::new();
    let code = r##"
import sys
import process_seam as seam

assert seam.main(["bogus"]) == 2
sys.argv = ["process_seam.py", "plans"]
assert seam.main() == 0
print("still here")
"##;
    let ended = Ended::of(&mut python(&place, &["-c", code]));
    assert!(
        ended.code == 0 && ended.stdout.ends_with("still here\n"),
        "{ended:?}"
    );
}

#[test]
fn without_the_program_it_says_so() {
    let place = Fixture::new();
    let script = script();
    let mut command = python(&place, &[&script, "state-path", "plan"]);
    let ended = Ended::of(command.env("HELMDECK_BIN", "/nowhere/helmdeck"));
    ended.is_loud(2, "no-helmdeck");
}

#[test]
fn as_a_module_it_has_the_calls() {
    let place = Fixture::new();
    place.write("bound/.harness/active-plan", "gone");
    place.write("vault/projects/tasked/tasks/001-a/plan.md", "x");
    place.write(
        "tasked/.harness/project.json",
        "{\"vault_project\": \"tasked\"}",
    );
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
plan, progress = seam.state_path({"plan": "foo"}, "both")
assert (plan, progress) == (seam.state_path({"plan": "foo"}, "plan"), seam.state_path({"plan": "foo"}, "progress"))

listed = seam.plans()
assert listed["store"] == "vault" and listed["active"] is None and listed["warnings"] == [], listed
[listed] = listed["plans"]
assert (listed["status"], listed["last_progress"], listed["path"]) == ("in work", "last words", str(path)), listed
assert [told["code"] for told in seam.plans({"cwd": "../bound"})["warnings"]] == ["corrupt-state"]
assert [told["code"] for told in seam.plans({"cwd": "a\0b"})["warnings"]] == ["failed"]

def raises(kind, context, which="plan"):
    try:
        seam.state_path(context, which)
    except kind as error:
        return str(error)
    raise AssertionError((kind, context))

raises(ValueError, {}, "bogus")
raises(seam.ActivePlanError, {"cwd": "../bound"}, "both")
assert "unsafe plan name" in raises(ValueError, {"plan": "../escape"})
assert "active-plan" in raises(seam.ActivePlanError, {"cwd": "../bound"})
raises(seam.TaskNameRequired, {"cwd": "../tasked"})

import os
os.environ["HELMDECK_BIN"] = "/nowhere/helmdeck"
assert seam.recall_here({}) == "" and seam.offer_save_here({}, candidate) == []
here = pathlib.Path.cwd() / ".harness"
assert seam.state_path({}, "plan") == here / "PLAN.md", seam.state_path({}, "plan")
assert seam.state_path({"plan": " "}, "both") == (here / "PLAN.md", here / "progress.md")
assert seam.state_path({}, "tracker") == here / "tracker.md"
raises(FileNotFoundError, {"plan": "foo"})
raises(FileNotFoundError, {"cwd": "../bound"})
raises(ValueError, {}, "bogus")
listed = seam.plans({})
assert listed["plans"] == [] and [told["code"] for told in listed["warnings"]] == ["no-helmdeck"], listed
print("well", end="")
"##;
    let mut command = python(&place, &["-c", code]);
    let ended = Ended::of(&mut command);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (0, "well"),
        "{}",
        ended.stderr
    );
}

/// A folder with a link to the program under its own name.
fn with_the_program_on_the_path(place: &Fixture) -> String {
    std::fs::create_dir_all(place.path("bin")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_helmdeck"), place.path("bin/deck")).unwrap();
    format!(
        "{}:/usr/local/bin:/usr/bin:/bin",
        place.path("bin").display()
    )
}

#[test]
fn program_is_found_on_the_path() {
    let place = Fixture::new();
    let path = with_the_program_on_the_path(&place);
    let script = script();
    let mut command = python(&place, &[&script, "state-path", "plan"]);
    let ended = Ended::of(command.env("PATH", &path).env("HELMDECK_BIN", "deck"));
    assert_eq!(ended, place.run(&["state-path", "plan"]));
    let code = "import process_seam as seam; print(seam.state_path({}, 'plan'))";
    let ended = Ended::of(
        python(&place, &["-c", code])
            .env("PATH", &path)
            .env("HELMDECK_BIN", "deck"),
    );
    assert_eq!(ended, place.run(&["state-path", "plan"]));
    let mut command = python(&place, &[&script, "state-path", "plan"]);
    Ended::of(
        command
            .env("PATH", &path)
            .env("HELMDECK_BIN", "no-such-deck"),
    )
    .is_loud(2, "no-helmdeck");
}

#[test]
fn non_json_candidate_is_still_offered() {
    let place = Fixture::new();
    let code = r##"
import process_seam as seam

odd = {"kind": "fix", "body": "b", "score": float("nan"), "most": [float("inf"), (1.5, float("-inf"))], 7: {1, 2}, "path": seam.Path("a")}
[offer] = seam.offer_save_here({}, odd)
assert offer["project"] == "seam-fixture" and offer["body"] == "b", offer
assert offer["score"] is None and offer["most"] == [None, [1.5, None]], offer
assert offer["path"] == "a" and "7" in offer, offer
assert odd["score"] != odd["score"], "the caller's own stays"
print("well", end="")
"##;
    let ended = Ended::of(&mut python(&place, &["-c", code]));
    assert_eq!(
        (ended.code, ended.stdout.as_str(), ended.stderr.as_str()),
        (0, "well", "")
    );
}

#[test]
fn what_another_program_prints_is_no_path() {
    let place = Fixture::new();
    let code = r##"
import process_seam as seam

for which in ("plan", "both"):
    try:
        seam.state_path({}, which)
    except seam.SeamError as error:
        assert "HELMDECK_BIN" in str(error), error
    else:
        raise AssertionError(which)
assert seam.plans()["warnings"] != [], seam.plans()
print("well", end="")
"##;
    let ended = Ended::of(python(&place, &["-c", code]).env("HELMDECK_BIN", "/bin/true"));
    assert_eq!(
        (ended.code, ended.stdout.as_str(), ended.stderr.as_str()),
        (0, "well", "")
    );
}

#[test]
fn non_text_plan_is_a_wrong_value() {
    let place = Fixture::new();
    let code = r##"
import os
import process_seam as seam

for plan in ("\udcff", b"\xff", os.fsdecode(b"a\xff"), "a\0b"):
    try:
        seam.state_path({"plan": plan}, "plan")
    except ValueError as error:
        assert isinstance(error, seam.UnsafeNameError), (plan, type(error))
    else:
        raise AssertionError(plan)
print("well", end="")
"##;
    let ended = Ended::of(&mut python(&place, &["-c", code]));
    assert_eq!(
        (ended.code, ended.stdout.as_str(), ended.stderr.as_str()),
        (0, "well", "")
    );
}

#[test]
fn hanging_program_is_not_waited_for() {
    let place = Fixture::new();
    place.write("bin/stuck", "#!/bin/sh\nexec sleep 60\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.path("bin/stuck"), mode).unwrap();
    let code = r##"
import process_seam as seam

seam.TIMEOUT = 0.2
assert seam.recall_here({}) == "" and seam.offer_save_here({}, "words") == []
try:
    seam.state_path({}, "plan")
except seam.SeamError as error:
    assert error.code == "timeout", error.code
else:
    raise AssertionError("it ended")
print("well", end="")
"##;
    let ended =
        Ended::of(python(&place, &["-c", code]).env("HELMDECK_BIN", place.path("bin/stuck")));
    assert_eq!(
        (ended.code, ended.stdout.as_str(), ended.stderr.as_str()),
        (0, "well", "")
    );
}
