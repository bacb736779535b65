//! Tests that nothing is written, in writable and read-only places, and by no system call.

use std::process::Command;

use super::{Ended, Fixture};

/// The commands, well and badly asked.
const WORDS: [&[&str]; 10] = [
    &["recall-here"],
    &["recall-here", "--phase", "documenter", "--query", "a"],
    &["state-path", "both"],
    &["state-path", "plan", "--plan", "../a"],
    &["state-path", "plan", "--cwd", "/nowhere"],
    &["offer-save-here", "--kind", "fix", "--slug", "a"],
    &["plans"],
    &["doctor"],
    &["doctor", "--json", "--phase", "plan"],
    &["bogus"],
];

/// System calls that change something whatever their arguments.
///
/// A question mark allows for a system that lacks one.
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
    "bpf",
    "open_by_handle_at",
    "mount",
    "umount2",
    "shmget",
    "msgget",
    "semget",
];
/// Calls that a runtime, a database or a program would make.
const STARTS: &[&str] = &[
    "clone",
    "clone3",
    "fork",
    "vfork",
    "socket",
    "epoll_create1",
    "epoll_create",
    "execveat",
];
/// System calls that change something with some arguments.
const OTHERS: &[&str] = &["open", "openat", "openat2", "execve", "fcntl"];

/// A place with everything that a call may meet: a repository, memory of both kinds, a marker,
/// settings and folders of the system.
fn furnished() -> Fixture {
    let place = Fixture::new();
    place.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    place.write(
        "repo/.git/config",
        "[remote \"origin\"]\n\turl = https://host/o/other.git\n",
    );
    place.write("repo/.git/objects/keep", "");
    place.write("repo/.git/refs/keep", "");
    place.write("repo/.harness/active-plan", "foo\n");
    place.write("repo/.harness/.project-mode", "backend\n");
    place.write(
        "vault/projects/seam-fixture/_harness/PLAN-foo.md",
        "Status: open\n",
    );
    place.write("repo/.forge/memory/long-term/knowledge.json", "{ damaged");
    place.write(
        "repo/.forge/memory/long-term/architecture.md",
        "# Built so\n",
    );
    place.write(
        "home/.claude/.agentm-config.json",
        format!("{{\"vault_path\": {:?}}}", place.path("vault")),
    );
    place.write(
        "xdg/config/helmdeck/helmdeck.toml",
        "[seam]\nquery = \"filter\"\n",
    );
    for folder in XDG {
        std::fs::create_dir_all(place.path(folder.1)).unwrap();
    }
    place
}

/// Where the system's folders are.
const XDG: [(&str, &str); 5] = [
    ("XDG_CONFIG_HOME", "xdg/config"),
    ("XDG_DATA_HOME", "xdg/data"),
    ("XDG_CACHE_HOME", "xdg/cache"),
    ("XDG_STATE_HOME", "xdg/state"),
    ("XDG_RUNTIME_DIR", "xdg/run"),
];

/// Gives a command the whole environment of a run.
fn at_home(place: &Fixture, command: &mut Command) {
    command
        .env_clear()
        .env("HOME", place.path("home"))
        .env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command
        .env("MEMORY_VAULT_PATH", place.path("vault"))
        .stdin(std::process::Stdio::null());
    command.envs(XDG.map(|(name, folder)| (name, place.path(folder))));
}

#[test]
fn every_folder_is_as_it_was() {
    let place = furnished();
    let before = place.snapshot();
    assert!(before.len() > 30, "{before:?}");
    for words in WORDS {
        let mut command = place.command(words);
        at_home(&place, &mut command);
        Ended::of(&mut command);
        Ended::of(&mut place.bare(words));
    }
    assert_eq!(place.snapshot(), before);
}

/// Prepares a program in a mount that cannot be written to: the place is entered once it is
/// mounted.
fn in_a_mount(place: &Fixture, program: &str, words: &[&str]) -> Command {
    const SCRIPT: &str = "place=$1; shift; mount --bind \"$place\" \"$place\" && mount -o remount,bind,ro \"$place\" && cd \"$place/repo\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--mount", "sh", "-c", SCRIPT, "sh"])
        .arg(place.path(""))
        .arg(program)
        .args(words);
    at_home(place, &mut command);
    command.current_dir("/");
    command
}

#[test]
fn a_read_only_mount_changes_no_answer() {
    let place = furnished();
    // Nothing could be written there: else this would prove nothing.
    for file in [
        "repo/x",
        "repo/.git/x",
        "repo/.forge/x",
        "home/x",
        "vault/x",
        "xdg/config/x",
        "xdg/run/x",
    ] {
        let ended = Ended::of(&mut in_a_mount(
            &place,
            "sh",
            &["-c", ": >\"$1\"", "sh", &format!("../{file}")],
        ));
        assert!(
            ended.code != 0 && ended.stderr.contains("Read-only file system"),
            "{file}: {ended:?}"
        );
    }
    let read = Ended::of(&mut in_a_mount(&place, "cat", &[".harness/active-plan"]));
    assert_eq!(
        (read.code, read.stdout.as_str()),
        (0, "foo\n"),
        "folders can be mounted here: {read:?}"
    );
    let before = place.snapshot();
    let mut answers = 0;
    for words in WORDS {
        let all = [&["seam"], words].concat();
        let ended = Ended::of(&mut in_a_mount(
            &place,
            env!("CARGO_BIN_EXE_helmdeck"),
            &all,
        ));
        let mut plain = place.command(words);
        at_home(&place, &mut plain);
        assert_eq!(ended, Ended::of(&mut plain), "{words:?}");
        answers += usize::from(ended.code == 0 && !ended.stdout.is_empty());
    }
    assert_eq!(
        answers,
        WORDS.len() - 2,
        "all but the two that are badly asked have an answer"
    );
    assert_eq!(place.snapshot(), before);
}

