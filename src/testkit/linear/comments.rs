//! Comments of the stand-in.

use serde_json::{Value, json};

use super::execute::page;
use super::store::{Answer, BEGIN, Comment, Store, time};

impl Store {
    /// Advances the clock, and returns it.
    pub const fn tick(&mut self) -> i64 {
        self.now += 1;
        self.now
    }

    /// Adds a comment to an issue as a person does.
    ///
    /// # Panics
    /// If the issue is not found.
    #[allow(clippy::expect_used, reason = "a test names issues that exist")]
    pub fn say(&mut self, key: &str, by: &str, body: &str) {
        let made = self.tick();
        let issue = self.find(key).expect("an issue").id.clone();
        let (body, by) = (body.to_owned(), by.to_owned());
        let number = u128::try_from(made).unwrap_or_default();
        let id = uuid::Builder::from_random_bytes(number.to_be_bytes())
            .into_uuid()
            .to_string();
        self.comments.push(Comment {
            id,
            issue,
            body,
            by,
            made,
            edited: None,
            updated: made,
            archived: false,
        });
    }

    /// Edits a comment as a person does, by its place.
    pub fn edit_comment(&mut self, at: usize, body: &str) {
        let now = self.tick();
        if let Some(comment) = self.comments.get_mut(at) {
            body.clone_into(&mut comment.body);
            (comment.edited, comment.updated) = (Some(now), now);
        }
    }

    /// Returns a page of comments. A filter that the stand-in does not know is an error.
    pub(super) fn list_comments(&self, arguments: &Value) -> Answer {
        let filter = arguments["filter"].as_object();
        let known = ["updatedAt", "issue"];
        if let Some(other) = filter
            .into_iter()
            .flat_map(|all| all.keys())
            .find(|name| !known.contains(&name.as_str()))
        {
            return Err((
                "INPUT_ERROR",
                format!("the stand-in knows no filter {other}"),
            ));
        }
        let filter = &arguments["filter"];
        let since: Option<jiff::Timestamp> = filter["updatedAt"]["gte"]
            .as_str()
            .and_then(|time| time.parse().ok());
        let ids = filter["issue"]["id"]["in"].as_array();
        let team = filter["issue"]["team"]["key"]["eq"].as_str();
        let fits = |comment: &&Comment| {
            let issue = self.find(&comment.issue);
            since.is_none_or(|since| since.as_second() <= BEGIN + comment.updated)
                && ids.is_none_or(|ids| ids.iter().any(|id| *id == comment.issue.as_str()))
                && team.is_none_or(|team| issue.is_some_and(|issue| issue.team == team))
        };
        let mut found: Vec<&Comment> = self.comments.iter().filter(fits).collect();
        found.sort_by_key(|comment| std::cmp::Reverse(comment.updated));
        let from: usize = arguments["after"]
            .as_str()
            .and_then(|cursor| cursor.parse().ok())
            .unwrap_or_default();
        let first = arguments["first"]
            .as_u64()
            .and_then(|first| usize::try_from(first).ok())
            .unwrap_or(50);
        let nodes = found
            .iter()
            .skip(from)
            .take(first)
            .map(|comment| self.render_comment(comment))
            .collect();
        let next = (from + first < found.len()).then(|| (from + first).to_string());
        Ok(page("CommentConnection", nodes, next))
    }

    fn render_comment(&self, comment: &Comment) -> Value {
        json!({
            "__typename": "Comment", "id": comment.id, "body": comment.body, "createdAt": time(comment.made),
            "editedAt": comment.edited.map(time), "archivedAt": comment.archived.then(|| time(comment.updated)),
            "issue": {"__typename": "Issue", "id": comment.issue}, "user": self.person(&comment.by),
            "botActor": null, "externalUser": null,
        })
    }
}
