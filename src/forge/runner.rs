//! Running a program that decides whether something works: bounded in time and output, and nothing of it outlives the answer.

use parking_lot::Mutex;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use helmdeck_core::Clock;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;

use crate::error::{Category, Error, Result};
use crate::project::Project;
use crate::redact::end_of;

/// The bytes kept of the beginning of an output.
const HEAD: usize = 1 << 20;
/// The bytes kept of the end of an output: where most programs say how it went.
const TAIL: usize = 3 << 20;
/// How long the output is read on after the program has ended. Only a process that left the group can hold it open so long.
const LINGER: Duration = Duration::from_millis(500);
/// How often at most it is waited for so long.
const MOST_LINGERS: usize = 60;
/// How often one is told that the program still runs, by the machine's time or the project's.
const BEAT: Duration = Duration::from_secs(60);
/// What git tells the programs it starts about the repository it works on. A test of this project must not take it for its own.
const GIT: [&str; 8] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
];

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ran {
    /// Its exit code; none if it was ended by a signal or ran out of time.
    pub exit: Option<i32>,
    /// Whether it ran out of time, and was ended.
    pub timed_out: bool,
    /// How long it ran, in milliseconds.
    pub ms: u64,
    /// What it wrote, standard output and standard error as they came. Of more than 4 MiB the middle is left out.
    pub output: String,
}

impl Ran {
    /// Says whether it ended by itself, with exit code 0.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.exit == Some(0) && !self.timed_out
    }

    /// Returns the last lines of the output, of at most so many bytes, without what looks like a credential.
    #[must_use]
    pub fn end(&self, bytes: usize) -> String {
        end_of(&self.output, bytes)
    }
}

/// Runs a program in a folder, without a shell, for a limited time.
///
/// Words are split at blanks, and `'`, `"` and `\` quote as a shell's do. A command that begins with `sh:` is given to `sh -c`. The
/// program reads nothing, and gets a process group of its own; what is left of that group when it ends or runs out of time is ended
/// with it.
///
/// # Errors
/// `E_USAGE` for a command that cannot be split, `E_CANNOT_START` for a program that cannot be started.
pub fn run_check(root: &Path, command: &str, timeout: Duration, clock: &dyn Clock) -> Result<Ran> {
    run(root, command, timeout, clock, (&Running::default(), &|| ()))
}

/// The checks that run right now, so that a process that is asked to stop can end them: they do not get the signals of its terminal.
#[derive(Debug, Default)]
pub struct Running(Mutex<Groups>);

#[derive(Debug, Default)]
struct Groups {
    stopped: bool,
    all: Vec<Pid>,
}

impl Running {
    /// Ends the checks with all that they started, and those that are begun from now on.
    pub fn stop(&self) {
        let mut groups = self.lock();
        groups.stopped = true;
        for group in &groups.all {
            let _ = kill_process_group(*group, Signal::KILL);
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Groups> {
        self.0.lock()
    }

    /// Adds a check; it is taken out when what is returned is dropped.
    fn add(&self, group: Option<Pid>) -> Registered<'_> {
        let mut groups = self.lock();
        groups.all.extend(group);
        if let Some(group) = group.filter(|_| groups.stopped) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        Registered { running: self, group }
    }
}

/// A check that runs.
struct Registered<'a> {
    running: &'a Running,
    group: Option<Pid>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.running.lock().all.retain(|group| Some(*group) != self.group);
    }
}

impl Project {
    /// Runs a program at the root, as [`run_check`] does. However long it takes, the session in which it runs goes on living.
    ///
    /// # Errors
    /// As [`run_check`]; `Refused` (`E_UNTRUSTED`) if nobody has agreed to the commands of this clone.
    pub fn run_check(&self, command: &str, timeout: Duration) -> Result<Ran> {
        self.check_trusted()?;
        let lives = || self.sessions().lives();
        lives();
        let running = &self.environment().running;
        let ran = run(self.root(), command, timeout, &*self.environment().clock, (running, &lives));
        if running.lock().stopped {
            // How it was ended says nothing of the code. This process ends meanwhile, as a rule, so that nothing is made of it.
            std::thread::sleep(LINGER);
            let message = format!("{command:?} was stopped by a signal");
            return Err(Error::new(Category::Failed, "E_STOPPED", message));
        }
        lives();
        ran
    }
}

