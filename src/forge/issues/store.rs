//! Where issues lie, and the one way to change them.
//!
//! An issue that stands in `linear/active.json` stays there. Every other one has a file of its own,
//! and so has every new comment: two additions on two branches never touch the same file.

use std::collections::{BTreeMap, BTreeSet};

use helmdeck_forge_documents::marks;

use super::names::{Name, Names};
use super::queue::{self, ChangeKind, IssueChange};
use super::{Active, Comment, Issue, Issues, graph, history, is_comment_id, key_order};
use crate::error::{Category, Current, Error, Result};
use crate::events::{self, Subject, data};
use crate::features::FeaturesFile;
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
    issue
        .print()
        .map_err(|error| Error::new(Category::Failed, "E_FAILED", format!("{error}")))
}

/// Returns the path of the file of an issue, by its name.
pub(crate) fn path(name: &str) -> String {
    format!("{ISSUES}/{name}.json")
}

fn comment_path(name: &str, id: &str) -> String {
    format!("{COMMENTS}/{name}/{id}.json")
}

/// The issues, and where each lies.
struct Stored {
    active: Active,
    names: Names,
    /// Keys of the issues that stand in `active.json`.
    listed: BTreeSet<String>,
    /// The comments with a file of their own, by the name of the issue: ids and paths.
    filed: BTreeMap<String, BTreeMap<String, String>>,
    /// Earlier names whose files hold edits that a merge brought.
    late: BTreeSet<String>,
}

impl Stored {
    fn read(files: &Files) -> Result<Self> {
        let names = Names::read(files)?;
        let mut active = files
            .load::<Active>()?
            .map_or_else(Active::empty, |loaded| loaded.value);
        let mut listed: BTreeSet<String> = active
            .issues
            .iter()
            .map(|issue| issue.linear_id.clone())
            .collect();
        let (mut moved, mut late): (Vec<(&str, &str, Issue)>, _) = (Vec::new(), BTreeSet::new());
        for (file, key) in names.files() {
            let Some(name) = names.get(key) else { continue };
            // The file of a closed issue stays: git would take its removal for a renaming to a new
            // issue's file.
            if name.summary().is_some() {
                continue;
            }
            let Some(mut issue) = own(files, file)? else {
                continue;
            };
            if moved_to(&issue).is_some() || name.file().as_deref() != Some(file) {
                moved.push((file, key, issue));
                continue;
            }
            // Its own file counts: the entry in the list is an older copy.
            if listed.remove(key) {
                active.issues.retain(|issue| issue.linear_id != key);
            }
            names.put(&mut issue, key);
            active.issues.push(issue);
        }
        for (file, key, old) in moved {
            let to = moved_to(&old).unwrap_or_else(|| key.to_owned());
            let to = active
                .issues
                .iter_mut()
                .find(|issue| issue.answers_to(&to) || issue.answers_to(file));
            if let Some(issue) = to
                && take_late_edits(issue, &old)?
            {
                if !issue.aliases.iter().any(|alias| alias == file) {
                    issue.aliases.push(file.to_owned());
                }
                late.insert(file.to_owned());
            }
        }
        let folders: BTreeSet<String> = files
            .list(COMMENTS)?
            .into_iter()
            .filter(|entry| entry.folder)
            .map(|entry| entry.name)
            .collect();
        let mut filed: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        resolve_features(files, &mut active.issues)?;
        for issue in &mut active.issues {
            for reference in references(issue) {
                *reference = names.resolve(reference);
            }
            if own_names(issue).any(|name| folders.contains(name)) {
                filed.insert(issue.stem().to_owned(), add_comments(files, issue)?);
            }
        }
        active
            .issues
            .sort_by(|a, b| key_order(&a.linear_id).cmp(&key_order(&b.linear_id)));
        Ok(Self {
            active,
            names,
            listed,
            filed,
            late,
        })
    }

