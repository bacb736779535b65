//! Where issues lie, and the one way to change them.
//!
//! An issue that stands in `linear/active.json` stays there. Every other one has a file of its own, and so has every
//! new comment: two additions on two branches never touch the same file.

use std::collections::{BTreeMap, BTreeSet};

use super::queue::{self, ChangeKind, IssueChange};
use super::{Active, Comment, Issue, Issues, graph, history, is_comment_id, is_key, key_order};
use crate::error::{Category, Current, Error, Result};
use crate::events::{self, Subject, data};
use crate::files::{Document as _, Files, last_good};
use crate::json::{Json, Members};
use crate::layout::{ACTIVE, COMMENTS, ISSUES};
use crate::project::Project;

/// Who changes issues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Somebody here: a tracker must learn it.
    Local,
    /// The tracker: it knows already.
    Tracker,
}

/// Returns the issues that are not in the history, in the order of their keys.
///
/// # Errors
/// `Corrupt` if a file is damaged.
pub(crate) fn read(files: &Files) -> Result<Active> {
    Ok(Stored::read(files)?.active)
}

/// Returns the version tag of an issue: that of its text, wherever it lies.
///
/// # Errors
/// `Failed` if it cannot be written as JSON.
pub(super) fn etag(issue: &Issue) -> Result<String> {
    Ok(crate::files::etag(&print(issue)?))
}

fn print(issue: &Issue) -> Result<Vec<u8>> {
    issue.print().map_err(|error| Error::new(Category::Failed, "E_FAILED", format!("{error}")))
}

/// Returns the path of the file of an issue.
pub(crate) fn path(key: &str) -> String {
    format!("{ISSUES}/{key}.json")
}

fn comment_path(key: &str, id: &str) -> String {
    format!("{COMMENTS}/{key}/{id}.json")
}

/// The issues, and where each lies.
struct Stored {
    active: Active,
    /// Keys of the issues that stand in `active.json`.
    listed: BTreeSet<String>,
    /// The comments with a file of their own, by issue: ids and paths.
    filed: BTreeMap<String, BTreeMap<String, String>>,
    /// Earlier keys whose files hold edits that a merge brought.
    late: BTreeSet<String>,
}

impl Stored {
    fn read(files: &Files) -> Result<Self> {
        let mut active = files.load::<Active>()?.map_or_else(Active::empty, |loaded| loaded.value);
        let closed: BTreeSet<String> = history::keys(files)?.into_iter().collect();
        let mut listed: BTreeSet<String> = active.issues.iter().map(|issue| issue.linear_id.clone()).collect();
        let mut moved: Vec<Issue> = Vec::new();
        for entry in files.list(ISSUES)? {
            let Some(key) = entry.name.strip_suffix(".json").filter(|key| is_key(key)) else { continue };
            // The file of a closed issue stays: git would take its removal for a renaming to a new issue's file.
            if closed.contains(key) {
                continue;
            }
            let Some(issue) = own(files, key)? else { continue };
            if moved_to(&issue).is_some() {
                moved.push(issue);
                continue;
            }
            // Its own file counts: the entry in the list is an older copy.
            if listed.remove(key) {
                active.issues.retain(|issue| issue.linear_id != key);
            }
            active.issues.push(issue);
        }
        let mut late = BTreeSet::new();
        for old in moved {
            let to = moved_to(&old).and_then(|to| active.issues.iter_mut().find(|issue| issue.answers_to(&to)));
            if let Some(issue) = to
                && take_late_edits(issue, &old)?
            {
                late.insert(old.linear_id);
            }
        }
        let folders: BTreeSet<String> =
            files.list(COMMENTS)?.into_iter().filter(|entry| entry.folder).map(|entry| entry.name).collect();
        let mut filed: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for issue in &mut active.issues {
            if keys(issue).any(|key| folders.contains(key)) {
                filed.insert(issue.linear_id.clone(), add_comments(files, issue)?);
            }
        }
        active.issues.sort_by(|a, b| key_order(&a.linear_id).cmp(&key_order(&b.linear_id)));
        Ok(Self { active, listed, filed, late })
    }

