//! The tracker of the team: a stand-in for Linear or GitHub, and what people do in it.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::{Clock, ManualClock, Secret};
use helmdeck_egress::Egress;
use helmdeck_forge::config::Config;
use helmdeck_testkit::github_issues::GitHubIssues;
use helmdeck_testkit::linear::{Fault, Linear as LinearMock};
use helmdeck_trackers::github::GitHub;
use helmdeck_trackers::linear::Linear;
use helmdeck_trackers::{Connection, Tracker};

use super::Random;

const HEADING: &str = "## Acceptance criteria";
const MARK: &str = "<!-- helmdeck:";

/// An issue as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) key: String,
    pub(super) title: String,
    pub(super) text: String,
    pub(super) over: bool,
    /// `None` where the tracker has none.
    pub(super) priority: Option<u8>,
    pub(super) labels: BTreeSet<String>,
    pub(super) criteria: BTreeSet<String>,
}

/// The tracker.
pub(super) enum Board {
    Linear(LinearMock),
    Hub(GitHubIssues),
}

impl Board {
    /// Returns the settings of a project whose issues are here.
    pub(super) const fn settings(&self) -> &'static str {
        match self {
            Self::Linear(_) => {
                "[linear]\nmode = \"live\"\nteam = \"SX9\"\n[linear.states]\n\"Open\" = \"Todo\"\n\
                 \"In Progress\" = \"In Progress\"\n[tracker]\nuse = \"board\"\n"
            }
            Self::Hub(_) => {
                "[linear]\nmode = \"live\"\n[tracker]\nkind = \"github\"\nuse = \"board\"\n[github]\n\
                 repository = \"acme/app\"\n"
            }
        }
    }

    /// Returns the settings of a user of it.
    pub(super) fn users_settings(&self) -> String {
        let url = match self {
            Self::Linear(mock) => mock.url(),
            Self::Hub(mock) => mock.url(),
        };
        format!("[forge.trackers]\nboard = {{ endpoint = \"{url}\" }}\n")
    }

    /// Gives a program the key.
    pub(super) fn log_in(&self, command: &mut Command) {
        match self {
            Self::Linear(mock) => command.env("LINEAR_API_KEY", mock.key()),
            Self::Hub(_) => command.env("GITHUB_TOKEN", "token-1"),
        };
    }

    /// Returns a client with the clock of a clone, and little patience.
    pub(super) fn client(&self, config: &Config, clock: &Arc<ManualClock>) -> Box<dyn Tracker> {
        let (url, key) = match self {
            Self::Linear(mock) => (mock.url(), mock.key().to_owned()),
            Self::Hub(mock) => (mock.url(), "token-1".to_owned()),
        };
        let time: Arc<dyn Clock> = clock.clone();
        let egress = Egress::new(helmdeck_egress::Config::default());
        let mut connection = Connection::new(egress, url.parse().unwrap(), Secret::new(key), time);
        connection.retry_wait = Duration::from_millis(1);
        connection.patience = Duration::from_millis(200);
        match self {
            Self::Linear(_) => Box::new(Linear::new(connection, "SX9", false).unwrap()),
            Self::Hub(_) => Box::new(GitHub::new(connection, &config.github, true).unwrap()),
        }
    }

    /// Makes the next requests fail.
    pub(super) fn disturb(&self, random: &mut Random) {
        let skip = random.below(6);
        match self {
            Self::Linear(mock) => {
                let http = |status| Fault::Http(status, Vec::new(), String::new());
                let fault = match random.below(5) {
                    0 => http(429),
                    1 => http(500),
                    2 => Fault::CutBefore,
                    3 => Fault::CutAfter,
                    _ => Fault::Code("RATELIMITED".into()),
                };
                (0..=random.below(5)).for_each(|_| mock.fail("", skip, fault.clone()));
            }
            Self::Hub(mock) => mock.with(|store| store.cut_next_post = true),
        }
    }

    /// Ends all disturbances.
    pub(super) fn calm(&self) {
        match self {
            Self::Linear(mock) => mock.forget_faults(),
            Self::Hub(mock) => mock.with(|store| store.cut_next_post = false),
        }
    }

    /// Adds an issue, as a person does.
    pub(super) fn add(&self, title: &str) {
        match self {
            Self::Linear(mock) => drop(mock.with(|store| store.add(title))),
            Self::Hub(mock) => drop(mock.with(|store| store.add(title))),
        }
    }

    /// Changes the title of an issue.
    pub(super) fn set_title(&self, key: &str, title: &str) {
        match self {
            Self::Linear(mock) => {
                mock.with(|store| store.edit(key, |issue| title.clone_into(&mut issue.title)))
            }
            Self::Hub(mock) => mock
                .with(|store| store.edit(number(key), |issue| title.clone_into(&mut issue.title))),
        }
    }

    /// Changes the description of an issue.
    pub(super) fn set_description(&self, key: &str, change: impl FnOnce(&str) -> String) {
        match self {
            Self::Linear(mock) => {
                mock.with(|store| {
                    store.edit(key, |issue| issue.description = change(&issue.description))
                });
            }
            Self::Hub(mock) => {
                mock.with(|store| store.edit(number(key), |issue| issue.body = change(&issue.body)))
            }
        }
    }

    /// Starts an issue, closes it or opens it again.
    pub(super) fn set_state(&self, key: &str, random: &mut Random) {
        let pick = random.below(4);
        match self {
            Self::Linear(mock) => mock.with(|store| {
                let state = ["Todo", "In Progress", "In Review", "Done"][pick];
                store.edit(key, |issue| state.clone_into(&mut issue.state));
            }),
            Self::Hub(mock) => mock.with(|store| {
                store.edit(number(key), |issue| {
                    issue.closed = pick == 3;
                    issue.reason = issue.closed.then(|| "completed".to_owned());
                    let has = issue.labels.remove("in progress");
                    if pick == 1 && !has {
                        issue.labels.insert("in progress".to_owned());
                    }
                });
            }),
        }
    }

    /// Adds the label `ui`, or takes it away.
    pub(super) fn toggle_label(&self, key: &str) {
        let toggle = |labels: &mut BTreeSet<String>| {
            if !labels.remove("ui") {
                labels.insert("ui".to_owned());
            }
        };
        match self {
            Self::Linear(mock) => {
                mock.with(|store| store.edit(key, |issue| toggle(&mut issue.labels)))
            }
            Self::Hub(mock) => {
                mock.with(|store| store.edit(number(key), |issue| toggle(&mut issue.labels)))
            }
        }
    }

    /// Returns all issues.
    pub(super) fn cards(&self) -> Vec<Card> {
        let of_team = |name: &String| {
            ![
                "Feature",
                "Bug",
                "Task",
                "Chore",
                "feature",
                "bug",
                "in progress",
            ]
            .contains(&&**name)
        };
        match self {
            Self::Linear(mock) => mock.with(|store| {
                let card = |issue: &helmdeck_testkit::linear::MockIssue| Card {
                    key: issue.key.clone(),
                    title: issue.title.clone(),
                    text: text_of(&issue.description),
                    over: issue.state == "Done" || issue.state == "Canceled",
                    priority: Some(issue.priority),
                    labels: issue
                        .labels
                        .iter()
                        .filter(|name| of_team(name))
                        .cloned()
                        .collect(),
                    criteria: criteria_of(&issue.description),
                };
                store.issues.iter().map(card).collect()
            }),
            Self::Hub(mock) => mock.with(|store| {
                let card = |issue: &helmdeck_testkit::github_issues::HubIssue| Card {
                    key: format!("GH-{}", issue.number),
                    title: issue.title.clone(),
                    text: text_of(&issue.body),
                    over: issue.closed,
                    priority: None,
                    labels: issue
                        .labels
                        .iter()
                        .filter(|name| of_team(name))
                        .cloned()
                        .collect(),
                    criteria: criteria_of(&issue.body),
                };
                store.issues.iter().map(card).collect()
            }),
        }
    }

    /// Returns the texts of all comments.
    pub(super) fn comments(&self) -> Vec<String> {
        match self {
            Self::Linear(mock) => mock.with(|store| {
                store
                    .comments
                    .iter()
                    .map(|comment| comment.body.clone())
                    .collect()
            }),
            Self::Hub(mock) => mock.with(|store| {
                store
                    .issues
                    .iter()
                    .flat_map(|issue| issue.comments.iter().map(|one| one.body.clone()))
                    .collect()
            }),
        }
    }

    /// Returns requests that the tracker does not know.
    pub(super) fn violations(&self) -> Vec<String> {
        match self {
            Self::Linear(mock) => mock.violations(),
            Self::Hub(mock) => mock.with(|store| store.unknown.clone()),
        }
    }
}

