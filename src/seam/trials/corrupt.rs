//! Every way in which what binds a work tree can be corrupt. Each is an error of one line, never the plan without a name.

use super::place::Place;
use crate::{Context, StateError, StateFault, Which};

fn assert_loud(error: &StateError, fault: StateFault, what: &str) {
    assert_eq!(error.fault, fault, "{what}: {error}");
    assert_eq!(error.fault.exit_code(), 2, "{what}");
    let line = error.to_string();
    assert!(
        !line.contains('\n') && line.contains("; ") && line.contains(&*error.path.to_string_lossy()),
        "{what}: {line}"
    );
}

const MARKER: &str = "repo/.harness/active-plan";

/// Runs a case in the project's own state and in the vault's.
fn in_both(what: &str, fault: StateFault, prepare: impl Fn(&Place)) {
    for place in [Place::new(), Place::with_vault()] {
        for plan in ["PLAN.md", "PLAN-foo.md"] {
            place.write(&format!("repo/.harness/{plan}"), "- [ ] a");
            place.note(&format!("_harness/{plan}"), "- [ ] a");
        }
        assert!(place.state(Which::Plan).is_ok());
        prepare(&place);
        for which in Which::ALL {
            assert_loud(&place.state(which).unwrap_err(), fault, what);
        }
        // The calls that never fail still do not, nor does the list; the doctor tells it.
        let (seam, context) = (place.seam(), place.context());
        let _ = (seam.recall_here(&context, None, None), seam.offer_save_here(&context, &"x".into()));
        assert!(!seam.plans(&context).warnings.is_empty(), "{what}");
        let doctor = seam.doctor(&context);
        assert!(!doctor.ok && doctor.error.is_some(), "{what}");
    }
}

#[test]
fn every_corrupt_marker_is_loud() {
    for (what, bytes) in [
        ("empty", &b""[..]),
        ("blank", b" \n\t"),
        ("names the plan without a name", b"PLAN.md"),
        ("half a name", b"PLAN-"),
        ("names an absent plan", b"absent"),
        ("names an absent plan by its file", b"PLAN-absent.md"),
        ("leads up", b"../foo"),
        ("is ..", b".."),
        ("is .", b"."),
        ("leads down", b"a/foo"),
        ("has a backslash", b"a\\foo"),
        ("has a NUL", b"foo\0"),
        ("has a control character", b"fo\x1bo"),
        ("has two lines", b"foo\nbar"),
        ("is no UTF-8", b"foo\xff"),
        ("is too long", &[b'x'; 5_000]),
        ("names too long a plan", &[b'x'; 250]),
    ] {
        in_both(what, StateFault::CorruptState, |place| place.write(MARKER, bytes));
    }
}

#[test]
fn a_marker_with_bytes_that_are_no_text_names_no_plan_that_looks_like_it() {
    in_both("replaced", StateFault::CorruptState, |place| {
        place.write("repo/.harness/PLAN-foo\u{fffd}.md", "a");
        place.note("_harness/PLAN-foo\u{fffd}.md", "a");
        place.write(MARKER, b"foo\xff");
    });
}

#[test]
fn a_marker_that_is_no_readable_file_is_loud() {
    in_both("a folder", StateFault::CorruptState, |place| std::fs::create_dir(place.path(MARKER)).unwrap());
    in_both("a link to nowhere", StateFault::CorruptState, |place| place.link("nowhere", MARKER));
    in_both("a link to itself", StateFault::CorruptState, |place| place.link("active-plan", MARKER));
    in_both("a link to a folder", StateFault::CorruptState, |place| place.link(".", MARKER));
    in_both("unreadable", StateFault::CorruptState, |place| {
        place.write(MARKER, "foo");
        place.look.refuse(place.path(MARKER));
    });
    in_both("a pipe", StateFault::CorruptState, |place| {
        assert!(std::process::Command::new("mkfifo").arg(place.path(MARKER)).status().unwrap().success());
    });
}

#[test]
fn a_marker_to_a_plan_without_text_is_loud() {
    for (what, text) in [("an empty plan", ""), ("a blank plan", " \n\u{a0}\n")] {
        in_both(what, StateFault::CorruptState, |place| {
            place.write("repo/.harness/PLAN-foo.md", text);
            place.note("_harness/PLAN-foo.md", text);
            place.write(MARKER, "foo");
        });
    }
    in_both("a plan that is a folder", StateFault::CorruptState, |place| {
        std::fs::create_dir(place.path("repo/.harness/PLAN-bar.md")).unwrap();
        place.write(MARKER, "bar");
    });
    in_both("a plan that is a link to nowhere", StateFault::CorruptState, |place| {
        place.link("nowhere", "repo/.harness/PLAN-bar.md");
        place.write(MARKER, "bar");
    });
}

#[test]
fn a_link_to_a_sound_marker_is_sound() {
    let place = Place::new();
    place.write("repo/.harness/PLAN-foo.md", "a");
    place.write("repo/.harness/markers/one", "PLAN-foo.md\n");
    place.link("markers/one", MARKER);
    assert_eq!(place.state(Which::Plan).unwrap(), place.path("repo/.harness/PLAN-foo.md"));
    // The folder itself may lie anywhere.
    std::fs::rename(place.path("repo/.harness"), place.path("elsewhere")).unwrap();
    place.link("../elsewhere", "repo/.harness");
    assert_eq!(place.state(Which::Plan).unwrap(), place.path("repo/.harness/PLAN-foo.md"));
}

