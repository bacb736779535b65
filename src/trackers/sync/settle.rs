//! Merges issues of the tracker into those of the project.

use std::collections::{BTreeSet, HashMap};

use helmdeck_forge::issues::{Active, CloseIssue, Issue, OPEN, Scope};
use helmdeck_forge::json::Json;
use helmdeck_forge::{Members, Result};
use helmdeck_forge_documents::tracking::{Base, Conflict, Field, Fields, Outbox, Value};

use super::{ChangedIssue, Sync, creation_id, remote_id, remote_text};
use crate::mapping::{Mapping, is_local};
use crate::merge::{Merged, merge};
use crate::tracker;

/// Member of `remote` with the fields that were changed here and are not delivered yet.
const CHANGED: &str = "changed";

/// What happened to one issue of the tracker.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) key: String,
    pub(super) id: String,
    pub(super) is_new: bool,
    pub(super) change: ChangedIssue,
    pub(super) merged: Merged,
    theirs: Fields,
    /// Whether the tracker says that nothing is left to do.
    is_over: bool,
    is_cancelled: bool,
    closed_by: Option<String>,
}

/// Result of merging a batch.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) settled: Vec<Settled>,
    pub(super) renamed: Vec<(String, String)>,
    pub(super) closed: Vec<String>,
    pub(super) reopened: Vec<String>,
    pub(super) warnings: Vec<String>,
}

