//! Take over the issues of beads: `.beads/issues.jsonl`.
//!
//! What has no place in an issue here stays as it was written, in the member `beads`: nothing is
//! lost.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::history::{self, Record, Work};
use super::names::Numbers;
use super::store::Source;
use super::{
    Active, CANCELLED, Checked, Comment, Criterion, DONE, IN_PROGRESS, Issue, Issues, MemoryTrace,
    OPEN, graph, is_comment_id,
};
use crate::error::Result;
use crate::json::{Json, Members};
use crate::time::Time;

/// Member that keeps what beads wrote.
const KEPT: &str = "beads";
/// What `created_from` of an adopted issue begins with.
const FROM: &str = "beads:";

/// Issues that were taken over.
#[derive(Debug, Default)]
pub(crate) struct Adopted {
    /// Their keys.
    pub(crate) keys: Vec<String>,
    /// What was skipped, and why.
    pub(crate) skipped: Vec<String>,
    /// What beads was told to remember: the line, from 1, and the text.
    pub(crate) memories: Vec<(usize, String)>,
}

/// A line that is no issue. A line without a type is one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Other {
    #[serde(rename = "_type")]
    kind: Option<String>,
    key: String,
    value: Json,
}

/// The members that are read. All of them, and every other, are kept.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Bead {
    id: String,
    title: String,
    description: Option<String>,
    acceptance_criteria: Option<String>,
    status: Option<String>,
    priority: Option<u8>,
    issue_type: Option<String>,
    assignee: Option<String>,
    created_at: Option<Time>,
    updated_at: Option<Time>,
    closed_at: Option<Time>,
    close_reason: Option<String>,
    labels: Option<Vec<String>>,
    dependencies: Option<Vec<Dependency>>,
    comments: Option<Vec<Remark>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Dependency {
    issue_id: String,
    depends_on_id: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Deserialize)]
struct Remark {
    #[serde(default)]
    author: Option<String>,
    text: String,
    #[serde(default)]
    created_at: Option<Time>,
    #[serde(flatten)]
    other: Members,
}

/// An issue to take over, and what it depends on.
struct New {
    issue: Issue,
    bead: Bead,
    line: usize,
}

impl Issues<'_> {
    /// Takes over the issues in the text of a file of beads. Those that were taken over before are
    /// left out.
    ///
    /// # Errors
    /// Errors from reading and writing.
    pub(crate) fn adopt(&self, path: &str, text: &str) -> Result<Adopted> {
        let project = self.project;
        let mut adopted = Adopted::default();
        let mut new = Vec::new();
        for (line, text) in (1..)
            .zip(text.lines())
            .filter(|(_, text)| !text.trim().is_empty())
        {
            let other: Other = serde_json::from_str(text).unwrap_or_default();
            match other.kind.as_deref() {
                None | Some("issue") => {}
                Some("memory") => {
                    let value = match other.value {
                        Json::String(text) => text,
                        value => serde_json::to_string(&value).unwrap_or_default(),
                    };
                    let text = format!("{}: {value}", other.key);
                    adopted
                        .memories
                        .push((line, helmdeck_core::text::collapse_whitespace(&text)));
                    continue;
                }
                // A header, or what a later version writes.
                Some(kind) => {
                    adopted.skipped.push(format!(
                        "{path}:{line}: a line of the type {kind:?} is no issue"
                    ));
                    continue;
                }
            }
            match read(text) {
                Ok((bead, _)) if bead.status.as_deref() == Some("tombstone") => {
                    adopted
                        .skipped
                        .push(format!("{path}:{line}: {} was deleted", bead.id));
                }
                Ok((bead, members)) => new.push(New {
                    issue: issue_of(&bead, members),
                    bead,
                    line,
                }),
                Err(why) => adopted.skipped.push(format!("{path}:{line}: {why}")),
            }
        }
        let closed = history::all(project.files())?;
        let here = self.read()?.issues;
        let known: Vec<&str> = here
            .iter()
            .chain(closed.iter().map(|record| &record.issue))
            .filter_map(bead_of)
            .collect();
        new.retain(|new| !known.contains(&new.bead.id.as_str()));
        if new.is_empty() {
            // Nothing is locked or written.
            return Ok(adopted);
        }
        let mut records = Vec::new();
        let _common = project.common_lock()?;
        let mut numbers = Numbers::read(project);
        self.change(Source::Local, |active, names| {
            let mut keys: BTreeMap<String, String> = BTreeMap::new();
            for issue in active
                .issues
                .iter()
                .chain(closed.iter().map(|record| &record.issue))
            {
                keys.extend(bead_of(issue).map(|id| (id.to_owned(), issue.linear_id.clone())));
            }
            new.retain(|new| !keys.contains_key(&new.bead.id));
            for New { issue, bead, line } in &mut new {
                let text = crate::json::print(issue).unwrap_or_default();
                if project.files().refuse_secrets(path, &text).is_err() {
                    adopted
                        .skipped
                        .push(format!("{path}:{line}: it holds what looks like a secret"));
                    continue;
                }
                numbers.give(project, names, issue);
                keys.insert(bead.id.clone(), issue.linear_id.clone());
            }
            new.retain(|new| !new.issue.linear_id.is_empty());
            for New {
                mut issue,
                bead,
                line,
            } in std::mem::take(&mut new)
            {
                link(&mut issue, &bead, &keys);
                adopted.keys.push(issue.linear_id.clone());
                if issue.is_over() {
                    records.push((issue, bead));
                    continue;
                }
                add(active, issue, || {
                    adopted
                        .skipped
                        .push(format!("{path}:{line}: its blockers wait for it"))
                });
            }
            for (issue, bead) in records {
                let record = Record {
                    closed_at: bead.closed_at.or(issue.updated_at),
                    issue,
                    ..Record::default()
                };
                let work = Work {
                    why: bead.close_reason.into_iter().collect(),
                    ..Work::default()
                };
                let text = history::print(&record, &work)?;
                project
                    .files()
                    .write(&history::path(record.issue.stem()), text.as_bytes())?;
            }
            Ok(())
        })?;
        if !adopted.keys.is_empty() {
            numbers.write();
        }
        Ok(adopted)
    }
}

