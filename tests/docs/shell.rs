//! Shell session in which the commands of a page run.
//!
//! One bash for each page, in an empty home, with the real program on its PATH. It runs inside
//! bubblewrap: the folder `/home/you` is the only one that it can write besides `/tmp`, there is no
//! network but loopback (so two pages can serve on the same port), and its servers end with it.
//! `/proc` is that of the host: a sandbox of the product, which is bubblewrap too, could not mount
//! its own inside another one.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::page::Step;
use crate::support::PATIENT;

/// Runs before the first command: stops at the first failure, and can wait for a server.
const PROLOGUE: &str = r#"set -E -o pipefail
finish() {
    local status=$? command=$BASH_COMMAND
    kill -9 $(jobs -p) 2>/dev/null || true
    [ "$status" = 0 ] || echo "$step $status: $command" >"$steps/failed"
}
trap finish EXIT
wait_for_server() {
    for _ in $(seq 600); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return 0; fi
        sleep 0.05
    done
    echo "no server on port $1" >&2
    return 1
}
"#;

/// Empty home, and the folder in which the session's commands and their outputs are.
pub(crate) struct Session {
    folder: tempfile::TempDir,
}

/// How the commands of a page ended.
pub(crate) struct Ended {
    /// Output of each step that ran, in order.
    pub(crate) outputs: Vec<String>,
    /// Number of the step that failed, with its status and command.
    pub(crate) failed: Option<(usize, String)>,
}

impl Session {
    /// Prepares an empty home.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["home", "steps"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    /// Returns the home folder, as seen from outside.
    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Runs the steps, up to the first that fails although the page does not show an error.
    pub(crate) fn run(&self, steps: &[Step]) -> Ended {
        let folder = self.folder.path().join("steps");
        let mut driver = PROLOGUE.to_owned();
        for (number, step) in steps.iter().enumerate() {
            std::fs::write(
                folder.join(format!("{number}.sh")),
                with_waits(&step.script),
            )
            .unwrap();
            let fails = step.output.as_deref().is_some_and(shows_error);
            let source = format!(". $steps/{number}.sh >$steps/{number}.out 2>&1 </dev/null");
            let _ = if fails {
                writeln!(
                    driver,
                    "step={number}; set +e; {source}; [ $? != 0 ] || exit 99"
                )
            } else {
                writeln!(driver, "step={number}; set -e; {source}")
            };
        }
        std::fs::write(folder.join("session.sh"), driver).unwrap();
        let status = self
            .command()
            .arg("/tmp/steps/session.sh")
            .status()
            .unwrap();
        let read = |name: String| {
            std::fs::read(folder.join(name)).map(|it| String::from_utf8_lossy(&it).into_owned())
        };
        let failed = read("failed".to_owned()).ok().map(|text| {
            let (number, rest) = text.split_once(' ').unwrap();
            (number.parse().unwrap(), rest.trim().to_owned())
        });
        assert!(
            status.success() || failed.is_some(),
            "the shell ended with {status}"
        );
        Ended {
            outputs: (0..steps.len())
                .map_while(|it| read(format!("{it}.out")).ok())
                .collect(),
            failed,
        }
    }

    /// Prepares bash in the sandbox.
    fn command(&self) -> Command {
        let at = |name: &str| self.folder.path().join(name);
        let mut bwrap = Command::new("bwrap");
        bwrap.args([
            "--ro-bind",
            "/",
            "/",
            "--dev",
            "/dev",
            "--bind",
            "/proc",
            "/proc",
        ]);
        bwrap
            .args(["--tmpfs", "/tmp", "--tmpfs", "/home", "--bind"])
            .arg(at("home"))
            .arg("/home/you");
        bwrap.arg("--bind").arg(at("steps")).arg("/tmp/steps");
        bwrap.args([
            "--ro-bind",
            env!("CARGO_BIN_EXE_helmdeck"),
            "/tmp/bin/helmdeck",
        ]);
        bwrap.args(["--unshare-net", "--die-with-parent", "--new-session"]);
        bwrap.args(["--clearenv", "--chdir", "/home/you"]);
        for (name, value) in [
            ("HOME", "/home/you"),
            ("PATH", "/tmp/bin:/usr/local/bin:/usr/bin:/bin"),
            ("LANG", "C.UTF-8"),
            ("COLUMNS", "120"),
            ("steps", "/tmp/steps"),
            ("GIT_AUTHOR_NAME", "You"),
            ("GIT_AUTHOR_EMAIL", "you@example.com"),
            ("GIT_COMMITTER_NAME", "You"),
            ("GIT_COMMITTER_EMAIL", "you@example.com"),
            // What a person sees at a terminal.
            ("HELMDECK_LOG__FORMAT", "text"),
        ]
        .into_iter()
        .chain(PATIENT)
        {
            bwrap.args(["--setenv", name, value]);
        }
        bwrap
            .args(["--", "bash", "--norc", "--noprofile"])
            .stdin(Stdio::null());
        bwrap
    }
}

/// Says whether the output shown is that of a command that fails.
fn shows_error(output: &str) -> bool {
    output.lines().any(|line| line.starts_with("error: "))
}

/// Adds a wait after each server that a script starts in the background.
fn with_waits(script: &str) -> String {
    let mut text = String::new();
    for line in script.lines() {
        text.push_str(line);
        text.push('\n');
        let command = line.split(" # ").next().unwrap_or_default().trim_end();
        if command.ends_with(" &") {
            let port = command
                .split("--listen")
                .nth(1)
                .and_then(|it| it.split(':').nth(1));
            let port: String = port
                .unwrap_or("7700")
                .chars()
                .take_while(char::is_ascii_digit)
                .collect();
            let _ = writeln!(text, "wait_for_server {port}");
        }
    }
    text
}