impl Sync<'_> {
    /// Merges a batch of issues, and writes the result unless it is a trial.
    ///
    /// `bases` wins over the stored values.
    pub(super) fn settle(
        &self,
        mapping: &Mapping<'_>,
        team: &str,
        batch: &[tracker::Issue],
        bases: HashMap<String, Base>,
        dry_run: bool,
    ) -> Result<Outcome> {
        let issues = self.project.issues();
        let mut outcome = Outcome::default();
        let mut known = self.store().bases()?;
        known.extend(bases);
        self.rename(team, batch, dry_run, &mut outcome)?;
        self.settle_closed(mapping, batch, &mut known, dry_run, &mut outcome)?;
        let mut active = if dry_run { Some(issues.read()?) } else { None };
        let closed: BTreeSet<String> = issues
            .list(Scope::Done)?
            .issues
            .into_iter()
            .map(|item| item.issue.linear_id)
            .collect();
        let work = |active: &mut Active, fields: &'static [Field]| -> Vec<Settled> {
            let mapping = mapping.only(fields);
            batch
                .iter()
                .filter_map(|remote| one(active, &mapping, team, remote, &known, &closed))
                .collect()
        };
        outcome.settled = match &mut active {
            Some(active) => work(active, mapping.fields()),
            None => match issues.apply(|active| Ok(work(active, mapping.fields()))) {
                // The tracker allows issues that wait for each other; here nothing could be started
                // then.
                Err(error) if error.code == "E_CYCLE" => {
                    outcome
                        .warnings
                        .push(format!("blockers are not taken over: {}", error.message));
                    issues.apply(|active| Ok(work(active, crate::mapping::WITHOUT_BLOCKERS)))?
                }
                other => other?,
            },
        };
        if !dry_run {
            // After the issues: a base that is newer than its issue would undo the tracker's
            // change.
            for settled in &outcome.settled {
                self.store().put_base(&Base::new(
                    settled.id.clone(),
                    settled.key.clone(),
                    settled.merged.base.clone(),
                ))?;
            }
            self.note_conflicts(&outcome.settled)?;
            self.close(&mut outcome)?;
        }
        Ok(outcome)
    }

    /// Gives issues the keys that the tracker has for them.
    fn rename(
        &self,
        team: &str,
        batch: &[tracker::Issue],
        dry_run: bool,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let mut all = self.project.issues().read()?.issues;
        all.extend(self.closed_local()?);
        let created: HashMap<String, String> = all
            .iter()
            .filter(|issue| is_local(&issue.linear_id))
            .map(|issue| {
                (
                    creation_id(team, issue).to_string(),
                    issue.linear_id.clone(),
                )
            })
            .collect();
        for remote in batch {
            let mark = crate::mark::id(&remote.description).map(|id| id.to_string());
            let made = created
                .get(&remote.id)
                .or_else(|| created.get(mark.as_ref()?));
            let is = |issue: &&Issue| {
                issue.linear_id != remote.key
                    && (made == Some(&issue.linear_id)
                        || remote_id(issue) == Some(remote.id.as_str()))
            };
            let Some(old) = all.iter().find(is) else {
                continue;
            };
            outcome
                .renamed
                .push((old.linear_id.clone(), remote.key.clone()));
            if !dry_run {
                self.take_key(old, remote)?;
            }
        }
        Ok(())
    }

    /// Returns the closed issues that the tracker does not have.
    pub(super) fn closed_local(&self) -> Result<Vec<Issue>> {
        let closed = self
            .project
            .issues()
            .list(Scope::Done)?
            .issues
            .into_iter()
            .map(|item| item.issue);
        Ok(closed
            .filter(|issue| is_local(&issue.linear_id) && issue.is_over())
            .collect())
    }

    /// Renames an issue, a closed one too.
    ///
    /// If git already brought the one with the new key, the old one is merged into it.
    pub(super) fn take_key(&self, old: &Issue, remote: &tracker::Issue) -> Result<()> {
        let issues = self.project.issues();
        let key = &remote.key;
        let active = issues.read()?.issues;
        if !active.iter().any(|issue| issue.linear_id == old.linear_id) {
            return issues.rename_closed(&old.linear_id, key, |issue| {
                issue.url = Some(remote.url.clone()).filter(|url| !url.is_empty());
                let members = &mut issue.remote.get_or_insert_with(Members::default).0;
                members.insert("id".to_owned(), Json::String(remote.id.clone()));
            });
        }
        let there = active.iter().any(|issue| issue.linear_id == *key);
        if !there {
            return issues.rename(&old.linear_id, key).map(drop);
        }
        issues.apply(|active| {
            active
                .issues
                .retain(|issue| issue.linear_id != old.linear_id);
            if let Some(issue) = active
                .issues
                .iter_mut()
                .find(|issue| issue.linear_id == *key)
            {
                absorb(issue, old);
            }
            for issue in &mut active.issues {
                for blocker in issue
                    .blocked_by
                    .iter_mut()
                    .filter(|blocker| **blocker == old.linear_id)
                {
                    key.clone_into(blocker);
                }
                if let Some(trace) = &mut issue.memory_trace
                    && trace.parent_issue.as_deref() == Some(old.linear_id.as_str())
                {
                    trace.parent_issue = Some(key.to_owned());
                }
            }
            Ok(())
        })
    }

    /// Merges into issues of the history: an issue that was opened again in the tracker is opened
    /// again here.
    fn settle_closed(
        &self,
        mapping: &Mapping<'_>,
        batch: &[tracker::Issue],
        bases: &mut HashMap<String, Base>,
        dry_run: bool,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let issues = self.project.issues();
        let active = issues.read()?;
        for item in issues.list(Scope::Done)?.issues {
            let closed = item.issue;
            let is = |remote: &&tracker::Issue| {
                remote.key == closed.linear_id || remote_id(&closed) == Some(remote.id.as_str())
            };
            let Some(remote) = batch.iter().find(is) else {
                continue;
            };
            if active
                .issues
                .iter()
                .any(|issue| issue.linear_id == closed.linear_id)
            {
                continue;
            }
            let Some(base) = bases.get_mut(&remote.id) else {
                continue;
            };
            let ours = mapping.ours(&closed);
            let theirs = mapping.theirs(remote, &[&ours, &base.fields]);
            let common = common(&closed, &base.fields, &ours, &theirs);
            let merged = merge(&common, &ours, &theirs, &mapping.known_fields(remote));
            let state = merged.fields.text(Field::State);
            if !state_is_over(state)
                && !merged.conflicts.contains(&Field::State)
                && !remote.state.kind.is_over()
            {
                outcome.reopened.push(closed.linear_id.clone());
                if !dry_run {
                    self.reopen(&closed.linear_id)?;
                    base.fields
                        .set(Field::State, Some(Value::Text(OPEN.to_owned())));
                }
            } else if !dry_run {
                // It stays closed, and follows what people edit in the tracker.
                issues.amend_closed(&closed.linear_id, |issue| {
                    mapping.write(issue, &merged.fields)
                })?;
                self.store().put_base(&Base::new(
                    remote.id.clone(),
                    remote.key.clone(),
                    merged.base,
                ))?;
            }
        }
        Ok(())
    }

    /// Opens an issue again because the tracker did. The tracker needs no comment about it.
    fn reopen(&self, key: &str) -> Result<()> {
        let files = self.project.files();
        let before: BTreeSet<String> = Outbox::read(files)?
            .waiting
            .into_iter()
            .map(|one| one.op_id)
            .collect();
        self.project.issues().reopen(key, None)?;
        Outbox::edit(files, |waiting| {
            waiting.retain(|one| before.contains(&one.op_id))
        })
    }

    fn note_conflicts(&self, settled: &[Settled]) -> Result<()> {
        let now = self.project.environment().now().seconds();
        let state = self.store().state()?;
        let mut conflicts: Vec<Conflict> = Vec::new();
        let seen: BTreeSet<&str> = settled.iter().map(|one| one.key.as_str()).collect();
        conflicts.extend(
            state
                .conflicts
                .iter()
                .filter(|one| !seen.contains(one.key.as_str()))
                .cloned(),
        );
        for one in settled {
            for field in &one.merged.conflicts {
                let before = state
                    .conflicts
                    .iter()
                    .find(|known| known.key == one.key && known.field == *field);
                conflicts.push(Conflict {
                    key: one.key.clone(),
                    field: *field,
                    base: one.merged.base.get(*field).cloned(),
                    ours: one.merged.fields.get(*field).cloned(),
                    theirs: one.theirs.get(*field).cloned(),
                    since: before.map_or(now, |known| known.since),
                });
            }
        }
        if conflicts != state.conflicts {
            self.store().edit(|state| state.conflicts = conflicts)?;
        }
        Ok(())
    }

    /// Moves issues that the tracker completed to the history.
    fn close(&self, outcome: &mut Outcome) -> Result<()> {
        for one in &outcome.settled {
            let settled = one.merged.conflicts.is_empty() && one.merged.push.is_empty();
            if !(one.is_over && settled && state_is_over(one.merged.fields.text(Field::State))) {
                continue;
            }
            let what = if one.is_cancelled {
                "cancelled"
            } else {
                "completed"
            };
            let done = CloseIssue {
                anyway: Some(format!("it was {what} in {}", self.tracker.name())),
                cancelled: one.is_cancelled,
                commits: one.closed_by.iter().cloned().collect(),
                ..CloseIssue::default()
            };
            match self.project.issues().done(&one.key, &done, None) {
                Ok(_) => outcome.closed.push(one.key.clone()),
                Err(error) => outcome
                    .warnings
                    .push(format!("{} stays active: {}", one.key, error.message)),
            }
        }
        Ok(())
    }
}