/// Adds an issue, without blockers that would wait for it.
fn add(active: &mut Active, issue: Issue, circle: impl FnOnce()) {
    let key = issue.linear_id.clone();
    active.issues.push(issue);
    if graph::check_no_cycle(&active.issues, &key).is_err() {
        circle();
        if let Some(issue) = active.issues.last_mut() {
            issue.blocked_by.clear();
        }
    }
}

fn read(text: &str) -> Result<(Bead, Members), String> {
    let members: Members = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let bead: Bead = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if bead.id.trim().is_empty() || bead.title.trim().is_empty() {
        return Err("an issue has an id and a title".to_owned());
    }
    Ok((bead, members))
}

/// Returns the id that an adopted issue has in beads.
fn bead_of(issue: &Issue) -> Option<&str> {
    issue
        .memory_trace
        .as_ref()?
        .created_from
        .as_deref()?
        .strip_prefix(FROM)
}

/// Makes an issue of one of beads. Its key and its links come later.
fn issue_of(bead: &Bead, mut members: Members) -> Issue {
    let title = helmdeck_core::text::collapse_whitespace(&bead.title);
    let same = |name: &str, text: Option<&str>| matches!((members.0.get(name), text), (Some(Json::String(was)), Some(is)) if was == is);
    // What is told elsewhere in the same words is not told twice.
    let told = [
        ("title", same("title", Some(&title))),
        (
            "description",
            same(
                "description",
                bead.description.as_deref().filter(|text| !text.is_empty()),
            ),
        ),
        ("comments", bead.comments.is_some()),
    ];
    for (name, told) in told {
        if told {
            members.0.shift_remove(name);
        }
    }
    let state = match bead.status.as_deref().unwrap_or("open") {
        "open" => OPEN.to_owned(),
        "in_progress" => IN_PROGRESS.to_owned(),
        "closed" => DONE.to_owned(),
        "cancelled" | "canceled" => CANCELLED.to_owned(),
        other => {
            let mut letters = other.chars();
            letters
                .next()
                .map(|first| first.to_uppercase().chain(letters).collect())
                .unwrap_or_default()
        }
    };
    let mut labels: Vec<String> = bead.labels.clone().unwrap_or_default();
    labels.sort();
    labels.dedup();
    let comments = bead
        .comments
        .iter()
        .flatten()
        .enumerate()
        .map(|(at, remark)| comment(at, remark));
    let other = [(KEPT.to_owned(), Json::Object(members))];
    Issue {
        title,
        description: bead.description.clone().filter(|text| !text.is_empty()),
        kind: bead.issue_type.clone().filter(|kind| !kind.is_empty()),
        memory_trace: Some(MemoryTrace {
            created_from: Some(format!("{FROM}{}", bead.id)),
            ..MemoryTrace::default()
        }),
        acceptance_criteria: criteria(bead.acceptance_criteria.as_deref().unwrap_or_default()),
        state: Some(state),
        // Theirs is 0 = critical to 4 = backlog.
        priority: bead
            .priority
            .map(|priority| if priority < 4 { priority + 1 } else { 0 }),
        labels,
        assignee: bead.assignee.clone().filter(|name| !name.trim().is_empty()),
        comments: comments.collect(),
        created_at: bead.created_at,
        updated_at: bead.updated_at,
        other: Members(other.into_iter().collect()),
        ..Issue::default()
    }
}

