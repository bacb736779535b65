//! Checks before a session is made or a command is started.

use std::io;
use std::path::{Component, Path};

use helmdeck_core::session::Exec;
use helmdeck_core::{Code, Error, Result, Timestamp};

use super::config::SessionConfig;
use super::place::Record;

/// Why a session was not made.
#[derive(Debug)]
pub(super) enum Unmade {
    Refused(Error),
    Failed(io::Error),
}

impl From<io::Error> for Unmade {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Unmade {
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Refused(error) => error,
            Self::Failed(error) => {
                let code = match error.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        Code::ResourceExhausted
                    }
                    _ => Code::SessionUnavailable,
                };
                Error::new(code, "the folder of a new session cannot be made").with_source(error)
            }
        }
    }
}

/// Checks whether a caller can have one more session.
pub(super) fn fits(
    records: &[Record],
    tenant: &str,
    user: &str,
    now: Timestamp,
    config: &SessionConfig,
) -> std::result::Result<(), Unmade> {
    let live = || records.iter().filter(|record| record.expires_at > now);
    let own = live()
        .filter(|record| record.tenant == tenant && record.user == user)
        .count();
    if own >= config.max_per_caller {
        let message =
            format!("this caller has {own} sessions already, which is the most; end one first");
        return Err(Unmade::Refused(Error::new(
            Code::ResourceExhausted,
            message,
        )));
    }
    let all = live().count();
    if all >= config.max_total {
        let message =
            format!("there are {all} sessions already, which is the most; try again later");
        return Err(Unmade::Refused(Error::new(Code::Overloaded, message)));
    }
    Ok(())
}

/// Checks a command before it is started.
pub(super) fn command(command: &Exec) -> Result<()> {
    let refuse = |message: &'static str| Err(Error::new(Code::InvalidInput, message));
    if command.argv.first().is_none_or(String::is_empty) {
        return refuse("the command is empty");
    }
    if command
        .argv
        .iter()
        .chain([&command.cwd])
        .any(|word| word.contains('\0'))
    {
        return refuse("the command has a NUL character");
    }
    if Path::new(&command.cwd)
        .components()
        .any(|part| !matches!(part, Component::Normal(_) | Component::CurDir))
    {
        return refuse("the folder of the command is not below the session's own");
    }
    let named = |name: &str| !name.is_empty() && !name.contains(['=', '\0']);
    if command
        .env
        .iter()
        .any(|(name, value)| !named(name) || value.contains('\0'))
    {
        return refuse("a variable of the command has no proper name, or a NUL character");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_outside_folder_or_empty_is_refused() {
        let with = |change: &dyn Fn(&mut Exec)| {
            let mut exec = Exec::new(["true"]);
            change(&mut exec);
            command(&exec).map_err(|error| error.code())
        };
        assert_eq!(with(&|_| {}), Ok(()));
        assert_eq!(with(&|exec| exec.cwd = "a/./b".to_owned()), Ok(()));
        for cwd in ["..", "a/../..", "/", "/etc", "a\0"] {
            assert_eq!(
                with(&|exec| exec.cwd = cwd.to_owned()),
                Err(Code::InvalidInput),
                "{cwd:?}"
            );
        }
        assert_eq!(with(&|exec| exec.argv.clear()), Err(Code::InvalidInput));
        assert_eq!(
            with(&|exec| exec.argv = vec![String::new()]),
            Err(Code::InvalidInput)
        );
        assert_eq!(
            with(&|exec| exec.argv.push("a\0b".to_owned())),
            Err(Code::InvalidInput)
        );
        for (name, value) in [("", "x"), ("A=B", "x"), ("A", "x\0")] {
            let set = |exec: &mut Exec| drop(exec.env.insert(name.to_owned(), value.to_owned()));
            assert_eq!(with(&set), Err(Code::InvalidInput), "{name:?}");
        }
    }
}
