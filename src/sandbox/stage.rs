//! Stages between helmdeck and a command of a session.
//!
//! Each stage is this program, executed again, because a process can set limits and its user only
//! for itself.
//!
//! - `supervise <parent> <cgroup> <hidden> -- program...`: enters a cgroup ([`super::cgroup`]; `-`
//!   = none), starts a program, waits for it and for everything that it left behind, which it
//!   kills. It dies with helmdeck, and the sandbox dies with it.
//! - `user <id> <hidden> -- program...`: gives up root for that user, then becomes the program.
//! - `limits <processes> <address space> <file size> <open files> <merge|apart> <folder> --
//!   program...`: sets limits, refuses system calls ([`super::calls`]), reports on stderr with the
//!   byte [`STARTED`] that the sandbox is ready, waits for the environment on stdin
//!   ([`super::variables`]), goes to the folder, and becomes the program. As the first process of a
//!   sandbox it starts the program instead, waits for it, and takes its sandbox with it. The
//!   program can neither read nor change this process, though both have the same user
//!   (`PR_SET_DUMPABLE`).
//!
//! `hidden` is the number of arguments that bubblewrap gets by a descriptor (`--args`): its command
//! line, which commands can read, would show paths of the host.
//!
//! It is one thread, reads no configuration, has no environment, and trusts nothing that comes
//! after `--`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Seek, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{
    DumpableBehavior, Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus, getpid, getppid,
    set_child_subreaper, set_dumpable_behavior, set_parent_process_death_signal, setrlimit, wait,
};
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::{calls, cgroup, processes, variables};

/// Argument that makes this program a stage.
pub const STAGE: &str = "__sandbox";

/// First byte on stderr, before the output of the command. Without it, the command was not started.
pub(super) const STARTED: u8 = 1;

/// Argument of a command without a cgroup.
pub(super) const NO_CGROUP: &str = "-";

/// Exit status of a stage that fails, as in shells and `env`.
const CANNOT: u8 = 126;
/// Exit status if the program does not exist.
const MISSING: u8 = 127;

/// End of a stage that returned: exit status, and text for stderr.
pub type StageEnd = (u8, Option<String>);

/// Runs a stage with the arguments after [`STAGE`].
///
/// Returns only if it waited for the program, or failed. Must be called by the only thread of the
/// process.
pub fn stage(arguments: impl IntoIterator<Item = OsString>) -> StageEnd {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let Some(end) = arguments.iter().position(|argument| argument == "--") else {
        return failed("no program is named");
    };
    let mut command = arguments.split_off(end);
    command.remove(0);
    let words: Vec<&str> = arguments
        .iter()
        .filter_map(|argument| argument.to_str())
        .collect();
    let hidden = match words[..] {
        ["supervise", _, _, hidden] | ["user", _, hidden] => hidden.parse().unwrap_or(0),
        _ => 0,
    };
    let (program, _hidden) = match program(&command, hidden) {
        Ok(program) => program,
        Err(message) => return failed(&message),
    };
    match words[..] {
        ["supervise", parent, cgroup, _] => supervise(parent, cgroup, program),
        ["user", user, _] => become_user(user, program),
        ["limits", processes, space, file, open, outputs, folder] => limits(
            [processes, space, file, open],
            outputs == "merge",
            folder,
            program,
        ),
        _ => failed("this is not for people to call"),
    }
}

/// Returns the program of a stage, ready to start.
///
/// Its first `hidden` arguments go into a file in memory, which it inherits: keep the file open
/// until the program has started. Bubblewrap closes it before it starts the command.
fn program(command: &[OsString], hidden: usize) -> Result<(Command, Option<File>), String> {
    let (name, arguments) = command.split_first().ok_or("no program is named")?;
    let mut program = Command::new(name);
    if hidden == 0 {
        program.args(arguments);
        return Ok((program, None));
    }
    let (hidden, shown) = arguments
        .split_at_checked(hidden)
        .ok_or("arguments are missing")?;
    let write = || -> std::io::Result<File> {
        // Without close-on-exec.
        let mut file = File::from(memfd_create("arguments", MemfdFlags::empty())?);
        for argument in hidden {
            file.write_all(argument.as_bytes())?;
            file.write_all(b"\0")?;
        }
        file.rewind()?;
        Ok(file)
    };
    let file = write().map_err(|error| format!("the arguments cannot be handed over: {error}"))?;
    program
        .arg("--args")
        .arg(file.as_raw_fd().to_string())
        .args(shown);
    Ok((program, Some(file)))
}

fn failed(what: &str) -> StageEnd {
    (CANNOT, Some(format!("helmdeck: {what}")))
}