fn comment(at: usize, remark: &Remark) -> Comment {
    let id = match remark.other.0.get("id") {
        Some(Json::Number(number)) => format!("beads-{number}"),
        Some(Json::String(text)) if is_comment_id(text) => text.clone(),
        _ => format!("beads-line-{}", at + 1),
    };
    Comment {
        id,
        by: remark.author.clone(),
        at: remark.created_at,
        text: remark.text.clone(),
        other: Members(
            [(KEPT.to_owned(), Json::Object(remark.other.clone()))]
                .into_iter()
                .collect(),
        ),
    }
}

/// Reads a text of criteria: each line is one, and a box says whether it holds.
fn criteria(text: &str) -> Vec<Criterion> {
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let all = lines.map(|line| {
        let item = ["- ", "* ", "+ "]
            .into_iter()
            .find_map(|mark| line.strip_prefix(mark))
            .unwrap_or(line);
        // `1. Text`, but not `2 texts`.
        let unnumbered = item.trim_start_matches(|c: char| c.is_ascii_digit());
        let item = unnumbered
            .strip_prefix(". ")
            .filter(|_| unnumbered.len() < item.len())
            .unwrap_or(item);
        let (done, text) = match item.get(..4) {
            Some("[x] " | "[X] ") => (true, &item[4..]),
            Some("[ ] ") => (false, &item[4..]),
            _ => (false, item),
        };
        let text = text.trim().to_owned();
        if done {
            Criterion::Checked(Checked {
                text,
                done,
                ..Checked::default()
            })
        } else {
            Criterion::Text(text)
        }
    });
    all.filter(|criterion| !criterion.text().is_empty())
        .collect()
}

