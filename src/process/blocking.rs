//! Blocking interface. It polls the pipes and the program from the calling thread.
//!
//! So a run needs no extra thread.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{self, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{
    PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, pidfd_open, waitid, waitpid,
};

use crate::capture::{Buffer, Capture};
use crate::failure::{Failure, Finished};
use crate::group::{GroupId, Running};

/// Time without output after which the pipes of an ended program count as read.
///
/// A process that the program left may hold them open.
const GRACE: Duration = Duration::from_millis(500);
/// Time limit for reads after the program has ended.
const MAX_LINGER: Duration = Duration::from_secs(30);
/// Interval of checks for the end of a program, where the system has no pidfd.
const CHECK: Duration = Duration::from_millis(10);

/// Scope of signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All processes of a new process group.
    Group,
    /// Only the program, in the process group of this process: it can read the input of a terminal.
    Program,
}

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Child {
    child: process::Child,
    id: GroupId,
    scope: Scope,
    /// Becomes readable when the program ends.
    pidfd: Option<OwnedFd>,
    reaped: bool,
}

impl Child {
    /// Starts a program.
    ///
    /// # Errors
    /// Those of the system.
    pub fn spawn(command: &mut Command, scope: Scope) -> io::Result<Self> {
        if scope == Scope::Group {
            command.process_group(0);
        }
        let child = command.spawn()?;
        let id = GroupId::of_leader(child.id())
            .ok_or_else(|| io::Error::other("the program has no process id"))?;
        let pidfd = pidfd_open(id.leader(), PidfdFlags::empty()).ok();
        Ok(Self {
            child,
            id,
            scope,
            pidfd,
            reaped: false,
        })
    }

    /// Sends a signal to the program, or to its whole group.
    pub fn signal(&self, signal: Signal) {
        match self.scope {
            // Once reaped, the number may belong to another process.
            _ if self.reaped => {}
            Scope::Group => self.id.signal(signal),
            Scope::Program => self.id.signal_leader(signal),
        }
    }

    /// Waits at most this long for the program to end, and returns whether it has ended.
    ///
    /// It can still be signalled with its group until it is reaped.
    ///
    /// # Errors
    /// Those of the system.
    pub fn ends_within(&self, time: Duration) -> io::Result<bool> {
        if self.has_ended()? {
            return Ok(true);
        }
        match &self.pidfd {
            Some(pidfd) => wait_for(&mut [PollFd::new(pidfd, PollFlags::IN)], time)?,
            None => std::thread::sleep(time.min(CHECK)),
        }
        self.has_ended()
    }

    fn has_ended(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(self.reaped || waitid(WaitId::Pid(self.id.leader()), options)?.is_some())
    }

    /// Waits for the end of the program, and returns its status.
    ///
    /// # Errors
    /// Those of the system.
    pub fn reap(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait();
        self.reaped = true;
        status
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        self.signal(Signal::KILL);
        if !self.ends_within(GRACE).is_ok_and(|ended| ended) {
            // It is stuck in the kernel. A thread waits for it, so that it leaves no zombie.
            let leader = self.id.leader();
            std::thread::spawn(move || waitpid(Some(leader), WaitOptions::empty()));
            return;
        }
        let _ = self.reap();
    }
}

/// How a program is run.
#[derive(Debug)]
pub struct Options<'a> {
    /// The input; `/dev/null` if it is empty.
    pub stdin: &'a [u8],
    /// Destination of the output.
    pub output: Output,
    /// Timeout, after which the group is killed.
    pub timeout: Duration,
    /// Whether to kill the rest of the program's group when the program has ended.
    pub kill_leftovers: bool,
    /// Where the group is registered while it runs.
    pub running: Option<&'a Running>,
    /// Longest interval between two calls of `each`.
    pub tick: Duration,
}

/// Destination of a program's output.
#[derive(Debug)]
pub enum Output {
    /// Both outputs are captured.
    Separate {
        /// How much of standard output is kept.
        stdout: Capture,
        /// How much of standard error is kept.
        stderr: Capture,
    },
    /// Both outputs are captured as one, in the order of writing. It is returned as standard
    /// output.
    Merged(Capture),
    /// Standard output goes to a file, without a limit.
    File {
        /// The file.
        stdout: File,
        /// How much of standard error is kept.
        stderr: Capture,
    },
}

