//! Maps a failure of git to an error with a code.
//!
//! Facts come first: what the proxy saw, what the credential helper was asked, what a push reported
//! line by line. Then the last lines of git itself, which are always the same text because git runs
//! with the C locale. What a server said (`remote: `) decides nothing.

use helmdeck_core::{Code, Error, Secret};
use helmdeck_egress::Trouble;

use super::process::Finished;

/// Facts about a failed run besides the output of git.
pub(super) struct Facts<'a> {
    /// The host of the repository; `None` for this machine.
    pub(super) host: Option<String>,
    /// The failure on the network.
    pub(super) trouble: Option<Trouble>,
    /// Whether the server requested a credential.
    pub(super) asked: bool,
    /// Whether the server rejected the credential.
    pub(super) rejected: bool,
    pub(super) credential: Option<&'a Secret>,
}

/// Makes the error of a run that did not succeed.
pub(super) fn of_failure(facts: Facts<'_>, finished: &Finished) -> Error {
    let Facts {
        host,
        trouble,
        asked,
        rejected,
        credential,
    } = facts;
    let place = host
        .as_ref()
        .map_or_else(|| "this machine".to_owned(), |host| format!("{host:?}"));
    let said = words(&finished.stderr);
    let error = match trouble {
        Some(Trouble::Refused(refused)) => refused.into(),
        Some(Trouble::Unresolved) => {
            Error::new(Code::Timeout, format!("the host {place} has no address"))
        }
        Some(Trouble::Unreachable) => {
            Error::new(Code::Timeout, format!("the host {place} does not answer"))
        }
        None if rejected => Error::new(
            Code::CredentialInvalid,
            format!("{place} does not take the credential"),
        ),
        None if asked && credential.is_none() => Error::new(
            Code::CredentialInvalid,
            format!(
                "{place} asks for a credential: there is no such repository, or it is not for everybody; name a credential"
            ),
        ),
        None => of_words(&said, &place),
    };
    error.with_source(redacted(credential, &finished.stderr))
}

/// Makes the error of a rejected push, from what `push --porcelain` prints for each ref.
pub(super) fn of_rejection(finished: &Finished, branch: &str) -> Option<Error> {
    let text = String::from_utf8_lossy(&finished.stdout);
    let line = text.lines().find(|line| line.starts_with('!'))?;
    let message = if line.contains("(stale info)") || line.contains("(already exists)") {
        format!("there is a branch {branch:?} already; choose another name")
    } else {
        format!("the repository does not take the branch {branch:?}: a rule of its own rejected it")
    };
    Some(Error::new(Code::Conflict, message).with_source(line.escape_debug().to_string()))
}

/// The lines of git itself and of ssh, last line first.
fn words(stderr: &str) -> Vec<&str> {
    stderr
        .lines()
        .rev()
        .map(str::trim_end)
        .filter(|line| !line.starts_with("remote:"))
        .collect()
}

fn of_words(said: &[&str], place: &str) -> Error {
    let starts = |text: &str| said.iter().any(|line| line.starts_with(text));
    let fatal = |end: &str| {
        said.iter()
            .any(|line| line.starts_with("fatal: ") && line.ends_with(end))
    };
    if starts("fatal: Authentication failed for ") || fatal("The requested URL returned error: 403")
    {
        let message =
            format!("{place} does not allow this with the credential that it got, or without one");
        return Error::new(Code::CredentialInvalid, message);
    }
    if said
        .iter()
        .any(|line| line.contains(": Permission denied ("))
    {
        return Error::new(
            Code::CredentialInvalid,
            format!("{place} does not take the ssh key, or there is none"),
        );
    }
    if starts("Host key verification failed.") || starts("No ED25519 host key is known for ") {
        let message = format!(
            "the host key of {place} is not the known one; add it to the file that repo.known_hosts names"
        );
        return Error::new(Code::Forbidden, message);
    }
    if starts("fatal: repository '")
        || fatal("does not appear to be a git repository")
        || starts("ERROR: Repository not found")
    {
        return Error::new(
            Code::NotFound,
            format!("there is no such repository at {place}, or it is not for everybody"),
        );
    }
    if starts("fatal: couldn't find remote ref ")
        || said.iter().any(|line| line.contains(" not our ref "))
    {
        return Error::new(Code::NotFound, "the repository does not have this ref");
    }
    if starts("fatal: detected dubious ownership ") {
        return Error::new(
            Code::Forbidden,
            "the repository belongs to another user of this machine",
        );
    }
    if fatal("Operation too slow. Less than 1 bytes/sec transferred the last 60 seconds") {
        return Error::new(Code::Timeout, format!("{place} said nothing for a minute"));
    }
    Error::new(
        Code::HandlerFailed,
        format!("git could not finish with {place}; the log says more"),
    )
}

/// Redacts the credential in the output of git, for the log.
fn redacted(credential: Option<&Secret>, stderr: &str) -> String {
    let mut text = stderr.to_owned();
    if let Some(secret) = credential {
        for secret in [
            secret.expose().trim(),
            secret.passphrase().unwrap_or_default(),
        ] {
            if !secret.is_empty() {
                text = text.replace(secret, "[secret]");
            }
        }
    }
    // Escaped last: an escaped secret would be a different text.
    text.escape_debug().to_string()
}