/// Adds what an issue waits for, and what it is part of.
fn link(issue: &mut Issue, bead: &Bead, keys: &BTreeMap<String, String>) {
    for dependency in bead.dependencies.iter().flatten() {
        if !dependency.issue_id.is_empty() && dependency.issue_id != bead.id {
            continue;
        }
        let Some(key) = keys.get(&dependency.depends_on_id) else {
            continue;
        };
        match dependency.kind.as_str() {
            "blocks" if !issue.blocked_by.contains(key) => issue.blocked_by.push(key.clone()),
            "parent-child" => {
                issue
                    .memory_trace
                    .get_or_insert_with(MemoryTrace::default)
                    .parent_issue = Some(key.clone());
            }
            _ => {}
        }
    }
    issue
        .blocked_by
        .sort_by(|a, b| super::key_order(a).cmp(&super::key_order(b)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    const ALL: &str = include_str!("beads.jsonl");

    /// Every member that beads writes for an issue, in all versions of it.
    const FIELDS: &str = "id content_hash title description design acceptance_criteria notes spec_id status priority \
        issue_type assignee owner estimated_minutes created_at created_by updated_at started_at closed_at close_reason \
        closed_by_session lease_expires_at heartbeat_at due_at defer_until external_ref source_system source_repo \
        metadata compaction_level compacted_at compacted_at_commit original_size labels dependencies comments sender \
        ephemeral no_history wisp wisp_type pinned is_template bonded_from await_type await_id timeout waiters \
        source_formula source_location mol_type work_type event_kind actor target payload deleted_at deleted_by \
        delete_reason original_type relates_to replies_to duplicate_of superseded_by dependency_count dependent_count \
        comment_count parent notes_preview epic_total_children epic_closed_children epic_closeable _type";

    #[test]
    fn no_field_of_beads_is_lost() {
        let fixture = Fixture::new();
        let issues = fixture.project.issues();
        let adopted = issues.adopt("f", ALL).unwrap();
        assert_eq!(
            adopted.keys,
            ["LOCAL-1", "LOCAL-2", "LOCAL-3", "LOCAL-4", "LOCAL-5"]
        );
        assert_eq!(
            adopted.skipped,
            [
                "f:6: bd-gone was deleted",
                "f:8: a line of the type \"schema\" is no issue"
            ]
        );
        assert_eq!(
            adopted.memories,
            [(7, "deploy: Ask for a window first.".to_owned())]
        );
        let mut left: std::collections::BTreeSet<&str> = FIELDS.split_whitespace().collect();
        for (line, key) in ALL.lines().zip(&adopted.keys) {
            let text = serde_json::to_vec(&issues.show(key).unwrap().item.issue).unwrap();
            let shown: serde_json::Value = serde_json::from_slice(&text).unwrap();
            let bead: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(line).unwrap();
            for (name, value) in &bead {
                left.remove(name.as_str());
                let at = |text: &serde_json::Value| {
                    Time::parse(text.as_str().unwrap()).unwrap().seconds()
                };
                match name.as_str() {
                    "title" => assert_eq!(&shown["title"], value, "{key}"),
                    "description" if value.as_str() == Some("") => {
                        assert!(shown.get("description").is_none(), "{key}")
                    }
                    "description" => assert_eq!(&shown["description"], value, "{key}"),
                    "comments" => {
                        let (all, said) = (
                            shown["comments"].as_array().unwrap(),
                            value.as_array().unwrap(),
                        );
                        assert_eq!(all.len(), said.len(), "{key}");
                        for (comment, said) in all.iter().zip(said) {
                            assert_eq!(
                                (&comment["text"], &comment["by"]),
                                (&said["text"], &said["author"]),
                                "{key}"
                            );
                            assert_eq!(at(&comment["at"]), at(&said["created_at"]), "{key}");
                            for name in ["id", "issue_id"] {
                                assert_eq!(comment[KEPT][name], said[name], "{key}");
                            }
                        }
                    }
                    name => assert_eq!(&shown[KEPT][name], value, "{key}: {name}"),
                }
            }
        }
        assert_eq!(
            left,
            ["deleted_at", "deleted_by", "delete_reason", "original_type"].into(),
            "all but tombstones"
        );
    }

    #[test]
    fn what_beads_says_is_what_an_issue_says() {
        let fixture = Fixture::new();
        let issues = fixture.project.issues();
        issues.adopt("f", ALL).unwrap();
        let one = issues.show("LOCAL-1").unwrap().item;
        assert_eq!(
            (one.issue.kind.as_deref(), one.issue.priority, one.ready),
            (Some("feature"), Some(1), false)
        );
        assert_eq!(
            (one.waits_for.as_slice(), one.issue.parent()),
            (&["LOCAL-2".to_owned()][..], Some("LOCAL-3"))
        );
        let criteria: Vec<_> = one
            .issue
            .acceptance_criteria
            .iter()
            .map(|one| (one.text(), one.is_done()))
            .collect();
        assert_eq!(
            criteria,
            [
                ("It exports CSV", true),
                ("It exports JSON", false),
                ("2 retries work", false),
                ("It is fast", false)
            ]
        );
        assert_eq!(one.issue.comments.len(), 2);
        let closed = issues.show("LOCAL-4").unwrap();
        assert!(closed.item.over && closed.summary.unwrap().contains("Fixed in the parser"));
        assert_eq!(
            issues.adopt("f", ALL).unwrap().keys,
            [""; 0],
            "nothing is taken over twice"
        );
    }

    #[test]
    fn blockers_that_wait_for_each_other_are_left_out() {
        let fixture = Fixture::new();
        let bead = |id: &str, on: &str| {
            format!(
                r#"{{"id":"{id}","title":"t","dependencies":[{{"issue_id":"{id}","depends_on_id":"{on}","type":"blocks"}}]}}"#
            )
        };
        let adopted = fixture
            .project
            .issues()
            .adopt("f", &[bead("a", "b"), bead("b", "a")].join("\n"))
            .unwrap();
        assert_eq!((adopted.keys.len(), adopted.skipped.len()), (2, 1));
    }
}
