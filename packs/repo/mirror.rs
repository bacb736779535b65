//! The clean copy of a repository: bare, and read-only for the commands of a session.
//!
//! Only trusted git writes it. Only this copy is used with the network and a credential.

use std::fs::{File, Permissions, TryLockError};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::{Code, Error, Result};
use sha2::{Digest, Sha256};

use super::git::{Git, Refs, Remote, is_id};
use super::names::is_ref;
use super::url::RepoUrl;

/// Interval of the check whether another call has released the copy.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The depth that git takes for "all of the history" (git-fetch(1), `--depth`).
const WHOLE: u32 = 2_147_483_647;

/// The ref that keeps a commit requested by its id.
pub(super) const WANTED: &str = "refs/helmdeck/wanted";

/// Requested part of a repository.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wish {
    /// A branch, a tag or a commit; `None` = what the repository's HEAD names.
    pub(crate) reference: Option<String>,
    /// Number of commits of the history; `None` = all. No effect with the short id of a commit.
    pub(crate) depth: Option<u32>,
}

/// Target of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named {
    /// A branch, without `refs/heads/`.
    Branch(String),
    /// Another ref, by its full name.
    Ref(String),
    /// A commit, by its whole id.
    Commit(String),
    /// The beginning of a commit's id.
    Short(String),
}

/// A copy, up to date.
#[derive(Debug, Clone)]
pub(crate) struct Mirror {
    /// Its path.
    pub(crate) path: PathBuf,
    /// The commit that was wanted.
    pub(crate) commit: String,
    /// The branch that it was wanted by, if it was one.
    pub(crate) branch: Option<String>,
    /// The repository's own default branch.
    pub(crate) default_branch: Option<String>,
}

/// Returns the name of a repository's copy in the folder of supplies.
pub(super) fn name_of(url: &RepoUrl) -> String {
    let digest = Sha256::digest(url.to_string().as_bytes());
    let digits = helmdeck_core::hex(&digest[..12]);
    format!("{digits}.git")
}

/// Makes or renews the copy of a repository in a folder.
///
/// Calls for one copy wait for each other, across all processes.
pub(crate) async fn renew(
    git: &Git,
    remote: &Remote,
    folder: &Path,
    wish: &Wish,
) -> Result<Mirror> {
    if wish.reference.as_deref().is_some_and(|name| !is_ref(name)) {
        return Err(Error::new(
            Code::InvalidInput,
            "ref is neither a branch nor a tag nor a commit",
        ));
    }
    let refs = remote.list().await?;
    let named = choose(&refs, wish.reference.as_deref())?;
    let name = name_of(remote.url());
    let path = folder.join(&name);
    let _lock = lock(&folder.join(format!("{name}.lock"))).await?;
    let unfinished = folder.join(format!("{name}.unfinished"));
    let failed = |error| {
        Error::new(
            Code::ResourceExhausted,
            "the copy of the repository cannot be kept",
        )
        .with_source(error)
    };
    // An interrupted run may have left locks and half a history: begin again.
    if unfinished.exists() || !path.join("HEAD").exists() {
        remove(&path).await.map_err(failed)?;
        std::fs::write(&unfinished, "").map_err(failed)?;
        std::fs::create_dir_all(&path).map_err(failed)?;
        // Commands run as another user: they must be able to read it, whatever this process makes
        // of new files.
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).map_err(failed)?;
        let init = ["init", "--quiet", "--bare", "--template=", "--shared=0644"];
        git.local_text(&path, &init, &[], Bytes::new()).await?;
    }
    std::fs::write(&unfinished, "").map_err(failed)?;
    if let Some(branch) = &refs.default_branch {
        let head = format!("refs/heads/{branch}");
        git.local_text(&path, &["symbolic-ref", "HEAD", &head], &[], Bytes::new())
            .await?;
    }
    let fetched = fetch(git, remote, &path, &named, wish.depth).await;
    // A refusal leaves the copy as it was; only an end in the middle leaves the mark.
    let whole = match &fetched {
        Ok(_) => true,
        Err(error) if error.code() == Code::TooLarge => {
            remove(&path).await.map_err(failed)?;
            false
        }
        Err(error) => remote.ended_by_itself() && error.code() != Code::Internal,
    };
    if whole {
        std::fs::remove_file(&unfinished).map_err(failed)?;
    }
    let commit = fetched?;
    let branch = if let Named::Branch(branch) = named {
        Some(branch)
    } else {
        None
    };
    Ok(Mirror {
        path,
        commit,
        branch,
        default_branch: refs.default_branch,
    })
}

