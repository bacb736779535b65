//! Selects the next task: rules in order, the same result for the same inputs.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use crate::issues::{Issue, key_order};
use helmdeck_forge_files::time::Time;

/// What the choice is made from.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// What an abandoned session on this branch was at, if it was not done.
    pub unfinished: Option<&'a Unfinished>,
    /// The first feature that worked once and does not any more.
    pub regressed: Option<&'a Named>,
    /// The issues.
    pub issues: &'a [Issue],
    /// The keys of issues that are done and no longer in `issues`.
    pub done: &'a [String],
    /// The features and issues on which other sessions work.
    pub claimed: &'a BTreeSet<String>,
    /// The agent that chooses.
    pub agent: &'a str,
    /// The next feature of the list of features.
    pub feature: Option<&'a Named>,
}

/// A feature: its id and its name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Named {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
}

/// Work of an abandoned session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unfinished {
    /// The session.
    pub session: String,
    /// The task it worked on.
    pub task: String,
    /// The issue it worked on.
    pub linear_issue: Option<String>,
    /// The feature it worked on.
    pub feature_id: Option<String>,
    /// The files it worked on.
    pub files: Vec<String>,
}

/// Which rule made the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// An abandoned session on this branch was not done.
    Abandoned,
    /// A feature worked once and does not any more.
    Regressed,
    /// An issue is open, and it is mine or unassigned.
    Issue,
    /// The list of features has one to go on with.
    Feature,
    /// There is nothing.
    #[default]
    Nothing,
}

/// What to work on next.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Choice {
    /// Which rule made the choice.
    pub rule: Rule,
    /// Why, for people.
    pub reason: String,
    /// The task; `null` if there is none.
    pub task: Option<String>,
    /// The issue it belongs to.
    pub linear_issue: Option<String>,
    /// The feature it belongs to.
    pub feature_id: Option<String>,
    /// The files it is known to be about.
    pub files: Vec<String>,
}

/// Chooses: what an abandoned session left, a feature that broke, an issue, a feature, nothing.
#[must_use]
pub fn select_next_task(inputs: &Inputs<'_>) -> Choice {
    let claimed = |what: Option<&String>| what.is_some_and(|what| inputs.claimed.contains(what));
    let free = |left: &&Unfinished| {
        !claimed(left.feature_id.as_ref()) && !claimed(left.linear_issue.as_ref())
    };
    if let Some(left) = inputs.unfinished.filter(free) {
        return Choice {
            rule: Rule::Abandoned,
            reason: format!("session {} was abandoned while at it", left.session),
            task: Some(left.task.clone()),
            linear_issue: left.linear_issue.clone(),
            feature_id: left.feature_id.clone(),
            files: left.files.clone(),
        };
    }
    let free = |named: &&Named| !claimed(Some(&named.id));
    if let Some(broken) = inputs.regressed.filter(free) {
        return feature(
            Rule::Regressed,
            format!("{} worked once and does not any more", broken.id),
            broken,
        );
    }
    let open = inputs.issues.iter().filter(|issue| is_free(issue, inputs));
    if let Some(issue) = open.min_by_key(|issue| issue_order(issue)) {
        let owner = if issue.owner().is_some() {
            "mine"
        } else {
            "nobody's"
        };
        return Choice {
            rule: Rule::Issue,
            reason: format!(
                "{} is the first open issue: {owner}, priority {}",
                issue.linear_id,
                issue.priority.unwrap_or(0)
            ),
            task: Some(issue.title.clone()),
            linear_issue: Some(issue.linear_id.clone()),
            ..Choice::default()
        };
    }
    if let Some(next) = inputs.feature.filter(free) {
        return feature(
            Rule::Feature,
            format!("{} is the next feature", next.id),
            next,
        );
    }
    Choice {
        reason: nothing(inputs),
        ..Choice::default()
    }
}

fn feature(rule: Rule, reason: String, named: &Named) -> Choice {
    let (task, feature_id) = (Some(named.name.clone()), Some(named.id.clone()));
    Choice {
        rule,
        reason,
        task,
        feature_id,
        ..Choice::default()
    }
}