    /// Writes an issue where it lies, and its new comments.
    fn write(&self, files: &Files, before: Option<&Issue>, issue: &Issue) -> Result<()> {
        let (key, name) = (&issue.linear_id, issue.stem());
        let old: BTreeSet<&str> = before
            .into_iter()
            .flat_map(|issue| &issue.comments)
            .map(|comment| comment.id.as_str())
            .collect();
        // The comments stay where they are when the issue gets another key: git would take them all
        // for renamed, and find a conflict in one that another branch adds.
        let place = |id: &str| own_names(issue).find_map(|name| self.filed.get(name)?.get(id));
        let filed = |id: &str| place(id).is_some();
        let (inline, own): (Vec<Comment>, Vec<Comment>) = issue
            .comments
            .iter()
            .cloned()
            .partition(|comment| old.contains(&*comment.id) && !filed(&comment.id));
        // A comment that the tracker deleted.
        let gone = own_names(issue)
            .filter_map(|name| self.filed.get(name))
            .flatten();
        for (_, path) in
            gone.filter(|(id, _)| !issue.comments.iter().any(|comment| comment.id == **id))
        {
            forget(files, path)?;
        }
        for comment in own {
            let path = place(&comment.id)
                .cloned()
                .unwrap_or_else(|| comment_path(name, &comment.id));
            files.edit_at(&path, None, |slot: &mut Comment| {
                *slot = comment;
                Ok(())
            })?;
        }
        let bare = stored(
            files,
            &self.names,
            Issue {
                comments: inline,
                ..issue.clone()
            },
        )?;
        if self.listed.contains(key) {
            return files.edit(None, |file: &mut Active| {
                if let Some(slot) = file.issues.iter_mut().find(|slot| slot.linear_id == *key) {
                    *slot = bare;
                }
                Ok(())
            });
        }
        files.edit_at(&path(name), None, |slot: &mut Issue| {
            *slot = bare;
            Ok(())
        })?;
        // The issue has them now: read once more, they would undo what comes after.
        let late = issue.aliases.iter().filter(|old| self.late.contains(*old));
        late.into_iter()
            .try_for_each(|old| leave_moved(files, old, name))
    }

    /// Removes an issue, and its comments unless it has another key now.
    ///
    /// The files of a closed issue stay, and say that it is over.
    fn remove(&self, files: &Files, gone: &Issue, renamed: Option<&Issue>) -> Result<()> {
        let (key, name) = (&gone.linear_id, gone.stem());
        if let Some(record) = history::closed(files, &Names::read(files)?, key)?
            && files.entry(&path(name))?.is_some()
        {
            return keep_closed(files, &record.issue);
        }
        if self.listed.contains(key) {
            files.edit(None, |file: &mut Active| {
                file.issues.retain(|issue| issue.linear_id != *key);
                Ok(())
            })?;
        }
        for path in self
            .filed
            .get(name)
            .filter(|_| renamed.is_none())
            .into_iter()
            .flat_map(BTreeMap::values)
        {
            forget(files, path)?;
        }
        match renamed {
            Some(to) if files.entry(&path(name))?.is_some() => leave_moved(files, name, to.stem()),
            _ => forget(files, &path(name)),
        }
    }
}

/// Returns what refers to other issues.
fn references(issue: &mut Issue) -> impl Iterator<Item = &mut String> {
    let parent = issue
        .memory_trace
        .as_mut()
        .and_then(|trace| trace.parent_issue.as_mut());
    issue.blocked_by.iter_mut().chain(parent)
}

/// Returns an issue as its file has it: with its first number, and with marks in what refers to
/// others.
fn stored(files: &Files, names: &Names, mut issue: Issue) -> Result<Issue> {
    if let Some(file) = &issue.file {
        marks::split(file).0.clone_into(&mut issue.linear_id);
    }
    for reference in references(&mut issue) {
        *reference = names.reference(reference);
    }
    if !issue.features.is_empty() {
        let features = files
            .load::<FeaturesFile>()?
            .map_or_else(FeaturesFile::skeleton, |loaded| loaded.value);
        for id in &mut issue.features {
            *id = features.reference(id);
        }
    }
    Ok(issue)
}

