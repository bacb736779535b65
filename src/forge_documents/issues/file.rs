//! Text of an issue's own file, for merges by git alone.
//!
//! Every member is always there, on lines of its own, with an empty line after it. So two edits of
//! different members change lines that are apart, and git merges them without a driver. Members of
//! members are there with their object.

use helmdeck_forge_files::json::{self, Json, Members};

use super::{Checked, Criterion, Issue};

/// The members of every file, in their order. Others follow.
const MEMBERS: [&str; 19] = [
    "linear_id",
    "title",
    "description",
    "type",
    "memory_trace",
    "agent_state",
    "acceptance_criteria",
    "git_refs",
    "state",
    "priority",
    "labels",
    "assignee",
    "blocked_by",
    "features",
    "milestone",
    "url",
    "created_at",
    "aliases",
    "remote",
];
/// Members with members of their own.
const NESTED: [(&str, &[&str]); 3] = [
    (
        "memory_trace",
        &["created_from", "parent_issue", "context_snapshot"],
    ),
    (
        "agent_state",
        &["assigned_persona", "harness_mode", "estimated_complexity"],
    ),
    ("git_refs", &["branch", "commits"]),
];
/// Members of a criterion.
const CRITERION: [&str; 3] = ["text", "done", "evidence"];

/// Formats an issue for its file.
pub(super) fn print(issue: &Issue) -> Result<Vec<u8>, serde_json::Error> {
    let tree: Json = serde_json::from_slice(&serde_json::to_vec(issue)?)?;
    let mut file = filled(members_of(tree), &MEMBERS);
    for (name, names) in NESTED {
        // An absent one stays `null`. With all members, the files of two issues would resemble each
        // other so much that git takes one for the other renamed.
        if let Some(Json::Object(given)) = file.0.get_mut(name) {
            *given = filled(std::mem::take(given), names);
        }
    }
    if let Some(Json::Array(criteria)) = file.0.get_mut("acceptance_criteria") {
        for criterion in criteria {
            let given = match std::mem::take(criterion) {
                Json::Object(members) => members,
                text => Members([("text".to_owned(), text)].into_iter().collect()),
            };
            *criterion = Json::Object(filled(given, &CRITERION));
        }
    }
    Ok(json::print_apart(&Json::Object(file)))
}

fn members_of(value: Json) -> Members {
    match value {
        Json::Object(members) => members,
        _ => Members::default(),
    }
}

/// Returns members in this order, with a default for each that is absent, and then the others.
fn filled(mut given: Members, names: &[&str]) -> Members {
    let mut all = Members::default();
    for name in names {
        let value = given.0.shift_remove(*name).unwrap_or_else(|| match *name {
            "acceptance_criteria"
            | "labels"
            | "blocked_by"
            | "features"
            | "aliases"
            | "commits" => Json::Array(Vec::new()),
            "done" => Json::Bool(false),
            _ => Json::Null,
        });
        all.0.insert((*name).to_owned(), value);
    }
    all.0.extend(given.0);
    all
}

impl Issue {
    /// Returns the issue with each criterion that only has a text as that text.
    #[must_use]
    pub fn plain(mut self) -> Self {
        for criterion in &mut self.acceptance_criteria {
            if let Criterion::Checked(Checked {
                text,
                done: false,
                evidence: None,
                other,
            }) = criterion
                && other.is_empty()
            {
                *criterion = Criterion::Text(std::mem::take(text));
            }
        }
        self
    }
}