/// Merges one issue of the tracker into the active ones.
fn one(
    active: &mut Active,
    mapping: &Mapping<'_>,
    team: &str,
    remote: &tracker::Issue,
    bases: &HashMap<String, Base>,
    closed: &BTreeSet<String>,
) -> Option<Settled> {
    let position = active
        .issues
        .iter()
        .position(|issue| issue.linear_id == remote.key)
        .or_else(|| {
            active
                .issues
                .iter()
                .position(|issue| remote_id(issue) == Some(remote.id.as_str()))
        });
    let is_over = remote.state.kind.is_over();
    let is_new = position.is_none();
    if is_new && (is_over || remote.archived || remote.team != team || closed.contains(&remote.key))
    {
        return None;
    }
    let known = mapping.known_fields(remote);
    let mut fresh = Issue {
        linear_id: remote.key.clone(),
        ..Issue::default()
    };
    let issue = match position {
        Some(at) => &mut active.issues[at],
        None => &mut fresh,
    };
    let ours = if is_new {
        Fields::default()
    } else {
        mapping.ours(issue)
    };
    let stored = bases.get(&remote.id).map(|base| &base.fields);
    let near: Vec<&Fields> = std::iter::once(&ours).chain(stored).collect();
    let theirs = mapping.theirs(remote, &near);
    let base = match stored {
        Some(stored) => common(issue, stored, &ours, &theirs),
        None if is_new => Fields::default(),
        None => guess(issue, &ours, &theirs),
    };
    let merged = merge(&base, &ours, &theirs, &known);
    let before = issue.clone();
    if is_new {
        // Its state is written even if it is the default one.
        issue.state = Some(merged.fields.text(Field::State).to_owned());
    }
    mapping.write(issue, &merged.fields);
    let fields_changed = *issue != before;
    note(issue, remote, &merged, mapping, team, fields_changed);
    let settled = Settled {
        key: issue.linear_id.clone(),
        id: remote.id.clone(),
        is_new,
        change: ChangedIssue::between(&issue.linear_id, &ours, &merged.fields),
        merged,
        theirs,
        is_over,
        is_cancelled: remote.state.kind == tracker::StateKind::Cancelled,
        closed_by: remote.closed_by.clone(),
    };
    if is_new {
        active.issues.push(fresh);
    }
    Some(settled)
}

