//! Mapping between the words of a project and those of a tracker's team. Ambiguous names are
//! refused.

use std::collections::BTreeSet;

use helmdeck_core::text::one_line;
use helmdeck_forge::config::{LabelMode, LinearConfig};
use helmdeck_forge::issues::{CANCELLED, Checked, Criterion, DONE, IN_PROGRESS, Issue, OPEN};
use helmdeck_forge::secrets;
use helmdeck_forge_documents::tracking::{CheckItem, Field, Fields, Value};

use crate::describe;
use crate::error::{Error, Kind, Result};
use crate::tracker::{self, Directory, Edit, Person, State, StateKind};

/// The types that are synchronised.
pub const TYPES: [&str; 4] = ["feature", "bug", "task", "chore"];
/// All fields without the blockers.
pub(crate) const WITHOUT_BLOCKERS: &[Field] = &[
    Field::Title,
    Field::Description,
    Field::Type,
    Field::State,
    Field::Priority,
    Field::Labels,
    Field::Assignee,
    Field::Parent,
    Field::Criteria,
    Field::Milestone,
];
/// Maximum length of a description, in characters. A tracker may refuse less.
pub const MAX_DESCRIPTION: usize = 250_000;

/// The mapping of one team.
#[derive(Debug, Clone)]
pub struct Mapping<'a> {
    settings: &'a LinearConfig,
    directory: &'a Directory,
    fields: &'static [Field],
    max_description: usize,
}

fn alike(one: &str, other: &str) -> bool {
    one.trim().to_lowercase() == other.trim().to_lowercase()
}

fn settings_error(message: String) -> Error {
    Error::new(Kind::Settings, message)
}

impl<'a> Mapping<'a> {
    /// Makes the mapping of a team. `fields` are those that the tracker has.
    #[must_use]
    pub const fn new(
        settings: &'a LinearConfig,
        directory: &'a Directory,
        fields: &'static [Field],
    ) -> Self {
        Self {
            settings,
            directory,
            fields,
            max_description: MAX_DESCRIPTION,
        }
    }

    /// Returns the mapping for a tracker whose descriptions have at most so many characters.
    #[must_use]
    pub const fn limited(&self, max_description: usize) -> Self {
        Self {
            settings: self.settings,
            directory: self.directory,
            fields: self.fields,
            max_description,
        }
    }

    /// Returns the mapping with fewer fields.
    #[must_use]
    pub const fn only(&self, fields: &'static [Field]) -> Self {
        Self {
            settings: self.settings,
            directory: self.directory,
            fields,
            max_description: self.max_description,
        }
    }

