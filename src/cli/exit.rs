//! Exit codes of all commands, and the error type of this crate. Holds no secret.

mod from;

use serde_json::{Value, json};

use self::from::SEE_CAUSE;
pub(crate) use self::from::store_hint;

use crate::output::printable;
use crate::terminal::{Look, Paint};

/// A result whose error is [`Failure`].
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Exit codes of all commands. Scripts depend on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Ok = 0,
    /// The call or action failed.
    Failed = 1,
    /// The command line, or the input of a pack, is invalid.
    Usage = 2,
    /// The requested thing was not found.
    Absent = 3,
    /// Work is paused until the pause is ended with a reason.
    Paused = 4,
    /// Another process or session holds the lock.
    Locked = 5,
    /// It was changed since the caller read it.
    Stale = 6,
    /// A secret is refused.
    Secret = 7,
    /// Something stored is damaged.
    Corrupt = 8,
    /// A policy forbids it.
    Refused = 9,
    /// The state cannot be determined.
    Unknown = 10,
    /// The health is yellow, and the exit code was requested.
    Yellow = 11,
    /// The health is red, and the exit code was requested.
    Red = 12,
    /// The configuration is wrong (`EX_CONFIG` of sysexits).
    Config = 78,
}

/// The table of exit codes, as `helmdeck help exit-codes` prints it.
pub(crate) const TABLE: &str = "  \
    0  it worked\n  \
    1  the call or action failed\n  \
    2  usage: the command line or the input is wrong (unknown key, wrong type, missing key, out of range)\n  \
    3  not found: no such pack, job, file, entry or store\n  \
    4  paused: the work of a project waits until somebody says how it goes on\n  \
    5  locked: somebody else holds it\n  \
    6  stale: it was changed since it was read\n  \
    7  a secret is refused\n  \
    8  corrupt: something stored is damaged\n  \
    9  refused: a policy or a missing permission forbids it\n \
    10  unknown: nobody can say what state things are in\n \
    11  the health is yellow (only with --exit-code)\n \
    12  the health is red (only with --exit-code)\n \
    78  the configuration is wrong\n\
    130  ended by SIGINT (Ctrl-C)\n\
    143  ended by SIGTERM; a server that finished its work first ends with 0\n\n\
`helmdeck session exec` ends as the command that it ran. `helmdeck seam` has its own: 0, 2 and 4.";

impl Exit {
    const fn title(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Absent => "not found",
            Self::Paused => "paused",
            Self::Locked => "locked",
            Self::Stale => "stale",
            Self::Secret => "secret refused",
            Self::Corrupt => "corrupt",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
            Self::Yellow => "yellow",
            Self::Red => "red",
            Self::Config => "configuration",
        }
    }
}

/// Error of a command: message, hint and exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    /// What people read in place of `message`: what is wrong, then where, line by line.
    lines: Vec<String>,
    hint: Option<String>,
    problem: Option<Value>,
    /// Exit code that replaces that of `exit`: of a child program, or of the signal that ended the
    /// command.
    child: Option<u8>,
}