/// Returns the values that both sides had last, for a clone that synchronised the issue before.
///
/// Git may have brought the reading of another clone meanwhile, an older or a newer one. It is no
/// change of anybody's: pushed as one, it would undo what the tracker has, and two clones could do
/// so for ever.
fn common(issue: &Issue, stored: &Fields, ours: &Fields, theirs: &Fields) -> Fields {
    match remote_text(issue, "synced") {
        Some(synced) if synced != stored.digest() => {
            if synced == ours.digest() {
                return ours.clone();
            }
            if synced == theirs.digest() {
                return theirs.clone();
            }
        }
        _ => return stored.clone(),
    }
    let edited = changed_here(issue);
    let mut base = stored.clone();
    for field in Field::ALL
        .into_iter()
        .filter(|field| is_plain(*field) && !edited.contains(field.name()))
    {
        base.set(field, ours.get(field).cloned());
    }
    base
}

/// Says whether an issue notes changes of a field in [`CHANGED`].
const fn is_plain(field: Field) -> bool {
    !matches!(
        field,
        Field::Labels | Field::Parent | Field::BlockedBy | Field::Criteria
    )
}

/// Returns the values that both sides had last, as far as a clone can know that never synchronised.
fn guess(issue: &Issue, ours: &Fields, theirs: &Fields) -> Fields {
    let synced = remote_text(issue, "synced");
    if synced == Some(ours.digest().as_str()) {
        // Nothing was changed here since another clone synchronised it.
        return ours.clone();
    }
    if synced == Some(theirs.digest().as_str()) {
        return theirs.clone();
    }
    let same = |(field, value): &(&Field, &Value)| theirs.get(**field) == Some(*value);
    Fields(
        ours.0
            .iter()
            .filter(same)
            .map(|(field, value)| (*field, value.clone()))
            .collect(),
    )
}