    /// Writes an issue where it lies, and its new comments.
    fn write(&self, files: &Files, before: Option<&Issue>, issue: &Issue) -> Result<()> {
        let key = &issue.linear_id;
        let old: BTreeSet<&str> =
            before.into_iter().flat_map(|issue| &issue.comments).map(|comment| comment.id.as_str()).collect();
        // The comments stay where they are when the issue gets another key: git would take them all for renamed, and
        // find a conflict in one that another branch adds.
        let place = |id: &str| keys(issue).find_map(|key| self.filed.get(key)?.get(id));
        let filed = |id: &str| place(id).is_some();
        let (inline, own): (Vec<Comment>, Vec<Comment>) =
            issue.comments.iter().cloned().partition(|comment| old.contains(&*comment.id) && !filed(&comment.id));
        // A comment that the tracker deleted.
        let gone = keys(issue).filter_map(|key| self.filed.get(key)).flatten();
        for (_, path) in gone.filter(|(id, _)| !issue.comments.iter().any(|comment| comment.id == **id)) {
            forget(files, path)?;
        }
        for comment in own {
            let path = place(&comment.id).cloned().unwrap_or_else(|| comment_path(key, &comment.id));
            files.edit_at(&path, None, |slot: &mut Comment| {
                *slot = comment;
                Ok(())
            })?;
        }
        let bare = Issue { comments: inline, ..issue.clone() };
        if self.listed.contains(key) {
            return files.edit(None, |file: &mut Active| {
                if let Some(slot) = file.issues.iter_mut().find(|slot| slot.linear_id == *key) {
                    *slot = bare;
                }
                Ok(())
            });
        }
        files.edit_at(&path(key), None, |slot: &mut Issue| {
            *slot = bare;
            Ok(())
        })?;
        // The issue has them now: read once more, they would undo what comes after.
        let late = issue.aliases.iter().filter(|old| self.late.contains(*old));
        late.into_iter().try_for_each(|old| leave_moved(files, old, key))
    }

    /// Removes an issue, and its comments unless it has another key now.
    ///
    /// The files of a closed issue stay, and say that it is over.
    fn remove(&self, files: &Files, key: &str, renamed: Option<&str>) -> Result<()> {
        if let Some(record) = history::closed(files, key)?
            && files.entry(&path(key))?.is_some()
        {
            return keep_closed(files, &record.issue);
        }
        if self.listed.contains(key) {
            files.edit(None, |file: &mut Active| {
                file.issues.retain(|issue| issue.linear_id != key);
                Ok(())
            })?;
        }
        for path in self.filed.get(key).filter(|_| renamed.is_none()).into_iter().flat_map(BTreeMap::values) {
            forget(files, path)?;
        }
        match renamed {
            Some(to) if files.entry(&path(key))?.is_some() => leave_moved(files, key, to),
            _ => forget(files, &path(key)),
        }
    }
}

/// The member of the file of an earlier key: the key that the issue has now.
const MOVED_TO: &str = "moved_to";

/// Leaves a file for an earlier key. Git would take its removal for a renaming, perhaps to another issue's file.
///
/// It has no other member, so what a merge brings into it is an edit that was made meanwhile.
fn leave_moved(files: &Files, key: &str, to: &str) -> Result<()> {
    files.edit_at(&path(key), None, |slot: &mut Issue| {
        let mut other = Members::default();
        other.0.insert(MOVED_TO.to_owned(), Json::String(to.to_owned()));
        *slot = Issue { linear_id: key.to_owned(), other, ..Issue::default() };
        Ok(())
    })
}

/// Returns the key that an issue has now, if this is the file of an earlier one.
fn moved_to(issue: &Issue) -> Option<String> {
    match issue.other.0.get(MOVED_TO)? {
        Json::String(key) => Some(key.clone()),
        _ => None,
    }
}

/// Takes what was changed in the file of an earlier key over into the issue. Returns whether something was.
///
/// What the lists were before is not known any more, so elements are only added.
fn take_late_edits(issue: &mut Issue, old: &Issue) -> Result<bool> {
    let tree = |issue: &Issue| -> Result<Json> {
        let bytes = serde_json::to_vec(issue).map_err(|error| Error::usage(error.to_string()))?;
        serde_json::from_slice(&bytes).map_err(|error| Error::usage(error.to_string()))
    };
    let (Json::Object(mut now), Json::Object(mut late)) = (tree(issue)?, tree(old)?) else { return Ok(false) };
    late.0.retain(|name, value| {
        !matches!(name.as_str(), "linear_id" | "aliases" | "remote" | MOVED_TO) && *value != Json::String(String::new())
    });
    if late.0.is_empty() {
        return Ok(false);
    }
    crate::merge::join_lists(&now, &mut late);
    now.0.extend(late.0);
    let bytes = serde_json::to_vec(&Json::Object(now)).map_err(|error| Error::usage(error.to_string()))?;
    *issue = serde_json::from_slice(&bytes).map_err(|error| Error::usage(error.to_string()))?;
    Ok(true)
}

/// Reads the file of an issue, without its comments.
fn own(files: &Files, key: &str) -> Result<Option<Issue>> {
    let Some(loaded) = files.load_at::<Issue>(&path(key))? else { return Ok(None) };
    if loaded.value.linear_id != key {
        let message = format!("{} is the issue {:?}", path(key), loaded.value.linear_id);
        return Err(Error::new(Category::Corrupt, "E_CORRUPT", message)
            .hint("the name of the file is the key of the issue: rename one of them"));
    }
    Ok(Some(loaded.value.plain()))
}