#[test]
fn what_binds_and_leads_out_of_its_folder_is_loud_and_is_not_quoted() {
    for file in ["active-plan", ".project-mode", "project.json"] {
        for (text, secret) in
            [("SECRET WORDS", "SECRET"), ("local", ""), (r#"{"vault_project": "a/SECRET"}"#, "SECRET")]
        {
            for link in ["../outside", "../../outside"] {
                in_both(&format!("{file} {link}"), StateFault::CorruptState, |place| {
                    let path = format!("repo/.harness/{file}");
                    let _ = std::fs::remove_file(place.path(&path));
                    place.write("repo/outside", text);
                    place.write("outside", text);
                    place.link(link, &path);
                    let error = place.state(Which::Plan).unwrap_err();
                    assert_eq!(error.path, place.path(&path));
                    let doctor = format!("{error} {:?}", place.seam().doctor(&place.context()));
                    assert!(error.to_string().contains("leads out"), "{error}");
                    assert!(secret.is_empty() || !doctor.contains(secret), "{doctor}");
                });
            }
        }
    }
}

#[test]
fn a_plan_that_is_no_utf8_is_still_a_plan() {
    let place = Place::new();
    place.write("repo/.harness/PLAN-foo.md", b"\xff\xfe");
    place.write(MARKER, "foo");
    assert!(place.state(Which::Plan).is_ok());
}

#[test]
fn what_says_where_state_is_kept_and_cannot_be_read_is_loud() {
    for file in [".project-mode", "project.json"] {
        let path = format!("repo/.harness/{file}");
        in_both(file, StateFault::CorruptState, |place| place.write(&path, b"{\"vault_project\": \"a\xff\"}"));
        in_both(file, StateFault::CorruptState, |place| {
            let _ = std::fs::remove_file(place.path(&path));
            std::fs::create_dir(place.path(&path)).unwrap();
        });
        in_both(file, StateFault::CorruptState, |place| {
            let _ = std::fs::remove_file(place.path(&path));
            place.link("nowhere", &path);
        });
        in_both(file, StateFault::CorruptState, |place| {
            place.write(&path, "{}");
            place.look.refuse(place.path(&path));
        });
    }
}

#[test]
fn a_folder_of_state_that_is_no_folder_is_loud() {
    for (what, is_link) in [(".harness is a file", false), (".harness leads nowhere", true)] {
        in_both(what, StateFault::CorruptState, |place| {
            std::fs::remove_dir_all(place.path("repo/.harness")).unwrap();
            if is_link {
                place.link("/nowhere/at/all", "repo/.harness");
            } else {
                place.write("repo/.harness", "x");
            }
        });
    }
}

#[test]
fn an_unsafe_name_of_the_project_is_loud() {
    for name in ["../../etc", "a/b", "..", ".", "a\\\\b", "a\\nb", "a\\u0000b", "a\\u001b[2J", "/etc"] {
        in_both(name, StateFault::UnsafeName, |place| {
            place.write("repo/.harness/project.json", format!("{{\"vault_project\": \"{name}\"}}"));
        });
    }
    in_both("github", StateFault::UnsafeName, |place| {
        place.write("repo/.harness/project.json", r#"{"github": {"repo": "owner/.."}}"#);
    });
    let unsafe_origin = |place: &Place| {
        place.remove("repo/.harness/project.json");
        place.write("repo/.git/HEAD", "ref: refs/heads/main\n");
        place.write("repo/.git/config", "[remote \"origin\"]\n\turl = https://host/..\n");
    };
    let place = Place::with_vault();
    unsafe_origin(&place);
    let error = place.state(Which::Plan).unwrap_err();
    assert_loud(&error, StateFault::UnsafeName, "origin");
    assert_eq!(error.path, place.path("repo/.git/config"), "where the name stands");
    // Where nobody needs it, nobody is stopped.
    let place = Place::new();
    unsafe_origin(&place);
    assert_eq!(place.state(Which::Plan).unwrap(), place.path("repo/.harness/PLAN.md"));
}

#[test]
fn an_unsafe_plan_that_is_asked_for_is_loud() {
    for place in [Place::new(), Place::with_vault()] {
        for plan in [
            "../etc",
            "a/b",
            "..",
            ".",
            "x\\y",
            "a\nb",
            "a\0",
            "\u{1b}[2J",
            "PLAN-../x.md",
            "a\u{202e}b",
            &"x".repeat(250),
        ] {
            assert_loud(&place.plan(plan).unwrap_err(), StateFault::UnsafeName, plan);
        }
    }
}

#[test]
fn no_error_shows_more_than_one_line_of_what_it_found() {
    let place = Place::new();
    place.write(MARKER, format!("a/{}\nsecond \u{1b}[2J line", "x".repeat(500)));
    let line = place.state(Which::Plan).unwrap_err().to_string();
    assert!(!line.contains(['\n', '\u{1b}']) && line.len() < 500, "{line}");
    let odd = place.path("re\npo");
    std::fs::create_dir_all(odd.join(".harness/active-plan")).unwrap();
    let line = place.seam().state(&Context { cwd: Some(odd), ..Context::default() }).unwrap_err().to_string();
    assert!(line.contains("re\\npo") && !line.contains('\n'), "{line}");
}
