//! Finds the changes of a work tree since its checkout, including those that commands committed.
//!
//! This runs inside the session with its own git folder, so that settings, hooks, filters and refs
//! in the work tree's `.git` have no effect. The output is untrusted text to look at and apply.

use bytes::Bytes;
use helmdeck_core::session::Session;
use helmdeck_core::{Code, Error, Result};
use serde::Serialize;
use uuid::Uuid;

use super::checkout::{self, Checkout};
use super::inside::{Inside, supply};

/// Maximum output of git besides the patch, in bytes.
const MAX_LIST: usize = 8 << 20;

/// The longest path that an error repeats, in bytes.
const MAX_NAME: usize = 1 << 10;

/// Files that tools leave behind and that rarely belong in a commit, as ignore patterns.
///
/// They apply only to files that the commit does not have already.
const JUNK: &str = "__pycache__/\n*.pyc\n*.pyo\n.pytest_cache/\n.mypy_cache/\n.ruff_cache/\n.tox/\n.nox/\n*.egg-info/\n.eggs/\n\
     .coverage\nnode_modules/\n.DS_Store\n*.swp\n*~\n.hypothesis/\n.cache/\n.venv/\n";

/// The name of the list of junk in the folder of supplies.
const JUNK_FILE: &str = "junk";

/// Changes of a work tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Changes {
    /// A unified diff that `git apply` takes, binary files included; empty if nothing changed.
    pub(crate) patch: Vec<u8>,
    /// The files, in the order of the diff.
    pub(crate) files: Vec<Changed>,
}

/// A file that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Changed {
    /// Its path in the repository.
    pub(crate) path: String,
    /// Lines that came; `None` for a binary file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) added: Option<u64>,
    /// Lines that went; `None` for a binary file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) removed: Option<u64>,
}

/// Finds the changes of a work tree.
///
/// # Errors
/// `too_large` if the patch has more than `max_bytes`; `conflict` if the folder is no longer a work
/// tree; else as
/// [`Inside::run`].
pub(crate) async fn changes(
    session: &dyn Session,
    checkout: &Checkout,
    max_bytes: usize,
) -> Result<Changes> {
    let base = checkout::base(checkout)?;
    let folder = session.folder().join(&checkout.path);
    if !std::fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir()) {
        let message = format!("\"{}\" is no folder of the session any more", checkout.path);
        return Err(Error::new(Code::Conflict, message));
    }
    supply(session, JUNK_FILE, JUNK)?;
    let own = format!(".changes-{}", Uuid::now_v7().simple());
    let inside = Inside::new(session)?;
    inside
        .run(
            "",
            &[
                "git",
                "init",
                "--quiet",
                "--bare",
                "--template=",
                "--",
                &own,
            ],
            MAX_LIST,
            Bytes::new(),
        )
        .await?;
    let found = compare(session, checkout, &own, base, max_bytes).await;
    let removed = inside
        .run("", &["rm", "-rf", "--", &own], MAX_LIST, Bytes::new())
        .await;
    let found = found?;
    removed?;
    Ok(found)
}

async fn compare(
    session: &dyn Session,
    checkout: &Checkout,
    own: &str,
    base: &str,
    max_bytes: usize,
) -> Result<Changes> {
    let root = session.folder_inside();
    let inside = Inside::new(session)?
        .with("GIT_DIR", format!("{root}/{own}"))
        .with("GIT_WORK_TREE", format!("{root}/{}", checkout.path))
        .with(
            "GIT_ALTERNATE_OBJECT_DIRECTORIES",
            format!("{}/objects", checkout.mirror_inside(session)),
        );
    let excludes = format!(
        "core.excludesFile={}/{JUNK_FILE}",
        session.supplies_inside()
    );
    let run = async |arguments: &[&str], max| {
        let settings = [
            "git",
            "-c",
            &excludes,
            "-c",
            "core.attributesFile=/dev/null",
            "-c",
            "core.bare=false",
            "-c",
            "core.fileMode=true",
            "-c",
            "core.symlinks=true",
            "-c",
            "core.autocrlf=false",
            "-c",
            "core.safecrlf=false",
            "-c",
            "core.quotePath=true",
            "-c",
            "core.fsmonitor=false",
            "-c",
            "diff.noprefix=false",
            "-c",
            "advice.addEmbeddedRepo=false",
        ];
        inside
            .run(
                &checkout.path,
                &[&settings[..], arguments].concat(),
                max,
                Bytes::new(),
            )
            .await
    };
    run(&["read-tree", base], MAX_LIST).await?;
    run(&["add", "--all", "--", "."], MAX_LIST)
        .await
        .map_err(|error| not_added(&checkout.path, error))?;
    let diff = [
        "diff",
        "--cached",
        "--no-ext-diff",
        "--no-textconv",
        "--no-renames",
        "--no-color",
        "--submodule=short",
    ];
    let patch = run(
        &[&diff[..], &["--binary", "--full-index", base, "--"]].concat(),
        max_bytes,
    )
    .await;
    let patch = patch.map_err(|error| match error.code() {
        Code::TooLarge => Error::new(
            Code::TooLarge,
            format!("the changes are over {max_bytes} bytes as a patch"),
        ),
        _ => error,
    })?;
    let list = run(
        &[&diff[..], &["--numstat", "-z", base, "--"]].concat(),
        MAX_LIST,
    )
    .await?;
    Ok(Changes {
        patch,
        files: read_list(&list),
    })
}

/// Names the file that git refuses, if it says which: its name could be mistaken for a git folder.
fn not_added(folder: &str, error: Error) -> Error {
    let cause = error.cause();
    let refused = |line: &str| {
        line.strip_prefix("error: invalid path '")?
            .strip_suffix('\'')
            .map(str::to_owned)
    };
    match cause.lines().find_map(refused) {
        Some(name) if error.code() == Code::HandlerFailed && name.len() <= MAX_NAME => {
            let name = name.escape_debug();
            let message = format!(
                "git does not accept the path \"{name}\" in \"{folder}\"; rename or remove it"
            );
            Error::new(Code::InvalidInput, message).with_source(cause)
        }
        _ => error,
    }
}

/// Reads `added <tab> removed <tab> path <zero>`; a binary file has `-` for both.
fn read_list(list: &[u8]) -> Vec<Changed> {
    let entry = |entry: &[u8]| {
        let text = String::from_utf8_lossy(entry);
        let mut parts = text.splitn(3, '\t');
        let (added, removed, path) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Changed {
            path: path.to_owned(),
            added: added.parse().ok(),
            removed: removed.parse().ok(),
        })
    };
    list.split(|byte| *byte == 0).filter_map(entry).collect()
}
