//! Every way in which what binds a work tree can be corrupt. Each is an error of one line, never
//! the plan without a name.

use super::fixture::Fixture;
use crate::{Context, StateError, StateFault, Which};

fn assert_loud(error: &StateError, fault: StateFault, what: &str) {
    assert_eq!(error.fault, fault, "{what}: {error}");
    assert_eq!(error.fault.exit_code(), 2, "{what}");
    let line = error.to_string();
    assert!(
        !line.contains('\n')
            && line.contains("; ")
            && line.contains(&*error.path.to_string_lossy()),
        "{what}: {line}"
    );
}

const MARKER: &str = "repo/.harness/active-plan";

/// Runs a case in the project's own state and in the vault's.
fn in_both(what: &str, fault: StateFault, prepare: impl Fn(&Fixture)) {
    for fixture in [Fixture::new(), Fixture::with_vault()] {
        for plan in ["PLAN.md", "PLAN-foo.md"] {
            fixture.write(&format!("repo/.harness/{plan}"), "- [ ] a");
            fixture.note(&format!("_harness/{plan}"), "- [ ] a");
        }
        assert!(fixture.state(Which::Plan).is_ok());
        prepare(&fixture);
        for which in Which::ALL {
            assert_loud(&fixture.state(which).unwrap_err(), fault, what);
        }
        // The calls that never fail still do not, nor does the list; the doctor tells it.
        let (seam, context) = (fixture.seam(), fixture.context());
        let _ = (
            seam.recall_here(&context, None, None),
            seam.offer_save_here(&context, &"x".into()),
        );
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
        in_both(what, StateFault::CorruptState, |fixture| {
            fixture.write(MARKER, bytes)
        });
    }
}

#[test]
fn a_marker_with_bytes_that_are_no_text_names_no_plan_that_looks_like_it() {
    in_both("replaced", StateFault::CorruptState, |fixture| {
        fixture.write("repo/.harness/PLAN-foo\u{fffd}.md", "a");
        fixture.note("_harness/PLAN-foo\u{fffd}.md", "a");
        fixture.write(MARKER, b"foo\xff");
    });
}

#[test]
fn a_marker_that_is_no_readable_file_is_loud() {
    in_both("a folder", StateFault::CorruptState, |fixture| {
        std::fs::create_dir(fixture.path(MARKER)).unwrap()
    });
    in_both("a link to nowhere", StateFault::CorruptState, |fixture| {
        fixture.link("nowhere", MARKER)
    });
    in_both("a link to itself", StateFault::CorruptState, |fixture| {
        fixture.link("active-plan", MARKER)
    });
    in_both("a link to a folder", StateFault::CorruptState, |fixture| {
        fixture.link(".", MARKER)
    });
    in_both("unreadable", StateFault::CorruptState, |fixture| {
        fixture.write(MARKER, "foo");
        fixture.look.refuse(fixture.path(MARKER));
    });
    in_both("a pipe", StateFault::CorruptState, |fixture| {
        assert!(
            std::process::Command::new("mkfifo")
                .arg(fixture.path(MARKER))
                .status()
                .unwrap()
                .success()
        );
    });
}

#[test]
fn a_marker_to_a_plan_without_text_is_loud() {
    for (what, text) in [("an empty plan", ""), ("a blank plan", " \n\u{a0}\n")] {
        in_both(what, StateFault::CorruptState, |fixture| {
            fixture.write("repo/.harness/PLAN-foo.md", text);
            fixture.note("_harness/PLAN-foo.md", text);
            fixture.write(MARKER, "foo");
        });
    }
    in_both(
        "a plan that is a folder",
        StateFault::CorruptState,
        |fixture| {
            std::fs::create_dir(fixture.path("repo/.harness/PLAN-bar.md")).unwrap();
            fixture.write(MARKER, "bar");
        },
    );
    in_both(
        "a plan that is a link to nowhere",
        StateFault::CorruptState,
        |fixture| {
            fixture.link("nowhere", "repo/.harness/PLAN-bar.md");
            fixture.write(MARKER, "bar");
        },
    );
}

#[test]
fn a_link_to_a_sound_marker_is_sound() {
    let fixture = Fixture::new();
    fixture.write("repo/.harness/PLAN-foo.md", "a");
    fixture.write("repo/.harness/markers/one", "PLAN-foo.md\n");
    fixture.link("markers/one", MARKER);
    assert_eq!(
        fixture.state(Which::Plan).unwrap(),
        fixture.path("repo/.harness/PLAN-foo.md")
    );
    // The folder itself may lie anywhere.
    std::fs::rename(fixture.path("repo/.harness"), fixture.path("elsewhere")).unwrap();
    fixture.link("../elsewhere", "repo/.harness");
    assert_eq!(
        fixture.state(Which::Plan).unwrap(),
        fixture.path("repo/.harness/PLAN-foo.md")
    );
}

