//! Push: delivers what is here and not in the tracker.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use helmdeck_core::jitter::jittered;
use helmdeck_forge::issues::{Issue, Scope};
use helmdeck_forge::{Result, Time};
use helmdeck_forge_documents::tracking::{
    Base, Field, Fields, Operation, OperationKind, Outbox, Value,
};
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::{Sync, creation_id, lock, remote_id};
use crate::error::{Error, Kind};
use crate::mapping::{Mapping, is_local};
use crate::merge::{merge, same};
use crate::tracker;

/// The wait after the first failed attempt, doubled for each further one.
const FIRST_WAIT: Duration = Duration::from_secs(30);
/// The longest wait between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// Request to push.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Push {
    /// Whether nothing is sent or written.
    pub dry_run: bool,
}

/// Result of a push.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Pushed {
    /// Whether this is only the plan.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// What was delivered; in a plan, what would be.
    pub delivered: Vec<Delivered>,
    /// What could not be delivered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<Failed>,
    /// Number of operations that still wait.
    pub waiting: usize,
    /// Number of fields that were changed on both sides, to different values.
    pub conflicts: usize,
    /// Why the rest was not tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// A delivered operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Delivered {
    /// Its kind.
    pub kind: OperationKind,
    /// The key of the issue.
    pub key: String,
    /// The key that it had before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
    /// The fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Field>,
}

/// A failed operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Failed {
    /// The id of the operation.
    pub op_id: String,
    /// The key of the issue.
    pub key: String,
    /// Why.
    pub error: String,
    /// Whether it is tried again by itself.
    pub retried: bool,
}

/// Why an operation was not carried out.
enum Trouble {
    Tracker(Error),
    Project(helmdeck_forge::Error),
    /// It waits for the creation of its issue.
    TooEarly,
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Tracker(error)
    }
}

impl From<helmdeck_forge::Error> for Trouble {
    fn from(error: helmdeck_forge::Error) -> Self {
        Self::Project(error)
    }
}

