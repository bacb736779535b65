//! Why git failed, as an error with a code.
//!
//! What can be known without git's words comes first: what the proxy saw, what the credential helper was asked, what a push
//! reported line by line. Then the last words of git itself, which are the same in every place since git speaks the C locale;
//! what a server said (`remote: `) decides nothing.

use helmdeck_core::{Code, Error};
use helmdeck_egress::Trouble;

use super::process::Finished;
use super::remote::Remote;

/// Makes the error of a run that did not succeed.
pub(super) fn of_failure(remote: &Remote, finished: &Finished) -> Error {
    let host = remote.url.host().map(ToString::to_string);
    let place = host.as_ref().map_or_else(|| "this machine".to_owned(), |host| format!("{host:?}"));
    let said = words(&finished.stderr);
    let error = match remote.proxy.as_ref().and_then(helmdeck_egress::Proxy::trouble) {
        Some(Trouble::Refused(refused)) => refused.into(),
        Some(Trouble::Unresolved) => Error::new(Code::Timeout, format!("the host {place} has no address")),
        Some(Trouble::Unreachable) => Error::new(Code::Timeout, format!("the host {place} does not answer")),
        None if remote.marks.rejected() => {
            Error::new(Code::CredentialInvalid, format!("{place} does not take the credential"))
        }
        None if remote.marks.asked() && remote.credential.is_none() => Error::new(
            Code::CredentialInvalid,
            format!(
                "{place} asks for a credential: there is no such repository, or it is not for everybody; name a credential"
            ),
        ),
        None => of_words(&said, &place),
    };
    error.with_source(cleaned(remote, &finished.stderr))
}

/// Makes the error of a push that the other side did not take, from what `push --porcelain` prints for each ref.
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

/// The words of git itself and of ssh, last line first.
fn words(stderr: &str) -> Vec<&str> {
    stderr.lines().rev().map(str::trim_end).filter(|line| !line.starts_with("remote:")).collect()
}

fn of_words(said: &[&str], place: &str) -> Error {
    let starts = |text: &str| said.iter().any(|line| line.starts_with(text));
    let fatal = |end: &str| said.iter().any(|line| line.starts_with("fatal: ") && line.ends_with(end));
    if starts("fatal: Authentication failed for ") || fatal("The requested URL returned error: 403") {
        let message = format!("{place} does not allow this with the credential that it got, or without one");
        return Error::new(Code::CredentialInvalid, message);
    }
    if said.iter().any(|line| line.contains(": Permission denied (")) {
        return Error::new(Code::CredentialInvalid, format!("{place} does not take the ssh key, or there is none"));
    }
    if starts("Host key verification failed.") || starts("No ED25519 host key is known for ") {
        let message =
            format!("the host key of {place} is not the known one; add it to the file that repo.known_hosts names");
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
    if starts("fatal: couldn't find remote ref ") || said.iter().any(|line| line.contains(" not our ref ")) {
        return Error::new(Code::NotFound, "the repository does not have this ref");
    }
    if starts("fatal: detected dubious ownership ") {
        return Error::new(Code::Forbidden, "the repository belongs to another user of this machine");
    }
    if fatal("Operation too slow. Less than 1 bytes/sec transferred the last 60 seconds") {
        return Error::new(Code::Timeout, format!("{place} said nothing for a minute"));
    }
    Error::new(Code::HandlerFailed, format!("git could not finish with {place}; the log says more"))
}

/// Takes the credential out of what git said, for the log.
fn cleaned(remote: &Remote, stderr: &str) -> String {
    let mut text = stderr.to_owned();
    if let Some(secret) = remote.credential.as_ref() {
        for secret in [secret.expose().trim(), secret.passphrase().unwrap_or_default()] {
            if !secret.is_empty() {
                text = text.replace(secret, "[secret]");
            }
        }
    }
    // Only then: an escaped secret is another text.
    text.escape_debug().to_string()
}
