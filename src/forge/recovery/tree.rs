//! The rollback commit: the code of the checkpoint, plus what was learned since.
//!
//! It is built in a separate index, so neither the work tree nor the index changes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::carry::{CARRIED, learn, reset};
use super::journal::{Mode, Rollback};
use super::rollback::{lesson, slow};
use super::{Recovery, memory};
use crate::error::{Category, Error, Result};
use crate::features::FeaturesFile;
use crate::files::Document;
use crate::git::{Git, Oid, Run};
use crate::json::{self, Json};
use crate::knowledge::KnowledgeFile;
use crate::layout;
use helmdeck_core::text;

impl Recovery<'_> {
    /// Creates the commit. No reference leads to it yet.
    pub(super) fn build(&self, git: &Git, rollback: &mut Rollback) -> Result<()> {
        let parse = |hex: &str| {
            Oid::parse(hex).ok_or_else(|| Error::new(Category::Corrupt, "E_CORRUPT", format!("{hex:?} is no commit")))
        };
        let (commit, head) = (parse(&rollback.commit)?, parse(&rollback.head)?);
        let folder = tempfile::Builder::new()
            .prefix("forge-rollback-")
            .tempdir_in(git.git_dir())
            .map_err(|error| Error::io("cannot write in", git.git_dir(), &error))?;
        let index = folder.path().join("index");
        let run = || slow().variable("GIT_INDEX_FILE", &index);
        git.succeed(&["read-tree", commit.as_str()], &run())?;
        if rollback.mode == Mode::Restore {
            // A restore commits forward, so the memory keeps its current state.
            let old = git.succeed(&["ls-files", "-z", "--", git.memory()], &run())?;
            git.succeed(&["update-index", "-z", "--force-remove", "--stdin"], &run().stdin(old.stdout))?;
            if git.succeed(&["ls-tree", "-d", head.as_str(), git.memory()], &Run::default())?.text().contains("tree") {
                let forge = format!("{head}:{}", git.memory());
                git.succeed(&["read-tree", &format!("--prefix={}/", git.memory()), &forge], &run())?;
            }
        }
        // Take the files that are not ignored, committed or not. A deleted file stays as in the checkpoint.
        let mut args =
            ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"].map(str::to_owned).to_vec();
        args.extend(CARRIED.map(|path| git.in_memory(path)));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let listed = git.succeed(&args, &Run::default())?;
        let mut paths = Vec::new();
        for path in listed.stdout.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
            // A file name need not be UTF-8.
            let place = git.root().join(OsStr::from_bytes(path));
            if std::fs::symlink_metadata(place).is_ok_and(|about| !about.is_dir()) {
                paths.extend_from_slice(&[path, b"\0"].concat());
            }
        }
        if !paths.is_empty() {
            git.succeed(&["update-index", "-z", "--add", "--replace", "--stdin"], &run().stdin(paths))?;
        }
        let closed = self.closed_since(git, &run())?;
        if !closed.is_empty() {
            git.succeed(&["update-index", "-z", "--force-remove", "--stdin"], &run().stdin(closed))?;
        }
        if let Some(knowledge) = self.project.files().load::<KnowledgeFile>()? {
            check_version(layout::KNOWLEDGE, knowledge.read_only)?;
            let mut knowledge = knowledge.value;
            learn(&mut knowledge, &lesson(rollback), rollback.started_at);
            put(git, &run, &knowledge)?;
        }
        if let Some(features) = self.project.files().load::<FeaturesFile>()? {
            check_version(layout::FEATURES, features.read_only)?;
        }
        let now = memory::read(self.project, layout::FEATURES)?;
        let then = git.document_at(&commit, layout::FEATURES)?.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        if let Some(now) = now {
            let then = then.unwrap_or_else(|| nothing(&now));
            let features = serde_json::to_value(reset(&now, &then, rollback.started_at));
            let features = features.and_then(serde_json::from_value::<FeaturesFile>);
            put(git, &run, &features.map_err(|error| unfit(layout::FEATURES, &error.to_string()))?)?;
        }
        let tree = git.write_tree(&index)?;
        let parent = if rollback.mode == Mode::Restore { &head } else { &commit };
        rollback.made = Some(git.commit_tree(&tree, &[parent], &message(rollback))?.to_string());
        Ok(())
    }

    /// Returns the files of issues that the checkpoint has and that were closed since: they stay closed.
    fn closed_since(&self, git: &Git, run: &Run) -> Result<Vec<u8>> {
        let (issues, comments) = (git.in_memory(layout::ISSUES), git.in_memory(layout::COMMENTS));
        let listed = git.succeed(&["ls-files", "-z", "--", &issues, &comments], run)?;
        let mut closed = Vec::new();
        for path in listed.stdout.split(|byte| *byte == 0).filter_map(|path| std::str::from_utf8(path).ok()) {
            let below = |folder: &str| path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
            let key = below(&issues).or_else(|| below(&comments)).map(|rest| rest.split(['/', '.']).next());
            let Some(Some(key)) = key else { continue };
            let here = git.root().join(path).exists();
            if !here && self.project.files().entry(&format!("{}/{key}.md", layout::HISTORY))?.is_some() {
                closed.extend_from_slice(&[path.as_bytes(), b"\0"].concat());
            }
        }
        Ok(closed)
    }
}