#[test]
fn what_binds_and_leads_out_of_its_folder_is_loud_and_is_not_quoted() {
    for file in ["active-plan", ".project-mode", "project.json"] {
        for (text, secret) in [
            ("SECRET WORDS", "SECRET"),
            ("local", ""),
            (r#"{"vault_project": "a/SECRET"}"#, "SECRET"),
        ] {
            for link in ["../outside", "../../outside"] {
                in_both(
                    &format!("{file} {link}"),
                    StateFault::CorruptState,
                    |fixture| {
                        let path = format!("repo/.harness/{file}");
                        let _ = std::fs::remove_file(fixture.path(&path));
                        fixture.write("repo/outside", text);
                        fixture.write("outside", text);
                        fixture.link(link, &path);
                        let error = fixture.state(Which::Plan).unwrap_err();
                        assert_eq!(error.path, fixture.path(&path));
                        let doctor =
                            format!("{error} {:?}", fixture.seam().doctor(&fixture.context()));
                        assert!(error.to_string().contains("leads out"), "{error}");
                        assert!(secret.is_empty() || !doctor.contains(secret), "{doctor}");
                    },
                );
            }
        }
    }
}

#[test]
fn a_plan_that_is_no_utf8_is_still_a_plan() {
    let fixture = Fixture::new();
    fixture.write("repo/.harness/PLAN-foo.md", b"\xff\xfe");
    fixture.write(MARKER, "foo");
    assert!(fixture.state(Which::Plan).is_ok());
}

#[test]
fn what_says_where_state_is_kept_and_cannot_be_read_is_loud() {
    for file in [".project-mode", "project.json"] {
        let path = format!("repo/.harness/{file}");
        in_both(file, StateFault::CorruptState, |fixture| {
            fixture.write(&path, b"{\"vault_project\": \"a\xff\"}")
        });
        in_both(file, StateFault::CorruptState, |fixture| {
            let _ = std::fs::remove_file(fixture.path(&path));
            std::fs::create_dir(fixture.path(&path)).unwrap();
        });
        in_both(file, StateFault::CorruptState, |fixture| {
            let _ = std::fs::remove_file(fixture.path(&path));
            fixture.link("nowhere", &path);
        });
        in_both(file, StateFault::CorruptState, |fixture| {
            fixture.write(&path, "{}");
            fixture.look.refuse(fixture.path(&path));
        });
    }
}

#[test]
fn a_folder_of_state_that_is_no_folder_is_loud() {
    for (what, is_link) in [
        (".harness is a file", false),
        (".harness leads nowhere", true),
    ] {
        in_both(what, StateFault::CorruptState, |fixture| {
            std::fs::remove_dir_all(fixture.path("repo/.harness")).unwrap();
            if is_link {
                fixture.link("/nowhere/at/all", "repo/.harness");
            } else {
                fixture.write("repo/.harness", "x");
            }
        });
    }
}

#[test]
fn an_unsafe_name_of_the_project_is_loud() {
    for name in [
        "../../etc",
        "a/b",
        "..",
        ".",
        "a\\\\b",
        "a\\nb",
        "a\\u0000b",
        "a\\u001b[2J",
        "/etc",
    ] {
        in_both(name, StateFault::UnsafeName, |fixture| {
            fixture.write(
                "repo/.harness/project.json",
                format!("{{\"vault_project\": \"{name}\"}}"),
            );
        });
    }
    in_both("github", StateFault::UnsafeName, |fixture| {
        fixture.write(
            "repo/.harness/project.json",
            r#"{"github": {"repo": "owner/.."}}"#,
        );
    });
    let unsafe_origin = |fixture: &Fixture| {
        fixture.remove("repo/.harness/project.json");
        fixture.write("repo/.git/HEAD", "ref: refs/heads/main\n");
        fixture.write(
            "repo/.git/config",
            "[remote \"origin\"]\n\turl = https://host/..\n",
        );
    };
    let fixture = Fixture::with_vault();
    unsafe_origin(&fixture);
    let error = fixture.state(Which::Plan).unwrap_err();
    assert_loud(&error, StateFault::UnsafeName, "origin");
    assert_eq!(
        error.path,
        fixture.path("repo/.git/config"),
        "where the name stands"
    );
    // Without a need for it, no caller is stopped.
    let fixture = Fixture::new();
    unsafe_origin(&fixture);
    assert_eq!(
        fixture.state(Which::Plan).unwrap(),
        fixture.path("repo/.harness/PLAN.md")
    );
}

#[test]
fn an_unsafe_plan_that_is_asked_for_is_loud() {
    for fixture in [Fixture::new(), Fixture::with_vault()] {
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
            assert_loud(
                &fixture.plan(plan).unwrap_err(),
                StateFault::UnsafeName,
                plan,
            );
        }
    }
}

#[test]
fn no_error_shows_more_than_one_line_of_what_it_found() {
    let fixture = Fixture::new();
    fixture.write(
        MARKER,
        format!("a/{}\nsecond \u{1b}[2J line", "x".repeat(500)),
    );
    let line = fixture.state(Which::Plan).unwrap_err().to_string();
    assert!(
        !line.contains(['\n', '\u{1b}']) && line.len() < 500,
        "{line}"
    );
    let odd = fixture.path("re\npo");
    std::fs::create_dir_all(odd.join(".harness/active-plan")).unwrap();
    let line = fixture
        .seam()
        .state(&Context {
            cwd: Some(odd),
            ..Context::default()
        })
        .unwrap_err()
        .to_string();
    assert!(line.contains("re\\npo") && !line.contains('\n'), "{line}");
}