impl Failure {
    /// Makes a failure of a message: lower case, no period, names the thing.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            lines: Vec::new(),
            hint: None,
            problem: None,
            child: None,
        }
    }

    /// Makes a failure of an error that the caller did not cause.
    pub(crate) fn internal(error: impl std::fmt::Display) -> Self {
        Self::new(Exit::Failed, error.to_string())
    }

    /// Makes a failure of the command line.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Makes a failure of a file that the command line names and that cannot be read.
    pub(crate) fn of_file(name: impl std::fmt::Display, error: &std::io::Error) -> Self {
        let absent = error.kind() == std::io::ErrorKind::NotFound;
        Self::new(
            if absent { Exit::Absent } else { Exit::Failed },
            format!("{name}: {error}"),
        )
    }

    /// Makes a failure of the configuration.
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(Exit::Config, message)
    }

    /// Ends the command without a message: the reader is gone, or everything was printed.
    pub(crate) const fn silent(exit: Exit) -> Self {
        Self {
            exit,
            message: String::new(),
            lines: Vec::new(),
            hint: None,
            problem: None,
            child: None,
        }
    }

    /// Ends the command without a message, with the exit code of a program that it ran.
    pub(crate) fn of_child(code: u8) -> Self {
        Self {
            child: Some(code),
            ..Self::silent(Exit::Failed)
        }
    }

    /// Ends with this code if a signal ended the command.
    pub(crate) const fn after_signal(mut self, code: Option<u8>) -> Self {
        if self.child.is_none() {
            self.child = code;
        }
        self
    }

    /// Adds a hint.
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a hint unless there is one.
    pub(crate) fn or_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// Names the pack in a hint about any pack.
    pub(crate) fn about_pack(mut self, name: &str) -> Self {
        self.hint = self.hint.map(|hint| hint.replace("<pack>", name));
        self
    }

    /// Sets what people read in place of the message: what is wrong, then where, line by line.
    pub(crate) fn with_lines(mut self, lines: Vec<String>) -> Self {
        self.lines = lines;
        self
    }

    /// Drops the hint to use -v if it was used.
    pub(crate) fn said_verbosely(mut self) -> Self {
        self.hint = self.hint.filter(|hint| hint != SEE_CAUSE);
        self
    }

    /// Adds the location of the failure.
    pub(crate) fn at(mut self, place: &str) -> Self {
        self.message = format!("{place}: {}", self.message);
        self.lines.clear();
        if let Some(problem) = &mut self.problem {
            problem["detail"] = self.message.as_str().into();
        }
        self
    }

    /// Returns the exit code.
    pub(crate) const fn exit(&self) -> Exit {
        self.exit
    }

    /// Returns the exit code of this process.
    pub(crate) const fn code(&self) -> u8 {
        match self.child {
            Some(code) => code,
            None => self.exit as u8,
        }
    }

    /// Says whether there is no message.
    pub(crate) const fn is_silent(&self) -> bool {
        self.message.is_empty()
    }

    /// Returns the message.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the hint.
    pub(crate) fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the failure as people read it: `error: what`, then where and `hint: what to do`,
    /// each indented.
    pub(crate) fn shown(&self, paint: Paint) -> String {
        let line = |text: &str| printable(text).replace('\n', "\n  ");
        let what = self.lines.first().unwrap_or(&self.message);
        let mut shown = format!("{} {}", paint.text(Look::Red, "error:"), line(what));
        for place in self.lines.iter().skip(1) {
            shown.push_str(&format!("\n  {}", line(place)));
        }
        if let Some(hint) = &self.hint {
            shown.push_str(&format!(
                "\n  {} {}",
                paint.text(Look::Cyan, "hint:"),
                line(hint)
            ));
        }
        shown
    }

    /// Returns the failure as text without colours.
    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        self.shown(Paint(false))
    }

    /// Returns the failure for programs: problem details (RFC 9457).
    pub(crate) fn problem(&self) -> Value {
        self.problem.clone().unwrap_or_else(
            || json!({"type": "about:blank", "title": self.exit.title(), "detail": self.message, "exit": self.code()}),
        )
    }
}

#[cfg(test)]
mod tests {
    use helmdeck_conversation::ConversationError;
    use helmdeck_core::error::Violation;
    use helmdeck_core::{Code, Error};
    use helmdeck_memory::StoreError;

    use super::*;

    #[test]
    fn nobody_is_told_to_remove_a_store_of_a_newer_version() {
        let why =
            "it was written by a newer version (schema 9); this version knows schemas up to 7";
        let hint = store_hint(&StoreError::Corrupt(why.to_owned())).unwrap();
        assert!(
            hint.starts_with("start the newer helmdeck") && !hint.contains("reset"),
            "{hint}"
        );
        assert!(
            store_hint(&StoreError::Corrupt("page 3".to_owned()))
                .unwrap()
                .contains("move the file away")
        );
    }

    #[test]
    fn the_code_of_an_error_decides_the_exit_code() {
        let exit = |code| Failure::from(Error::new(code, "x")).exit() as u8;
        assert_eq!(exit(Code::InvalidInput), 2);
        assert_eq!(exit(Code::NotFound), 3);
        assert_eq!(exit(Code::CacheMiss), 3);
        assert_eq!(exit(Code::Forbidden), 9);
        assert_eq!(exit(Code::HandlerFailed), 1);
        let wrong = StoreError::WrongKey {
            store: "a".into(),
            given: "b".into(),
        };
        assert_eq!(Failure::from(wrong).exit() as u8, 78);
        assert_eq!(
            Failure::from(StoreError::Corrupt("x".into())).exit() as u8,
            8
        );
    }

