//! Comments of the tracker: taken over into the issues that are active here.
//!
//! A comment that was made here is known by its id or its mark, and not taken over a second time.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use helmdeck_forge::issues::{Active, Comment, Issue, comment_id_there};
use helmdeck_forge::{Json, Members, Result, Time};

use super::pull::{Batch, MAX_PAGES, OVERLAP, Pull};
use super::{Sync, remote_id};
use crate::error::{Error, Kind};
use crate::mapping::{Mapping, clean};
use crate::tracker;

/// Maximum number of comments of the tracker that an issue keeps: the newest.
const MAX_COMMENTS: usize = 200;
/// Maximum length of a comment that is taken over, in characters.
const MAX_TEXT: usize = 20_000;
/// Members of a comment: the tracker that it comes from, and when it was edited there.
const SOURCE: &str = "source";
const EDITED: &str = "edited_at";

/// The comments that a pull has read.
#[derive(Debug, Default)]
pub(super) struct Comments {
    all: Vec<tracker::Comment>,
    /// The ids of the issues whose comments are all there.
    whole: BTreeSet<String>,
    /// Comments up to this time were read.
    pub(super) watermark: Option<Time>,
}

impl Sync<'_> {
    /// Reads the comments that changed, and all those of issues that are read as a whole.
    pub(super) async fn read_comments(
        &self,
        pull: &Pull,
        batch: &Batch,
        since: Option<Time>,
    ) -> Result<Comments, Error> {
        let failed = |error: helmdeck_forge::Error| Error::new(Kind::Settings, error.message);
        // What is made while this reads is read again the next time.
        let now = self.tracker.now();
        let seen = now
            .and_then(|now| now.0.checked_sub(OVERLAP).ok())
            .map(Time);
        let mut read = Comments {
            watermark: since.max(seen),
            ..Comments::default()
        };
        let active = self.project.issues().read().map_err(failed)?.issues;
        let known: HashSet<&str> = active.iter().filter_map(remote_id).collect();
        let is_whole = |issue: &&tracker::Issue| {
            let is_new = !known.contains(issue.id.as_str());
            !issue.state.kind.is_over()
                && !issue.archived
                && (since.is_none() || pull.only.is_some() || is_new)
        };
        let issues: Vec<&tracker::Issue> = batch.issues.iter().filter(is_whole).collect();
        let (empty, some): (Vec<_>, Vec<_>) = issues
            .into_iter()
            .partition(|issue| issue.comment_count == Some(0));
        read.whole
            .extend(empty.into_iter().map(|issue| issue.id.clone()));
        if !some.is_empty() {
            let found = self.tracker.comments_of(&some).await?;
            read.all.extend(found.comments);
            read.whole.extend(found.whole);
        }
        let Some(since) = since.filter(|_| pull.only.is_none()) else {
            return Ok(read);
        };
        let mut cursor: Option<String> = None;
        for page in 1.. {
            let found = self
                .tracker
                .comments_since(since, cursor.as_deref())
                .await?;
            read.all.extend(
                found
                    .comments
                    .into_iter()
                    .filter(|comment| !read.whole.contains(&comment.issue)),
            );
            cursor = found.next;
            if cursor.is_none() {
                break;
            }
            if page == MAX_PAGES {
                let message = format!(
                    "{} has more than {MAX_PAGES} pages of changed comments",
                    self.tracker.name()
                );
                return Err(Error::new(Kind::TooLarge, message));
            }
        }
        Ok(read)
    }

    /// Takes comments over, and returns how many changed here.
    pub(super) fn settle_comments(
        &self,
        mapping: &Mapping<'_>,
        read: &Comments,
        dry_run: bool,
    ) -> Result<usize> {
        let mut of: BTreeMap<&str, Vec<&tracker::Comment>> = BTreeMap::new();
        for comment in &read.all {
            of.entry(&comment.issue).or_default().push(comment);
        }
        for id in &read.whole {
            of.entry(id).or_default();
        }
        if of.is_empty() {
            return Ok(0);
        }
        let work = |active: &mut Active| {
            let mut changed = 0;
            for issue in &mut active.issues {
                let Some(id) = remote_id(issue).map(str::to_owned) else {
                    continue;
                };
                let Some(theirs) = of.get(id.as_str()) else {
                    continue;
                };
                changed += merge(
                    issue,
                    theirs,
                    read.whole.contains(&id),
                    mapping,
                    self.tracker.name(),
                );
            }
            changed
        };
        if dry_run {
            return Ok(work(&mut self.project.issues().read()?));
        }
        self.project.issues().apply(|active| Ok(work(active)))
    }
}

fn text_of<'a>(comment: &'a Comment, member: &str) -> Option<&'a str> {
    match comment.other.0.get(member)? {
        Json::String(text) => Some(text),
        _ => None,
    }
}