/// Replaces what refers to features by their ids.
fn resolve_features(files: &Files, issues: &mut [Issue]) -> Result<()> {
    if !issues
        .iter()
        .flat_map(|issue| &issue.features)
        .any(|feature| marks::split(feature).1.is_some())
    {
        return Ok(());
    }
    let features = files
        .load::<FeaturesFile>()?
        .map_or_else(FeaturesFile::skeleton, |loaded| loaded.value);
    for id in issues.iter_mut().flat_map(|issue| &mut issue.features) {
        *id = features.resolve(id);
    }
    Ok(())
}

/// The member of the file of an earlier key: the key that the issue has now.
const MOVED_TO: &str = "moved_to";

/// Leaves a file for an earlier key. Git would take its removal for a renaming, perhaps to another
/// issue's file.
///
/// It has no other member, so what a merge brings into it is an edit that was made meanwhile.
fn leave_moved(files: &Files, name: &str, to: &str) -> Result<()> {
    files.edit_at(&path(name), None, |slot: &mut Issue| {
        let mut other = Members::default();
        other
            .0
            .insert(MOVED_TO.to_owned(), Json::String(to.to_owned()));
        *slot = Issue {
            linear_id: marks::split(name).0.to_owned(),
            other,
            ..Issue::default()
        };
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

/// Takes what was changed in the file of an earlier key over into the issue. Returns whether
/// something was.
///
/// What the lists were before is not known any more, so elements are only added.
fn take_late_edits(issue: &mut Issue, old: &Issue) -> Result<bool> {
    let tree = |issue: &Issue| -> Result<Json> {
        let bytes = serde_json::to_vec(issue).map_err(|error| Error::usage(error.to_string()))?;
        serde_json::from_slice(&bytes).map_err(|error| Error::usage(error.to_string()))
    };
    let (Json::Object(mut now), Json::Object(mut late)) = (tree(issue)?, tree(old)?) else {
        return Ok(false);
    };
    late.0.retain(|name, value| {
        !matches!(name.as_str(), "linear_id" | "aliases" | "remote" | MOVED_TO)
            && *value != Json::String(String::new())
    });
    if late.0.is_empty() {
        return Ok(false);
    }
    crate::merge::join_lists(&now, &mut late);
    now.0.extend(late.0);
    let bytes =
        serde_json::to_vec(&Json::Object(now)).map_err(|error| Error::usage(error.to_string()))?;
    let joined: Issue =
        serde_json::from_slice(&bytes).map_err(|error| Error::usage(error.to_string()))?;
    *issue = Issue {
        file: issue.file.take(),
        ..joined
    };
    Ok(true)
}

/// Reads the file of an issue, without its comments.
pub(super) fn own(files: &Files, name: &str) -> Result<Option<Issue>> {
    let Some(loaded) = files.load_at::<Issue>(&path(name))? else {
        return Ok(None);
    };
    let (key, mark) = marks::split(name);
    if loaded.value.linear_id != key {
        let message = format!("{} is the issue {:?}", path(name), loaded.value.linear_id);
        return Err(Error::new(Category::Corrupt, "E_CORRUPT", message)
            .hint("the name of the file is the key of the issue: rename one of them"));
    }
    Ok(Some(Issue {
        file: mark.map(|_| name.to_owned()),
        ..loaded.value.plain()
    }))
}

/// Reads an issue that is closed from its own files, which may be newer than its summary.
pub(super) fn of_closed(files: &Files, names: &Names, key: &str) -> Result<Option<Issue>> {
    let Some(file) = names.get(key).and_then(Name::file) else {
        return Ok(None);
    };
    let Some(mut issue) = own(files, &file)?.filter(|issue| moved_to(issue).is_none()) else {
        return Ok(None);
    };
    names.put(&mut issue, key);
    for reference in references(&mut issue) {
        *reference = names.resolve(reference);
    }
    resolve_features(files, std::slice::from_mut(&mut issue))?;
    add_comments(files, &mut issue)?;
    Ok(Some(issue))
}

/// Writes the own files of a closed issue, if it has them, under its name or an earlier one.
pub(super) fn keep_closed(files: &Files, issue: &Issue) -> Result<()> {
    let mut there = Vec::new();
    for name in own_names(issue) {
        if files.entry(&path(name))?.is_some() {
            there.push(name);
        }
    }
    if there.is_empty() {
        return Ok(());
    }
    let mut read = Issue {
        comments: Vec::new(),
        ..issue.clone()
    };
    let filed = add_comments(files, &mut read)?;
    let name = issue.stem();
    for comment in &issue.comments {
        let place = filed.get(&comment.id).cloned();
        let place = place.unwrap_or_else(|| comment_path(name, &comment.id));
        files.edit_at(&place, None, |slot: &mut Comment| {
            slot.clone_from(comment);
            Ok(())
        })?;
    }
    let bare = stored(
        files,
        &Names::read(files)?,
        Issue {
            comments: Vec::new(),
            ..issue.clone()
        },
    )?;
    files.edit_at(&path(name), None, |slot: &mut Issue| {
        *slot = bare;
        Ok(())
    })?;
    there
        .iter()
        .filter(|old| **old != name)
        .try_for_each(|old| leave_moved(files, old, name))
}

/// Returns the name of the files of an issue, and its earlier ones.
fn own_names(issue: &Issue) -> impl Iterator<Item = &str> {
    let earlier = issue
        .aliases
        .iter()
        .map(String::as_str)
        .filter(|alias| *alias != issue.stem());
    std::iter::once(issue.stem()).chain(earlier)
}

/// Adds the comments that have files of their own. Returns their ids and paths.
pub(super) fn add_comments(files: &Files, issue: &mut Issue) -> Result<BTreeMap<String, String>> {
    let (mut comments, mut filed) = (Vec::new(), BTreeMap::new());
    for name in own_names(issue) {
        for entry in files.list(&format!("{COMMENTS}/{name}"))? {
            let Some(id) = entry
                .name
                .strip_suffix(".json")
                .filter(|id| is_comment_id(id))
            else {
                continue;
            };
            let path = comment_path(name, id);
            let Some(loaded) = files.load_at::<Comment>(&path)? else {
                continue;
            };
            if filed.insert(loaded.value.id.clone(), path).is_none() {
                comments.push(loaded.value);
            }
        }
    }
    comments.retain(|comment| !issue.comments.iter().any(|other| other.id == comment.id));
    issue.comments.append(&mut comments);
    // A copy that another clone pulled from the tracker before git brought the comment itself.
    let there = issue.comments.iter().map(|comment| {
        (
            &comment.id,
            queue::comment_id_there(&comment.id).to_string(),
        )
    });
    let copies: BTreeSet<String> = there
        .filter(|(id, there)| *id != there)
        .map(|(_, there)| there)
        .collect();
    issue
        .comments
        .retain(|comment| !copies.contains(&comment.id));
    issue
        .comments
        .sort_by(|a, b| (a.at, &a.id).cmp(&(b.at, &b.id)));
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
    /// Issues that are missing afterwards are removed. The lock is held, so `change` runs no
    /// program. Nothing is written if it fails, or if what it leaves breaks a rule. The common lock
    /// is held too.
    ///
    /// # Errors
    /// The errors of `change`; `Usage` (`E_INVALID`, `E_CYCLE`); `Corrupt`, `Secret`, `Locked`.
    pub(super) fn change<T>(
        &self,
        source: Source,
        change: impl FnOnce(&mut Active, &Names) -> Result<T>,
    ) -> Result<T> {
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
            for (number, own) in stored.names.unsettled() {
                leave_moved(files, &number, &own)?;
            }
            let mut active = stored.active.clone();
            let answer = change(&mut active, &stored.names)?;
            active
                .check()
                .map_err(|what| Error::new(Category::Usage, "E_INVALID", what))?;
            let find = |all: &Active, key: &str| {
                all.issues
                    .iter()
                    .find(|issue| issue.linear_id == key)
                    .cloned()
            };
            let mut written = Vec::new();
            for issue in &active.issues {
                let before = find(&stored.active, &issue.linear_id);
                if before.as_ref() == Some(issue) {
                    continue;
                }
                if before.as_ref().map(|before| &before.blocked_by) != Some(&issue.blocked_by) {
                    graph::check_no_cycle(&active.issues, &issue.linear_id)?;
                }
                files.check_secrets(&path(issue.stem()), &print(issue)?)?;
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
            for gone in stored
                .active
                .issues
                .iter()
                .filter(|issue| find(&active, &issue.linear_id).is_none())
            {
                let renamed = active
                    .issues
                    .iter()
                    .find(|issue| issue.answers_to(gone.stem()));
                stored.remove(files, gone, renamed)?;
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
        self.change(Source::Local, |active, _| {
            let at = active.position(key);
            let issue = at
                .and_then(|at| active.issues.get_mut(at))
                .ok_or_else(|| super::absent(key))?;
            check_match(issue, if_match)?;
            // No time of the change is stored: it would conflict when two branches change different
            // members.
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
    let Some(wanted) = if_match else {
        return Ok(());
    };
    let (text, found) = (print(issue)?, etag(issue)?);
    if found == wanted {
        return Ok(());
    }
    let key = &issue.linear_id;
    let message = format!("{key} is not {wanted} any more: its etag is {found}");
    let mut error =
        Error::new(Category::Stale, "E_STALE", message).hint("read it again, and decide anew");
    error.current = Some(Box::new(Current {
        etag: found,
        text: String::from_utf8_lossy(&text).into_owned(),
    }));
    Err(error)
}

/// Adds what changed to the outbox of the tracker.
fn tell_tracker(project: &Project, before: Option<&Issue>, after: &Issue) -> Result<()> {
    let change = |kind, comment| IssueChange {
        kind,
        before,
        after,
        comment,
    };
    let fields = change(
        if before.is_some() {
            ChangeKind::Update
        } else {
            ChangeKind::Create
        },
        None,
    );
    if before.is_none() || !fields.patch().is_empty() {
        queue::add(project, &fields)?;
    }
    for comment in new_comments(before, after) {
        queue::add(project, &change(ChangeKind::Comment, Some(comment)))?;
    }
    Ok(())
}

fn new_comments<'a>(
    before: Option<&'a Issue>,
    after: &'a Issue,
) -> impl Iterator<Item = &'a Comment> {
    let old = before
        .map(|issue| issue.comments.as_slice())
        .unwrap_or_default();
    after
        .comments
        .iter()
        .filter(move |comment| !old.iter().any(|other| other.id == comment.id))
}

/// Returns the events of a change.
fn events(before: Option<&Issue>, after: &Issue) -> Vec<data::IssueChanged> {
    let event = |what: &str, from: Option<&String>, to: Option<&String>| data::IssueChanged {
        key: after.linear_id.clone(),
        what: what.to_owned(),
        from: from.cloned(),
        to: to.cloned(),
    };
    let Some(old) = before else {
        return vec![event("added", None, after.state.as_ref())];
    };
    let mut all = Vec::new();
    if old.state != after.state {
        all.push(event("state", old.state.as_ref(), after.state.as_ref()));
    }
    let rest = |issue: &Issue| Issue {
        state: None,
        comments: Vec::new(),
        updated_at: None,
        ..issue.clone()
    };
    if rest(old) != rest(after) {
        all.push(event("changed", None, None));
    }
    all.extend(new_comments(before, after).map(|_| event("comment", None, None)));
    all
}