    #[test]
    fn what_is_wrong_with_a_conversation_decides_the_exit_code() {
        let exit = |error: ConversationError| Failure::from(error).exit() as u8;
        assert_eq!(exit(ConversationError::NotFound), 3);
        assert_eq!(exit(ConversationError::SummarizerRequired), 78);
        assert_eq!(exit(ConversationError::Corrupt("x".into())), 8);
        assert_eq!(exit(ConversationError::Invalid("x".into())), 2);
        assert_eq!(exit(ConversationError::InvalidSnapshot("x".into())), 1);
        assert_eq!(
            exit(ConversationError::Store(StoreError::Corrupt("x".into()))),
            8
        );
        let placed = Failure::from(ConversationError::Contended).at("turns.jsonl, line 7");
        assert!(
            placed
                .message()
                .starts_with("turns.jsonl, line 7: memory: others")
        );
        assert_eq!(placed.problem()["detail"], placed.message());
    }

    #[test]
    fn error_has_what_where_and_hint() {
        let places = ["/a", ""].map(|pointer| Violation {
            pointer: pointer.into(),
            detail: "no \x1b[2J".into(),
        });
        let error =
            Error::new(Code::InvalidInput, "it does not fit").with_violations(places.into());
        let shown = Failure::from(error).with_hint("one\ntwo").text();
        let expected = "error: invalid_input: it does not fit\n  at /a: no \\u{1b}[2J\n  at /: no \\u{1b}[2J\n  hint: one\n  two";
        assert_eq!(shown, expected);
        let painted = Failure::usage("x").with_hint("y").shown(Paint(true));
        assert_eq!(painted, "\x1b[31merror:\x1b[0m x\n  \x1b[36mhint:\x1b[0m y");
    }

    #[test]
    fn minus_v_is_advised_to_who_did_not_say_it_if_there_is_a_cause() {
        let with_cause = || Failure::from(Error::new(Code::HandlerFailed, "x").with_source("y"));
        assert!(with_cause().text().contains("-v"));
        assert!(!with_cause().said_verbosely().text().contains("-v"));
        assert!(
            !Failure::from(Error::new(Code::HandlerFailed, "x"))
                .text()
                .contains("-v")
        );
    }

    #[test]
    fn signal_decides_the_exit_code() {
        let failed = || Failure::new(Exit::Failed, "interrupted");
        assert_eq!(failed().after_signal(None).code(), 1);
        assert_eq!(failed().after_signal(Some(130)).code(), 130);
        assert_eq!(failed().after_signal(Some(130)).problem()["exit"], 130);
        assert_eq!(Failure::of_child(7).after_signal(Some(130)).code(), 7);
    }

    #[test]
    fn table_has_every_exit_code() {
        let codes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 78, 130, 143];
        let lines = TABLE.split("\n\n").next().unwrap().lines();
        let listed: Vec<u8> = lines
            .map(|line| line.split_whitespace().next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(listed, codes);
        let documented = include_str!("../../docs/exit-codes.md");
        for line in TABLE.lines().filter(|line| !line.is_empty()) {
            let row = line
                .trim()
                .split_once("  ")
                .map_or(line.to_owned(), |(code, text)| {
                    format!("| {code} | {text} |")
                });
            assert!(
                documented.contains(&row),
                "docs/exit-codes.md has no line {row:?}"
            );
        }
    }

    #[test]
    fn a_broken_pipe_is_silent_and_fine() {
        let failure = Failure::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(failure.is_silent());
        assert_eq!(failure.exit(), Exit::Ok);
    }

    #[test]
    fn the_cause_of_an_error_is_not_printed() {
        let failure = Failure::from(
            Error::new(Code::HandlerFailed, "upstream failed").with_source("canary-secret"),
        );
        assert!(!failure.text().contains("canary"));
        assert!(!failure.problem().to_string().contains("canary"));
    }
}
