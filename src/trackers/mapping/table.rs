//! The mapping of a team as a table, for people.

use std::collections::BTreeSet;

use helmdeck_forge::issues::{CANCELLED, DONE, IN_PROGRESS, OPEN};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Mapping, TYPES, settings_error};
use crate::error::Result;

/// The mapping, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MappingTable {
    /// The team.
    pub team: String,
    /// States: ours, theirs, and what is wrong.
    pub states: Vec<MappedName>,
    /// Types.
    pub types: Vec<MappedName>,
    /// People.
    pub users: Vec<MappedName>,
    /// The team's states that no word of the project stands for, with the word that they are shown as.
    pub other_states: Vec<MappedName>,
}

/// A pair of names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MappedName {
    /// Our name.
    pub ours: String,
    /// Their name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theirs: Option<String>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl MappedName {
    fn of(ours: &str, theirs: Result<&str>) -> Self {
        let (theirs, problem) = match theirs {
            Ok(theirs) => (Some(theirs.to_owned()), None),
            Err(error) => (None, Some(error.message)),
        };
        Self { ours: ours.to_owned(), theirs, problem }
    }
}

impl Mapping<'_> {
    /// Returns the mapping for people.
    #[must_use]
    pub fn table(&self) -> MappingTable {
        let words: BTreeSet<&str> = [OPEN, IN_PROGRESS, DONE, CANCELLED]
            .into_iter()
            .chain(self.settings.states.keys().map(String::as_str))
            .collect();
        let states: Vec<MappedName> =
            words.iter().map(|word| MappedName::of(word, self.state(word).map(|state| state.name.as_str()))).collect();
        let missing = |kind: &str| {
            let name = self.settings.types.get(kind).map_or(kind, String::as_str);
            settings_error(format!("{} has no label {name:?}: the type {kind} stays here", self.directory.team))
        };
        let types =
            TYPES.iter().map(|kind| MappedName::of(kind, self.label_of_type(kind).ok_or_else(|| missing(kind))));
        let users = self.settings.users.iter().map(|(ours, theirs)| {
            let nobody =
                || settings_error(format!("{} has no person, or several, that are {theirs:?}", self.directory.team));
            MappedName::of(ours, self.person(ours).map(|person| person.name.as_str()).ok_or_else(nobody))
        });
        let other = self
            .directory
            .states
            .iter()
            .filter(|state| !states.iter().any(|mapped| mapped.theirs.as_ref() == Some(&state.name)));
        let other_states = other.map(|state| MappedName::of(&self.word(state, &[]), Ok(&state.name))).collect();
        MappingTable {
            team: self.directory.team.clone(),
            types: types.collect(),
            users: users.collect(),
            other_states,
            states,
        }
    }
}
