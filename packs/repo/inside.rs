//! Runs git inside a session, where it may read what commands wrote: without network and secrets.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::session::{Ended, Exec, Session};
use helmdeck_core::{Code, Error, Result};

/// Timeout of a command.
const LONGEST: Duration = Duration::from_secs(1800);

/// File name of git's settings.
const SETTINGS: &str = "gitconfig";

/// Git's settings inside: nothing of the system, and every owner is trusted.
const SETTINGS_TEXT: &str = "[safe]\n\tdirectory = *\n[core]\n\thooksPath = /dev/null\n\tfsmonitor = false\n\
     [gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[advice]\n\tdetachedHead = false\n[init]\n\tdefaultBranch = main\n";

/// Runs our commands inside a session.
pub(super) struct Inside<'a> {
    pub(super) session: &'a dyn Session,
    variables: Vec<(String, String)>,
}

impl<'a> Inside<'a> {
    /// Prepares a session: writes git's settings where commands can only read them.
    ///
    /// # Errors
    /// `resource_exhausted` if they cannot be written.
    pub(super) fn new(session: &'a dyn Session) -> Result<Self> {
        supply(session, SETTINGS, SETTINGS_TEXT)?;
        Ok(Self {
            session,
            variables: Vec::new(),
        })
    }

    /// Adds an environment variable for all commands.
    pub(super) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// Runs a command in a folder below the session's, and returns its output.
    ///
    /// # Errors
    /// `too_large` if it printed more than `max_output` bytes; `resource_exhausted`, `timeout` or
    /// `session_unavailable` for the session's limits; `handler_failed` if it failed.
    pub(super) async fn run(
        &self,
        cwd: &str,
        argv: &[&str],
        max_output: usize,
        stdin: Bytes,
    ) -> Result<Vec<u8>> {
        let mut command = Exec::new(argv.iter().copied());
        command.cwd = cwd.to_owned();
        command.stdin = stdin;
        command.timeout = LONGEST;
        command.max_output = max_output;
        let settings = format!("{}/{SETTINGS}", self.session.supplies_inside());
        let fixed = [
            ("LC_ALL", "C"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", settings.as_str()),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
        ];
        command
            .env
            .extend(fixed.map(|(name, value)| (name.to_owned(), value.to_owned())));
        command.env.extend(self.variables.iter().cloned());
        let executed = self.session.exec(command).await?;
        let noise = [executed.stderr.head, executed.stderr.tail].concat();
        match executed.ended {
            Ended::Exited(0) => executed
                .stdout
                .all()
                .filter(|bytes| bytes.len() <= max_output)
                .ok_or_else(|| {
                    let message = format!(
                        "{} printed more than {max_output} bytes",
                        argv.first().unwrap_or(&"")
                    );
                    Error::new(Code::TooLarge, message)
                }),
            ended => {
                Err(failure(argv, ended).with_source(String::from_utf8_lossy(&noise).into_owned()))
            }
        }
    }
}

/// Writes a file that commands can read but not change, unless it exists already.
///
/// # Errors
/// `resource_exhausted` if it cannot be written.
pub(super) fn supply(session: &dyn Session, name: &str, text: &str) -> Result<()> {
    let path = session.supplies().join(name);
    let readable =
        || std::fs::metadata(&path).is_ok_and(|found| found.permissions().mode() & 0o444 == 0o444);
    if readable() && std::fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    // Commands run as another user, whatever the umask of this process.
    std::fs::write(&path, text)
        .and_then(|()| std::fs::set_permissions(&path, Permissions::from_mode(0o644)))
        .map_err(|error| {
            Error::new(
                Code::ResourceExhausted,
                "the session's supplies cannot be written",
            )
            .with_source(error)
        })
}

fn failure(argv: &[&str], ended: Ended) -> Error {
    let command = argv.iter().take(2).copied().collect::<Vec<_>>().join(" ");
    match ended {
        Ended::Exited(127) => Error::new(
            Code::SessionUnavailable,
            format!(
                "there is no program \"{}\" in the session",
                argv.first().unwrap_or(&"")
            ),
        ),
        Ended::OutOfDisk => Error::new(
            Code::ResourceExhausted,
            "the repository does not fit into the session's folder",
        ),
        Ended::OutOfMemory => Error::new(
            Code::ResourceExhausted,
            format!("\"{command}\" takes more memory than the session may"),
        ),
        Ended::TimedOut => Error::new(
            Code::Timeout,
            format!("\"{command}\" did not finish in time in the session"),
        ),
        Ended::Exited(_) | Ended::Signalled(_) => Error::new(
            Code::HandlerFailed,
            format!("\"{command}\" failed in the session"),
        ),
    }
}