/// Returns whether a line of a trace changes something, or starts an unwanted program.
///
/// The program itself is started once.
fn is_unwanted(line: &str) -> bool {
    let call = line
        .split('(')
        .next()
        .unwrap_or_default()
        .rsplit(' ')
        .next()
        .unwrap_or_default();
    let names = |words: &[&str]| words.iter().any(|word| line.contains(word));
    match call {
        "open" | "openat" | "openat2" => names(&[
            "O_WRONLY",
            "O_RDWR",
            "O_CREAT",
            "O_TRUNC",
            "O_APPEND",
            "O_TMPFILE",
        ]),
        // Locks of a part of a file, as databases take them.
        "fcntl" => names(&[
            "F_SETLK",
            "F_SETLKW",
            "F_OFD_SETLK",
            "F_SETLEASE",
            "F_ADD_SEALS",
        ]),
        "execve" => false,
        known => CHANGES.contains(&known) || STARTS.contains(&known),
    }
}

/// Runs a program under a trace and returns how it ended, and the trace.
fn traced(place: &Fixture, program: &std::ffi::OsStr, words: &[&str]) -> (Ended, String) {
    let file = place.path("trace");
    let calls: Vec<String> = [CHANGES, STARTS, OTHERS]
        .concat()
        .iter()
        .map(|call| format!("?{call}"))
        .collect();
    let mut command = Command::new("strace");
    at_home(place, &mut command);
    command
        .args([
            "-f",
            "-qq",
            "-s",
            "4096",
            "-e",
            &format!("trace={}", calls.join(",")),
            "-o",
        ])
        .arg(&file);
    command
        .arg(program)
        .args(words)
        .current_dir(place.path("repo"));
    let ended = Ended::of(&mut command);
    let trace = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        trace.contains("execve("),
        "strace must be there and able to trace: {ended:?}"
    );
    std::fs::remove_file(file).unwrap();
    (ended, trace)
}

#[test]
fn no_system_call_writes_or_starts_a_process() {
    let place = furnished();
    for words in WORDS {
        let mut plain = place.command(words);
        at_home(&place, &mut plain);
        let all = [&["seam"], words].concat();
        let (ended, trace) = traced(&place, plain.get_program(), &all);
        assert_eq!(trace.matches("execve(").count(), 1, "{words:?}: {trace}");
        let unwanted: Vec<&str> = trace.lines().filter(|line| is_unwanted(line)).collect();
        assert!(unwanted.is_empty(), "{words:?}: {unwanted:#?}");
        assert!(!trace.contains("memory.db"), "{words:?}: {trace}");
        assert_eq!(ended, Ended::of(&mut plain), "{words:?}");
    }
}

#[test]
fn trace_of_a_writing_program_is_noticed() {
    let place = furnished();
    for (script, call) in [
        (": >x", "O_WRONLY"),
        (": >>x", "O_APPEND"),
        ("exec mkdir y", "mkdir"),
        ("exec touch x", "open"),
        ("exec mv x z", "rename"),
        ("exec rm z", "unlink"),
        ("exec ln -s a b", "symlink"),
        ("exec chmod 700 y", "chmod"),
        ("exec flock y true", "flock"),
        ("true & wait", "clone"),
    ] {
        let (ended, trace) = traced(&place, "/bin/sh".as_ref(), &["-c", script]);
        let unwanted: Vec<&str> = trace.lines().filter(|line| is_unwanted(line)).collect();
        assert!(
            unwanted.iter().any(|line| line.contains(call)),
            "{script}: {ended:?} {unwanted:?} {trace}"
        );
    }
    let (_, trace) = traced(&place, "/bin/cat".as_ref(), &[".harness/active-plan"]);
    let unwanted: Vec<&str> = trace.lines().filter(|line| is_unwanted(line)).collect();
    assert!(unwanted.is_empty(), "{unwanted:?}");
}

#[test]
fn trace_lines_that_write_are_recognised() {
    for line in [
        "12 mkdir(\"/a\", 0777) = 0",
        "openat(AT_FDCWD, \"a\", O_RDONLY|O_CREAT) = 3",
        "1 clone3({flags=1}) = 2",
        "socket(AF_UNIX) = 3",
        "7 fcntl(3, F_OFD_SETLK, {l_type=F_RDLCK}) = 0",
        "io_uring_setup(8, {}) = 4",
    ] {
        assert!(is_unwanted(line), "{line}");
    }
    for line in [
        "12 openat(AT_FDCWD, \"a\", O_RDONLY|O_CLOEXEC) = 3",
        "execve(\"/a\", [\"a\"], 0x1) = 0",
        "fcntl(0, F_GETFD) = 0",
    ] {
        assert!(!is_unwanted(line), "{line}");
    }
}