    /// Returns the fields that are kept equal.
    #[must_use]
    pub const fn fields(&self) -> &'static [Field] {
        self.fields
    }

    /// Returns the state of the team for a word of the project.
    ///
    /// # Errors
    /// `Settings` if there is none, or several; the message names the candidates and the setting.
    pub fn state(&self, word: &str) -> Result<&'a State> {
        let states = &self.directory.states;
        let named = |name: &str| {
            states
                .iter()
                .find(|state| alike(&state.name, name) || state.id == name)
        };
        let names = |all: &[&State]| {
            all.iter()
                .map(|state| format!("{:?}", state.name))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let all: Vec<&State> = states.iter().collect();
        if let Some((_, theirs)) = self
            .settings
            .states
            .iter()
            .find(|(ours, _)| alike(ours, word))
        {
            return named(theirs).ok_or_else(|| {
                settings_error(format!(
                    "[linear.states] {word:?} is {theirs:?}, and {} has no such state: it has {}",
                    self.directory.team,
                    names(&all)
                ))
            });
        }
        if let Some(state) = named(word) {
            return Ok(state);
        }
        let kind = kind_of(word);
        let some: Vec<&State> = states
            .iter()
            .filter(|state| Some(state.kind) == kind)
            .collect();
        match some.as_slice() {
            [one] => Ok(one),
            some => {
                let candidates = if some.is_empty() {
                    &all
                } else {
                    &some.to_vec()
                };
                Err(settings_error(format!(
                    "which state of {} is {word:?}? Say it under [linear.states] in .forge/config.toml: {word:?} = one of {}",
                    self.directory.team,
                    names(candidates)
                )))
            }
        }
    }

    /// Returns the word of the project for a state. A word that already means this state is kept.
    fn word(&self, state: &State, near: &[&Fields]) -> String {
        let is = |word: &str| {
            !word.is_empty() && self.state(word).is_ok_and(|found| found.id == state.id)
        };
        if let Some(word) = near
            .iter()
            .map(|fields| fields.text(Field::State))
            .find(|word| is(word))
        {
            return word.to_owned();
        }
        let mapped =
            |(_, theirs): &(&String, &String)| alike(theirs, &state.name) || **theirs == state.id;
        if let Some((ours, _)) = self.settings.states.iter().find(mapped) {
            return ours.clone();
        }
        default_word(state.kind).to_owned()
    }

    /// Returns the label that stands for a type.
    fn label_of_type(&self, kind: &str) -> Option<&'a str> {
        let kind = *TYPES.iter().find(|known| **known == kind)?;
        let name = self.settings.types.get(kind).map_or(kind, String::as_str);
        let known = self
            .directory
            .labels
            .iter()
            .find(|label| alike(&label.name, name))
            .map(|label| label.name.as_str());
        known.or_else(|| (self.settings.labels == LabelMode::Create).then_some(name))
    }

    /// Returns the tracker's spelling of a label; `None` if it stays here.
    fn label(&self, name: &str) -> Option<String> {
        let known = self
            .directory
            .labels
            .iter()
            .find(|label| alike(&label.name, name));
        match known {
            Some(label) => Some(label.name.clone()),
            None => (self.settings.labels == LabelMode::Create).then(|| name.trim().to_owned()),
        }
    }

    fn known_milestone(&self, name: &str) -> Option<&'a str> {
        let known = self
            .directory
            .milestones
            .iter()
            .find(|one| alike(&one.name, name));
        known.map(|one| one.name.as_str())
    }

    /// Returns the tracker's spelling of a milestone.
    fn milestone(&self, name: &str) -> Result<String> {
        if let Some(known) = self.known_milestone(name) {
            return Ok(known.to_owned());
        }
        if self.settings.labels == LabelMode::Create {
            return Ok(name.trim().to_owned());
        }
        let some: Vec<_> = self
            .directory
            .milestones
            .iter()
            .take(10)
            .map(|one| format!("{:?}", one.name))
            .collect();
        let team = &self.directory.team;
        Err(settings_error(format!(
            "{team} has no milestone {name:?}, only {}: create it there, or set labels = \"create\" under [linear]",
            if some.is_empty() {
                "none".to_owned()
            } else {
                some.join(", ")
            }
        )))
    }

    fn person(&self, name: &str) -> Option<&'a Person> {
        let mapped = self
            .settings
            .users
            .iter()
            .find(|(ours, _)| alike(ours, name))
            .map_or(name, |(_, theirs)| theirs);
        let mut found = self
            .directory
            .people
            .iter()
            .filter(|person| person.is(mapped));
        found.next().filter(|_| found.next().is_none())
    }

    /// Returns the name of the project for a person.
    pub(crate) fn name_of(&self, person: &Person) -> String {
        let mapped = self
            .settings
            .users
            .iter()
            .find(|(_, theirs)| person.is(theirs));
        mapped.map_or_else(|| person.name.clone(), |(ours, _)| ours.clone())
    }

    /// Returns the fields of an issue of the project.
    #[must_use]
    pub fn ours(&self, issue: &Issue) -> Fields {
        let mut fields = Fields::default();
        let text = |text: &str| Some(Value::Text(text.to_owned()));
        let parts = describe::split(issue.description.as_deref().unwrap_or_default());
        fields.set(Field::Title, text(&issue.title));
        fields.set(Field::Description, text(&parts.text));
        fields.set(
            Field::Type,
            issue
                .kind
                .as_deref()
                .filter(|kind| self.label_of_type(kind).is_some())
                .and_then(text),
        );
        fields.set(Field::State, text(issue.state.as_deref().unwrap_or(OPEN)));
        fields.set(Field::Priority, issue.priority.map(Value::Number));
        let labels: BTreeSet<String> = issue
            .labels
            .iter()
            .filter_map(|name| self.label(name))
            .collect();
        fields.set(Field::Labels, Some(Value::Set(labels)));
        let assignee = issue
            .assignee
            .as_deref()
            .filter(|name| !name.trim().is_empty());
        let known = |name: &str| {
            self.person(name)
                .map_or_else(|| name.to_owned(), |person| self.name_of(person))
        };
        fields.set(
            Field::Assignee,
            assignee.map(|name| Value::Text(known(name))),
        );
        let milestone = issue
            .milestone
            .as_deref()
            .filter(|name| !name.trim().is_empty());
        let spelled = |name: &str| self.known_milestone(name).unwrap_or(name).trim().to_owned();
        fields.set(
            Field::Milestone,
            milestone.map(|name| Value::Text(spelled(name))),
        );
        // What no tracker has cannot be named there.
        let is_shared = |key: &&str| !is_local(key);
        fields.set(
            Field::Parent,
            issue.parent().filter(is_shared).and_then(text),
        );
        let blockers = issue
            .blocked_by
            .iter()
            .filter(|key| !is_local(key))
            .cloned()
            .collect();
        fields.set(Field::BlockedBy, Some(Value::Set(blockers)));
        let mut criteria: Vec<CheckItem> = Vec::new();
        let listed = issue
            .acceptance_criteria
            .iter()
            .map(|one| (one_line(one.text()).trim().to_owned(), one.is_done()));
        for (text, done) in listed.chain(parts.criteria.into_iter().map(|one| (one.text, one.done)))
        {
            if !text.is_empty() && !criteria.iter().any(|known| known.text == text) {
                criteria.push(CheckItem { text, done });
            }
        }
        fields.set(Field::Criteria, Some(Value::Criteria(criteria)));
        fields.0.retain(|field, _| self.fields.contains(field));
        fields
    }

    /// Returns the fields of an issue of the tracker, in the words of the project.
    ///
    /// `near` are fields whose word for the state is kept if it means the same state. What looks
    /// like a credential is replaced by a note.
    #[must_use]
    pub fn theirs(&self, issue: &tracker::Issue, near: &[&Fields]) -> Fields {
        let mut fields = Fields::default();
        let text = |text: &str| Some(Value::Text(text.to_owned()));
        let parts = describe::split(&issue.description);
        fields.set(Field::Title, text(&clean(one_line(&issue.title).trim())));
        fields.set(Field::Description, text(&clean(&parts.text)));
        fields.set(Field::State, text(&self.word(&issue.state, near)));
        fields.set(
            Field::Priority,
            issue
                .priority
                .map(|priority| Value::Number(priority.min(4))),
        );
        let mut labels: BTreeSet<String> = issue
            .labels
            .iter()
            .flatten()
            .map(|name| clean(&one_line(name)))
            .collect();
        let of_type = |kind: &&&str| {
            self.label_of_type(kind)
                .is_some_and(|label| labels.iter().any(|one| alike(one, label)))
        };
        if let Some(kind) = TYPES.iter().find(of_type) {
            fields.set(Field::Type, text(kind));
            labels.retain(|one| {
                !TYPES.iter().any(|kind| {
                    self.label_of_type(kind)
                        .is_some_and(|label| alike(one, label))
                })
            });
        }
        fields.set(Field::Labels, Some(Value::Set(labels)));
        fields.set(
            Field::Assignee,
            issue
                .assignee
                .as_ref()
                .map(|person| Value::Text(clean(&one_line(&self.name_of(person))))),
        );
        fields.set(Field::Parent, issue.parent.as_deref().and_then(text));
        let milestone = issue
            .milestone
            .as_deref()
            .map(|name| clean(&one_line(name)));
        fields.set(Field::Milestone, milestone.map(Value::Text));
        fields.set(
            Field::BlockedBy,
            issue
                .blocked_by
                .as_ref()
                .map(|keys| Value::Set(keys.iter().cloned().collect())),
        );
        let criteria = parts.criteria.into_iter().map(|one| CheckItem {
            text: clean(&one.text),
            ..one
        });
        fields.set(Field::Criteria, Some(Value::Criteria(criteria.collect())));
        fields.0.retain(|field, _| self.fields.contains(field));
        fields
    }

    /// Returns the fields of an issue that were read as a whole.
    #[must_use]
    pub fn known_fields(&self, issue: &tracker::Issue) -> Vec<Field> {
        let is_known = |field: &Field| match field {
            Field::Labels | Field::Type => issue.labels.is_some(),
            Field::BlockedBy => issue.blocked_by.is_some(),
            Field::Priority => issue.priority.is_some(),
            _ => true,
        };
        self.fields.iter().copied().filter(is_known).collect()
    }

    /// Writes fields into an issue of the project. What only the project has stays.
    pub fn write(&self, issue: &mut Issue, fields: &Fields) {
        let now = self.ours(issue);
        for field in self
            .fields
            .iter()
            .copied()
            .filter(|field| now.get(*field) != fields.get(*field))
        {
            match field {
                Field::Labels => {
                    let wanted = fields.names(field);
                    issue
                        .labels
                        .retain(|name| self.label(name).is_none_or(|name| wanted.contains(&name)));
                    let had: BTreeSet<String> = issue
                        .labels
                        .iter()
                        .filter_map(|name| self.label(name))
                        .collect();
                    issue
                        .labels
                        .extend(wanted.into_iter().filter(|name| !had.contains(name)));
                }
                Field::BlockedBy => {
                    let wanted = fields.names(field);
                    issue
                        .blocked_by
                        .retain(|key| is_local(key) || wanted.contains(key));
                    let new: Vec<_> = wanted
                        .into_iter()
                        .filter(|key| !issue.blocked_by.contains(key))
                        .collect();
                    issue.blocked_by.extend(new);
                }
                Field::Criteria => {
                    let old = std::mem::take(&mut issue.acceptance_criteria);
                    issue.acceptance_criteria = fields
                        .criteria()
                        .iter()
                        .map(|item| criterion(item, &old))
                        .collect();
                    if let Some(text) = &issue.description {
                        // The list is a field of its own now.
                        issue.description =
                            Some(describe::split(text).text).filter(|text| !text.is_empty());
                    }
                }
                _ => write_plain(issue, field, fields.get(field)),
            }
        }
    }

    /// Says whether two words for a state mean the same state.
    #[must_use]
    pub fn is_same_state(&self, one: &str, other: &str) -> bool {
        one == other
            || matches!((self.state(one), self.state(other)), (Ok(one), Ok(other)) if one.id == other.id)
    }

    /// Returns the changes of a new issue.
    ///
    /// # Errors
    /// `Settings` for names without a counterpart; `TooLarge` for a description that the tracker
    /// refuses.
    pub fn creation(&self, fields: &Fields) -> Result<Edit> {
        let mut edit = self.edit(
            fields,
            &fields.0.keys().copied().collect(),
            &tracker::Issue::default(),
        );
        if alike(fields.text(Field::State), OPEN) && self.state(OPEN).is_err() {
            // The team's own first state will do.
            let mut rest = fields.clone();
            rest.set(Field::State, None);
            edit = self.edit(
                &rest,
                &rest.0.keys().copied().collect(),
                &tracker::Issue::default(),
            );
        }
        edit
    }

    /// Returns the changes that give an issue of the tracker these fields.
    ///
    /// Parent and blockers are not part of it: they need the ids of other issues.
    ///
    /// # Errors
    /// As [`Self::creation`].
    pub fn edit(
        &self,
        fields: &Fields,
        push: &BTreeSet<Field>,
        now: &tracker::Issue,
    ) -> Result<Edit> {
        let mut edit = Edit::default();
        let is = |field: Field| push.contains(&field);
        if is(Field::Title) {
            edit.title = Some(fields.text(Field::Title).to_owned());
        }
        if is(Field::Description) || is(Field::Criteria) {
            let text = is(Field::Description).then(|| fields.text(Field::Description));
            let criteria = is(Field::Criteria).then(|| fields.criteria());
            let description = describe::put(&now.description, text, criteria);
            let length = description.chars().count();
            let most = self.max_description;
            if length > most {
                let message =
                    format!("the description has {length} characters; {most} are the most");
                return Err(Error::new(Kind::TooLarge, message));
            }
            edit.description = Some(description);
        }
        if is(Field::Milestone) {
            let name = fields.text(Field::Milestone);
            edit.milestone = Some(if name.is_empty() {
                None
            } else {
                Some(self.milestone(name)?)
            });
        }
        if is(Field::State) {
            edit.state = Some(self.state(fields.text(Field::State))?.id.clone());
        }
        if is(Field::Priority) {
            edit.priority = Some(match fields.get(Field::Priority) {
                Some(Value::Number(number)) => *number,
                _ => 0,
            });
        }
        let old: BTreeSet<&String> = now.labels.iter().flatten().collect();
        if is(Field::Labels) {
            let wanted = fields.names(Field::Labels);
            let of_type = |name: &str| {
                TYPES
                    .iter()
                    .any(|kind| self.label_of_type(kind).is_some_and(|one| alike(one, name)))
            };
            edit.labels_added
                .extend(wanted.iter().filter(|name| !old.contains(name)).cloned());
            let gone = old
                .iter()
                .filter(|name| !wanted.contains(**name) && !of_type(name));
            edit.labels_removed.extend(gone.map(|name| (*name).clone()));
        }
        if is(Field::Type) {
            let wanted = self.label_of_type(fields.text(Field::Type));
            let others = TYPES
                .iter()
                .filter_map(|kind| self.label_of_type(kind))
                .filter(|label| Some(*label) != wanted);
            edit.labels_removed.extend(
                others
                    .filter(|label| old.iter().any(|one| alike(one, label)))
                    .map(str::to_owned),
            );
            let new = wanted.filter(|label| !old.iter().any(|one| alike(one, label)));
            edit.labels_added.extend(new.map(str::to_owned));
        }
        if is(Field::Assignee) {
            let name = fields.text(Field::Assignee);
            edit.assignee = Some(if name.is_empty() {
                None
            } else {
                let known = self.person(name).ok_or_else(|| {
                    let some: Vec<_> = self.directory.people.iter().take(10).map(|one| format!("{:?}", one.name)).collect();
                    settings_error(format!(
                        "who is {name:?} in {}? Say it under [linear.users] in .forge/config.toml: {name:?} = the name or \
                         e-mail address of one of {}",
                        self.directory.team,
                        some.join(", ")
                    ))
                })?;
                Some(known.id.clone())
            });
        }
        Ok(edit)
    }
}

