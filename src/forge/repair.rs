//! Repair of a damaged file.
//!
//! The candidates are offered in a fixed order, each with a diff. Nothing is written until one is chosen, and the
//! damaged bytes are kept.

mod damage;
mod diff;
mod form;
mod unmerged;

use serde::Serialize;

use crate::artifacts::Artifacts;
use crate::checkpoints::Checkpoints;
use crate::error::{Category, Error, Result};
use crate::files::{LOST, Unreadable, check_path, last_good};
use crate::init;
use crate::layout::{CHECKPOINTS, FORGE};
use crate::progress;
use crate::project::Project;

pub use damage::{Damaged, Extent, damaged, damaged_files};
pub(crate) use damage::{check_whole, damage, damage_of, damaged_index};
use form::{Form, Wrong, check, form, salvage};
use unmerged::{united, unmerged};

/// Maximum number of versions of a file in git that are tried.
const MAX_VERSIONS: &str = "50";

/// Where a good version comes from, in the order in which they are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// What the tag of a checkpoint holds: its file is but a mirror of it.
    Tag,
    /// Both sides of an unfinished merge, united entry by entry.
    Merge,
    /// The last good copy.
    LastGood,
    /// The newest version in git that is good.
    Git,
    /// The lines that are good, for files of lines and of text.
    Salvage,
    /// The default content of a new project.
    Skeleton,
}

/// Candidate: a version that could replace the damaged file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Where it comes from.
    pub source: Source,
    /// More about it: the commit, how many lines are lost.
    pub detail: String,
    /// What would change: lines that go begin with `-`, lines that come with `+`.
    pub diff: String,
    /// What both sides changed, so that a person has to choose; the candidate has our version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    #[serde(skip)]
    bytes: Vec<u8>,
}

/// Damage of a file, with the candidates for a repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// The file, below the root.
    pub path: String,
    /// The damage; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// How a person can edit the file so that only the damaged part is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The versions that could replace it, the best first.
    pub candidates: Vec<Candidate>,
    /// The candidate that was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<Source>,
    /// Where the damaged bytes are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<String>,
    /// Whether the file was staged in git, which marks the conflict as resolved.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub staged: bool,
    /// Where the other side's version is kept, if both sides changed the same thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theirs: Option<String>,
}

/// Options of a repair.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mend {
    /// Write the candidate. Otherwise the candidates are only shown.
    pub yes: bool,
    /// Use this candidate instead of the first.
    pub from: Option<Source>,
}

/// Reports the damage of a file and the candidates to replace it; with `yes` it writes one.
///
/// # Errors
/// `Usage` for a file that does not belong to `.forge/`; `NotFound` if it is absent; `Refused` if a newer program
/// wrote it, or if the requested version is not offered; the errors of writing.
pub fn repair(project: &Project, path: &str, mend: Mend) -> Result<Repair> {
    check_path(path)?;
    let form = form(path).ok_or_else(|| {
        Error::usage(format!("{path} is no file that can be repaired"))
            .hint(format!("documents, lists of lines, progress and settings below {FORGE} can"))
            .next("helmdeck forge repair")
    })?;
    let unmerged = unmerged(project, path)?;
    // A pause that began in the middle of a merge waits for the end of that merge.
    if mend.yes && unmerged.is_none() {
        project.check_not_paused()?;
    }
    let (bytes, huge) = match project.files().read(path) {
        Ok(Some(bytes)) => (bytes, None),
        Ok(None) if project.files().is_lost(path)? => (Vec::new(), Some(LOST.to_owned())),
        Ok(None) => return Err(Error::not_found(format!("there is no {path}")).next("helmdeck forge doctor --fix")),
        // Too large to be read: only other versions can be offered.
        Err(error) if error.category == Category::Corrupt => (Vec::new(), Some(error.message)),
        Err(error) => return Err(error),
    };
    let (damage, hint) = match (huge.clone(), check(form, &bytes)) {
        (Some(huge), _) => (huge, None),
        (None, Ok(())) => {
            let hint = unmerged.map(|_| format!("git has a conflict there: look at it, then run `git add {path}`"));
            return Ok(Repair {
                path: path.to_owned(),
                damage: None,
                hint,
                candidates: Vec::new(),
                applied: None,
                copy: None,
                staged: false,
                theirs: None,
            });
        }
        (None, Err(Wrong::Newer(version))) => {
            return Err(project.files().unreadable(path, &bytes, Unreadable::Newer(version)));
        }
        (None, Err(wrong)) => (wrong.detail(), fixture(path, &wrong)),
    };
    let candidates = match &unmerged {
        Some(unmerged) => united(project, path, form, &bytes, unmerged),
        None => candidates(project, path, form, &bytes)?,
    };
    let hint = match &unmerged {
        Some(_) if candidates.is_empty() => {
            Some(format!("the two sides cannot be united: choose one, edit {path}, then run `git add {path}`"))
        }
        _ => hint,
    };
    let mut repair = Repair {
        path: path.into(),
        damage: Some(damage),
        hint,
        candidates,
        applied: None,
        copy: None,
        staged: false,
        theirs: None,
    };
    if mend.yes {
        let chosen = repair.candidates.iter().find(|candidate| mend.from.is_none_or(|from| from == candidate.source));
        let chosen = chosen.ok_or_else(|| {
            let error = Error::refused(format!("no good version of {path} was found there"));
            if unmerged.is_some() { error.hint("settle the conflict in an editor, then `git add`") } else { error }
        })?;
        let source = chosen.source;
        project.files().check_secrets(path, &chosen.bytes)?;
        // The search for versions may take long, so it is done before the lock.
        let guard = project.files().lock()?;
        let same = match project.files().read(path) {
            Ok(Some(now)) => huge.is_none() && now == bytes,
            Ok(None) => huge.as_deref() == Some(LOST),
            Err(error) => huge.is_some() && error.category == Category::Corrupt,
        };
        if !same {
            return Err(Error::new(Category::Stale, "E_STALE", format!("{path} was changed meanwhile"))
                .hint("look at it again")
                .next(format!("helmdeck forge repair {path}")));
        }
        if huge.as_deref() != Some(LOST) {
            repair.copy = keep(project, path, &bytes, huge.is_some())?;
        }
        let conflicts = chosen.conflicts.join("; ");
        if let Some(unmerged) = unmerged.as_ref().filter(|_| !conflicts.is_empty()) {
            repair.theirs = project.files().quarantine(path, &unmerged.theirs)?;
        }
        project.files().put(path, &chosen.bytes, None)?;
        repair.applied = Some(source);
        repair.hint = None;
        if matches!(form, Form::Index) && unmerged.is_none() {
            // The files have everything that the lost lines had, except for the time and the author.
            Artifacts::new(project).rebuild()?;
        }
        drop(guard);
        if unmerged.is_some() {
            if conflicts.is_empty() {
                project.git()?.mark_resolved(path)?;
                repair.staged = true;
            } else {
                repair.hint = Some(format!("ours was kept where {conflicts}: look at it, then run `git add {path}`"));
            }
        }
    }
    Ok(repair)
}

