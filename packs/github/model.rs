//! The parts of GitHub's answers that packs return: small, typed, the same for every pack.
//!
//! Empty values (`body`, a deleted user) are `null`, never an error.

use serde::{Deserialize, Serialize};

/// A login or a name instead of the object around it; `null` for a deleted user.
fn login<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    struct User {
        login: String,
    }
    Ok(Option::<User>::deserialize(deserializer)?.map(|user| user.login))
}

fn logins<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    struct User {
        login: String,
    }
    let users = Option::<Vec<User>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(users.into_iter().map(|user| user.login).collect())
}

/// GitHub writes a label as an object or, in some answers, as its name alone.
fn labels<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Label {
        Name(String),
        Object { name: Option<String> },
    }
    let labels = Option::<Vec<Label>>::deserialize(deserializer)?.unwrap_or_default();
    let name = |label| match label {
        Label::Name(name) => Some(name),
        Label::Object { name } => name,
    };
    Ok(labels.into_iter().filter_map(name).collect())
}

fn title<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    struct Milestone {
        title: String,
    }
    Ok(Option::<Milestone>::deserialize(deserializer)?.map(|milestone| milestone.title))
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<serde::de::IgnoredAny>::deserialize(deserializer)?.is_some())
}

fn full_name<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    struct Repository {
        full_name: String,
    }
    Ok(Option::<Repository>::deserialize(deserializer)?.map(|repository| repository.full_name))
}

/// An issue, or a pull request seen as one.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Issue {
    number: u64,
    title: String,
    state: String,
    state_reason: Option<String>,
    body: Option<String>,
    #[serde(default, deserialize_with = "login")]
    user: Option<String>,
    #[serde(default, deserialize_with = "labels")]
    labels: Vec<String>,
    #[serde(default, deserialize_with = "logins")]
    assignees: Vec<String>,
    #[serde(default, deserialize_with = "title")]
    milestone: Option<String>,
    #[serde(default)]
    comments: u64,
    #[serde(default)]
    locked: bool,
    html_url: String,
    created_at: String,
    updated_at: String,
    closed_at: Option<String>,
    #[serde(
        default,
        rename(deserialize = "pull_request"),
        deserialize_with = "present"
    )]
    pub(super) is_pull_request: bool,
}

/// A comment on an issue or a pull request.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Comment {
    id: u64,
    #[serde(default, deserialize_with = "login")]
    user: Option<String>,
    body: Option<String>,
    html_url: String,
    created_at: String,
    updated_at: String,
}

/// One end of a pull request.
#[derive(Debug, Deserialize, Serialize)]
struct End {
    #[serde(rename = "ref")]
    branch: String,
    sha: String,
    /// `null` once the fork is deleted.
    #[serde(default, deserialize_with = "full_name")]
    repo: Option<String>,
}

/// A pull request as a list shows it.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Pull {
    number: u64,
    title: String,
    state: String,
    #[serde(default)]
    draft: bool,
    body: Option<String>,
    #[serde(default, deserialize_with = "login")]
    user: Option<String>,
    #[serde(default, deserialize_with = "labels")]
    labels: Vec<String>,
    #[serde(default, deserialize_with = "logins")]
    assignees: Vec<String>,
    #[serde(default, deserialize_with = "logins")]
    requested_reviewers: Vec<String>,
    head: End,
    base: End,
    html_url: String,
    created_at: String,
    updated_at: String,
    closed_at: Option<String>,
    merged_at: Option<String>,
}

/// A single pull request, with its details.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct PullDetail {
    #[serde(flatten)]
    pull: Pull,
    #[serde(default)]
    merged: bool,
    /// `null` while GitHub has not worked it out yet.
    mergeable: Option<bool>,
    #[serde(default)]
    commits: u64,
    #[serde(default)]
    additions: u64,
    #[serde(default)]
    deletions: u64,
    #[serde(default)]
    changed_files: u64,
    #[serde(default)]
    comments: u64,
    #[serde(default)]
    review_comments: u64,
}

/// A release.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Release {
    id: u64,
    tag_name: String,
    name: Option<String>,
    body: Option<String>,
    draft: bool,
    prerelease: bool,
    html_url: String,
    upload_url: Option<String>,
    created_at: String,
    published_at: Option<String>,
}

/// A file that a search found.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct CodeHit {
    name: String,
    path: String,
    sha: String,
    #[serde(default, deserialize_with = "full_name")]
    repository: Option<String>,
    html_url: String,
}

/// A repository that a search found.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct RepositoryHit {
    full_name: String,
    description: Option<String>,
    language: Option<String>,
    #[serde(default)]
    topics: Vec<String>,
    stargazers_count: u64,
    forks_count: u64,
    #[serde(default)]
    open_issues_count: u64,
    private: bool,
    #[serde(default)]
    archived: bool,
    default_branch: String,
    html_url: String,
    created_at: String,
    updated_at: String,
    pushed_at: Option<String>,
}

/// A commit that a search found.
#[derive(Debug, Deserialize)]
pub(super) struct RawCommit {
    sha: String,
    html_url: String,
    #[serde(default, deserialize_with = "full_name")]
    repository: Option<String>,
    commit: CommitText,
}

#[derive(Debug, Deserialize)]
struct CommitText {
    message: String,
    author: Option<Author>,
}

#[derive(Debug, Deserialize)]
struct Author {
    name: Option<String>,
    date: Option<String>,
}

/// A commit that a search found, without the levels that GitHub wraps it in.
#[derive(Debug, Serialize)]
pub(super) struct CommitHit {
    sha: String,
    message: String,
    author: Option<String>,
    date: Option<String>,
    repository: Option<String>,
    html_url: String,
}

impl From<RawCommit> for CommitHit {
    fn from(raw: RawCommit) -> Self {
        let (author, date) = raw
            .commit
            .author
            .map_or((None, None), |author| (author.name, author.date));
        Self {
            sha: raw.sha,
            message: raw.commit.message,
            author,
            date,
            repository: raw.repository,
            html_url: raw.html_url,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn issue(change: &[(&str, serde_json::Value)]) -> serde_json::Value {
        let mut raw = json!({
            "number": 7, "title": "t", "state": "open", "body": "b", "html_url": "https://h/7",
            "created_at": "2020-01-01T00:00:00Z", "updated_at": "2020-01-01T00:00:00Z",
            "user": {"login": "octocat", "id": 1}, "labels": [{"name": "bug", "color": "f00"}], "extra": {"deep": [1]},
        });
        for (key, value) in change {
            raw[*key] = value.clone();
        }
        serde_json::to_value(serde_json::from_value::<Issue>(raw).unwrap()).unwrap()
    }

    #[test]
    fn only_the_typed_part_comes_out() {
        let out = issue(&[]);
        assert_eq!(
            (&out["user"], &out["labels"]),
            (&json!("octocat"), &json!(["bug"]))
        );
        assert!(out.get("extra").is_none());
        assert_eq!(out["is_pull_request"], false);
    }

    #[test]
    fn what_github_leaves_empty_is_null() {
        let empty = issue(&[
            ("body", json!(null)),
            ("user", json!(null)),
            ("milestone", json!(null)),
        ]);
        assert!(empty["body"].is_null() && empty["user"].is_null() && empty["milestone"].is_null());
    }

    #[test]
    fn labels_come_as_objects_or_names() {
        let mixed = issue(&[
            ("labels", json!(["a", {"name": "b"}, {"name": null}])),
            ("pull_request", json!({"url": "u"})),
        ]);
        assert_eq!(mixed["labels"], json!(["a", "b"]));
        assert_eq!(mixed["is_pull_request"], true);
    }
}
