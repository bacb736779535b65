//! States of issues on GitHub: open and closed, and labels for those in progress.

use helmdeck_forge::config::GithubConfig;

use crate::tracker::{State, StateKind};

/// Name of the state that every project has, and its label if the settings name none.
const STARTED: (&str, &str) = ("In Progress", "in progress");

/// A state that is not a label.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain {
    id: &'static str,
    name: &'static str,
    kind: StateKind,
}

pub(super) const OPEN: Plain = Plain {
    id: "open",
    name: "Open",
    kind: StateKind::Open,
};
pub(super) const DONE: Plain = Plain {
    id: "completed",
    name: "Done",
    kind: StateKind::Completed,
};
pub(super) const CANCELLED: Plain = Plain {
    id: "not_planned",
    name: "Cancelled",
    kind: StateKind::Cancelled,
};

impl Plain {
    pub(super) fn state(self) -> State {
        State {
            id: self.id.to_owned(),
            name: self.name.to_owned(),
            kind: self.kind,
        }
    }
}

/// A state of issues in progress, which is a label.
#[derive(Debug, Clone)]
pub(super) struct Started {
    pub(super) id: String,
    name: String,
    pub(super) label: String,
}

impl Started {
    pub(super) fn state(&self) -> State {
        State {
            id: self.id.clone(),
            name: self.name.clone(),
            kind: StateKind::Started,
        }
    }
}

/// Returns the states that are labels: "In Progress", then those of the settings.
pub(super) fn started(settings: &GithubConfig) -> Vec<Started> {
    let label = settings
        .in_progress
        .as_deref()
        .unwrap_or(STARTED.1)
        .to_owned();
    let first = Started {
        id: "started".to_owned(),
        name: STARTED.0.to_owned(),
        label,
    };
    let others = settings.states.iter().map(|(name, label)| Started {
        id: format!("label:{label}"),
        name: name.clone(),
        label: label.clone(),
    });
    std::iter::once(first).chain(others).collect()
}

/// Says whether a label stands for a state.
pub(super) fn is_state(started: &[Started], label: &str) -> bool {
    started
        .iter()
        .any(|one| one.label.eq_ignore_ascii_case(label))
}