/// Says whether a comment was made in the tracker.
fn is_theirs(comment: &Comment) -> bool {
    text_of(comment, SOURCE).is_some()
}

/// Merges comments of the tracker into an issue, and returns how many changed.
fn merge(
    issue: &mut Issue,
    theirs: &[&tracker::Comment],
    is_whole: bool,
    mapping: &Mapping<'_>,
    source: &str,
) -> usize {
    let before = issue.comments.clone();
    let seen = take_over(issue, theirs, mapping, source);
    tidy(issue, &seen, is_whole);
    let after = &issue.comments;
    let new = after.iter().filter(|one| !before.contains(one)).count();
    new + before
        .iter()
        .filter(|one| !after.iter().any(|other| other.id == one.id))
        .count()
}

/// Takes comments over, and returns the ids here of those that exist in the tracker.
fn take_over(
    issue: &mut Issue,
    theirs: &[&tracker::Comment],
    mapping: &Mapping<'_>,
    source: &str,
) -> BTreeSet<String> {
    let mut sorted = theirs.to_vec();
    sorted.sort_by_key(|comment| (comment.at, &comment.id));
    let mut seen = BTreeSet::new();
    for comment in sorted {
        let (text, _) = crate::mark::split(&comment.text);
        let id =
            crate::mark::id(&comment.text).map_or_else(|| comment.id.clone(), |id| id.to_string());
        // A copy of somebody else's mark does not make another comment that one.
        if !seen.insert(id.clone()) {
            continue;
        }
        let at = issue
            .comments
            .iter()
            .position(|one| one.id == id || comment_id_there(&one.id).to_string() == id);
        if comment.deleted {
            seen.remove(&id);
            if let Some(at) = at.filter(|at| issue.comments.get(*at).is_some_and(is_theirs)) {
                issue.comments.remove(at);
            }
            continue;
        }
        let edited = comment.edited_at.map(|at| at.to_string());
        match at.and_then(|at| issue.comments.get_mut(at)) {
            None => {
                let mut made = Comment {
                    id,
                    at: comment.at,
                    ..Comment::default()
                };
                write(&mut made, comment, text, edited, mapping, source);
                issue.comments.push(made);
            }
            Some(known) if is_theirs(known) => write(known, comment, text, edited, mapping, source),
            // One of ours counts as it is here, until somebody edits it there.
            Some(known) => {
                let by = known
                    .by
                    .as_ref()
                    .map(|by| format!("\n\n({by})"))
                    .unwrap_or_default();
                let text = cut(&clean(text.strip_suffix(by.as_str()).unwrap_or(text)));
                if edited.is_some()
                    && text_of(known, EDITED) != edited.as_deref()
                    && known.text != text
                {
                    known.text = text;
                    set(&mut known.other, EDITED, edited);
                }
            }
        }
    }
    seen
}

fn write(
    into: &mut Comment,
    comment: &tracker::Comment,
    text: &str,
    edited: Option<String>,
    mapping: &Mapping<'_>,
    source: &str,
) {
    into.by = comment
        .by
        .as_ref()
        .map(|person| clean(&helmdeck_core::text::one_line(&mapping.name_of(person))));
    into.text = cut(&clean(text.trim()));
    set(&mut into.other, SOURCE, Some(source.to_owned()));
    set(&mut into.other, EDITED, edited);
}

fn set(members: &mut Members, name: &str, value: Option<String>) {
    match value {
        Some(value) => drop(members.0.insert(name.to_owned(), Json::String(value))),
        None => drop(members.0.shift_remove(name)),
    }
}

/// Returns a text of at most [`MAX_TEXT`] characters.
fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!(
            "{}\n\n[cut: the rest is in the tracker]",
            text.get(..end).unwrap_or_default()
        ),
        None => text.to_owned(),
    }
}

/// Removes comments that were deleted there, second copies, and the oldest of too many.
fn tidy(issue: &mut Issue, seen: &BTreeSet<String>, is_whole: bool) {
    // A copy that another clone's pull made before git brought the comment itself.
    let sent: BTreeSet<String> = issue
        .comments
        .iter()
        .filter(|comment| !is_theirs(comment))
        .map(|comment| comment_id_there(&comment.id).to_string())
        .collect();
    issue.comments.retain(|one| {
        !is_theirs(one) || !sent.contains(&one.id) && (!is_whole || seen.contains(&one.id))
    });
    issue
        .comments
        .sort_by(|a, b| (a.at, &a.id).cmp(&(b.at, &b.id)));
    let mut excess = issue
        .comments
        .iter()
        .filter(|one| is_theirs(one))
        .count()
        .saturating_sub(MAX_COMMENTS);
    issue.comments.retain(|one| {
        let drop = excess > 0 && is_theirs(one);
        excess -= usize::from(drop);
        !drop
    });
}