/// As [`run_check`]. The check is among those that run, and `beat` is called every minute meanwhile.
fn run(
    root: &Path,
    command: &str,
    timeout: Duration,
    clock: &dyn Clock,
    (running, beat): (&Running, &dyn Fn()),
) -> Result<Ran> {
    let cannot = |error: &std::io::Error| {
        Error::new(Category::Failed, "E_CANNOT_START", format!("cannot start {command:?}: {error}"))
            .hint("is the program installed, and on the PATH?")
    };
    let words = match command.strip_prefix("sh:") {
        Some(script) => vec!["sh".to_owned(), "-c".to_owned(), script.trim_start().to_owned()],
        None => words(command).map_err(|why| Error::usage(format!("the command {command:?} {why}")))?,
    };
    let Some((program, arguments)) = words.split_first() else {
        return Err(Error::usage("the command is empty"));
    };
    let (reader, writer) = std::io::pipe().map_err(|error| cannot(&error))?;
    let mut run = Command::new(program);
    run.args(arguments).current_dir(root).stdin(Stdio::null()).process_group(0);
    for name in GIT {
        run.env_remove(name);
    }
    let errors = writer.try_clone().map_err(|error| cannot(&error))?;
    let began = clock.monotonic();
    let mut child = run.stdout(writer).stderr(errors).spawn().map_err(|error| cannot(&error))?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let registered = running.add(group);
    // It holds the ends of the pipe into which the program writes.
    drop(run);

    let kept = Arc::new(Mutex::new(Kept::default()));
    let rest = reader.try_clone();
    let ended = read(reader, Arc::clone(&kept));
    let mut last = (Instant::now(), began);
    let waited = wait(&mut child, timeout, &mut || {
        let now = clock.monotonic();
        if last.0.elapsed() >= BEAT || now.saturating_sub(last.1) >= BEAT {
            last = (Instant::now(), now);
            beat();
        }
    });
    drop(registered);
    if let Some(group) = group {
        // An empty group is an error, and the usual case.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let (status, timed_out) = match waited {
        Ok(Some(status)) => (Some(status), false),
        Ok(None) => (child.wait().ok(), true),
        Err(error) => {
            return Err(Error::new(Category::Failed, "E_IO", format!("cannot wait for {command:?}: {error}")));
        }
    };
    linger(&ended, || rest.as_ref().is_ok_and(|rest| rustix::io::ioctl_fionread(rest).is_ok_and(|bytes| bytes > 0)));
    let ms = u64::try_from(clock.monotonic().saturating_sub(began).as_millis()).unwrap_or(u64::MAX);
    let exit = status
        .filter(|_| !timed_out)
        .and_then(|status: ExitStatus| status.code().filter(|_| status.signal().is_none()));
    let output = kept.lock().text();
    Ok(Ran { exit, timed_out, ms, output })
}

/// Waits for a program; none if it has not ended in time. The time is the machine's, even where the project's clock stands still:
/// a program does not run by that one.
fn wait(child: &mut Child, timeout: Duration, each: &mut dyn FnMut()) -> std::io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        each();
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let Some(left) = timeout.checked_sub(began.elapsed()) else {
            return Ok(None);
        };
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Waits until an output is read. What has left the group may hold it open: then it is at its end when nothing is `unread`, and nothing
/// comes for a while. On a busy machine the thread that reads may come to it late.
fn linger(ended: &mpsc::Receiver<()>, unread: impl Fn() -> bool) {
    let mut quiet = 0;
    for _ in 0..MOST_LINGERS {
        if ended.recv_timeout(LINGER) != Err(mpsc::RecvTimeoutError::Timeout) {
            return;
        }
        // Bytes that were just taken from the pipe may still be on their way: one look is not enough.
        quiet = if unread() { 0 } else { quiet + 1 };
        if quiet == 2 {
            return;
        }
    }
}

/// Reads an output to its end in a thread of its own, and says when that is reached.
fn read(mut from: impl Read + Send + 'static, kept: Arc<Mutex<Kept>>) -> mpsc::Receiver<()> {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let mut chunk = [0; 16 << 10];
        loop {
            match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => kept.lock().push(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        // Nobody may wait any more.
        let _ = done.send(());
    });
    ended
}

/// The beginning and the end of an output.
#[derive(Debug, Default)]
struct Kept {
    head: Vec<u8>,
    tail: std::collections::VecDeque<u8>,
    dropped: usize,
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(HEAD - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..over);
        self.dropped += over;
    }

    fn text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.head).into_owned();
        if self.dropped > 0 {
            text.push_str(&format!("\n[... {} bytes left out ...]\n", self.dropped));
        }
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        text.push_str(&String::from_utf8_lossy(&tail));
        text
    }
}

