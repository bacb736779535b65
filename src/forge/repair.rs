//! Repair of damaged files.
//!
//! The candidates are offered in a fixed order, each with a diff. Nothing is written until one is
//! chosen, and the damaged bytes are kept.

mod damage;
mod diff;
mod form;
mod unmerged;

use serde::Serialize;

use crate::checkpoints::Checkpoints;
use crate::documents::skeleton_at;
use crate::error::{Category, Error, Result};
use crate::files::{LOST, Unreadable, check_path, last_good};
use crate::init;
use crate::layout::{CHECKPOINTS, FORGE};
use crate::progress;
use crate::project::Project;

pub use damage::{Damaged, Extent, damaged, damaged_files};
pub(crate) use damage::{all_damage, check_whole, damage, is_long_term, unusable};
use form::{Form, Wrong, check, form, salvage};
use unmerged::{united, unmerged};

/// Maximum number of git versions of a file that are checked.
const MAX_VERSIONS: &str = "50";

/// Source of a replacement, in the order in which they are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The tag of a checkpoint, which its file only mirrors.
    Tag,
    /// Both sides of an unfinished merge, merged entry by entry.
    Merge,
    /// The last written version.
    LastGood,
    /// The newest valid version in git.
    Git,
    /// The valid lines, for line-based and text files.
    Salvage,
    /// The default content of a new project.
    Skeleton,
}

/// A version that can replace the damaged one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// The source.
    pub source: Source,
    /// Details: the commit, the number of lost lines.
    pub detail: String,
    /// The diff: removed lines begin with `-`, added lines with `+`.
    pub diff: String,
    /// Conflicts: what both sides changed. Our side is in the file, and a person has to choose.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    #[serde(skip)]
    bytes: Vec<u8>,
}

/// The damage of a file, and the possible repairs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// The file, below the root.
    pub path: String,
    /// The damage; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// How to repair it manually, with no loss beyond the damaged part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Possible replacements, the best first.
    pub candidates: Vec<Candidate>,
    /// The source of the version that was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<Source>,
    /// The copy of the damaged bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<String>,
    /// Whether the conflict was marked as resolved in git.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub staged: bool,
    /// The file with the other side's version, if both sides changed the same thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theirs: Option<String>,
}

/// Options of a repair.
#[derive(Debug, Clone, Copy, Default)]
pub struct RepairRequest {
    /// Write the replacement. Without it, the repair is only shown.
    pub yes: bool,
    /// Use this source instead of the first one offered.
    pub from: Option<Source>,
}