/// Reads an issue that is closed from its own files, which may be newer than its summary.
pub(super) fn of_closed(files: &Files, key: &str) -> Result<Option<Issue>> {
    let Some(mut issue) = own(files, key)?.filter(|issue| moved_to(issue).is_none()) else { return Ok(None) };
    add_comments(files, &mut issue)?;
    Ok(Some(issue))
}

/// Writes the own files of a closed issue, if it has them, under its key or an earlier one.
pub(super) fn keep_closed(files: &Files, issue: &Issue) -> Result<()> {
    let mut there = Vec::new();
    for key in keys(issue) {
        if files.entry(&path(key))?.is_some() {
            there.push(key);
        }
    }
    if there.is_empty() {
        return Ok(());
    }
    let mut read = Issue { comments: Vec::new(), ..issue.clone() };
    let filed = add_comments(files, &mut read)?;
    for comment in &issue.comments {
        let place = filed.get(&comment.id).cloned();
        let place = place.unwrap_or_else(|| comment_path(&issue.linear_id, &comment.id));
        files.edit_at(&place, None, |slot: &mut Comment| {
            slot.clone_from(comment);
            Ok(())
        })?;
    }
    files.edit_at(&path(&issue.linear_id), None, |slot: &mut Issue| {
        *slot = Issue { comments: Vec::new(), ..issue.clone() };
        Ok(())
    })?;
    let old = there.into_iter().filter(|key| *key != issue.linear_id);
    old.into_iter().try_for_each(|old| leave_moved(files, old, &issue.linear_id))
}

/// Returns the key of an issue, and its earlier ones.
fn keys(issue: &Issue) -> impl Iterator<Item = &str> {
    std::iter::once(issue.linear_id.as_str()).chain(issue.aliases.iter().map(String::as_str))
}

/// Adds the comments that have files of their own. Returns their ids and paths.
pub(super) fn add_comments(files: &Files, issue: &mut Issue) -> Result<BTreeMap<String, String>> {
    let (mut comments, mut filed) = (Vec::new(), BTreeMap::new());
    for key in keys(issue) {
        for entry in files.list(&format!("{COMMENTS}/{key}"))? {
            let Some(id) = entry.name.strip_suffix(".json").filter(|id| is_comment_id(id)) else { continue };
            let path = comment_path(key, id);
            let Some(loaded) = files.load_at::<Comment>(&path)? else { continue };
            if filed.insert(loaded.value.id.clone(), path).is_none() {
                comments.push(loaded.value);
            }
        }
    }
    comments.retain(|comment| !issue.comments.iter().any(|other| other.id == comment.id));
    issue.comments.append(&mut comments);
    // A copy that another clone pulled from the tracker before git brought the comment itself.
    let there = issue.comments.iter().map(|comment| (&comment.id, queue::comment_id_there(&comment.id).to_string()));
    let copies: BTreeSet<String> = there.filter(|(id, there)| *id != there).map(|(_, there)| there).collect();
    issue.comments.retain(|comment| !copies.contains(&comment.id));
    issue.comments.sort_by(|a, b| (a.at, &a.id).cmp(&(b.at, &b.id)));
    Ok(filed)
}

/// Removes a file and its good copy.
pub(super) fn forget(files: &Files, path: &str) -> Result<()> {
    files.remove(path)?;
    files.remove(&last_good(path)).map(drop)
}

