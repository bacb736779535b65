//! `repo.map`: the most important symbols of a source tree, within a token budget.
//!
//! It reads files only, on blocking threads. It uses neither the network nor git, and reads nothing
//! outside the folder.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use helmdeck_core::{Code, Context, Error, Handler, Json, Reply, Result};
use serde::{Deserialize, Serialize};

use super::map_root::MapRoot;
use super::rank::{self, Ranked};
use super::render::{self, MapFile};
use super::symbols::{self, Skip, Symbols};
use super::walk::{self, FileFilter, Globs, SourceFile, Walked};

/// Maximum parser threads of a call.
const MAX_THREADS: usize = 4;

/// Number of files between two progress reports.
const REPORT_EVERY: usize = 100;

/// The handler.
pub(super) struct RepoMap;

#[derive(Deserialize)]
struct Input {
    path: String,
    token_budget: usize,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    focus: Vec<String>,
    #[serde(default)]
    languages: Vec<String>,
}

#[derive(Serialize)]
struct Output<'a> {
    root: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    files: Vec<MapFile<'a>>,
    map: &'a str,
    tokens: usize,
    files_seen: usize,
    skipped: Skipped,
    truncated: bool,
}

/// Number of files that are not in the map, by reason.
#[derive(Serialize, Default)]
struct Skipped {
    too_large: usize,
    not_text: usize,
    unreadable: usize,
}

#[async_trait]
impl Handler for RepoMap {
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        let input: Input = input.read()?;
        let dropped = Arc::new(AtomicBool::new(false));
        // The blocking thread outlives a dropped future; the guard stops it.
        let _guard = SetOnDrop(Arc::clone(&dropped));
        let work = Work { context, dropped };
        tokio::task::spawn_blocking(move || work.run(&input))
            .await
            .map_err(|error| {
                Error::new(Code::Internal, "the map could not be finished").with_source(error)
            })?
    }
}

/// Returns the map of a folder of the context's session as text, without progress reports.
pub(super) async fn of_session(
    context: &Context,
    folder: &str,
    token_budget: usize,
) -> Result<String> {
    let context = Context {
        progress: None,
        stale: None,
        ..context.clone()
    };
    let input = Json::from(serde_json::json!({"path": folder, "token_budget": token_budget}));
    let reply = RepoMap.run(context, input).await?;
    let output = reply
        .output
        .map_or_else(Default::default, |output| output.to_value());
    Ok(output["map"].as_str().unwrap_or_default().to_owned())
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A file and its symbols.
type Parsed<'a> = (&'a SourceFile, Symbols);

/// One call, on a blocking thread.
struct Work {
    context: Context,
    dropped: Arc<AtomicBool>,
}

impl Work {
    fn stopped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
            || self
                .context
                .cancel
                .as_ref()
                .is_some_and(|cancel| cancel.is_cancelled())
            || self.context.time_left().is_some_and(|left| left.is_zero())
    }

    fn stop_error(&self) -> Error {
        if self.context.time_left().is_some_and(|left| left.is_zero()) {
            Error::new(
                Code::Timeout,
                "the map was not finished in time; narrow it with paths or languages",
            )
        } else {
            Error::new(Code::Cancelled, "the map was cancelled")
        }
    }

    fn run(&self, input: &Input) -> Result<Reply> {
        let map_root = Arc::new(MapRoot::find(&input.path, self.context.session.as_deref())?);
        let paths = Globs::new("paths", &input.paths)?;
        let focus = Globs::new("focus", &input.focus)?;
        // In a session, git's files are untrusted.
        let work_tree = if map_root.is_of_session() {
            None
        } else {
            helmdeck_git::head::work_tree(&map_root.root)
        };
        let commit = work_tree.and_then(helmdeck_git::head::commit);
        self.context.report(Some(0.0), "looking for source files");
        let filter = FileFilter {
            paths: &paths,
            languages: &input.languages,
        };
        let found = walk::walk(&map_root, work_tree, commit.as_deref(), &filter, &|| {
            self.stopped()
        })
        .ok_or_else(|| self.stop_error())?;
        if self
            .context
            .stale
            .as_ref()
            .is_some_and(|stale| *stale.validator == *found.digest)
        {
            return Ok(Reply::not_modified());
        }
        let (files, skipped) = self.parse(&found, &map_root)?;
        let ranked: Vec<Ranked<'_>> = files
            .iter()
            .map(|(file, symbols)| Ranked {
                family: file.grammar.family,
                symbols,
                focus: !focus.is_empty() && focus.matches(&file.path),
            })
            .collect();
        let ranks = rank::rank(&ranked);
        let map = render::fit(&files, &ranks, input.token_budget);
        self.context.report(Some(100.0), "done");
        let output = Output {
            root: map_root.shown.clone(),
            commit,
            map: &map.text,
            tokens: map.tokens,
            files_seen: found.seen,
            truncated: map.cut || found.cut,
            files: map.files,
            skipped,
        };
        let reply = Reply::value(&output)?;
        // A session changes with every command, so the answer is not stored.
        Ok(if map_root.is_of_session() {
            reply.no_store()
        } else {
            reply.with_validator(found.digest.as_str()).confirm_always()
        })
    }

    /// Parses all files on a few threads; results are in the order of the files.
    fn parse<'a>(
        &self,
        found: &'a Walked,
        map_root: &MapRoot,
    ) -> Result<(Vec<Parsed<'a>>, Skipped)> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::with_capacity(found.files.len()));
        let worker = || {
            while let index = next.fetch_add(1, Ordering::Relaxed)
                && let Some(file) = found.files.get(index)
                && !self.stopped()
            {
                let symbols =
                    symbols::read(map_root.open(&file.file), file.grammar, &|| self.stopped());
                let mut done = done.lock();
                done.push((index, symbols));
                let finished = done.len();
                drop(done);
                if finished.is_multiple_of(REPORT_EVERY) {
                    self.report_parsed(finished, found.files.len());
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 1..threads
                .min(MAX_THREADS)
                .min(found.files.len().div_ceil(REPORT_EVERY))
            {
                scope.spawn(worker);
            }
            worker();
        });
        if self.stopped() {
            return Err(self.stop_error());
        }
        let mut done = done.into_inner();
        done.sort_unstable_by_key(|(index, _)| *index);
        let mut skipped = Skipped {
            too_large: found.too_large,
            not_text: 0,
            unreadable: found.unreadable,
        };
        let mut files = Vec::with_capacity(done.len());
        for (index, symbols) in done {
            match symbols {
                Ok(symbols) => files.push((&found.files[index], symbols)),
                Err(Skip::TooLarge) => skipped.too_large += 1,
                Err(Skip::NotText) => skipped.not_text += 1,
                Err(Skip::Unreadable) => skipped.unreadable += 1,
                Err(Skip::Stopped) => return Err(self.stop_error()),
            }
        }
        Ok((files, skipped))
    }

    fn report_parsed(&self, finished: usize, all: usize) {
        let percent = finished as f32 * 100.0 / all.max(1) as f32;
        self.context.report(
            Some(percent),
            &format!("read {finished} of {all} source files"),
        );
    }
}

#[cfg(test)]
mod tests;
