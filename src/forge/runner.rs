//! Checks: programs that decide whether something works, with a time limit and bounded output.
//!
//! No process of a check outlives its result.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use helmdeck_core::Clock;
use helmdeck_core::text::shell_quoted;
use helmdeck_process::blocking::{self, Options, Output};
use helmdeck_process::{Capture, Captured, Failure};
use serde::Serialize;

use crate::error::{Category, Error, Result};
use crate::project::Project;
use crate::redact::end_of;
use crate::sessions::Sessions;
use crate::trust;

pub use helmdeck_process::Running;

/// The bytes kept of the start of an output.
const HEAD: usize = 1 << 20;
/// The bytes kept of the end of an output, where most programs report their result.
const TAIL: usize = 3 << 20;
/// How long a process that was asked to stop waits before it reports a stopped check.
const LINGER: Duration = Duration::from_millis(500);
/// How often a caller hears that the program still runs, by the machine's time or the project's.
const BEAT: Duration = Duration::from_secs(60);
/// How often the project's time is checked for that.
const TICK: Duration = Duration::from_millis(20);
/// Variables that git sets for its hooks to name their repository.
///
/// A test of this project must not inherit them.
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
    /// Its exit code; `None` if a signal ended it or it ran out of time.
    pub exit: Option<i32>,
    /// Whether it ran out of time and was killed.
    pub timed_out: bool,
    /// How long it ran, in milliseconds.
    pub ms: u64,
    /// Standard output and standard error, in the order of writing.
    ///
    /// Of more than 4 MiB, the middle is left out.
    pub output: String,
}

impl Ran {
    /// Says whether it exited with code 0 in time.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.exit == Some(0) && !self.timed_out
    }

    /// Returns the last lines of the output, at most `bytes` bytes, with credentials redacted.
    #[must_use]
    pub fn end(&self, bytes: usize) -> String {
        end_of(&self.output, bytes)
    }
}

/// Placeholder of a command for the test that is run.
pub(crate) const PREFIX: &str = "{prefix}";

/// A command line to run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Line<'a> {
    /// One of the project's files, with what a test puts in the place of [`PREFIX`].
    Project(&'a str, Option<&'a str>),
    /// One that the caller of this program gives for this time.
    Caller(&'a str),
}

/// Runs a program at the root of a project, without a shell and with a time limit.
///
/// This is the one place that runs what a project says. A command of its files must be one that a
/// person agreed to, word for word.
///
/// The program has no input. It runs in its own process group, which is killed when the program
/// ends or runs out of time. Meanwhile it keeps the current session alive.
///
/// # Errors
/// `Refused` (`E_UNTRUSTED`) if nobody agreed to the command; `E_USAGE` for a command that cannot
/// be split, `E_CANNOT_START` for a program that cannot be started.
pub(crate) fn check(project: &Project, line: Line<'_>, timeout: Duration) -> Result<Ran> {
    check_with(project, line, timeout, None)
}

/// As [`check`], with words that are added to a variable of the program's environment.
pub(crate) fn check_with(
    project: &Project,
    line: Line<'_>,
    timeout: Duration,
    variable: Option<(&str, &str)>,
) -> Result<Ran> {
    let words = match line {
        Line::Project(command, prefix) => {
            trust::check_command(project, command)?;
            argv(command, prefix)?
        }
        Line::Caller(command) => {
            trust::check(project)?;
            argv(command, None)?
        }
    };
    let renew = || Sessions::new(project).renew_lease();
    renew();
    let environment = project.environment();
    let ran = run(
        (project.root(), variable),
        &words,
        timeout,
        &*environment.clock,
        (&environment.running, &renew),
    );
    if environment.running.is_stopped() {
        // The result says nothing about the code. This process usually ends meanwhile, so nothing
        // is recorded.
        std::thread::sleep(LINGER);
        let message = format!("`{}` was stopped by a signal", text_of(&words));
        return Err(Error::new(Category::Failed, "E_STOPPED", message));
    }
    renew();
    ran
}