/// Refuses to rewrite a file of a newer program, because unknown data would be lost.
fn check_version(path: &str, newer: bool) -> Result<()> {
    if newer {
        let message = format!("a newer program wrote {path}, so it is not carried over");
        return Err(Error::new(Category::Refused, "E_SCHEMA_NEWER", message).hint("use that program"));
    }
    Ok(())
}

/// Returns a text as one line, so that it cannot act as a heading or trailer of a message.
pub(super) fn one_line(text: &str) -> String {
    text::collapse_whitespace(text).trim_start_matches('#').trim_start().to_owned()
}

/// Returns an empty features file with the other members of an existing one.
fn nothing(like: &Json) -> Json {
    let mut file = like.clone();
    if let Json::Object(members) = &mut file {
        members.0.insert("features".to_owned(), Json::Array(Vec::new()));
    }
    file
}

/// Puts a document into an index, if it is valid.
fn put<D: Document>(git: &Git, run: &impl Fn() -> Run, value: &D) -> Result<()> {
    let path = D::PATH;
    value.check().map_err(|why| unfit(path, &why))?;
    let bytes = json::print(value).map_err(|error| unfit(path, &error.to_string()))?;
    let blob = git.succeed(&["hash-object", "-w", "--stdin"], &run().stdin(bytes))?.text();
    git.succeed(&["update-index", "--add", "--cacheinfo", &format!("100644,{blob},{}", git.in_memory(path))], &run())?;
    Ok(())
}

fn unfit(path: &str, why: &str) -> Error {
    Error::new(Category::Failed, "E_INVALID", format!("{path} cannot be written: {why}"))
}

/// Returns the commit message, in the form of all session commits.
fn message(rollback: &Rollback) -> String {
    let (checkpoint, why) = (&rollback.checkpoint, one_line(&rollback.why));
    let session = rollback.session.as_deref().unwrap_or("none");
    format!(
        "[session] Go back to {checkpoint}\n\n## What\n- The code of {checkpoint}, and what was learned since\n\n## Why\n{why}\n\n\
         ## Memory\n- Learned: why it was given up\n\n## Backtrace\n- Parent: {parent}\n- Linear: none\n- Session: {session}\n\n\
         Forge-Parent: {parent}\nForge-Linear: none\nForge-Session: {session}\nForge-Checkpoint: {checkpoint}\n\
         Forge-Rescue: {rescue}\n",
        parent = if rollback.mode == Mode::Restore { &rollback.head } else { &rollback.commit },
        rescue = rollback.rescue.as_deref().unwrap_or("none"),
    )
}
