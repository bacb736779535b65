//! Makes work trees inside a session, from the clean copy, with a fresh `.git`.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use helmdeck_core::session::Session;
use helmdeck_core::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::git::{Git, Remote, is_id};
use super::inside::Inside;
use super::mirror::{self, Mirror, WANTED, Wish};
use super::names::check_folder;

/// Maximum output of git while a work tree is made, in bytes.
const MAX_OUTPUT: usize = 1 << 20;

/// The folder of the records, in the folder of supplies.
const RECORDS: &str = "checkouts";

/// A work tree of a session, as it was made.
///
/// Its record is where commands cannot change it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Checkout {
    /// Its folder, below the session's own.
    pub(crate) path: String,
    /// The address that it came from, without any user or secret but that of ssh.
    pub(crate) url: String,
    /// The commit that it was made of: 40 or 64 hex digits.
    pub(crate) commit: String,
    /// The branch, if it was made of one.
    pub(crate) branch: Option<String>,
    /// The repository's own default branch.
    pub(crate) default_branch: Option<String>,
    /// The name of the clean copy in the folder of supplies.
    pub(crate) mirror: String,
}

impl Checkout {
    /// Reads the record of a work tree.
    ///
    /// # Errors
    /// `not_found` if the session has no work tree there; `internal` if the record makes no sense.
    pub(crate) fn of(session: &dyn Session, path: &str) -> Result<Self> {
        check_folder(path)?;
        let none = |error| {
            let message = format!(
                "the session has no repository at \"{path}\"; fetch one first with repo.fetch"
            );
            Error::new(Code::NotFound, message).with_source(error)
        };
        let bytes = std::fs::read(record(session, path)).map_err(none)?;
        let broken = |error| {
            Error::new(Code::Internal, "the record of the work tree cannot be read")
                .with_source(error)
        };
        serde_json::from_slice(&bytes).map_err(broken)
    }

    /// Returns where the clean copy is, as this process sees it.
    pub(crate) fn mirror(&self, session: &dyn Session) -> PathBuf {
        session.supplies().join(&self.mirror)
    }

    /// Returns where the clean copy is, as commands see it.
    pub(super) fn mirror_inside(&self, session: &dyn Session) -> String {
        format!("{}/{}", session.supplies_inside(), self.mirror)
    }

    fn write(&self, session: &dyn Session) -> Result<()> {
        let path = record(session, &self.path);
        let fresh = path.with_extension("fresh");
        let text = serde_json::to_vec(self).unwrap_or_default();
        std::fs::create_dir_all(path.parent().unwrap_or(&path))
            .and_then(|()| std::fs::write(&fresh, text))
            .and_then(|()| std::fs::rename(&fresh, &path))
            .map_err(|error| {
                Error::new(
                    Code::ResourceExhausted,
                    "the session's supplies cannot be written",
                )
                .with_source(error)
            })
    }
}

fn record(session: &dyn Session, path: &str) -> PathBuf {
    let digest = Sha256::digest(path.as_bytes());
    let name = helmdeck_core::hex(&digest[..12]);
    session
        .supplies()
        .join(RECORDS)
        .join(format!("{name}.json"))
}

/// Checks a repository out into a session.
///
/// Renews the clean copy and makes the work tree anew from it, replacing whatever was there.
pub(crate) async fn check_out(
    git: &Git,
    remote: &Remote,
    session: &dyn Session,
    path: &str,
    wish: &Wish,
) -> Result<Checkout> {
    check_folder(path)?;
    let renewed = may_replace(session, path)?;
    let mirror = mirror::renew(git, remote, session.supplies(), wish).await?;
    let checkout = Checkout {
        path: path.to_owned(),
        url: remote.url().to_string(),
        commit: mirror.commit.clone(),
        branch: mirror.branch.clone(),
        default_branch: mirror.default_branch.clone(),
        mirror: mirror::name_of(remote.url()),
    };
    let inside = Inside::new(session)?;
    if renewed {
        inside
            .run("", &["rm", "-rf", "--", path], MAX_OUTPUT, Bytes::new())
            .await?;
    }
    // Written before the work tree is made: a run that is interrupted in between can then replace
    // the incomplete one.
    checkout.write(session)?;
    make(git, &inside, &checkout, &mirror).await?;
    Ok(checkout)
}

async fn make(git: &Git, inside: &Inside<'_>, checkout: &Checkout, mirror: &Mirror) -> Result<()> {
    let from = checkout.mirror_inside(inside.session);
    let (name, email) = (&git.config().author_name, &git.config().author_email);
    let (name, email) = (format!("user.name={name}"), format!("user.email={email}"));
    let path = checkout.path.as_str();
    let run = async |cwd: &str, argv: &[&str]| {
        inside
            .run(cwd, argv, MAX_OUTPUT, Bytes::new())
            .await
            .map(|_| ())
    };
    // The objects stay in the copy, which commands cannot change. Links to its files would let
    // them.
    let clone = [
        "git",
        "clone",
        "--quiet",
        "--no-checkout",
        "--shared",
        "--no-hardlinks",
        "--template=",
        "--config",
        &name,
        "--config",
        &email,
        "--",
        &from,
        path,
    ];
    run("", &clone).await?;
    if mirror.branch.is_none() {
        let spec = format!("+{WANTED}:{WANTED}");
        if mirror.path.join(WANTED).exists() {
            run(
                path,
                &[
                    "git",
                    "fetch",
                    "--quiet",
                    "--no-tags",
                    "--update-shallow",
                    "--",
                    &from,
                    &spec,
                ],
            )
            .await?;
        }
    }
    run(
        path,
        &["git", "remote", "set-url", "--", "origin", &checkout.url],
    )
    .await?;
    match &checkout.branch {
        Some(branch) => {
            run(
                path,
                &[
                    "git",
                    "checkout",
                    "--quiet",
                    "--force",
                    "-B",
                    branch,
                    &checkout.commit,
                    "--",
                ],
            )
            .await
        }
        None => {
            run(
                path,
                &[
                    "git",
                    "checkout",
                    "--quiet",
                    "--force",
                    "--detach",
                    &checkout.commit,
                    "--",
                ],
            )
            .await
        }
    }
}

/// Returns whether something at the path must be removed; it must be a work tree of ours.
fn may_replace(session: &dyn Session, path: &str) -> Result<bool> {
    let ours = record(session, path).exists();
    let mut place = session.folder().to_owned();
    for part in Path::new(path) {
        place.push(part);
        match std::fs::symlink_metadata(&place) {
            Err(_) => return Ok(false),
            Ok(found) if found.is_dir() => {}
            // `rm` removes a link, not what it points to; but what is on the way to the folder
            // stays.
            Ok(_) if ours && place.ends_with(path) => return Ok(true),
            Ok(_) => return Err(taken(path)),
        }
    }
    let empty = std::fs::read_dir(&place).is_ok_and(|mut entries| entries.next().is_none());
    if ours || empty {
        Ok(ours)
    } else {
        Err(taken(path))
    }
}

fn taken(path: &str) -> Error {
    let message = format!("the session has something else at \"{path}\"; give another path");
    Error::new(Code::Conflict, message)
}

/// Returns the commit of a record. It is always set, unless a newer version wrote the record.
pub(super) fn base(checkout: &Checkout) -> Result<&str> {
    if is_id(&checkout.commit) {
        return Ok(&checkout.commit);
    }
    Err(Error::new(
        Code::Internal,
        "the record of the work tree names no commit",
    ))
}
