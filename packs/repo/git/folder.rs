//! Repositories in folders of this machine.
//!
//! Everything that git reads of one must be in allowed folders.

use std::path::{Path, PathBuf};

use helmdeck_core::{Code, Error, Result};
use helmdeck_git::discover::linked;

use super::config::Paths;
use super::runner::Git;
use crate::repo::url::RepoUrl;

/// The limit for a file that names another folder, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// The limit for the folders that a repository borrows objects from.
const MAX_BORROWED: usize = 16;

/// The files that git reads in the folder of a repository, each of which could be a link.
const PARTS: [&str; 6] = [
    "HEAD",
    "commondir",
    "config",
    "packed-refs",
    "refs",
    "objects",
];

/// The same for a folder of objects.
const OBJECT_PARTS: [&str; 3] = ["info", "pack", "info/alternates"];

impl Git {
    /// Checks a folder of this machine and resolves its links.
    ///
    /// # Errors
    /// `forbidden` if the folder, or anything that git reads for it, may not be used; `not_found`
    /// if it is no repository.
    pub(super) fn folder(&self, url: &RepoUrl) -> Result<RepoUrl> {
        let folder = url.folder().unwrap_or_default();
        let shown = folder.to_string_lossy().escape_debug().to_string();
        let none = || {
            Error::new(
                Code::NotFound,
                format!("there is no repository at \"{shown}\""),
            )
        };
        let forbidden = || {
            let message =
                format!("\"{shown}\" may not be used; the operator can allow it with repo.paths");
            Error::new(Code::Forbidden, message)
        };
        let real = folder.canonicalize();
        // A caller without access to a folder does not learn whether it exists.
        let real = match real {
            Ok(real) if self.config().paths.allow(&real) => real,
            Err(error) if matches!(self.config().paths, Paths::All) => {
                return Err(none().with_source(error));
            }
            _ => return Err(forbidden()),
        };
        if !real.is_dir() {
            // git would accept a bundle.
            return Err(none());
        }
        // git would search above a folder that is no repository.
        let own = [real.join(".git"), real.clone()];
        let own = own
            .into_iter()
            .find(|own| own.is_file() || own.join("HEAD").exists())
            .ok_or_else(none)?;
        if matches!(self.config().paths, Paths::Below(_)) && !self.is_inside(&own) {
            return Err(forbidden());
        }
        let text = real
            .to_str()
            .ok_or_else(|| Error::new(Code::InvalidInput, "repo_url must be UTF-8 text"))?;
        RepoUrl::parse(text)
    }

    /// Returns whether a repository and everything it refers to is in allowed folders.
    ///
    /// Source: gitrepository-layout(5).
    fn is_inside(&self, dot_git: &Path) -> bool {
        let allowed = |path: &Path| {
            path.canonicalize()
                .is_ok_and(|real| self.config().paths.allow(&real))
        };
        // A missing file refers to nothing.
        let parts = |folder: &Path, parts: &[&str]| {
            let mut paths = parts.iter().map(|part| folder.join(part));
            allowed(folder) && paths.all(|path| path.symlink_metadata().is_err() || allowed(&path))
        };
        let Some(folders) = folders(dot_git) else {
            return false;
        };
        let mut objects: Vec<PathBuf> = folders
            .iter()
            .map(|folder| folder.join("objects"))
            .collect();
        objects.retain(|folder| folder.symlink_metadata().is_ok());
        if !folders.iter().all(|folder| parts(folder, &PARTS)) {
            return false;
        }
        let mut next = 0;
        while let Some(folder) = objects.get(next) {
            if next > MAX_BORROWED || !parts(folder, &OBJECT_PARTS) {
                return false;
            }
            let Some(text) = read(&folder.join("info/alternates")) else {
                return false;
            };
            let lines = text
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty() && !line.starts_with('#'));
            let borrowed: Vec<PathBuf> = lines.map(|line| folder.join(line)).collect();
            objects.extend(borrowed);
            next += 1;
        }
        true
    }
}

/// Returns the folders of a repository: its own, and the one that it shares with other work trees.
fn folders(dot_git: &Path) -> Option<Vec<PathBuf>> {
    let mut folders = vec![dot_git.to_owned()];
    if dot_git.is_file() {
        let text = read(dot_git)?;
        folders = vec![linked(&text, "gitdir: ", dot_git.parent()?)?];
    }
    let common = read(&folders[0].join("commondir"))?;
    folders.extend(linked(&common, "", &folders[0]));
    Some(folders)
}

/// Reads a small file; empty if it does not exist, `None` if it is too large or no file.
fn read(file: &Path) -> Option<String> {
    let found = match std::fs::metadata(file) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Some(String::new()),
        Err(_) => return None,
    };
    if !found.is_file() || found.len() > MAX_BYTES {
        return None;
    }
    std::fs::read(file)
        .ok()
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