/// Returns the words of a command: those that are run, but for the placeholder if there is no
/// prefix to put there.
///
/// Words are split at blanks; `'`, `"` and `\` quote as in a shell. A command that begins with
/// `sh:` is given to `sh -c`. With an empty prefix, which means all tests, a word that is only the
/// placeholder is left out.
///
/// # Errors
/// `Usage` for a command that is empty or cannot be split.
pub(crate) fn argv(command: &str, prefix: Option<&str>) -> Result<Vec<String>> {
    if let Some(script) = command.strip_prefix("sh:") {
        if let Some(prefix) = prefix {
            plain(prefix, !stands_alone_in(script))?;
        }
        let script = prefix.map_or_else(
            || script.to_owned(),
            |prefix| script.replace(PREFIX, &shell_quoted(prefix)),
        );
        return Ok(vec!["sh".to_owned(), "-c".to_owned(), script]);
    }
    let split = shlex::split(command).filter(|_| !command.contains('\0'));
    let wrong = || {
        Error::usage(format!(
            "the command {command:?} has a quote that is not closed, a NUL, or ends with a \\"
        ))
    };
    let mut words = split.ok_or_else(wrong)?;
    if let Some(prefix) = prefix {
        plain(
            prefix,
            words
                .iter()
                .any(|word| word != PREFIX && word.contains(PREFIX)),
        )?;
        words.retain(|word| !prefix.is_empty() || word != PREFIX);
        words
            .iter_mut()
            .for_each(|word| *word = word.replace(PREFIX, prefix));
    }
    if words.is_empty() {
        return Err(Error::usage("the command is empty"));
    }
    Ok(words)
}

/// Says whether a quoted word stays one word in every place of the placeholder: nothing of the
/// script is quoted, nested or commented out, and the placeholder stands between blanks.
fn stands_alone_in(script: &str) -> bool {
    let is_nested = script.contains(['\'', '"', '`', '\\', '#', '$']) || script.contains("<<");
    !is_nested
        && script
            .split_whitespace()
            .all(|word| word == PREFIX || !word.contains(PREFIX))
}

/// Refuses the name of a test that is more than a name, where it becomes a part of something else:
/// a shell may read it, and what it says there was never shown to anybody.
fn plain(prefix: &str, is_part: bool) -> Result<()> {
    let is_name = |c: char| c.is_alphanumeric() || "_:./-@+,[]=".contains(c);
    if !is_part || prefix.chars().all(is_name) {
        return Ok(());
    }
    Err(Error::usage(format!("the test {prefix:?} is no plain name, and this runner may give it to a shell"))
        .hint("letters, digits and _ : . / - @ + , [ ] = can be used; or make {prefix} a word of its own, without sh:"))
}

/// Returns words as a command.
pub(crate) fn text_of(words: &[String]) -> String {
    match words {
        [shell, option, script] if shell == "sh" && option == "-c" => format!("sh:{script}"),
        words => words
            .iter()
            .map(|word| shell_quoted(word))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

/// Returns a variable with one more word: what the user has set for the program stays.
#[expect(
    clippy::disallowed_methods,
    reason = "a program that is started inherits the environment as it is"
)]
fn appended(name: &str, value: &str) -> OsString {
    let all: Vec<OsString> = std::env::var_os(name)
        .into_iter()
        .chain([value.into()])
        .collect();
    all.join(OsStr::new(" "))
}