impl Issues<'_> {
    /// Changes issues under the lock, and tells the tracker and the events what changed.
    ///
    /// Issues that are missing afterwards are removed. The lock is held, so `change` runs no program. Nothing is
    /// written if it fails, or if what it leaves breaks a rule. The common lock is held too.
    ///
    /// # Errors
    /// The errors of `change`; `Usage` (`E_INVALID`, `E_CYCLE`); `Corrupt`, `Secret`, `Locked`.
    pub(crate) fn change<T>(&self, source: Source, change: impl FnOnce(&mut Active) -> Result<T>) -> Result<T> {
        let project = self.project;
        let files = project.files();
        if files.entry(ACTIVE)?.is_none() && files.is_lost(ACTIVE)? {
            // This reports it.
            files.edit(None, |_: &mut Active| Ok(()))?;
        }
        let mut told = Vec::new();
        let answer = {
            let _common = project.common_lock()?;
            let _guard = files.lock()?;
            let stored = Stored::read(files)?;
            let mut active = stored.active.clone();
            let answer = change(&mut active)?;
            active.check().map_err(|what| Error::new(Category::Usage, "E_INVALID", what))?;
            let find = |all: &Active, key: &str| all.issues.iter().find(|issue| issue.linear_id == key).cloned();
            let mut written = Vec::new();
            for issue in &active.issues {
                let before = find(&stored.active, &issue.linear_id);
                if before.as_ref() == Some(issue) {
                    continue;
                }
                if before.as_ref().map(|before| &before.blocked_by) != Some(&issue.blocked_by) {
                    graph::check_no_cycle(&active.issues, &issue.linear_id)?;
                }
                files.check_secrets(&path(&issue.linear_id), &print(issue)?)?;
                written.push((before, issue));
            }
            for (before, issue) in &written {
                if source == Source::Local {
                    tell_tracker(project, before.as_ref(), issue)?;
                }
            }
            for (before, issue) in &written {
                stored.write(files, before.as_ref(), issue)?;
                told.extend(events(before.as_ref(), issue));
            }
            for gone in stored.active.issues.iter().filter(|issue| find(&active, &issue.linear_id).is_none()) {
                let renamed = active.issues.iter().find(|issue| issue.answers_to(&gone.linear_id));
                stored.remove(files, &gone.linear_id, renamed.map(|issue| issue.linear_id.as_str()))?;
            }
            answer
        };
        for event in told {
            events::emit(project, Subject::Linear, event);
        }
        Ok(answer)
    }

    /// Changes one issue, if it still has the version tag that the caller read.
    ///
    /// # Errors
    /// `NotFound`; `Stale` with the current issue; as [`Self::change`].
    pub(crate) fn change_one<T>(
        &self,
        key: &str,
        if_match: Option<&str>,
        change: impl FnOnce(&mut Issue) -> Result<T>,
    ) -> Result<(Issue, T)> {
        super::check_key(key).map_err(Error::usage)?;
        self.change(Source::Local, |active| {
            let issue =
                active.issues.iter_mut().find(|issue| issue.answers_to(key)).ok_or_else(|| super::absent(key))?;
            check_match(issue, if_match)?;
            // No time of the change is stored: it would conflict when two branches change different members.
            let before = issue.clone();
            let answer = change(issue)?;
            if *issue != before {
                queue::mark_changed(&before, issue);
            }
            Ok((issue.clone(), answer))
        })
    }
}

/// Refuses an issue with another version tag than the wanted one.
///
/// # Errors
/// `Stale`, with the issue as it is.
pub(super) fn check_match(issue: &Issue, if_match: Option<&str>) -> Result<()> {
    let Some(wanted) = if_match else { return Ok(()) };
    let (text, found) = (print(issue)?, etag(issue)?);
    if found == wanted {
        return Ok(());
    }
    let key = &issue.linear_id;
    let message = format!("{key} is not {wanted} any more: its etag is {found}");
    let mut error = Error::new(Category::Stale, "E_STALE", message).hint("read it again, and decide anew");
    error.current = Some(Box::new(Current { etag: found, text: String::from_utf8_lossy(&text).into_owned() }));
    Err(error)
}

/// Adds what changed to the outbox of the tracker.
fn tell_tracker(project: &Project, before: Option<&Issue>, after: &Issue) -> Result<()> {
    let change = |kind, comment| IssueChange { kind, before, after, comment };
    let fields = change(if before.is_some() { ChangeKind::Update } else { ChangeKind::Create }, None);
    if before.is_none() || !fields.patch().is_empty() {
        queue::add(project, &fields)?;
    }
    for comment in new_comments(before, after) {
        queue::add(project, &change(ChangeKind::Comment, Some(comment)))?;
    }
    Ok(())
}

fn new_comments<'a>(before: Option<&'a Issue>, after: &'a Issue) -> impl Iterator<Item = &'a Comment> {
    let old = before.map(|issue| issue.comments.as_slice()).unwrap_or_default();
    after.comments.iter().filter(move |comment| !old.iter().any(|other| other.id == comment.id))
}

/// Returns the events of a change.
fn events(before: Option<&Issue>, after: &Issue) -> Vec<data::IssueChanged> {
    let event = |what: &str, from: Option<&String>, to: Option<&String>| data::IssueChanged {
        key: after.linear_id.clone(),
        what: what.to_owned(),
        from: from.cloned(),
        to: to.cloned(),
    };
    let Some(old) = before else { return vec![event("added", None, after.state.as_ref())] };
    let mut all = Vec::new();
    if old.state != after.state {
        all.push(event("state", old.state.as_ref(), after.state.as_ref()));
    }
    let rest = |issue: &Issue| Issue { state: None, comments: Vec::new(), updated_at: None, ..issue.clone() };
    if rest(old) != rest(after) {
        all.push(event("changed", None, None));
    }
    all.extend(new_comments(before, after).map(|_| event("comment", None, None)));
    all
}
