//! Cases of the original's own tests of its commands that fit nowhere else.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::{Ended, Fixture};

#[test]
fn dangling_marker_is_named_on_stderr() {
    let place = Fixture::new();
    place.write("repo/.harness/active-plan", "gone");
    let ended = place.run(&["state-path", "plan"]);
    ended.is_loud(2, "corrupt-state");
    assert!(ended.stderr.contains("active-plan"), "{ended:?}");
}

#[test]
fn relative_folder_is_shown_as_given() {
    let place = Fixture::empty();
    let from =
        |folder: &str, words: &[&str]| Ended::of(place.bare(words).current_dir(place.path(folder)));
    let ended = from("", &["state-path", "plan", "--cwd", "repo"]);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (0, "repo/.harness/PLAN.md\n")
    );
    let ended = from("home", &["state-path", "progress", "--cwd", "./../repo//"]);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (0, "../repo/.harness/progress.md\n")
    );
    place.write("repo/.harness/active-plan", "gone");
    from("", &["state-path", "plan", "--cwd", "repo"]).is_loud(2, "corrupt-state");
}

#[test]
fn bound_task_is_listed_as_bound() {
    let place = Fixture::new();
    place.write("repo/.harness/active-plan", "a");
    place.write(
        "vault/projects/seam-fixture/tasks/001-a/plan.md",
        "Status: open\n",
    );
    let ended = place.run(&["plans"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let task = place
        .path("vault/projects/seam-fixture/tasks/001-a/plan.md")
        .display()
        .to_string();
    assert!(
        ended.stdout.contains(&format!("{task}\topen\t")),
        "{ended:?}"
    );
    let last = ended.stdout.lines().last().unwrap().to_owned();
    assert!(
        last == "active-binding=a" || last == "active-binding=001-a",
        "{last}"
    );
    assert_eq!(
        place.run(&["state-path", "plan"]).stdout,
        format!("{task}\n")
    );
}

#[test]
fn vault_path_need_not_be_utf8() {
    let place = Fixture::new();
    let vault = place.path("").join(OsStr::from_bytes(b"v\xff"));
    std::fs::rename(place.path("vault"), &vault).unwrap();
    let output = place
        .bare(&["state-path", "plan"])
        .env("HELMDECK_MEMORY", &vault)
        .output()
        .unwrap();
    let expected = vault.join("projects/seam-fixture/_harness/PLAN.md");
    assert_eq!(
        output.stdout,
        [expected.as_os_str().as_bytes(), b"\n"].concat()
    );
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}