/// Resolves a name: a branch before a tag before a commit.
///
/// `git clone --branch` prefers the branch, too.
pub(super) fn choose(refs: &Refs, name: Option<&str>) -> Result<Named> {
    let Some(name) = name else {
        return match &refs.default_branch {
            Some(branch) if refs.ids.contains_key(&format!("refs/heads/{branch}")) => {
                Ok(Named::Branch(branch.clone()))
            }
            None if refs.ids.contains_key("HEAD") => Ok(Named::Commit(refs.ids["HEAD"].clone())),
            _ if refs.ids.is_empty() => Err(Error::new(
                Code::NotFound,
                "the repository has no commits yet",
            )),
            _ => Err(Error::new(
                Code::NotFound,
                "the repository has no default branch; name a ref",
            )),
        };
    };
    if let Some(branch) = name.strip_prefix("refs/heads/").or(Some(name))
        && refs.ids.contains_key(&format!("refs/heads/{branch}"))
    {
        return Ok(Named::Branch(branch.to_owned()));
    }
    let full = [name.to_owned(), format!("refs/tags/{name}")];
    if let Some(full) = full
        .into_iter()
        .find(|full| full.starts_with("refs/") && refs.ids.contains_key(full))
    {
        return Ok(Named::Ref(full));
    }
    let hex = name.to_ascii_lowercase();
    if is_id(&hex) {
        return Ok(Named::Commit(hex));
    }
    if (4..64).contains(&hex.len()) && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(Named::Short(hex));
    }
    Err(not_there(name))
}

fn not_there(name: &str) -> Error {
    let message = format!(
        "the repository has no branch, tag or commit \"{}\"",
        name.escape_debug()
    );
    Error::new(Code::NotFound, message)
}

/// Fetches what is needed, and returns the commit.
async fn fetch(
    git: &Git,
    remote: &Remote,
    path: &Path,
    named: &Named,
    depth: Option<u32>,
) -> Result<String> {
    const EVERYTHING: &[&str] = &["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"];
    let whole = path.join("shallow").exists().then_some(WHOLE);
    let (wanted, name) = match named {
        Named::Branch(branch) => (format!("refs/heads/{branch}"), branch),
        Named::Ref(full) => (
            if full.starts_with("refs/tags/") {
                full.clone()
            } else {
                WANTED.to_owned()
            },
            full,
        ),
        Named::Commit(id) | Named::Short(id) => (id.clone(), id),
    };
    let one = match named {
        Named::Branch(_) => format!("+{wanted}:{wanted}"),
        Named::Ref(full) => format!("+{full}:{wanted}"),
        Named::Commit(id) | Named::Short(id) => format!("+{id}:{WANTED}"),
    };
    match (named, depth) {
        (Named::Branch(_) | Named::Ref(_) | Named::Commit(_), Some(depth)) => {
            remote.fetch(path, Some(depth), &[&one]).await?;
        }
        (Named::Ref(full), None) if !full.starts_with("refs/tags/") => {
            remote
                .fetch(path, whole, &[EVERYTHING, &[one.as_str()]].concat())
                .await?;
        }
        (Named::Commit(id), None) => {
            remote.fetch(path, whole, EVERYTHING).await?;
            // No branch may lead to it any more; a server may still have it.
            if commit_of(git, path, id).await?.is_none() {
                remote.fetch(path, None, &[&one]).await?;
            }
        }
        _ => remote.fetch(path, whole, EVERYTHING).await?,
    }
    let commit = commit_of(git, path, &wanted)
        .await?
        .ok_or_else(|| not_there(name))?;
    if matches!(named, Named::Commit(_) | Named::Short(_)) {
        git.local_text(path, &["update-ref", WANTED, &commit], &[], Bytes::new())
            .await?;
    }
    Ok(commit)
}

/// Returns the commit that a ref or id of the copy leads to.
async fn commit_of(git: &Git, path: &Path, name: &str) -> Result<Option<String>> {
    let name = format!("{name}^{{commit}}");
    let arguments = [
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        &name,
    ];
    let finished = git.local(path, &arguments, &[], Bytes::new()).await?;
    let text = String::from_utf8_lossy(&finished.stdout).trim().to_owned();
    Ok(Some(text).filter(|text| finished.succeeded() && is_id(text)))
}

async fn remove(path: &Path) -> std::io::Result<()> {
    match tokio::fs::remove_dir_all(path).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Waits for the lock of the copy. The lock ends with the value, and with this process.
async fn lock(path: &Path) -> Result<File> {
    let failed = |error| {
        Error::new(
            Code::ResourceExhausted,
            "the copy of the repository cannot be locked",
        )
        .with_source(error)
    };
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(failed)?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOOK_EVERY).await,
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
}
