//! Inventory of all bytes, to check that none is lost.
//!
//! A file is identified by its git blob name: the files on disk, and the objects reachable from
//! references.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::git::fixture::{blob, run_at};

/// Returns all files and links below a folder.
pub(super) fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            all.extend(walk(&entry.path()));
        } else {
            all.push(entry.path());
        }
    }
    all
}

/// Returns the blob names of all files on disk, except git's own files and those of this clone
/// only.
fn on_disk(root: &Path, digits: usize) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in walk(root) {
        let parts: Vec<&[u8]> = path
            .strip_prefix(root)
            .unwrap()
            .iter()
            .map(OsStrExt::as_bytes)
            .collect();
        let forge = parts
            .iter()
            .position(|part| *part == b".forge")
            .map_or(&[][..], |at| &parts[at..]);
        let local =
            forge.get(1) == Some(&&b".local"[..]) && forge.get(2) != Some(&&b"worktrees"[..]);
        // The progress only grows.
        if local || forge.ends_with(&[b"progress.txt"]) || parts.contains(&&b".git"[..]) {
            continue;
        }
        let bytes = if path.is_symlink() {
            std::fs::read_link(&path)
                .unwrap()
                .as_os_str()
                .as_bytes()
                .to_vec()
        } else {
            std::fs::read(&path).unwrap()
        };
        found.insert(blob(&bytes, digits / 2));
    }
    found
}

/// Returns the names of all objects that are reachable from references.
fn reachable(root: &Path) -> BTreeSet<String> {
    let all = run_at(root, &["rev-list", "--objects", "--all"]);
    all.lines()
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

/// Returns every byte that must not be lost: on disk, staged, or in a commit.
pub(super) fn bytes(root: &Path) -> BTreeSet<String> {
    let mut all = reachable(root);
    let digits = all.first().unwrap().len();
    all.extend(staged(root));
    all.extend(on_disk(root, digits));
    if let Ok(head) = std::fs::read_to_string(root.join(".git/HEAD"))
        && !head.starts_with("ref:")
    {
        all.insert(head.trim().to_owned());
    }
    all
}

/// Returns the staged objects, without the empty ones that stand for intent-to-add.
pub(super) fn staged(root: &Path) -> BTreeSet<String> {
    let staged = run_at(root, &["ls-files", "-s"]);
    let staged = staged
        .lines()
        .filter(|line| !line.starts_with("160000"))
        .filter_map(|line| line.split(' ').nth(1));
    staged
        .filter(|oid| *oid != blob(b"", oid.len() / 2))
        .map(str::to_owned)
        .collect()
}

/// Asserts that every byte still exists.
pub(super) fn nothing_is_lost(root: &Path, before: &BTreeSet<String>, what: &str) {
    let mut now = reachable(root);
    let digits = now.first().unwrap().len();
    now.extend(on_disk(root, digits));
    if let Some(lost) = before.difference(&now).next() {
        panic!("{what}: {lost} is neither on disk nor reachable");
    }
}