/// Writes a field that is one text, name, key or number.
pub(crate) fn write_plain(issue: &mut Issue, field: Field, value: Option<&Value>) {
    let text = match value {
        Some(Value::Text(text)) if !text.is_empty() => Some(text.clone()),
        _ => None,
    };
    match field {
        Field::Title => issue.title = text.unwrap_or_default(),
        Field::Description => issue.description = text,
        Field::Type => issue.kind = text,
        Field::State => issue.state = text,
        Field::Assignee => issue.assignee = text,
        Field::Milestone => issue.milestone = text,
        Field::Parent => {
            issue
                .memory_trace
                .get_or_insert_with(Default::default)
                .parent_issue = text
        }
        Field::Priority => {
            issue.priority = match value {
                Some(Value::Number(number)) => Some(*number),
                _ => None,
            };
        }
        Field::Labels | Field::BlockedBy | Field::Criteria => {}
    }
}

fn kind_of(word: &str) -> Option<StateKind> {
    let is = |words: &[&str]| words.iter().any(|one| alike(one, word));
    if is(&[OPEN, "todo", "backlog"]) {
        Some(StateKind::Open)
    } else if is(&[IN_PROGRESS, "started"]) {
        Some(StateKind::Started)
    } else if is(&[DONE, "completed"]) {
        Some(StateKind::Completed)
    } else if is(&[CANCELLED, "canceled", "duplicate"]) {
        Some(StateKind::Cancelled)
    } else {
        None
    }
}

