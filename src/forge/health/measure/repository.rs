//! Health inputs from git, with as few runs of git as possible.
//!
//! The state of the work tree and all refs are read at the same time; then the commits that the base
//! does not have, if there are any.

use super::issues::Known;
use crate::checkpoints::{Manifest, PREFIX};
use crate::error::{Error, Result};
use crate::git::{Git as Repository, Merged, Oid, Run, Status};
use crate::health::inputs::{Git, Last, Source};
use crate::layout;
use crate::project::Project;
use crate::time::Time;

/// Default bases; the first that exists is used.
const BASES: [&str; 3] = ["refs/remotes/origin/main", "refs/heads/main", "refs/remotes/origin/HEAD"];
/// Maximum number of commits that are checked.
const COMMITS: &str = "--max-count=20000";

/// Facts read from git.
#[derive(Debug, Default)]
pub(super) struct RepositoryFacts {
    pub(super) git: Git,
    /// The commits without an issue, as short ids, newest first.
    pub(super) orphans: Vec<String>,
    /// When `knowledge.json` was last committed, if requested.
    pub(super) committed: Option<Last>,
}

impl RepositoryFacts {
    pub(super) fn failed(why: impl Into<String>) -> Self {
        Self { git: Git { failed: Some(why.into()), ..Git::default() }, ..Self::default() }
    }
}

/// Collects the facts from git.
pub(super) fn ask(project: &Project, known: Option<&Known>, committed: bool) -> RepositoryFacts {
    if !project.config().git.enabled {
        return RepositoryFacts { git: Git { disabled: true, ..Git::default() }, ..RepositoryFacts::default() };
    }
    match project.git() {
        Ok(git) => look(project, git, known, committed).unwrap_or_else(|error| RepositoryFacts::failed(error.message)),
        Err(error) if error.code == "E_NOT_A_REPO" => {
            RepositoryFacts { git: Git { absent: true, ..Git::default() }, ..RepositoryFacts::default() }
        }
        Err(error) => RepositoryFacts::failed(error.message),
    }
}

fn look(project: &Project, git: &Repository, known: Option<&Known>, committed: bool) -> Result<RepositoryFacts> {
    let named = project.config().git.base.as_deref();
    let (status, refs, committed) = std::thread::scope(|scope| {
        let status = scope.spawn(|| git.status().map_err(Error::from));
        let committed = committed.then(|| scope.spawn(|| commit_time(project, git)));
        let refs = refs(git, named);
        let ended = |_| Error::new(crate::Category::Failed, "E_GIT", "asking git came to a sudden end");
        let status = status.join().map_err(ended).flatten();
        (status, refs, committed.and_then(|time| time.join().ok()).flatten())
    });
    let (status, refs) = (status?, refs?);
    let mut found = RepositoryFacts { git: about(project, git, &status), committed, ..RepositoryFacts::default() };
    checkpoint(git, &refs, &mut found.git)?;
    if found.git.checkpoint.is_none() && is_missing_checkpoints(project, git, &refs) {
        found.git.fetch_checkpoints = Some(git.fetch_checkpoints()?);
    }
    let base = base(git, &refs, named)?;
    if let (Some(base), Some(head)) = (&base, &status.head) {
        compare(git, base, head, known, &mut found)?;
    }
    found.git.base = base.map(|base| base.short());
    Ok(found)
}

/// Returns the inputs from the status of the work tree.
fn about(project: &Project, git: &Repository, status: &Status) -> Git {
    // The memory's folder as git names it: the project may be below the root of the repository.
    let below = project.root().strip_prefix(git.root()).unwrap_or_else(|_| std::path::Path::new(""));
    let forge = below.join(layout::FORGE).to_string_lossy().into_owned();
    let unmerged = status.unmerged().count();
    Git {
        unmerged: unmerged as u64,
        unmerged_memory: status.unmerged().filter_map(|path| memory_path(git, path)).collect(),
        merge_driver_missing: git.is_merge_driver_missing().unwrap_or(false),
        uncommitted: status.outside(&forge).count() as u64,
        operation: git.operation().ok().flatten().map(|operation| operation.name().to_owned()),
        ..Git::default()
    }
}

