//! Checkpoints, and the difference between one and the work tree.

use askama::Template;
use axum::Router;
use axum::response::Response;

use super::{API, Part, Tab, Top, answered, frame, live_frame};
use crate::Ui;
use crate::frame::{Frame, page};
use crate::json::answer;
use crate::request::{Visit, page_at};
use crate::rest::{Failure, segment};
use crate::shown::Time;

/// Number of checkpoints on a page.
const LIMIT: usize = 50;

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route(
            "/ui/project/checkpoints",
            page_at(|visit| Box::pin(list(visit))),
        )
        .route(
            "/ui/project/checkpoints/{name}",
            page_at(|visit| Box::pin(show(visit))),
        )
}

answer! {
    /// A checkpoint.
    #[derive(Debug)]
    struct Checkpoint {
        name: String,
        tag: String,
        state: String,
        commit: Option<String>,
        timestamp: Option<Time>,
        can_rollback_to: bool,
        notes: Vec<String>,
        manifest: Option<Manifest>,
    }
}

impl Checkpoint {
    fn path(&self) -> String {
        format!("/ui/project/checkpoints/{}", segment(&self.name))
    }
}

answer! {
    #[derive(Debug)]
    struct Manifest {
        features_passing: Vec<String> = default,
        linear_issues_closed: Vec<String> = default,
        branch: Option<String>,
        session: Option<String>,
        checks: Vec<Check> = default,
    }

    #[derive(Debug)]
    struct Check {
        cmd: String,
        exit: Option<i64>,
    }
}

#[derive(Template)]
#[template(path = "project/checkpoints.html")]
struct CheckpointsPage {
    frame: Frame,
    top: Top,
    list: Part<Checkpoint>,
}

crate::frame::framed!(CheckpointsPage);

async fn list(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let state = super::super::State::of(&query);
    let answer = async {
        let list = ui
            .rest
            .get(
                &caller,
                &format!("{API}/checkpoints?limit={LIMIT}{}", state.query(&["after"])),
            )
            .await?;
        let frame = live_frame("Checkpoints", &ui, &caller);
        Ok(page(&CheckpointsPage {
            frame,
            top: Top::new(Tab::Checkpoints, &state, &ui, &caller),
            list,
        }))
    };
    answered(&ui, &caller, Tab::Checkpoints, answer.await)
}

answer! {
    #[derive(Debug)]
    struct Diff {
        files: Vec<Changed>,
        text: String,
        truncated: bool,
    }

    /// A path that differs.
    #[derive(Debug)]
    struct Changed {
        path: String,
        added: u64,
        deleted: u64,
        binary: bool,
        untracked: bool,
    }
}

impl Changed {
    /// Returns its path as the value of a query.
    fn query(&self) -> String {
        segment(&self.path)
    }
}

/// Line of a difference. Its first character says what it is; the class is for the colour.
struct Line<'a> {
    class: &'static str,
    text: &'a str,
}

/// Splits a unified difference into lines.
fn lines(text: &str) -> Vec<Line<'_>> {
    // The lines before the first hunk of a file begin like lines of the file.
    let mut in_head = false;
    text.lines()
        .map(|text| {
            if text.starts_with("diff --git ") {
                in_head = true;
            } else if text.starts_with("@@") {
                in_head = false;
            }
            let class = match text.as_bytes().first() {
                _ if in_head => "head",
                Some(b'@') => "hunk",
                Some(b'+') => "added",
                Some(b'-') => "deleted",
                _ => "same",
            };
            Line { class, text }
        })
        .collect()
}

#[derive(Template)]
#[template(path = "project/checkpoint.html")]
struct CheckpointPage<'a> {
    frame: Frame,
    top: Top,
    checkpoint: Checkpoint,
    path: String,
    diff: Option<&'a Diff>,
    lines: Vec<Line<'a>>,
    /// Why there is no difference.
    trouble: String,
}

crate::frame::framed!(CheckpointPage<'_>);

async fn show(
    Visit {
        ui,
        caller,
        path,
        query,
        ..
    }: Visit,
) -> Response {
    let state = super::super::State::of(&query);
    let answer = async {
        let route = format!(
            "{API}/checkpoints/{}",
            segment(super::super::path_value(&path, "name"))
        );
        let checkpoint: Checkpoint = ui.rest.get(&caller, &route).await?;
        let below = state.query(&["path"]);
        let diff: Result<Diff, Failure> = ui
            .rest
            .get(
                &caller,
                &format!("{route}/diff?{}", below.trim_start_matches('&')),
            )
            .await;
        let (diff, trouble) = match diff {
            Ok(diff) => (Some(diff), String::new()),
            Err(failure) => (None, failure.detail),
        };
        Ok(page(&CheckpointPage {
            frame: frame(&format!("Checkpoint {}", checkpoint.name), &ui, &caller),
            top: Top::new(Tab::Checkpoints, &state, &ui, &caller),
            checkpoint,
            path: state.get("path").to_owned(),
            lines: diff
                .as_ref()
                .map(|diff| lines(&diff.text))
                .unwrap_or_default(),
            diff: diff.as_ref(),
            trouble,
        }))
    };
    answered(&ui, &caller, Tab::Checkpoints, answer.await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_difference_have_their_kind() {
        let text = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+two\n same\n--- not a head\n";
        let kinds: Vec<_> = lines(text).iter().map(|line| line.class).collect();
        assert_eq!(
            kinds,
            [
                "head", "head", "head", "hunk", "deleted", "added", "same", "deleted"
            ]
        );
    }
}
