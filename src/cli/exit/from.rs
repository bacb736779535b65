//! Which failure of a command each error of the other crates becomes: its exit code, and what to do
//! about it.

use helmdeck_conversation::ConversationError;
use helmdeck_core::{Code, Error};
use helmdeck_memory::StoreError;
use helmdeck_vault::VaultError;

use super::{Exit, Failure};

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match error.code() {
            Code::InvalidInput => Exit::Usage,
            Code::NotFound | Code::CacheMiss => Exit::Absent,
            Code::Forbidden => Exit::Refused,
            _ => Exit::Failed,
        };
        let mut failure = Self {
            problem: Some(error.problem()),
            ..Self::new(exit, error.to_string())
        };
        failure.hint = hint(&error);
        if !error.violations().is_empty() {
            failure
                .lines
                .push(format!("{}: {}", error.code(), error.message()));
            failure
                .lines
                .extend(error.violations().iter().map(|violation| {
                    let place = if violation.pointer.is_empty() {
                        "/"
                    } else {
                        &violation.pointer
                    };
                    format!("at {place}: {}", violation.detail)
                }));
        }
        failure
    }
}

/// What to do to see the cause of an error.
pub(super) const SEE_CAUSE: &str = "run it again with -v to see the cause";

fn hint(error: &Error) -> Option<String> {
    let hint = match error.code() {
        Code::InvalidInput => "`helmdeck pack show <pack>` prints what the pack takes",
        Code::NotFound => "`helmdeck pack list` names the packs that there are",
        Code::CredentialInvalid => {
            "name an environment variable for it under [credentials] in helmdeck.toml, or `helmdeck vault set` it"
        }
        Code::RateLimited => {
            return Some(error.retry_after().map_or_else(
                || "try again later".to_owned(),
                |after| format!("try again in {} s", after.as_secs().max(1)),
            ));
        }
        Code::Timeout => "raise `timeout` in the manifest; --timeout can only shorten it",
        Code::CacheMiss => "run it without --cache only-if-cached to fill the cache",
        // Only what has a cause can show one.
        Code::HandlerFailed | Code::Internal if std::error::Error::source(error).is_some() => {
            SEE_CAUSE
        }
        _ => return None,
    };
    // A handler's own `not_found` (a repository, an issue) is not about packs.
    (error.code() != Code::NotFound || error.message().contains("pack")).then(|| hint.to_owned())
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = match &error {
            StoreError::Corrupt(_) | StoreError::Unreadable { .. } => Exit::Corrupt,
            StoreError::WrongKey { .. } | StoreError::MalformedKey(_) | StoreError::BadUrl(_) => {
                Exit::Config
            }
            _ => Exit::Failed,
        };
        let failure = Self::new(exit, format!("memory: {error}"));
        match store_hint(&error) {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }
}

/// Returns what to do about a store that cannot be used.
pub(crate) fn store_hint(error: &StoreError) -> Option<&'static str> {
    match error {
        StoreError::WrongKey { .. } => Some(
            "set HELMDECK_MEMORY_KEY to the key that wrote the store, or name it in HELMDECK_MEMORY_KEY_PREVIOUS; if that key is lost, \
             `helmdeck memory reset` empties the store for the new one. `helmdeck key show` says where the given key comes from",
        ),
        StoreError::Corrupt(why) if why.contains("written by a newer version") => Some(
            "start the newer helmdeck again: nothing is wrong with the store. To stay with this one, restore the backup from before \
             the upgrade",
        ),
        StoreError::Corrupt(_) => Some(
            "move the file away (with its -wal and -shm) and keep it, or remove it with `helmdeck memory reset`; the next call makes a \
             new store",
        ),
        _ => None,
    }
}

impl From<VaultError> for Failure {
    fn from(error: VaultError) -> Self {
        let exit = match &error {
            VaultError::Missing(_) => Exit::Absent,
            VaultError::Invalid(_) => Exit::Usage,
            VaultError::Refused(_) => Exit::Secret,
            VaultError::WrongKey { .. } => Exit::Config,
            VaultError::Unreadable { .. } => Exit::Corrupt,
            VaultError::Store(error) => Self::from(error.clone()).exit,
            _ => Exit::Failed,
        };
        let failure = match &error {
            VaultError::Store(_) => Self::new(exit, format!("vault: {error}")),
            _ => Self::new(exit, error.to_string()),
        };
        match &error {
            VaultError::Missing(_) => failure.with_hint("`helmdeck vault list` names the credentials that there are"),
            VaultError::WrongKey { .. } => failure.with_hint(
                "set HELMDECK_VAULT_KEY to the key that sealed it, or name it in HELMDECK_VAULT_KEY_PREVIOUS",
            ),
            _ => failure,
        }
    }
}

impl From<ConversationError> for Failure {
    fn from(error: ConversationError) -> Self {
        use ConversationError as E;
        let (exit, hint) = match &error {
            E::Store(error) => return error.clone().into(),
            E::NotFound => (
                Exit::Absent,
                Some("`helmdeck conversation list SESSION` shows the turns that there are"),
            ),
            E::IdentityRequired { .. } | E::Invalid(_) => (Exit::Usage, None),
            E::SummarizerRequired => (
                Exit::Config,
                Some("`helmdeck check` tells whether everything is set"),
            ),
            E::Corrupt(_) => {
                let hint = "`helmdeck conversation flush` or `restore` makes it usable again; what does not open is gone";
                (Exit::Corrupt, Some(hint))
            }
            _ => (Exit::Failed, None),
        };
        let message = error.to_string();
        let mut failure = Self {
            problem: Some(Error::from(error).problem()),
            ..Self::new(exit, message)
        };
        failure.hint = hint.map(str::to_owned);
        failure
    }
}

impl From<helmdeck_forge::Error> for Failure {
    fn from(error: helmdeck_forge::Error) -> Self {
        use helmdeck_forge::Category as C;
        let exit = match error.category {
            C::Failed => Exit::Failed,
            C::Usage => Exit::Usage,
            C::NotFound => Exit::Absent,
            C::Paused => Exit::Paused,
            C::Locked => Exit::Locked,
            C::Stale => Exit::Stale,
            C::Secret => Exit::Secret,
            C::Corrupt => Exit::Corrupt,
            C::Refused => Exit::Refused,
            C::Unknown => Exit::Unknown,
        };
        let mut failure = Self::new(exit, error.message);
        failure.hint = match (error.hint, error.next) {
            (Some(hint), Some(next)) => Some(format!("{hint}\nnext: {next}")),
            (Some(hint), None) => Some(hint),
            (None, next) => next,
        };
        failure
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            // `helmdeck ... | head`: the reader has what it wants.
            std::io::ErrorKind::BrokenPipe => Self::silent(Exit::Ok),
            _ => Self::new(Exit::Failed, error.to_string()),
        }
    }
}