/// Returns the path of a memory file relative to the project.
fn memory_path(git: &Repository, path: &str) -> Option<String> {
    let rest = path.strip_prefix(git.memory())?;
    rest.starts_with('/').then(|| format!("{}{rest}", layout::FORGE))
}

/// A ref, and its distance from the commit that is checked out.
#[derive(Debug, Clone)]
struct Ref {
    name: String,
    commit: String,
    /// Number of commits that it is ahead of HEAD, and behind.
    apart: Option<(u64, u64)>,
    message: String,
}

impl Ref {
    fn short(&self) -> String {
        self.name.trim_start_matches("refs/heads/").trim_start_matches("refs/remotes/").to_owned()
    }
}

/// Returns the refs that may be the base, and the tags of checkpoints.
fn refs(git: &Repository, named: Option<&str>) -> Result<Vec<Ref>> {
    let tags = format!("refs/tags/{PREFIX}");
    let named: Vec<String> = named.map_or_else(
        || BASES.map(str::to_owned).to_vec(),
        |name| [name.to_owned(), format!("refs/heads/{name}"), format!("refs/remotes/{name}")].to_vec(),
    );
    let list = |apart: &str| {
        let format = format!("--format=%(refname)%00%(objectname)%00%(*objectname)%00{apart}%00%(contents)%00");
        let args = ["for-each-ref", &format, "--"].map(str::to_owned);
        let args: Vec<String> =
            args.into_iter().chain(named.iter().filter(|name| !name.starts_with('-')).cloned()).collect();
        let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
        args.push(&tags);
        git.run(&args, &Run::default()).map_err(Error::from)
    };
    let mut output = list("%(ahead-behind:HEAD)")?;
    if !output.ok() {
        // An older git cannot count, and none can before the first commit.
        output = list("")?;
    }
    if !output.ok() {
        return Err(Error::new(
            crate::Category::Failed,
            "E_GIT",
            format!("git for-each-ref: {}", output.stderr.trim()),
        ));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let fields: Vec<&str> = text.split('\0').collect();
    let all = fields.chunks_exact(5).map(|fields| {
        let apart = fields[3].split_once(' ').and_then(|(more, less)| Some((more.parse().ok()?, less.parse().ok()?)));
        Ref {
            name: fields[0].trim_start().to_owned(),
            commit: Some(fields[2]).filter(|peeled| !peeled.is_empty()).unwrap_or(fields[1]).to_owned(),
            apart,
            message: fields[4].to_owned(),
        }
    });
    Ok(all.collect())
}

/// Returns the number of commits that a commit is ahead of HEAD, and behind.
fn apart(git: &Repository, one: &Ref) -> Result<Option<(u64, u64)>> {
    if one.apart.is_some() {
        return Ok(one.apart);
    }
    let range = format!("{}...HEAD", one.commit);
    let output = git.run(&["rev-list", "--left-right", "--count", &range, "--"], &Run::default())?;
    // A commit that is missing, as in a shallow clone, gives no answer.
    let text = output.text();
    Ok(text
        .split_once('\t')
        .filter(|_| output.ok())
        .and_then(|(more, less)| Some((more.parse().ok()?, less.parse().ok()?))))
}

fn base(git: &Repository, refs: &[Ref], named: Option<&str>) -> Result<Option<Ref>> {
    let find = |name: &str| refs.iter().find(|one| one.name == name).cloned();
    let Some(named) = named else { return Ok(BASES.iter().find_map(|name| find(name))) };
    let found = [named.to_owned(), format!("refs/heads/{named}"), format!("refs/remotes/{named}")];
    if let Some(found) = found.iter().find_map(|name| find(name)) {
        return Ok(Some(found));
    }
    let other = git.resolve(named)?;
    Ok(other.map(|oid| Ref { name: named.to_owned(), commit: oid.to_string(), apart: None, message: String::new() }))
}

/// Finds the newest checkpoint to roll back to.
///
/// HEAD descends from it, and its tag proves what was checked.
fn checkpoint(git: &Repository, refs: &[Ref], found: &mut Git) -> Result<()> {
    let proven = |one: &Ref| {
        let tag = one.name.strip_prefix("refs/tags/")?;
        let manifest = Manifest::of_message(&one.message).ok()??;
        (tag.starts_with(PREFIX) && manifest.tag == tag && manifest.proven() && manifest.names(&one.commit))
            .then_some(manifest)
    };
    let mut all: Vec<(Manifest, &Ref)> = refs.iter().filter_map(|one| Some((proven(one)?, one))).collect();
    all.sort_by(|(a, _), (b, _)| (b.timestamp, &b.tag).cmp(&(a.timestamp, &a.tag)));
    for (manifest, one) in all {
        if let Some((0, since)) = apart(git, one)? {
            found.checkpoint = Some(manifest.tag.trim_start_matches(PREFIX).to_owned());
            found.checkpoint_at = Some(manifest.timestamp);
            // A commit that only saves a session's memory is not work.
            found.commits_since = if since == 0 { 0 } else { git.count_work(&format!("{}..HEAD", one.commit))? };
            break;
        }
    }
    Ok(())
}

/// Says whether known checkpoints have no tag in this clone, or no complete history.
fn is_missing_checkpoints(project: &Project, git: &Repository, refs: &[Ref]) -> bool {
    let known = project.files().reading().list(layout::CHECKPOINTS).unwrap_or_default();
    let mut names = known.iter().filter_map(|entry| entry.name.strip_suffix(".json"));
    let has_tag = |name: &str| refs.iter().any(|one| one.name == format!("refs/tags/{PREFIX}{name}"));
    names.any(|name| git.is_shallow() || !has_tag(name))
}

/// Compares HEAD with the base, and checks the commits that the base does not have.
fn compare(git: &Repository, base: &Ref, head: &Oid, known: Option<&Known>, found: &mut RepositoryFacts) -> Result<()> {
    let Some((behind, ahead)) = apart(git, base)? else { return Ok(()) };
    (found.git.ahead, found.git.behind) = (ahead, behind);
    if ahead > 0 && behind > 0 {
        found.git.merges_cleanly = match (Oid::parse(&base.commit), Some(head)) {
            (Some(base), Some(head)) => match git.merges(head, &base)? {
                Merged::Cleanly => Some(true),
                Merged::WithConflicts(_) => Some(false),
                Merged::Unknown => None,
            },
            _ => None,
        };
    }
    if let Some(known) = known.filter(|_| ahead > 0) {
        let range = format!("{}..{head}", base.commit);
        let args = ["log", "-z", "--no-merges", COMMITS, "--format=%h%n%B", "--end-of-options", &range, "--"];
        let output = git.succeed(&args, &Run::default())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let commits = text.split('\0').filter_map(|commit| commit.split_once('\n'));
        found.orphans = commits.filter(|(_, said)| !known.has(said)).map(|(name, _)| name.to_owned()).collect();
    }
    Ok(())
}

/// Returns when `knowledge.json` was last committed.
fn commit_time(project: &Project, git: &Repository) -> Option<Last> {
    let run = Run { folder: Some(project.root().to_owned()), ..Run::default() };
    let args =
        ["log", "-1", "--format=%cI", "--end-of-options", "HEAD", "--", layout::KNOWLEDGE, layout::KNOWLEDGE_ENTRIES];
    let output = git.run(&args, &run).ok().filter(crate::git::Output::ok)?;
    let at = Time::parse(output.text().trim()).ok()?;
    Some(Last { at, source: Source::Commit })
}