/// Runs a program, registered in `running`. `beat` is called every minute meanwhile.
fn run(
    (root, variable): (&Path, Option<(&str, &str)>),
    words: &[String],
    timeout: Duration,
    clock: &dyn Clock,
    (running, beat): (&Running, &dyn Fn()),
) -> Result<Ran> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(Error::usage("the command is empty"));
    };
    let mut run = Command::new(program);
    run.args(arguments).current_dir(root);
    for name in GIT {
        run.env_remove(name);
    }
    run.envs(variable.map(|(name, value)| (name, appended(name, value))));
    let options = Options {
        stdin: b"",
        output: Output::Merged(Capture::ends(HEAD, TAIL)),
        // The machine's time, even if the project's clock is frozen: a program does not run by that
        // one.
        timeout,
        kill_leftovers: true,
        running: Some(running),
        tick: TICK,
    };
    let began = clock.monotonic();
    let mut last = (Instant::now(), began);
    let ended = blocking::run(&mut run, options, &mut || {
        let now = clock.monotonic();
        if last.0.elapsed() >= BEAT || now.saturating_sub(last.1) >= BEAT {
            last = (Instant::now(), now);
            beat();
        }
    });
    let ms = u64::try_from(clock.monotonic().saturating_sub(began).as_millis()).unwrap_or(u64::MAX);
    let (exit, timed_out, output) = match ended {
        Ok(finished) => (finished.status.code(), false, finished.stdout),
        Err(Failure::TimedOut(output, _)) => (None, true, output),
        Err(Failure::Start(error)) => {
            let message = format!("cannot start `{}`: {error}", text_of(words));
            return Err(Error::new(Category::Failed, "E_CANNOT_START", message)
                .hint("is the program installed, and on the PATH?"));
        }
        Err(failure) => {
            let message = format!("cannot wait for `{}`: {failure}", text_of(words));
            return Err(Error::new(Category::Failed, "E_IO", message));
        }
    };
    Ok(Ran {
        exit,
        timed_out,
        ms,
        output: text(&output),
    })
}