/// Runs a program until it ends, as the leader of a new process group, and reads its output.
///
/// `each` is called meanwhile, at least once every `tick`.
///
/// # Errors
/// [`Failure`]. The group has then been killed.
pub fn run(
    command: &mut Command,
    options: Options<'_>,
    each: &mut dyn FnMut(),
) -> Result<Finished, Failure> {
    let Options {
        stdin,
        output,
        timeout,
        kill_leftovers,
        running,
        tick,
    } = options;
    command.stdin(if stdin.is_empty() {
        Stdio::null()
    } else {
        Stdio::piped()
    });
    let (captures, merged) = match output {
        Output::Separate { stdout, stderr } => {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            ([Some(stdout), Some(stderr)], None)
        }
        Output::Merged(capture) => {
            let (reader, writer) = io::pipe().map_err(Failure::Start)?;
            command
                .stdout(writer.try_clone().map_err(Failure::Start)?)
                .stderr(writer);
            ([Some(capture), None], Some(OwnedFd::from(reader)))
        }
        Output::File { stdout, stderr } => {
            command.stdout(stdout).stderr(Stdio::piped());
            ([None, Some(stderr)], None)
        }
    };
    let child = Child::spawn(command, Scope::Group);
    // The command still holds the writing ends of a merged pipe, which would never end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child.map_err(Failure::Start)?;
    let registered = running.map(|running| running.add(child.id));
    let input = child
        .child
        .stdin
        .take()
        .map(|pipe| Writer::new(pipe, stdin))
        .transpose()?;
    let pipes = [
        merged.or_else(|| child.child.stdout.take().map(Into::into)),
        child.child.stderr.take().map(Into::into),
    ];
    let [out, err] = captures;
    let [stdout, stderr] = pipes;
    let readers = [Reader::new(stdout, out)?, Reader::new(stderr, err)?];
    let mut run = Run {
        child,
        input,
        readers,
        kill_leftovers,
    };
    let in_time = run.watch(timeout, tick, each);
    // Before the leader is reaped: its number may then belong to another process.
    drop(registered);
    let in_time = in_time?;
    let Run {
        mut child,
        readers: [stdout, stderr],
        ..
    } = run;
    let (stdout, stderr) = (stdout.kept.finish(), stderr.kept.finish());
    if !in_time {
        return Err(Failure::TimedOut(stdout, stderr));
    }
    Ok(Finished {
        status: child.reap().map_err(Failure::Lost)?,
        stdout,
        stderr,
    })
}

/// A program that is being run.
struct Run<'a> {
    child: Child,
    input: Option<Writer<'a>>,
    readers: [Reader; 2],
    kill_leftovers: bool,
}