/// Says whether an issue can be taken.
///
/// It must be open, mine or unassigned, claimed by no session, and not blocked.
fn is_free(issue: &Issue, inputs: &Inputs<'_>) -> bool {
    let mine = issue
        .owner()
        .is_none_or(|owner| owner.trim().eq_ignore_ascii_case(inputs.agent));
    let free = mine && !inputs.claimed.contains(&issue.linear_id);
    free && !issue.is_over()
        && !issue.state_is(&["blocked", "deferred"])
        && issue.blocked_by.iter().all(|key| is_done(key, inputs))
}

/// Says whether an issue is done.
///
/// An unknown issue is not done: it may be where this program does not look.
fn is_done(key: &str, inputs: &Inputs<'_>) -> bool {
    match inputs.issues.iter().find(|issue| issue.linear_id == key) {
        Some(issue) => issue.is_over(),
        None => inputs.done.iter().any(|done| done == key),
    }
}

/// Orders issues by priority, then by age, then by key.
///
/// Priority 1 to 4 comes before none. The oldest comes first, and issues of unknown age come last.
#[must_use]
pub fn issue_order(issue: &Issue) -> (u8, Reverse<bool>, Option<Time>, (&str, usize, &str)) {
    let priority = issue
        .priority
        .filter(|priority| *priority > 0)
        .unwrap_or(u8::MAX);
    let since = issue.created_at.or(issue.updated_at);
    (
        priority,
        Reverse(since.is_some()),
        since,
        key_order(&issue.linear_id),
    )
}