/// Splits a command into words, as a shell does with quotes and nothing else.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn words(command: &str) -> Result<Vec<String>, &'static str> {
    let mut all = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = command.chars();
    while let Some(next) = chars.next() {
        match next {
            ' ' | '\t' | '\n' | '\r' => all.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(other) => word.push(other),
                        None => return Err("has a ' that is not closed"),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('"') => break,
                        Some('\\') => match chars.next() {
                            Some(quoted @ ('"' | '\\' | '$' | '`')) => word.push(quoted),
                            Some(other) => word.extend(['\\', other]),
                            None => return Err("has a \" that is not closed"),
                        },
                        Some(other) => word.push(other),
                        None => return Err("has a \" that is not closed"),
                    }
                }
            }
            '\\' => match chars.next() {
                Some(other) => word.get_or_insert_default().push(other),
                None => return Err("ends with a \\"),
            },
            '\0' => return Err("has a NUL in it"),
            other => word.get_or_insert_default().push(other),
        }
    }
    all.extend(word);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use helmdeck_core::SystemClock;

    const LONG: Duration = Duration::from_secs(60);

    fn run(command: &str, timeout: Duration) -> Result<Ran> {
        super::run_check(Path::new("/"), command, timeout, &SystemClock::default())
    }

    #[test]
    fn a_program_runs_in_its_folder_and_says_how_it_ended() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("here"), "").unwrap();
        let clock = SystemClock::default();
        let ran = run_check(folder.path(), "ls", LONG, &clock).unwrap();
        assert_eq!((ran.exit, ran.output.as_str()), (Some(0), "here\n"));
        assert!(ran.passed());
        let ran = run_check(folder.path(), "sh: echo out; echo err >&2; exit 3", LONG, &clock).unwrap();
        assert_eq!((ran.exit, ran.passed()), (Some(3), false));
        assert_eq!(ran.output, "out\nerr\n");
        let ran = run_check(folder.path(), "sh:kill -9 $$", LONG, &clock).unwrap();
        assert_eq!((ran.exit, ran.timed_out, ran.passed()), (None, false, false));
    }

    #[test]
    fn no_shell_reads_a_command() {
        assert_eq!(run("echo $HOME; echo *", LONG).unwrap().output, "$HOME; echo *\n");
    }

    #[test]
    fn a_program_that_is_not_there_cannot_start() {
        let error = run("no-such-program --at-all", LONG).unwrap_err();
        assert_eq!((error.code, error.category), ("E_CANNOT_START", Category::Failed));
        for wrong in ["", "  ", "a 'b", "a \"b", "a \\"] {
            assert_eq!(run(wrong, LONG).unwrap_err().category, Category::Usage, "{wrong:?}");
        }
    }

    #[test]
    fn a_program_that_runs_out_of_time_is_ended_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let command = "sh: echo begun; sleep 600 & echo $! > child; wait";
        // Time enough for all that the shell does before it waits.
        let ran = run_check(folder.path(), command, Duration::from_secs(3), &SystemClock::default()).unwrap();
        assert_eq!((ran.exit, ran.timed_out, ran.passed()), (None, true, false));
        assert_eq!(ran.output, "begun\n");
        let child: i32 = std::fs::read_to_string(folder.path().join("child")).unwrap().trim().parse().unwrap();
        // Whoever took it over may take a moment to notice.
        let began = Instant::now();
        let alive = || {
            std::fs::read_to_string(format!("/proc/{child}/stat"))
                .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
        };
        while alive() {
            assert!(began.elapsed() < LONG, "it lives on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn checks_end_with_all_they_started_when_the_process_is_stopped_and_none_begins_after() {
        let folder = tempfile::tempdir().unwrap();
        let command = "sh: sleep 600 & echo $! > new; mv new child; wait";
        let running = Running::default();
        let clock = SystemClock::default();
        let child = folder.path().join("child");
        std::thread::scope(|scope| {
            let run = scope.spawn(|| super::run(folder.path(), command, 10 * LONG, &clock, (&running, &|| ())));
            while !child.exists() {
                std::thread::yield_now();
            }
            running.stop();
            assert_eq!(run.join().unwrap().unwrap().exit, None);
        });
        let pid = std::fs::read_to_string(&child).unwrap();
        while std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
            .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
        {
            std::thread::yield_now();
        }
        let ran = super::run(folder.path(), "sleep 600", 10 * LONG, &clock, (&running, &|| ())).unwrap();
        assert_eq!((ran.exit, ran.timed_out), (None, false));
        assert!(running.lock().all.is_empty());
    }

    #[test]
    fn a_long_output_keeps_its_beginning_and_its_end() {
        let ran = run("sh: echo first; head -c 6000000 /dev/zero | tr '\\0' 'x'; echo; echo last", LONG).unwrap();
        assert!(ran.output.starts_with("first\nxxx"));
        assert!(ran.output.ends_with("xxx\nlast\n"));
        assert!(ran.output.contains("bytes left out"));
        assert!(ran.output.len() < HEAD + TAIL + 100, "{}", ran.output.len());
        assert_eq!(ran.end(5), "last\n");
    }

    #[test]
    fn words_are_split_as_a_shell_splits_them() {
        for (command, split) in [
            ("cargo test -p a", vec!["cargo", "test", "-p", "a"]),
            (r#"a 'b c' "d \"e\" \n" f\ g"#, vec!["a", "b c", r#"d "e" \n"#, "f g"]),
            ("x'y'\"z\" ''", vec!["xyz", ""]),
        ] {
            assert_eq!(words(command).unwrap(), split);
        }
        for word in ["plain", "", "two words", "it's", "a::b", "$x"] {
            assert_eq!(words(&helmdeck_core::text::shell_quoted(word)).unwrap(), [word]);
        }
    }
}
