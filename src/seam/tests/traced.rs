//! All calls under a trace of what they ask the system for: nothing is opened for writing, created,
//! moved or removed, and no program is run.

use std::process::Command;

use serde_json::json;

use super::fixture::Fixture;
use crate::{Context, Phase};

/// System calls that change or start something, whatever their arguments.
const CHANGES: &[&str] = &[
    "creat",
    "mkdir",
    "mkdirat",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "rmdir",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "truncate",
    "ftruncate",
    "fallocate",
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "fchown",
    "lchown",
    "fchownat",
    "utime",
    "utimes",
    "utimensat",
    "futimesat",
    "mknod",
    "mknodat",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
    "flock",
    "copy_file_range",
    "memfd_create",
    "io_uring_setup",
    "clone",
    "clone3",
    "fork",
    "vfork",
    "socket",
];
/// System calls that do so with some arguments.
const OPENS: &[&str] = &["open", "openat", "openat2", "execve", "fcntl"];

/// Returns whether a line of a trace changes something. The program itself is started once.
fn is_change(line: &str) -> bool {
    let call = line
        .split('(')
        .next()
        .unwrap_or_default()
        .rsplit(' ')
        .next()
        .unwrap_or_default();
    match call {
        "open" | "openat" | "openat2" => [
            "O_WRONLY",
            "O_RDWR",
            "O_CREAT",
            "O_TRUNC",
            "O_APPEND",
            "O_TMPFILE",
        ]
        .iter()
        .any(|flag| line.contains(flag)),
        // Locks of a part of a file, as databases take them.
        "fcntl" => ["F_SETLK", "F_OFD_SETLK", "F_SETLEASE"]
            .iter()
            .any(|word| line.contains(word)),
        "execve" => false,
        known => CHANGES.contains(&known),
    }
}

#[test]
#[ignore = "a process of another test"]
fn makes_every_call() {
    let here = std::env::current_dir().unwrap();
    let mut fixture = Fixture::with_vault();
    fixture.config.cwd = here.join("repo");
    fixture.config.home = Some(here.join("home"));
    fixture.config.vaults[0].path = here.join("vault").into();
    let seam = fixture.seam();
    // From here on nothing may be changed.
    let _ = std::fs::read(here.join("now"));
    for phase in Phase::ALL {
        let context = Context {
            phase: Some(phase.to_string()),
            ..Context::default()
        };
        assert!(!seam.recall_here(&context, Some("words"), None).is_empty());
        assert_eq!(
            seam.offer_save_here(&context, &json!({"kind": "fix", "body": "ALWAYS"}))
                .len(),
            1
        );
    }
    let _ = (
        seam.state(&Context::default()),
        seam.plans(&Context::default()),
        seam.doctor(&Context::default()),
    );
    for cwd in ["nowhere", "broken", "/"] {
        let context = Context {
            cwd: Some(here.join(cwd)),
            ..Context::default()
        };
        let _ = (
            seam.recall(&context, None, None),
            seam.state(&context),
            seam.plans(&context),
            seam.doctor(&context),
        );
    }
    let _ = std::fs::read(here.join("end"));
    // What comes after it must be seen: else the trace would prove nothing.
    std::fs::write(here.join("after"), "").unwrap();
}

#[test]
fn no_call_asks_the_system_to_change_anything() {
    let fixture = Fixture::with_vault();
    fixture.always("rule", "ALWAYS");
    fixture.note("decisions/one.md", b"DECIDED \xff");
    fixture.note("_harness/PLAN.md", "Status: x");
    fixture.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    fixture.write(
        "repo/.git/config",
        "[remote \"origin\"]\n\turl = https://host/o/other.git\n",
    );
    fixture.write("repo/.forge/memory/long-term/knowledge.json", "{ damaged");
    fixture.write(
        "home/.claude/.agentm-config.json",
        format!("{{\"vault_path\": {:?}}}", fixture.path("vault")),
    );
    fixture.write("broken/.harness/active-plan", b"\xff");
    fixture.write("broken/.harness/project.json", b"\xff");
    let before = fixture.snapshot();
    let trace = tempfile::NamedTempFile::new().unwrap();
    // Not every system has them all: then the question mark passes it over.
    let calls: Vec<String> = [CHANGES, OPENS]
        .concat()
        .iter()
        .map(|call| format!("?{call}"))
        .collect();
    let calls = format!("trace={}", calls.join(","));
    let output = Command::new("strace")
        .args(["-f", "-qq", "-s", "4096", "-e", &calls, "-o"])
        .arg(trace.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "tests::traced::makes_every_call"])
        .current_dir(fixture.path(""))
        .output()
        .unwrap();
    let trace = std::fs::read_to_string(trace.path()).unwrap();
    assert!(
        !trace.is_empty(),
        "strace must be able to trace here (tests/run says what is needed): {}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    let marks = [fixture.path("now"), fixture.path("end")].map(|path| format!("{path:?}"));
    let lines = trace
        .lines()
        .skip_while(|line| !line.contains(&marks[0]))
        .take_while(|line| !line.contains(&marks[1]));
    let lines: Vec<&str> = lines.collect();
    assert!(lines.len() > 100, "{} lines", lines.len());
    let changes: Vec<&&str> = lines
        .iter()
        .filter(|line| is_change(line) || line.contains("execve("))
        .collect();
    assert!(changes.is_empty(), "{changes:#?}");
    let after: Vec<&str> = trace
        .lines()
        .skip_while(|line| !line.contains(&marks[1]))
        .collect();
    assert!(
        after
            .iter()
            .any(|line| is_change(line) && line.contains("/after\"")),
        "what is written is not seen"
    );
    fixture.remove("after");
    assert!(fixture.snapshot() == before, "something was changed");
}

#[test]
fn a_change_is_seen_in_a_trace() {
    for line in [
        r#"17 openat(AT_FDCWD, "/a", O_WRONLY|O_CREAT|O_CLOEXEC, 0666) = 3"#,
        r#"openat(AT_FDCWD, "/a", O_RDWR|O_CLOEXEC) = 3"#,
        r#"17 mkdir("/a", 0777) = 0"#,
        r#"17 flock(3, LOCK_EX) = 0"#,
        r#"17 fcntl(3, F_OFD_SETLK, {l_type=F_WRLCK}) = 0"#,
        r#"17 io_uring_setup(8, {}) = 4"#,
        r#"17 rename("/a", "/b") = -1 EROFS"#,
    ] {
        assert!(is_change(line), "{line}");
    }
    for line in [
        r#"17 openat(AT_FDCWD, "/a", O_RDONLY|O_NOCTTY|O_NONBLOCK|O_CLOEXEC) = 3"#,
        "17 +++ exited with 0 +++",
    ] {
        assert!(!is_change(line), "{line}");
    }
}