impl Run<'_> {
    /// Waits until the program has ended and its output is read.
    ///
    /// Returns false if it was killed at its timeout.
    fn watch(
        &mut self,
        timeout: Duration,
        tick: Duration,
        each: &mut dyn FnMut(),
    ) -> Result<bool, Failure> {
        let began = Instant::now();
        let complete = self
            .readers
            .iter()
            .any(|reader| reader.kept.capture().complete);
        let (mut ended, mut killed): (Option<Instant>, Option<Instant>) = (None, None);
        let mut last_read = began;
        loop {
            each();
            if ended.is_none() && self.child.has_ended().map_err(Failure::Lost)? {
                (ended, last_read) = (Some(Instant::now()), Instant::now());
                if self.kill_leftovers {
                    self.child.signal(Signal::KILL);
                }
            }
            let wait = match (ended, killed) {
                (Some(_), _) if self.readers.iter().all(|reader| reader.pipe.is_none()) => break,
                (Some(_), _) => GRACE.saturating_sub(last_read.elapsed()),
                (None, None) => match timeout.saturating_sub(began.elapsed()) {
                    Duration::ZERO => {
                        self.child.signal(Signal::KILL);
                        killed = Some(Instant::now());
                        GRACE
                    }
                    left => left,
                },
                // It is stuck in the kernel.
                (None, Some(since)) => GRACE.saturating_sub(since.elapsed()),
            };
            if wait.is_zero() {
                break;
            }
            if self.step(wait.min(tick), ended.is_some())? {
                last_read = Instant::now();
                if let Some(since) = ended
                    && self.readers.iter().any(|reader| reader.pipe.is_some())
                {
                    // A process that left the group keeps writing. A part of a complete capture is
                    // useless.
                    match complete {
                        true if began.elapsed() >= timeout => return Ok(false),
                        false if since.elapsed() >= MAX_LINGER => break,
                        _ => {}
                    }
                }
            }
        }
        Ok(killed.is_none())
    }

    /// Waits until a pipe is ready, and reads or writes it. Returns whether anything was read.
    fn step(&mut self, wait: Duration, ended: bool) -> Result<bool, Failure> {
        let mut fds = Vec::with_capacity(4);
        fds.extend(
            self.input
                .as_ref()
                .map(|input| PollFd::new(&input.pipe, PollFlags::OUT)),
        );
        let pipes = self
            .readers
            .iter()
            .filter_map(|reader| reader.pipe.as_ref());
        fds.extend(pipes.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let pidfd = self.child.pidfd.as_ref().filter(|_| !ended);
        fds.extend(pidfd.map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
        let wait = if ended || pidfd.is_some() {
            wait
        } else {
            wait.min(CHECK)
        };
        wait_for(&mut fds, wait).map_err(Failure::Lost)?;
        // The pipes do not block: one that is not ready has no effect.
        if self.input.as_mut().is_some_and(Writer::is_done) {
            self.input = None;
        }
        let mut read = false;
        for reader in &mut self.readers {
            read |= reader.step()?;
        }
        Ok(read)
    }
}

/// Waits until a descriptor is ready, at most this long.
fn wait_for(fds: &mut [PollFd<'_>], time: Duration) -> io::Result<()> {
    let time = Timespec::try_from(time).ok();
    match poll(fds, time.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The input of a program that is being written.
struct Writer<'a> {
    pipe: ChildStdin,
    rest: &'a [u8],
}

impl<'a> Writer<'a> {
    fn new(pipe: ChildStdin, rest: &'a [u8]) -> Result<Self, Failure> {
        ioctl_fionbio(&pipe, true).map_err(|error| Failure::Lost(error.into()))?;
        Ok(Self { pipe, rest })
    }

    /// Writes as much as the pipe takes. Returns whether nothing is left to write.
    fn is_done(&mut self) -> bool {
        match self.pipe.write(self.rest) {
            Ok(count) => self.rest = &self.rest[count..],
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // A program does not have to read its input.
            Err(_) => return true,
        }
        self.rest.is_empty()
    }
}

/// An output of a program that is being read.
struct Reader {
    pipe: Option<File>,
    kept: Buffer,
}

impl Reader {
    fn new(pipe: Option<OwnedFd>, capture: Option<Capture>) -> Result<Self, Failure> {
        if let Some(pipe) = &pipe {
            ioctl_fionbio(pipe, true).map_err(|error| Failure::Lost(error.into()))?;
        }
        Ok(Self {
            pipe: pipe.map(File::from),
            kept: capture.unwrap_or(Capture::head(0)).start(),
        })
    }

    /// Reads the available output. Returns whether there was any.
    fn step(&mut self) -> Result<bool, Failure> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(false);
        };
        let mut chunk = [0; 64 << 10];
        match pipe.read(&mut chunk) {
            Ok(0) => self.pipe = None,
            Ok(count) if self.kept.push(&chunk[..count]) => {}
            Ok(_) => return Err(Failure::TooLarge(self.kept.capture().limit())),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(false);
            }
            Err(_) => self.pipe = None,
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(timeout: Duration, output: Output) -> Options<'static> {
        Options {
            stdin: b"",
            output,
            timeout,
            kill_leftovers: true,
            running: None,
            tick: Duration::MAX,
        }
    }

    fn separate() -> Output {
        Output::Separate {
            stdout: Capture::all(1 << 20),
            stderr: Capture::tail(100),
        }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn input_and_both_outputs_are_transferred() {
        let input = vec![b'x'; 300_000];
        let options = Options {
            stdin: &input,
            ..options(LONG, separate())
        };
        let finished = run(&mut shell("cat; echo bad >&2; exit 3"), options, &mut || ()).unwrap();
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!(finished.stdout.into_bytes(), input);
        assert_eq!(finished.stderr.into_text(), "bad\n");
        let finished = run(
            &mut shell("echo a; echo b >&2; echo c"),
            merged(),
            &mut || (),
        )
        .unwrap();
        assert_eq!(finished.stdout.into_text(), "a\nb\nc\n");
    }

    fn merged() -> Options<'static> {
        options(LONG, Output::Merged(Capture::ends(100, 100)))
    }

    #[test]
    fn unread_input_is_no_failure() {
        let input = vec![b'x'; 1 << 20];
        let options = Options {
            stdin: &input,
            ..options(LONG, separate())
        };
        assert!(
            run(&mut shell("exit 0"), options, &mut || ())
                .unwrap()
                .status
                .success()
        );
    }

    #[test]
    fn too_much_output_and_missing_programs_are_failures() {
        let output = Output::Separate {
            stdout: Capture::all(1000),
            stderr: Capture::tail(10),
        };
        let failure = run(
            &mut shell("while :; do echo xxxx; done"),
            options(LONG, output),
            &mut || (),
        )
        .unwrap_err();
        assert!(matches!(failure, Failure::TooLarge(1000)), "{failure}");
        let failure = run(&mut Command::new("no-such-program"), merged(), &mut || ()).unwrap_err();
        assert!(
            matches!(&failure, Failure::Start(error) if error.kind() == ErrorKind::NotFound),
            "{failure}"
        );
    }

    #[test]
    fn timeout_returns_the_output_so_far() {
        // A slow machine may take longer until there is any output.
        for timeout in (0..12).map(|doubled| Duration::from_millis(100 << doubled)) {
            let options = options(timeout, separate());
            let failure = run(
                &mut shell("echo begun; sleep 600; echo no"),
                options,
                &mut || (),
            )
            .unwrap_err();
            let Failure::TimedOut(stdout, _) = failure else {
                panic!("{failure}")
            };
            match stdout.into_text().as_str() {
                "begun\n" => return,
                text => assert_eq!(text, ""),
            }
        }
        panic!("there is never any output");
    }

    #[test]
    fn an_escaped_process_that_holds_the_pipe_delays_nothing() {
        let options = Options {
            kill_leftovers: false,
            ..merged()
        };
        let finished = run(
            &mut shell("setsid sleep 600 & echo $!; exit 0"),
            options,
            &mut || (),
        )
        .unwrap();
        assert!(finished.status.success());
        let left = GroupId::of_leader(finished.stdout.into_text().trim().parse().unwrap()).unwrap();
        assert!(is_running(left), "it was not waited for");
        left.signal_leader(Signal::KILL);
    }

    #[test]
    fn endless_output_of_an_escaped_process_is_no_complete_answer() {
        // It writes until its pipe is closed.
        let options = Options {
            kill_leftovers: false,
            ..options(Duration::from_millis(700), separate())
        };
        let script = "setsid sh -c 'while sleep 0.1; do echo x; done' & exit 0";
        let failure = run(&mut shell(script), options, &mut || ()).unwrap_err();
        assert!(matches!(failure, Failure::TimedOut(..)), "{failure}");
    }

    #[test]
    fn leftovers_are_killed_or_kept_as_asked() {
        for kill_leftovers in [true, false] {
            let options = Options {
                kill_leftovers,
                ..merged()
            };
            let finished = run(
                &mut shell("sleep 600 >/dev/null 2>&1 & echo $!"),
                options,
                &mut || (),
            )
            .unwrap();
            let left =
                GroupId::of_leader(finished.stdout.into_text().trim().parse().unwrap()).unwrap();
            if !kill_leftovers {
                assert!(rustix::process::test_kill_process(left.leader()).is_ok());
                left.signal_leader(Signal::KILL);
            }
            while is_running(left) {
                std::thread::yield_now();
            }
        }
    }

    fn is_running(process: GroupId) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.leader()));
        stat.is_ok_and(|stat| {
            !stat
                .rsplit(')')
                .next()
                .unwrap_or_default()
                .trim_start()
                .starts_with('Z')
        })
    }

    #[test]
    fn stopping_kills_what_runs_and_what_starts_later() {
        let running = Running::default();
        std::thread::scope(|scope| {
            let run = || {
                run(
                    &mut shell("sleep 600"),
                    Options {
                        running: Some(&running),
                        ..merged()
                    },
                    &mut || (),
                )
            };
            let first = scope.spawn(run);
            while running.is_empty() {
                std::thread::yield_now();
            }
            running.stop();
            assert_eq!(first.join().unwrap().unwrap().status.code(), None);
            assert_eq!(run().unwrap().status.code(), None);
        });
        assert!(running.is_empty() && running.is_stopped());
    }

    #[test]
    fn a_dropped_child_is_dead() {
        let child = Child::spawn(Command::new("sleep").arg("600"), Scope::Program).unwrap();
        assert!(!child.ends_within(Duration::from_millis(20)).unwrap());
        let id = child.id;
        drop(child);
        assert!(!is_running(id));
    }
}