/// Keeps the damaged bytes in quarantine.
///
/// If there are ten copies already, or the file is too large to be copied, it gets a second name. Nothing is lost.
fn keep(project: &Project, path: &str, bytes: &[u8], huge: bool) -> Result<Option<String>> {
    if !huge && let Some(copy) = project.files().quarantine(path, bytes)? {
        return Ok(Some(copy));
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let copy = format!("{}/{name}.{}", crate::layout::QUARANTINE, project.environment().uuid());
    // The file stays where it is until it is replaced: were it gone for a moment and the process
    // killed, it would count as absent.
    if project.files().link(path, &copy).is_err() {
        project.files().rename(path, &copy)?;
    }
    Ok(Some(copy))
}

fn candidates(project: &Project, path: &str, form: Form, bytes: &[u8]) -> Result<Vec<Candidate>> {
    let mut all = Vec::new();
    let mut offer = |source, detail: String, new: Vec<u8>| {
        if check(form, &new).is_ok() {
            let diff = diff::lines(bytes, &new);
            all.push(Candidate { source, detail, diff, conflicts: Vec::new(), bytes: new });
        }
    };
    if let Some((tag, new)) = of_tag(project, path) {
        offer(Source::Tag, format!("as the tag {tag} has it"), new);
    }
    let good = last_good(path);
    if let Ok(Some(new)) = project.files().read(&good) {
        offer(Source::LastGood, format!("as it was written last: {good}"), new);
    }
    if let Some((commit, new)) = newest_in_git(project, path, form) {
        offer(Source::Git, format!("as it is in commit {commit}"), new);
    }
    match form {
        Form::Lines | Form::Index => {
            let (kept, lost) = salvage(form, bytes);
            offer(Source::Salvage, format!("without {lost} damaged lines"), kept);
        }
        Form::Text => {
            let (kept, lost) = salvage(form, bytes);
            offer(Source::Salvage, format!("without {lost} damaged lines"), kept);
            let environment = project.environment();
            let opening = progress::text::opening(environment.now(), &environment.zone, None);
            offer(Source::Skeleton, "all it held is lost but for the copy".into(), opening.into_bytes());
        }
        Form::Document(kind) => {
            offer(
                Source::Skeleton,
                "as a new project begins: all it held is lost but for the copy".into(),
                kind.skeleton(),
            );
        }
        Form::Config => offer(
            Source::Skeleton,
            "every setting has its default; those it held are lost but for the copy".into(),
            init::config().to_vec(),
        ),
    }
    Ok(all)
}

/// Returns what the tag of a checkpoint holds, for the file that mirrors it.
fn of_tag(project: &Project, path: &str) -> Option<(String, Vec<u8>)> {
    let name = path.strip_prefix(CHECKPOINTS)?.strip_prefix('/')?.strip_suffix(".json")?;
    Checkpoints::new(project).mirror(name).ok().flatten()
}

/// Returns the newest good version in git. Without git there is none.
fn newest_in_git(project: &Project, path: &str, form: Form) -> Option<(String, Vec<u8>)> {
    let git = project.git().ok()?;
    // The memory may lie below the root of the repository.
    let below = project.root().strip_prefix(git.root()).ok()?.join(path);
    let below = below.to_str()?;
    let args = ["log", "--format=%H", "-n", MAX_VERSIONS, "--end-of-options", "HEAD", "--", below];
    let log = git.succeed(&args, &crate::git::Run::default()).ok()?;
    log.text().lines().find_map(|commit| {
        let oid = crate::git::Oid::parse(commit)?;
        let bytes = git.file_at(&oid, below).ok()??;
        check(form, &bytes).ok()?;
        Some((commit.get(..12).unwrap_or(commit).to_owned(), bytes))
    })
}

/// Returns the hint where a person can edit the file to repair it.
fn fixture(path: &str, wrong: &Wrong) -> Option<String> {
    let (Wrong::Whole(at) | Wrong::Lines { first: at, .. }) = wrong else { return None };
    Some(format!("or mend line {}, column {} of {path} by hand: then nothing else of it is lost", at.line, at.column))
}

#[cfg(test)]
mod all_kinds_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unmerged_tests;