/// Notes in an issue what people need to know of its counterpart.
fn note(
    issue: &mut Issue,
    remote: &tracker::Issue,
    merged: &Merged,
    mapping: &Mapping<'_>,
    team: &str,
    fields_changed: bool,
) {
    let digest = merged.base.digest();
    let (undelivered, was_undelivered) = (undelivered(issue, merged, mapping), changed_here(issue));
    let is_archived = remote.archived;
    let moved = (remote.team != team).then_some(remote.team.as_str());
    let has = |name: &str| remote_text(issue, name);
    let was_archived = issue
        .remote
        .as_ref()
        .is_some_and(|remote| remote.0.get("archived") == Some(&Json::Bool(true)));
    let same = has("id") == Some(remote.id.as_str())
        && has("synced") == Some(digest.as_str())
        && has("team") == moved
        && undelivered == was_undelivered
        && was_archived == is_archived;
    if same && !fields_changed {
        return;
    }
    let members = &mut issue.remote.get_or_insert_with(Members::default).0;
    let mut set = |name: &str, value: Option<Json>| match value {
        Some(value) => drop(members.insert(name.to_owned(), value)),
        None => drop(members.shift_remove(name)),
    };
    let text = |text: &str| Some(Json::String(text.to_owned()));
    set("id", text(&remote.id));
    set("synced", text(&digest));
    let names: Vec<Json> = undelivered.into_iter().map(Json::String).collect();
    set(
        CHANGED,
        Some(Json::Array(names)).filter(|names| *names != Json::Array(Vec::new())),
    );
    set(
        "updated_at",
        remote.updated_at.and_then(|at| text(&at.to_string())),
    );
    set("team", moved.and_then(text));
    set("archived", is_archived.then_some(Json::Bool(true)));
    // It is a member of the issue now.
    set("milestone", None);
    set("branch", remote.branch.as_deref().and_then(text));
    issue.url = Some(remote.url.clone()).filter(|url| !url.is_empty());
    issue.created_at = issue.created_at.or(remote.created_at);
    if fields_changed {
        issue.updated_at = remote.updated_at.or(issue.updated_at);
    }
}

/// Returns the fields of an issue that were changed here, and that the tracker lacks.
///
/// Those for which it has no place stay in it.
fn undelivered(issue: &Issue, merged: &Merged, mapping: &Mapping<'_>) -> BTreeSet<String> {
    let differ = merged
        .push
        .iter()
        .chain(&merged.conflicts)
        .copied()
        .filter(|field| is_plain(*field));
    let has_place = |field: Field| {
        mapping.fields().contains(&field) && mapping.ours(issue).get(field).is_some()
    };
    let stays = changed_here(issue)
        .into_iter()
        .filter(|name| Field::of(name).is_some_and(|field| !has_place(field)));
    differ
        .map(|field| field.name().to_owned())
        .chain(stays)
        .collect()
}

/// Returns the fields that were changed here since the tracker was read, as an issue notes them.
fn changed_here(issue: &Issue) -> BTreeSet<String> {
    let names = issue
        .remote
        .as_ref()
        .and_then(|remote| remote.0.get(CHANGED));
    let Some(Json::Array(names)) = names else {
        return BTreeSet::new();
    };
    names
        .iter()
        .filter_map(|name| {
            if let Json::String(name) = name {
                Some(name.clone())
            } else {
                None
            }
        })
        .collect()
}

/// Adds what only a second copy of an issue has.
fn absorb(issue: &mut Issue, copy: &Issue) {
    if !issue.aliases.iter().any(|alias| alias == copy.stem()) {
        issue.aliases.push(copy.stem().to_owned());
    }
    for label in &copy.labels {
        if !issue.labels.contains(label) {
            issue.labels.push(label.clone());
        }
    }
    for criterion in &copy.acceptance_criteria {
        if !issue
            .acceptance_criteria
            .iter()
            .any(|known| known.text() == criterion.text())
        {
            issue.acceptance_criteria.push(criterion.clone());
        }
    }
    for comment in &copy.comments {
        if !issue.comments.iter().any(|known| known.id == comment.id) {
            issue.comments.push(comment.clone());
        }
    }
}

/// Says whether nothing is left to do in a state.
fn state_is_over(state: &str) -> bool {
    Issue {
        state: Some(state.to_owned()),
        ..Issue::default()
    }
    .is_over()
}