/// Reports the damage of a file and the possible replacements; with `yes` it writes one.
///
/// # Errors
/// `Usage` for a file outside the memory; `NotFound` if it is absent; `Refused` if a newer program
/// wrote it, or if the requested version is not offered; errors from writing.
pub fn repair(project: &Project, path: &str, request: RepairRequest) -> Result<Repair> {
    check_path(path)?;
    let form = form(path).ok_or_else(|| {
        Error::usage(format!("{path} is no file that can be repaired"))
            .hint(format!(
                "documents, lists of lines, progress and settings below {FORGE} can"
            ))
            .next("helmdeck forge repair")
    })?;
    let unmerged = unmerged(project, path)?;
    // Finishing a merge is allowed during a pause, because the pause may wait for it.
    if request.yes && unmerged.is_none() {
        project.check_not_paused()?;
    }
    let (bytes, huge) = match project.files().read(path) {
        Ok(Some(bytes)) => (bytes, None),
        Ok(None) if project.files().is_lost(path)? => (Vec::new(), Some(LOST.to_owned())),
        Ok(None) => {
            return Err(
                Error::not_found(format!("there is no {path}")).next("helmdeck forge doctor --fix")
            );
        }
        // The file is too large to read: only other versions can be offered.
        Err(error) if error.category == Category::Corrupt => (Vec::new(), Some(error.message)),
        Err(error) => return Err(error),
    };
    let (damage, hint) = match (huge.clone(), check(form, &bytes)) {
        (Some(huge), _) => (huge, None),
        (None, Ok(())) => {
            let hint = unmerged.map(|_| {
                format!("git has a conflict there: look at it, then run `git add {path}`")
            });
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
            return Err(project
                .files()
                .unreadable(path, &bytes, Unreadable::Newer(version)));
        }
        (None, Err(wrong)) => (wrong.detail(), edit_hint(path, &wrong)),
    };
    let candidates = match &unmerged {
        Some(unmerged) => united(project, path, form, &bytes, unmerged),
        None => candidates(project, path, form, &bytes)?,
    };
    let hint = match &unmerged {
        Some(_) if candidates.is_empty() => Some(format!(
            "the two sides cannot be united: choose one, edit {path}, then run `git add {path}`"
        )),
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
    if request.yes {
        let chosen = repair
            .candidates
            .iter()
            .find(|candidate| request.from.is_none_or(|from| from == candidate.source));
        let chosen = chosen.ok_or_else(|| {
            let error = Error::refused(format!("no good version of {path} was found there"));
            match unmerged.is_some() {
                true => error.hint("settle the conflict in an editor, then `git add`"),
                false => error.hint("mend it in an editor, or remove it"),
            }
        })?;
        let source = chosen.source;
        project.files().check_secrets(path, &chosen.bytes)?;
        // The search for versions may be slow, so it was done before the lock.
        let guard = project.files().lock()?;
        let same = match project.files().read(path) {
            Ok(Some(now)) => huge.is_none() && now == bytes,
            Ok(None) => huge.as_deref() == Some(LOST),
            Err(error) => huge.is_some() && error.category == Category::Corrupt,
        };
        if !same {
            return Err(Error::new(
                Category::Stale,
                "E_STALE",
                format!("{path} was changed meanwhile"),
            )
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
        drop(guard);
        if unmerged.is_some() {
            if conflicts.is_empty() {
                project.git()?.mark_resolved(path)?;
                repair.staged = true;
            } else {
                repair.hint = Some(format!(
                    "ours was kept where {conflicts}: look at it, then run `git add {path}`"
                ));
            }
        }
    }
    Ok(repair)
}

/// Keeps the damaged bytes.
///
/// If there are ten copies already, or the file is too large to copy, the file gets a second name
/// instead, so that nothing is lost.
fn keep(project: &Project, path: &str, bytes: &[u8], huge: bool) -> Result<Option<String>> {
    if !huge && let Some(copy) = project.files().quarantine(path, bytes)? {
        return Ok(Some(copy));
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let copy = format!(
        "{}/{name}.{}",
        crate::layout::QUARANTINE,
        project.environment().uuid()
    );
    // The file stays in place until it is replaced. If it were gone for a moment and the process
    // were killed then, it would count as absent.
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
            all.push(Candidate {
                source,
                detail,
                diff,
                conflicts: Vec::new(),
                bytes: new,
            });
        }
    };
    if let Some((tag, new)) = of_tag(project, path) {
        offer(Source::Tag, format!("as the tag {tag} has it"), new);
    }
    let good = last_good(path);
    if let Ok(Some(new)) = project.files().read(&good) {
        offer(
            Source::LastGood,
            format!("as it was written last: {good}"),
            new,
        );
    }
    if let Some((commit, new)) = newest_in_git(project, path, form) {
        offer(Source::Git, format!("as it is in commit {commit}"), new);
    }
    match form {
        Form::Lines => {
            let (kept, lost) = salvage(form, bytes);
            offer(
                Source::Salvage,
                format!("without {lost} damaged lines"),
                kept,
            );
        }
        Form::Text => {
            let (kept, lost) = salvage(form, bytes);
            offer(
                Source::Salvage,
                format!("without {lost} damaged lines"),
                kept,
            );
            let environment = project.environment();
            let opening = progress::text::opening(environment.now(), &environment.zone, None);
            offer(
                Source::Skeleton,
                "all it held is lost but for the copy".into(),
                opening.into_bytes(),
            );
        }
        // An entry that no version is left of can only be removed.
        Form::Document(kind) if is_long_term(path) && path != kind.path => {}
        Form::Document(kind) => {
            offer(
                Source::Skeleton,
                "as a new project begins: all it held is lost but for the copy".into(),
                skeleton_at(kind, path),
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

/// Returns the content that the tag of a checkpoint gives for its mirror file.
fn of_tag(project: &Project, path: &str) -> Option<(String, Vec<u8>)> {
    let name = path
        .strip_prefix(CHECKPOINTS)?
        .strip_prefix('/')?
        .strip_suffix(".json")?;
    Checkpoints::new(project).mirror(name).ok().flatten()
}

/// Finds the newest valid version in git. Without git there is none.
fn newest_in_git(project: &Project, path: &str, form: Form) -> Option<(String, Vec<u8>)> {
    let git = project.git().ok()?;
    // The memory may be below the root of the repository.
    let below = project.root().strip_prefix(git.root()).ok()?.join(path);
    let below = below.to_str()?;
    let args = [
        "log",
        "--format=%H",
        "-n",
        MAX_VERSIONS,
        "--end-of-options",
        "HEAD",
        "--",
        below,
    ];
    let log = git.succeed(&args, &crate::git::Run::default()).ok()?;
    log.text().lines().find_map(|commit| {
        let oid = crate::git::Oid::parse(commit)?;
        let bytes = git.file_at(&oid, below).ok()??;
        check(form, &bytes).ok()?;
        Some((commit.get(..12).unwrap_or(commit).to_owned(), bytes))
    })
}

/// Returns a hint for a manual repair.
fn edit_hint(path: &str, wrong: &Wrong) -> Option<String> {
    let (Wrong::Whole(at) | Wrong::Lines { first: at, .. }) = wrong else {
        return None;
    };
    Some(format!(
        "or mend line {}, column {} of {path} by hand: then nothing else of it is lost",
        at.line, at.column
    ))
}

#[cfg(test)]
mod all_kinds_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unmerged_tests;