const fn default_word(kind: StateKind) -> &'static str {
    match kind {
        StateKind::Open => OPEN,
        StateKind::Started => IN_PROGRESS,
        StateKind::Completed => DONE,
        StateKind::Cancelled => CANCELLED,
    }
}

pub(crate) fn is_local(key: &str) -> bool {
    key.starts_with(helmdeck_forge::issues::LOCAL)
        && key[helmdeck_forge::issues::LOCAL.len()..].starts_with('-')
}

pub(crate) fn criterion(item: &CheckItem, old: &[Criterion]) -> Criterion {
    match old
        .iter()
        .find(|one| one_line(one.text()).trim() == item.text)
    {
        Some(known) if known.is_done() == item.done => known.clone(),
        Some(Criterion::Checked(known)) => Criterion::Checked(Checked {
            done: item.done,
            ..known.clone()
        }),
        Some(Criterion::Text(text)) => Criterion::Checked(Checked {
            text: text.clone(),
            done: item.done,
            ..Checked::default()
        }),
        None if item.done => Criterion::Checked(Checked {
            text: item.text.clone(),
            done: true,
            ..Checked::default()
        }),
        None => Criterion::Text(item.text.clone()),
    }
}

/// Returns a text of the tracker, or a note if it looks like a credential or is too long.
pub(crate) fn clean(text: &str) -> String {
    let text = helmdeck_core::text::visible(text).into_owned();
    if text.chars().count() > MAX_DESCRIPTION {
        return format!("[not taken over: the text has more than {MAX_DESCRIPTION} characters]");
    }
    // As it stands in a file, a text may look like a credential even if it does not here.
    let printed = serde_json::to_string(&text).unwrap_or_default();
    match secrets::scan(&text)
        .first()
        .or(secrets::scan(&printed).first())
    {
        None => text,
        Some(finding) => format!(
            "[not taken over: it looks like a credential, rule {}]",
            finding.rule
        ),
    }
}

#[cfg(test)]
mod tests;