fn nothing(inputs: &Inputs<'_>) -> String {
    let issues = if inputs.issues.iter().all(Issue::is_over) {
        "no issue is open"
    } else {
        "every open issue is blocked, somebody else's or worked on already"
    };
    format!("{issues}, and no feature is left that can be worked on")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issue(key: &str, change: impl FnOnce(&mut Issue)) -> Issue {
        let mut issue = Issue {
            linear_id: key.to_owned(),
            title: format!("do {key}"),
            ..Issue::default()
        };
        change(&mut issue);
        issue
    }

    fn time(day: u8) -> Option<Time> {
        Some(Time::parse(&format!("2025-12-{day:02}T00:00:00Z")).unwrap())
    }

    const NONE: &BTreeSet<String> = &BTreeSet::new();

    fn inputs() -> Inputs<'static> {
        Inputs {
            unfinished: None,
            regressed: None,
            issues: &[],
            done: &[],
            claimed: NONE,
            agent: "Forge",
            feature: None,
        }
    }

    fn chosen(issues: &[Issue]) -> Option<String> {
        let done = ["OLD-1".to_owned()];
        select_next_task(&Inputs {
            issues,
            done: &done,
            ..inputs()
        })
        .linear_issue
    }

    #[test]
    fn the_rules_come_in_their_order() {
        let left = Unfinished {
            session: "2025-12-24-session-001".to_owned(),
            task: "left".to_owned(),
            linear_issue: Some("SX9-1".to_owned()),
            feature_id: Some("F-009".to_owned()),
            files: vec!["a.rs".to_owned()],
        };
        let broken = Named {
            id: "F-001".to_owned(),
            name: "broken".to_owned(),
        };
        let next = Named {
            id: "F-002".to_owned(),
            name: "next".to_owned(),
        };
        let issues = [issue("A-1", |_| {})];
        let mut inputs = Inputs {
            unfinished: Some(&left),
            regressed: Some(&broken),
            issues: &issues,
            done: &[],
            claimed: NONE,
            agent: "Forge",
            feature: Some(&next),
        };
        let told = |inputs: &Inputs<'_>| {
            let choice = select_next_task(inputs);
            (
                choice.rule,
                choice.task,
                choice.linear_issue,
                choice.feature_id,
                choice.files,
            )
        };
        let text = |text: &str| Some(text.to_owned());
        let files = vec!["a.rs".to_owned()];
        assert_eq!(
            told(&inputs),
            (
                Rule::Abandoned,
                text("left"),
                text("SX9-1"),
                text("F-009"),
                files
            )
        );
        // The work of other sessions is left out under every rule.
        let all = ["SX9-1", "F-001", "A-1", "F-002"].map(str::to_owned);
        for (claimed, rule) in [
            (0, Rule::Abandoned),
            (1, Rule::Regressed),
            (2, Rule::Issue),
            (3, Rule::Feature),
            (4, Rule::Nothing),
        ] {
            let claimed = all[..claimed].iter().cloned().collect();
            assert_eq!(
                select_next_task(&Inputs {
                    claimed: &claimed,
                    ..inputs
                })
                .rule,
                rule
            );
        }
        inputs.unfinished = None;
        assert_eq!(
            told(&inputs),
            (Rule::Regressed, text("broken"), None, text("F-001"), vec![])
        );
        inputs.regressed = None;
        assert_eq!(
            told(&inputs),
            (Rule::Issue, text("do A-1"), text("A-1"), None, vec![])
        );
        inputs.issues = &[];
        assert_eq!(
            told(&inputs),
            (Rule::Feature, text("next"), None, text("F-002"), vec![])
        );
        inputs.feature = None;
        assert_eq!(told(&inputs), (Rule::Nothing, None, None, None, vec![]));
        assert!(
            select_next_task(&inputs)
                .reason
                .starts_with("no issue is open")
        );
    }

    #[test]
    fn only_open_issues_that_are_mine_or_nobodys_are_taken() {
        for (claim, taken, change) in [
            ("nobody's", true, (|_| {}) as fn(&mut Issue)),
            ("mine", true, |issue| {
                issue.assignee = Some("forge".to_owned())
            }),
            ("somebody's", false, |issue| {
                issue.assignee = Some("Axiom".to_owned())
            }),
            ("nobody's by an empty name", true, |issue| {
                issue.assignee = Some(String::new())
            }),
            ("another persona's", false, |issue| {
                issue.agent_state =
                    serde_json::from_str(r#"{"assigned_persona": "Axiom"}"#).unwrap();
            }),
            ("done", false, |issue| issue.state = Some("Done".to_owned())),
            ("cancelled", false, |issue| {
                issue.state = Some("Canceled".to_owned())
            }),
            ("blocked by its state", false, |issue| {
                issue.state = Some("Blocked".to_owned())
            }),
            ("being built", true, |issue| {
                issue.state = Some("Building".to_owned())
            }),
            ("behind one that is done", true, |issue| {
                issue.blocked_by = vec!["OLD-1".to_owned()]
            }),
            ("behind one nobody knows", false, |issue| {
                issue.blocked_by = vec!["NEW-1".to_owned()]
            }),
        ] {
            assert_eq!(chosen(&[issue("A-1", change)]).is_some(), taken, "{claim}");
        }
        let first = issue("A-1", |issue| issue.assignee = Some("Axiom".to_owned()));
        let second = issue("A-2", |issue| issue.blocked_by = vec!["A-1".to_owned()]);
        assert_eq!(
            chosen(&[first.clone(), second.clone()]),
            None,
            "the one in front is open"
        );
        let over = Issue {
            state: Some("Done".to_owned()),
            ..first
        };
        assert_eq!(chosen(&[over, second]), Some("A-2".to_owned()));
    }

    #[test]
    fn issues_come_by_priority_then_age_then_key() {
        let of = |key: &str, priority: u8, day: u8| {
            issue(key, |issue| {
                issue.priority = Some(priority);
                issue.created_at = if day == 0 { None } else { time(day) };
            })
        };
        let mut issues = [
            of("A-1", 0, 1),
            of("A-2", 4, 1),
            of("A-3", 1, 9),
            of("A-10", 1, 2),
            of("A-9", 1, 2),
            of("A-4", 1, 0),
            of("A-5", 3, 1),
        ];
        let expected = ["A-9", "A-10", "A-3", "A-4", "A-5", "A-2", "A-1"];
        for turn in 0..issues.len() {
            issues.rotate_left(turn);
            let mut left = issues.to_vec();
            for key in expected {
                assert_eq!(chosen(&left).as_deref(), Some(key));
                left.retain(|issue| issue.linear_id != key);
            }
        }
    }

    #[test]
    fn nothing_to_do_says_why() {
        let issues = [issue("A-1", |issue| {
            issue.assignee = Some("Axiom".to_owned())
        })];
        let choice = select_next_task(&Inputs {
            issues: &issues,
            ..inputs()
        });
        assert_eq!(choice.rule, Rule::Nothing);
        assert!(
            choice.reason.starts_with("every open issue is blocked"),
            "{}",
            choice.reason
        );
    }
}