fn text(output: &Captured) -> String {
    let mut text = String::from_utf8_lossy(&output.head).into_owned();
    if output.dropped > 0 {
        text.push_str(&format!("\n[... {} bytes left out ...]\n", output.dropped));
    }
    text.push_str(&String::from_utf8_lossy(&output.tail));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use helmdeck_core::SystemClock;

    const LONG: Duration = Duration::from_secs(60);

    fn run_in(folder: &Path, command: &str, timeout: Duration, running: &Running) -> Result<Ran> {
        super::run(
            (folder, None),
            &argv(command, None)?,
            timeout,
            &SystemClock::default(),
            (running, &|| ()),
        )
    }

    fn run(command: &str, timeout: Duration) -> Result<Ran> {
        run_in(Path::new("/"), command, timeout, &Running::default())
    }

    #[test]
    fn check_runs_in_its_folder_and_reports_its_exit() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("here"), "").unwrap();
        let run =
            |command: &str| run_in(folder.path(), command, LONG, &Running::default()).unwrap();
        let ran = run("ls");
        assert_eq!((ran.exit, ran.output.as_str()), (Some(0), "here\n"));
        assert!(ran.passed());
        let ran = run("sh: echo out; echo err >&2; exit 3");
        assert_eq!((ran.exit, ran.passed()), (Some(3), false));
        assert_eq!(ran.output, "out\nerr\n");
        let ran = run("sh:kill -9 $$");
        assert_eq!(
            (ran.exit, ran.timed_out, ran.passed()),
            (None, false, false)
        );
    }

    #[test]
    fn commands_are_not_read_by_a_shell() {
        assert_eq!(
            run("echo $HOME; echo *", LONG).unwrap().output,
            "$HOME; echo *\n"
        );
    }

    #[test]
    fn missing_program_cannot_start() {
        let error = run("no-such-program --at-all", LONG).unwrap_err();
        assert_eq!(
            (error.code, error.category),
            ("E_CANNOT_START", Category::Failed)
        );
        for wrong in ["", "  ", "a 'b", "a \"b", "a \\"] {
            assert_eq!(
                run(wrong, LONG).unwrap_err().category,
                Category::Usage,
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn a_variable_that_the_user_has_set_stays() {
        let (words, timeout) = (
            argv("sh: printf %s \"$PATH\"", None).unwrap(),
            Duration::from_secs(60),
        );
        let root = (Path::new("/"), Some(("PATH", "and more")));
        let ran = super::run(
            root,
            &words,
            timeout,
            &SystemClock::default(),
            (&Running::default(), &|| ()),
        )
        .unwrap();
        assert!(
            ran.output.contains('/') && ran.output.ends_with(" and more"),
            "{}",
            ran.output
        );
    }

    #[test]
    fn timeout_kills_a_check_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let command = "sh: echo begun; sleep 600 & echo $! > child; wait";
        // Enough time for the shell to reach its wait.
        let ran = run_in(
            folder.path(),
            command,
            Duration::from_secs(1),
            &Running::default(),
        )
        .unwrap();
        assert_eq!((ran.exit, ran.timed_out, ran.passed()), (None, true, false));
        assert_eq!(ran.output, "begun\n");
        let child: i32 = std::fs::read_to_string(folder.path().join("child"))
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        // Its new parent may take a moment to reap it.
        let began = Instant::now();
        let alive = || {
            std::fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| {
                !stat
                    .rsplit(')')
                    .next()
                    .unwrap_or_default()
                    .trim_start()
                    .starts_with('Z')
            })
        };
        while alive() {
            assert!(began.elapsed() < LONG, "it still runs");
            std::thread::yield_now();
        }
    }

    #[test]
    fn stop_kills_running_and_later_checks() {
        let folder = tempfile::tempdir().unwrap();
        let command = "sh: sleep 600 & echo $! > new; mv new child; wait";
        let running = Running::default();
        let child = folder.path().join("child");
        std::thread::scope(|scope| {
            let run = scope.spawn(|| run_in(folder.path(), command, 10 * LONG, &running));
            while !child.exists() {
                std::thread::yield_now();
            }
            running.stop();
            assert_eq!(run.join().unwrap().unwrap().exit, None);
        });
        let pid = std::fs::read_to_string(&child).unwrap();
        while std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).is_ok_and(|stat| {
            !stat
                .rsplit(')')
                .next()
                .unwrap_or_default()
                .trim_start()
                .starts_with('Z')
        }) {
            std::thread::yield_now();
        }
        let ran = run_in(folder.path(), "sleep 600", 10 * LONG, &running).unwrap();
        assert_eq!((ran.exit, ran.timed_out), (None, false));
        assert!(running.is_empty());
    }

    #[test]
    fn long_output_keeps_both_ends() {
        let ran = run(
            "sh: echo first; head -c 6000000 /dev/zero | tr '\\0' 'x'; echo; echo last",
            LONG,
        )
        .unwrap();
        assert!(ran.output.starts_with("first\nxxx"));
        assert!(ran.output.ends_with("xxx\nlast\n"));
        assert!(ran.output.contains("bytes left out"));
        assert!(ran.output.len() < HEAD + TAIL + 100, "{}", ran.output.len());
        assert_eq!(ran.end(5), "last\n");
    }

    #[test]
    fn names_of_tests_are_no_commands() {
        for prefix in [
            "$(touch x)",
            "`touch x`",
            "a;touch x",
            "a touch",
            "'\"$(x)\"'",
            "a\nb",
            "a|b",
            "a&b",
        ] {
            for command in [
                "sh:t x{prefix}",
                "sh:t {prefix}x",
                "sh:$(t {prefix})",
                "sh:t # {prefix}",
                "sh:t \"{prefix}\"",
                "sh:t '{prefix}'",
                "bash -c 't {prefix}'",
                "t --name={prefix}",
            ] {
                assert_eq!(
                    argv(command, Some(prefix)).unwrap_err().category,
                    Category::Usage,
                    "{command} {prefix}"
                );
            }
            assert_eq!(argv("t {prefix}", Some(prefix)).unwrap(), ["t", prefix]);
            let script = argv("sh: cd web && t -- {prefix} ", Some(prefix))
                .unwrap()
                .remove(2);
            assert_eq!(script, format!(" cd web && t -- {} ", shell_quoted(prefix)));
        }
        assert_eq!(
            argv("sh:t x{prefix}", Some("a::b[1-2]")).unwrap()[2],
            format!("t x{}", shell_quoted("a::b[1-2]"))
        );
        assert_eq!(
            argv("t --name={prefix}", Some("a/b.py")).unwrap()[1],
            "--name=a/b.py"
        );
    }

    #[test]
    fn words_are_split_like_in_a_shell() {
        for (command, split) in [
            ("cargo test -p a", vec!["cargo", "test", "-p", "a"]),
            (
                r#"a 'b c' "d \"e\" \n" f\ g"#,
                vec!["a", "b c", r#"d "e" \n"#, "f g"],
            ),
            ("x'y'\"z\" ''", vec!["xyz", ""]),
        ] {
            assert_eq!(argv(command, None).unwrap(), split);
        }
        for word in ["plain", "", "two words", "it's", "a::b", "$x"] {
            assert_eq!(argv(&shell_quoted(word), None).unwrap(), [word]);
        }
    }
}