impl Sync<'_> {
    /// Delivers new issues, changed fields and comments.
    ///
    /// Each issue is read again just before it is changed. A failed operation does not hold up
    /// other issues.
    ///
    /// # Errors
    /// The errors of the tracker before anything is sent; `Locked`, `Corrupt`; errors from writing.
    pub async fn push(&self, push: &Push) -> Result<Pushed> {
        let _lock = lock::take(self.project).await?;
        self.push_locked(push).await
    }

    pub(super) async fn push_locked(&self, push: &Push) -> Result<Pushed> {
        self.project.check_not_paused()?;
        let directory = self.tracker.identify().await?;
        let mapping = self.mapping(&directory);
        let mut pushed = Pushed {
            dry_run: push.dry_run,
            ..Pushed::default()
        };
        if push.dry_run {
            let mut waiting = Outbox::read(self.project.files())?.waiting;
            self.plan_creations(&mapping, &directory.team, &mut waiting)?;
            self.plan_updates(&mapping, &mut waiting)?;
            let planned = |operation: &Operation| Delivered {
                kind: operation.kind,
                key: operation.key(),
                was: None,
                fields: operation.patch.keys().copied().collect(),
            };
            pushed.delivered = waiting.iter().map(planned).collect();
            pushed.waiting = waiting.len();
            return Ok(pushed);
        }
        let files = self.project.files();
        self.replan(|waiting| self.plan_creations(&mapping, &directory.team, waiting))?;
        self.drain(&mapping, &directory.team, true, &mut pushed)
            .await?;
        if pushed.stopped.is_none() {
            self.replan(|waiting| self.plan_updates(&mapping, waiting))?;
            self.drain(&mapping, &directory.team, false, &mut pushed)
                .await?;
        }
        pushed.waiting = Outbox::read(files)?.waiting.len();
        pushed.conflicts = self.store().state()?.conflicts.len();
        Ok(pushed)
    }

    /// Plans without the lock, and keeps what others add to the outbox meanwhile.
    fn replan(&self, plan: impl FnOnce(&mut Vec<Operation>) -> Result<()>) -> Result<()> {
        let files = self.project.files();
        let before = Outbox::read(files)?.waiting;
        let mut planned = before.clone();
        plan(&mut planned)?;
        Outbox::edit(files, |waiting| {
            let known: HashSet<&str> = before.iter().map(|one| one.op_id.as_str()).collect();
            planned.extend(
                waiting
                    .iter()
                    .filter(|one| !known.contains(one.op_id.as_str()))
                    .cloned(),
            );
            *waiting = planned;
        })
    }

    /// Adds a creation for each local issue that has none.
    fn plan_creations(
        &self,
        mapping: &Mapping<'_>,
        team: &str,
        waiting: &mut Vec<Operation>,
    ) -> Result<()> {
        let now = self.project.environment().now().seconds();
        let mut all = self.project.issues().read()?.issues;
        let closed = self.closed_local()?;
        let active: HashSet<&str> = all.iter().map(|issue| issue.linear_id.as_str()).collect();
        let closed: Vec<Issue> = closed
            .into_iter()
            .filter(|one| !active.contains(one.linear_id.as_str()))
            .collect();
        all.extend(closed);
        for issue in all {
            if !is_local(&issue.linear_id) {
                continue;
            }
            let id = creation_id(team, &issue).to_string();
            let fields = mapping.ours(&issue);
            let patch: BTreeMap<Field, Option<Value>> = fields
                .0
                .into_iter()
                .filter(|(field, _)| !matches!(field, Field::Parent | Field::BlockedBy))
                .map(|(field, value)| (field, Some(value)))
                .collect();
            match waiting
                .iter_mut()
                .find(|one| one.kind == OperationKind::Create && one.op_id == id)
            {
                Some(known) if known.sent || known.patch == patch => {}
                Some(known) => {
                    known.patch = patch;
                    (known.attempts, known.next_at, known.stopped) = (0, None, false);
                }
                None => {
                    let mut operation =
                        Operation::new(id, OperationKind::Create, issue.stem().to_owned(), now);
                    operation.patch = patch;
                    waiting.push(operation);
                }
            }
        }
        Ok(())
    }

    /// Adds an update for each issue that differs from what both sides had last.
    fn plan_updates(&self, mapping: &Mapping<'_>, waiting: &mut Vec<Operation>) -> Result<()> {
        let environment = self.project.environment();
        let bases = self.store().bases()?;
        let conflicts = self.store().state()?.conflicts;
        let mut all = self.project.issues().read()?.issues;
        let closed = self
            .project
            .issues()
            .list(Scope::Done)?
            .issues
            .into_iter()
            .map(|item| item.issue);
        let active: HashSet<String> = all.iter().map(|issue| issue.linear_id.clone()).collect();
        all.extend(closed.filter(|issue| !active.contains(&issue.linear_id)));
        for issue in all {
            let Some(base) = remote_id(&issue).and_then(|id| bases.get(id)) else {
                continue;
            };
            let ours = mapping.ours(&issue);
            let in_conflict = |field: Field| {
                conflicts
                    .iter()
                    .any(|one| one.key == issue.linear_id && one.field == field)
            };
            let is_changed = |field: &Field| match field {
                Field::State => !mapping.is_same_state(ours.text(*field), base.fields.text(*field)),
                _ => !same(ours.get(*field), base.fields.get(*field)),
            };
            let fields = mapping
                .fields()
                .iter()
                .copied()
                .filter(is_changed)
                .filter(|field| !in_conflict(*field));
            let fields: Vec<Field> = fields.collect();
            let values = |of: &Fields| {
                fields
                    .iter()
                    .map(|field| (*field, of.get(*field).cloned()))
                    .collect()
            };
            let (patch, base): (BTreeMap<_, _>, BTreeMap<_, _>) =
                (values(&ours), values(&base.fields));
            let known = waiting
                .iter()
                .position(|one| one.kind == OperationKind::Update && issue.answers_to(&one.issue));
            match known {
                Some(at) if patch.is_empty() => drop(waiting.remove(at)),
                Some(at) if waiting[at].patch != patch => {
                    let known = &mut waiting[at];
                    (known.patch, known.base, known.issue) = (patch, base, issue.linear_id);
                    (known.attempts, known.next_at, known.stopped) = (0, None, false);
                }
                Some(_) => {}
                None if patch.is_empty() => {}
                None => {
                    let now = environment.now().seconds();
                    let id = environment.uuid().to_string();
                    let mut operation =
                        Operation::new(id, OperationKind::Update, issue.linear_id, now);
                    (operation.patch, operation.base) = (patch, base);
                    waiting.push(operation);
                }
            }
        }
        Ok(())
    }

    /// Carries out the waiting operations that are due, in the order of each issue.
    async fn drain(
        &self,
        mapping: &Mapping<'_>,
        team: &str,
        creations: bool,
        pushed: &mut Pushed,
    ) -> Result<()> {
        let files = self.project.files();
        let mut held: HashSet<String> = HashSet::new();
        for operation in Outbox::read(files)?.waiting {
            if (operation.kind == OperationKind::Create) != creations {
                continue;
            }
            if !operation.is_due(self.project.environment().now())
                || held.contains(&operation.issue)
            {
                held.insert(operation.issue.clone());
                continue;
            }
            let done = match operation.kind {
                OperationKind::Create => self.create(mapping, team, &operation).await,
                OperationKind::Update => self.update(mapping, team, &operation).await,
                OperationKind::Comment => self.comment(&operation).await,
            };
            let trouble = match done {
                Ok(delivered) => {
                    Outbox::edit(files, |waiting| {
                        waiting.retain(|one| one.op_id != operation.op_id)
                    })?;
                    pushed.delivered.extend(delivered);
                    continue;
                }
                Err(trouble) => trouble,
            };
            held.insert(operation.issue.clone());
            let error = match trouble {
                Trouble::TooEarly => continue,
                Trouble::Project(error) => return Err(error),
                Trouble::Tracker(error) => error,
            };
            // These are about the key or the tracker, not about this operation.
            if matches!(
                error.kind,
                Kind::Auth | Kind::RateLimited | Kind::Unreachable
            ) {
                self.note_attempt(&operation, &error, false)?;
                pushed.stopped = Some(error.message);
                return Ok(());
            }
            self.note_attempt(&operation, &error, true)?;
            pushed.failed.push(Failed {
                op_id: operation.op_id.clone(),
                key: operation.key(),
                error: error.message,
                retried: !error.kind.is_permanent(),
            });
        }
        Ok(())
    }

    fn note_attempt(&self, operation: &Operation, error: &Error, counts: bool) -> Result<()> {
        let now = self.project.environment().now();
        Outbox::edit(self.project.files(), |waiting| {
            let Some(one) = waiting.iter_mut().find(|one| one.op_id == operation.op_id) else {
                return;
            };
            one.attempts += u32::from(counts);
            one.last_error = Some(error.message.clone());
            one.stopped = counts && error.kind.is_permanent();
            if !matches!(error.kind, Kind::Lost | Kind::Server | Kind::Shape) {
                one.sent = false;
            }
            let step = FIRST_WAIT * 2_u32.pow(one.attempts.saturating_sub(1).min(10));
            let wait = error.retry_after.unwrap_or_default();
            let wait = if counts {
                wait.max(jittered(step.min(LONGEST_WAIT), 0.75..=1.25))
            } else {
                wait
            };
            one.next_at = now
                .0
                .checked_add(wait)
                .ok()
                .map(Time)
                .filter(|_| !wait.is_zero())
                .map(Time::seconds);
        })
    }

    async fn create(
        &self,
        mapping: &Mapping<'_>,
        team: &str,
        operation: &Operation,
    ) -> Result<Option<Delivered>, Trouble> {
        let find = || -> Result<Option<Issue>> {
            Ok(self
                .find_issue(&operation.issue)?
                .filter(|issue| issue.stem() == operation.issue))
        };
        // It has a key by now.
        if find()?.is_none() && !operation.sent {
            return Ok(None);
        }
        let id = Uuid::parse_str(&operation.op_id).map_err(|_| {
            Error::new(
                Kind::Shape,
                format!("the operation {:?} has no valid id", operation.op_id),
            )
        })?;
        let fields = values(&operation.patch);
        let mut edit = mapping.creation(&fields)?;
        edit.description = Some(crate::mark::add(
            edit.description.as_deref().unwrap_or_default(),
            id,
        ));
        Outbox::edit(self.project.files(), |waiting| {
            waiting
                .iter_mut()
                .filter(|one| one.op_id == operation.op_id)
                .for_each(|one| one.sent = true);
        })?;
        let remote = self.tracker.create(id, &edit).await?;
        if let Some(issue) = find()? {
            self.take_key(&issue, &remote)?;
        }
        let base = Base::new(remote.id.clone(), remote.key.clone(), fields);
        self.settle_one(mapping, team, &remote, base)?;
        Ok(Some(Delivered {
            kind: OperationKind::Create,
            key: remote.key,
            was: Some(operation.key()),
            fields: operation.patch.keys().copied().collect(),
        }))
    }

    async fn update(
        &self,
        mapping: &Mapping<'_>,
        team: &str,
        operation: &Operation,
    ) -> Result<Option<Delivered>, Trouble> {
        let Some(issue) = self.find_issue(&operation.issue)? else {
            return Ok(None);
        };
        let Some(id) = remote_id(&issue) else {
            return Err(Trouble::TooEarly);
        };
        let remote = self.fetch_one(id, &issue.linear_id).await?;
        // What changed there is taken over first; what is left is ours alone.
        self.settle(
            mapping,
            team,
            std::slice::from_ref(&remote),
            HashMap::new(),
            false,
        )?;
        let Some(issue) = self.find_issue(&remote.key)? else {
            return Ok(None);
        };
        let bases = self.store().bases()?;
        let Some(base) = bases.get(id) else {
            return Ok(None);
        };
        let ours = mapping.ours(&issue);
        let theirs = mapping.theirs(&remote, &[&ours, &base.fields]);
        let merged = merge(&base.fields, &ours, &theirs, &mapping.known_fields(&remote));
        let mut edit = mapping.edit(&merged.fields, &merged.push, &remote)?;
        if merged.push.contains(&Field::Parent) {
            let parent = merged.fields.text(Field::Parent);
            edit.parent = Some(if parent.is_empty() {
                None
            } else {
                Some(self.id_of(parent)?)
            });
        }
        let (wanted, had) = (
            merged.fields.names(Field::BlockedBy),
            theirs.names(Field::BlockedBy),
        );
        let mut relations: Vec<(String, bool)> = Vec::new();
        if merged.push.contains(&Field::BlockedBy) {
            for key in wanted.difference(&had) {
                relations.push((self.id_of(key)?, true));
            }
            let gone = |relation: &&tracker::Relation| {
                had.contains(&relation.key) && !wanted.contains(&relation.key)
            };
            relations.extend(
                remote
                    .relations
                    .iter()
                    .filter(gone)
                    .map(|relation| (relation.blocker.clone(), false)),
            );
        }
        let mut after = remote.clone();
        if !edit.is_empty() {
            after = self.tracker.update(&remote, &edit).await?;
        }
        for (blocker, on) in &relations {
            self.tracker.relate(&remote, blocker, *on).await?;
        }
        if !relations.is_empty() {
            after = self.fetch_one(id, &issue.linear_id).await?;
        }
        // What was sent is what both sides have now.
        let mut fields = base.fields.clone();
        for field in &merged.push {
            fields.set(*field, merged.fields.get(*field).cloned());
        }
        self.settle_one(
            mapping,
            team,
            &after,
            Base::new(after.id.clone(), after.key.clone(), fields),
        )?;
        let fields: Vec<Field> = merged.push.into_iter().collect();
        let delivered = Delivered {
            kind: OperationKind::Update,
            key: after.key,
            was: None,
            fields,
        };
        Ok(Some(delivered).filter(|delivered| !delivered.fields.is_empty()))
    }

    async fn comment(&self, operation: &Operation) -> Result<Option<Delivered>, Trouble> {
        let Some(issue) = self.find_issue(&operation.issue)? else {
            return Ok(None);
        };
        let Some(id) = remote_id(&issue) else {
            return Err(Trouble::TooEarly);
        };
        let comment = Uuid::parse_str(&operation.op_id).map_err(|_| {
            Error::new(
                Kind::Shape,
                format!("the operation {:?} has no valid id", operation.op_id),
            )
        })?;
        self.tracker
            .comment(id, comment, operation.body.as_deref().unwrap_or_default())
            .await?;
        Ok(Some(Delivered {
            kind: OperationKind::Comment,
            key: issue.linear_id.clone(),
            was: None,
            fields: Vec::new(),
        }))
    }

    /// Returns an issue of the project, a closed one too.
    fn find_issue(&self, key: &str) -> Result<Option<Issue>> {
        match self.project.issues().show(key) {
            Ok(shown) => Ok(Some(shown.item.issue)),
            Err(error) if error.category == helmdeck_forge::Category::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn fetch_one(&self, id: &str, key: &str) -> Result<tracker::Issue, Error> {
        let found = self
            .tracker
            .fetch(&[id.to_owned()])
            .await?
            .into_iter()
            .find(|issue| issue.id == id);
        found.ok_or_else(|| {
            let message = format!(
                "{} has no {key} any more, or the key may not see it",
                self.tracker.name()
            );
            Error::new(Kind::NotFound, message)
        })
    }

    /// Returns the id in the tracker of an issue that another one names.
    fn id_of(&self, key: &str) -> Result<String, Trouble> {
        let unknown = || {
            Error::new(
                Kind::Settings,
                format!("{key} is not known here: pull it first"),
            )
        };
        let issue = self.find_issue(key)?.ok_or_else(unknown)?;
        remote_id(&issue)
            .map(str::to_owned)
            .ok_or_else(|| unknown().into())
    }

    /// Merges the answer of the tracker in, with the values that both sides have now.
    fn settle_one(
        &self,
        mapping: &Mapping<'_>,
        team: &str,
        remote: &tracker::Issue,
        base: Base,
    ) -> Result<()> {
        let bases = HashMap::from([(remote.id.clone(), base.clone())]);
        let outcome = self.settle(mapping, team, std::slice::from_ref(remote), bases, false)?;
        if outcome.settled.is_empty() {
            // It is in the history.
            self.store().put_base(&base)?;
        }
        Ok(())
    }
}

fn values(patch: &BTreeMap<Field, Option<Value>>) -> Fields {
    Fields(
        patch
            .iter()
            .filter_map(|(field, value)| Some((*field, value.clone()?)))
            .collect(),
    )
}