/// Asks the kernel to kill this process when its parent ends. Fails if the parent has ended
/// already.
fn die_with(parent: Option<Pid>) -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("no death signal: {error}"))?;
    if getppid() != parent {
        return Err("the parent has gone".to_owned());
    }
    Ok(())
}

fn supervise(parent: &str, cgroup: &str, program: Command) -> StageEnd {
    let parent = parent.parse().ok().and_then(Pid::from_raw);
    if let Err(message) = die_with(parent) {
        return failed(&message);
    }
    // Before anything else is started, so that all of it is in there.
    if cgroup != NO_CGROUP
        && let Err(error) = cgroup::enter(Path::new(cgroup))
    {
        return failed(&format!(
            "the cgroup of the command cannot be entered: {error}"
        ));
    }
    if let Err(error) = set_child_subreaper(Some(getpid())) {
        return failed(&format!("what is left behind cannot be collected: {error}"));
    }
    let end = run(program);
    kill_the_rest();
    end
}

/// Starts a program and waits for its end. Children that others left are reaped meanwhile.
fn run(mut program: Command) -> StageEnd {
    let child = match program.spawn() {
        Ok(child) => child,
        Err(error) => return cannot_run(&program, &error),
    };
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status)))
                if u32::try_from(pid.as_raw_nonzero().get()) == Ok(child.id()) =>
            {
                return (exit_status(status), None);
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return failed(&format!("the command was lost: {error}")),
        }
    }
}

/// Kills all processes that the program left.
fn kill_the_rest() {
    loop {
        for pid in processes::children(getpid()) {
            processes::kill(pid);
        }
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // No child is left.
            Err(_) => return,
        }
    }
}

fn exit_status(status: WaitStatus) -> u8 {
    let status = std::process::ExitStatus::from_raw(status.as_raw());
    let number = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(number).unwrap_or(CANNOT)
}

fn become_user(user: &str, mut program: Command) -> StageEnd {
    let Some(id) = user.parse().ok().filter(|id| *id != 0) else {
        return failed("no user is named");
    };
    let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
    let parent = getppid();
    let become_it = || {
        set_thread_groups(&[])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)
    };
    if let Err(error) = become_it() {
        return failed(&format!("cannot become user {id}: {error}"));
    }
    // The kernel clears it when the user changes.
    if let Err(message) = die_with(parent) {
        return failed(&message);
    }
    let error = program.exec();
    cannot_run(&program, &error)
}

fn limits(numbers: [&str; 4], merge: bool, folder: &str, mut program: Command) -> StageEnd {
    let kinds = [
        Resource::Nproc,
        Resource::As,
        Resource::Fsize,
        Resource::Nofile,
    ];
    let numbers = numbers.into_iter().map(|number| number.parse::<u64>().ok());
    for (kind, number) in kinds
        .into_iter()
        .zip(numbers)
        .chain([(Resource::Core, Some(0))])
    {
        let set = setrlimit(
            kind,
            Rlimit {
                current: number,
                maximum: number,
            },
        );
        if let (None, _) | (_, Err(_)) = (number, set) {
            return failed(&format!("the limit {kind:?} cannot be set"));
        }
    }
    // If the machine runs out of memory, the kernel should kill the command first. A container may
    // forbid this write.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let first = getpid().is_init();
    if first && let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        return failed(&format!(
            "the first process cannot be closed to the command: {error}"
        ));
    }
    if let Err(message) = die_with(getppid()).and_then(|()| calls::refuse()) {
        return failed(&message);
    }
    if let Err(error) = std::io::stderr().write_all(&[STARTED]) {
        return failed(&format!("stderr is closed: {error}"));
    }
    // helmdeck sends it after that byte, so the command never starts if helmdeck was killed in the
    // meantime.
    match variables::read() {
        Ok(variables) => program.env_clear().envs(variables),
        Err(error) => return failed(&format!("the environment did not come: {error}")),
    };
    if let Err(error) = std::env::set_current_dir(folder) {
        return failed(&format!("{folder}: {error}"));
    }
    if merge {
        match std::io::stdout().as_fd().try_clone_to_owned() {
            Ok(stdout) => program.stderr(Stdio::from(stdout)),
            Err(error) => return failed(&format!("stderr cannot be merged: {error}")),
        };
    }
    if first {
        return run(program);
    }
    let error = program.exec();
    cannot_run(&program, &error)
}

fn cannot_run(program: &Command, error: &std::io::Error) -> StageEnd {
    let status = if error.kind() == ErrorKind::NotFound {
        MISSING
    } else {
        CANNOT
    };
    (
        status,
        Some(format!(
            "helmdeck: {}: {error}",
            program.get_program().display()
        )),
    )
}