fn number(key: &str) -> u64 {
    key.strip_prefix("GH-").unwrap().parse().unwrap()
}

/// Returns a description without the list of criteria and the mark.
fn text_of(description: &str) -> String {
    let body = description.split(MARK).next().unwrap_or_default();
    body.split(HEADING)
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn criteria_of(description: &str) -> BTreeSet<String> {
    let list = description.split(HEADING).nth(1).unwrap_or_default();
    list.lines()
        .filter_map(|line| line.trim().strip_prefix("- [")?.split_once("] "))
        .map(|(_, text)| text.to_owned())
        .collect()
}

/// Returns a description with another text.
pub(super) fn with_text(description: &str, text: &str) -> String {
    let old = text_of(description);
    match description.find(&old) {
        Some(at) if !old.is_empty() => format!(
            "{}{text}{}",
            &description[..at],
            &description[at + old.len()..]
        ),
        _ => format!("{text}\n\n{}", description.trim_start())
            .trim_end()
            .to_owned(),
    }
}

/// Returns a description with a criterion more.
pub(super) fn with_criterion(description: &str, text: &str) -> String {
    let (body, mark) = description.split_at(description.find(MARK).unwrap_or(description.len()));
    let heading = if body.contains(HEADING) {
        String::new()
    } else {
        format!("\n\n{HEADING}\n")
    };
    format!("{}{heading}\n- [ ] {text}\n\n{mark}", body.trim_end())
}
