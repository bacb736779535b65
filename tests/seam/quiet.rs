//! Nothing is written: not where it could be, not where it cannot be, and not by any call to the system.

use std::process::Command;

use super::{Ended, Place};

/// The commands, well and badly asked.
const WORDS: [&[&str]; 8] = [
    &["recall-here"],
    &["recall-here", "--phase", "documenter", "--query", "a"],
    &["state-path", "both"],
    &["state-path", "plan", "--plan", "../a"],
    &["state-path", "plan", "--cwd", "/nowhere"],
    &["offer-save-here", "--kind", "fix", "--slug", "a"],
    &["plans"],
    &["bogus"],
];

/// Calls that change something whatever they are told.
const CHANGES: &str = "creat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,rmdir,link,linkat,symlink,symlinkat,truncate,\
                       ftruncate,fallocate,chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat,utime,utimes,utimensat,futimesat,mknod,\
                       mknodat,setxattr,lsetxattr,fsetxattr,flock";
/// Calls that do so if they are told to; and those that a runtime, a database or a program would make.
const OTHERS: &str = "open,openat,openat2,execve,clone,clone3,fork,vfork,socket,epoll_create1,epoll_create";

#[test]
fn every_folder_is_as_it_was() {
    let place = Place::new();
    place.write("repo/.forge/memory/long-term/knowledge.json", "{ damaged");
    place.write("home/.claude/.agentm-config.json", format!("{{\"vault_path\": {:?}}}", place.path("vault")));
    let before = place.snapshot();
    for words in WORDS {
        place.run(words);
        Ended::of(&mut place.bare(words));
    }
    assert_eq!(place.snapshot(), before);
}

#[test]
fn a_read_only_mount_changes_no_answer() {
    let place = Place::new();
    let root = place.path("");
    let script = format!(
        "mount --bind {0} {0} && mount -o remount,bind,ro {0} && ! touch {0}/home/x 2>/dev/null && exec \"$0\" \"$@\"",
        root.display()
    );
    let within = |words: &[&str]| {
        let plain = place.command(words);
        let mut command = Command::new("unshare");
        command
            .args(["--map-root-user", "--mount", "sh", "-c", &script])
            .arg(plain.get_program())
            .args(plain.get_args());
        // The folder itself is entered after it is mounted.
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", place.path("home"));
        command.env("MEMORY_VAULT_PATH", place.path("vault")).stdin(std::process::Stdio::null()).current_dir("/");
        command
    };
    let cwd = place.path("repo").display().to_string();
    let trial = Command::new("unshare").args(["--map-root-user", "--mount", "sh", "-c", &script, "true"]).output();
    if !trial.is_ok_and(|output| output.status.success()) {
        println!("no folder can be mounted here: read-only mounts were not tried");
        return;
    }
    for words in [
        &["recall-here", "--cwd", &cwd][..],
        &["state-path", "both", "--cwd", &cwd],
        &["plans", "--cwd", &cwd],
        &["offer-save-here", "--kind", "fix", "--slug", "a", "--cwd", &cwd],
    ] {
        let ended = Ended::of(&mut within(words));
        assert_eq!(ended, place.run(words), "{words:?}");
        assert!(ended.code == 0 && !ended.stdout.is_empty(), "{words:?}: {ended:?}");
    }
}

/// Says whether a line of a trace changes something, or starts what is not wanted. The program itself is started once.
fn is_unwanted(line: &str) -> bool {
    let call = line.split('(').next().unwrap_or_default().rsplit(' ').next().unwrap_or_default();
    match call {
        "open" | "openat" | "openat2" => {
            ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND", "O_TMPFILE"].iter().any(|flag| line.contains(flag))
        }
        "execve" => false,
        known => CHANGES.split(',').chain(OTHERS.split(',')).any(|call| call == known),
    }
}

#[test]
fn no_call_to_the_system_writes_or_starts_anything() {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("strace is missing: nothing was traced");
        return;
    }
    let place = Place::new();
    for words in WORDS {
        let (plain, file) = (place.command(words), place.path("trace"));
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-e", &format!("trace={CHANGES},{OTHERS}"), "-o"]).arg(&file);
        command.arg(plain.get_program()).args(plain.get_args()).env_clear().current_dir(place.path("repo"));
        command.env("HOME", place.path("home")).env("MEMORY_VAULT_PATH", place.path("vault"));
        let ended = Ended::of(command.env("PATH", "/usr/bin:/bin").stdin(std::process::Stdio::null()));
        let trace = std::fs::read_to_string(&file).unwrap_or_default();
        if trace.is_empty() {
            println!("nothing can be traced here: {ended:?}");
            return;
        }
        assert_eq!(trace.matches("execve(").count(), 1, "{words:?}: {trace}");
        let unwanted: Vec<&str> = trace.lines().filter(|line| is_unwanted(line)).collect();
        assert!(unwanted.is_empty(), "{words:?}: {unwanted:#?}");
        assert!(!trace.contains("memory.db"), "{words:?}: {trace}");
        assert_eq!(ended, place.run(words), "{words:?}");
    }
}

#[test]
fn a_trace_that_writes_is_noticed() {
    for line in [
        "12 mkdir(\"/a\", 0777) = 0",
        "openat(AT_FDCWD, \"a\", O_RDONLY|O_CREAT) = 3",
        "1 clone3({flags=1}) = 2",
        "socket(AF_UNIX) = 3",
    ] {
        assert!(is_unwanted(line), "{line}");
    }
    for line in ["12 openat(AT_FDCWD, \"a\", O_RDONLY|O_CLOEXEC) = 3", "execve(\"/a\", [\"a\"], 0x1) = 0"] {
        assert!(!is_unwanted(line), "{line}");
    }
}
