//! The timeline: commits, checkpoints and notes of sessions, newest first.

use askama::Template;
use axum::Router;
use axum::response::Response;
use helmdeck_core::Timestamp;
use helmdeck_forge::view::SeenCommit;

use super::issue::short;
use super::{API, Part, Tab, Top, answered, frame, live_frame, optional};
use crate::Ui;
use crate::frame::{Frame, page};
use crate::json::answer;
use crate::request::{Visit, page_at};
use crate::rest::{Failure, segment};
use crate::shown::{self, Time};

/// Number of commits on a page.
const LIMIT: usize = 50;

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route(
            "/ui/project/timeline",
            page_at(|visit| Box::pin(show(visit))),
        )
        .route(
            "/ui/project/sessions/{session}",
            page_at(|visit| Box::pin(session(visit))),
        )
}

answer! {
    /// Progress of a session.
    #[derive(Debug)]
    struct Log {
        session: Option<String>,
        date: Option<String>,
        entries: Vec<Note>,
        next: Option<String>,
        malformed_lines: u64,
    }

    /// A line of progress.
    #[derive(Debug)]
    struct Note {
        time: String,
        at: Option<Time>,
        text: String,
        checkpoint: bool,
    }

    #[derive(Debug)]
    struct Progress {
        current: Option<Log>,
        items: Vec<String>,
        total: u64,
    }

    #[derive(Debug)]
    struct Checkpoint {
        name: String,
        timestamp: Option<Time>,
        can_rollback_to: bool,
    }
}

/// A moment on the timeline.
struct Moment {
    at: Time,
    kind: &'static str,
    text: String,
    note: String,
    path: Option<String>,
}

impl Moment {
    fn of_commit(commit: &SeenCommit) -> Self {
        let mut note = format!("{} {}", short(commit), commit.author);
        if let Some(session) = &commit.session {
            note.push_str(&format!(", {session}"));
        }
        let path = commit
            .issue
            .as_deref()
            .map(|key| format!("/ui/project/issues/{}", segment(key)));
        Self {
            at: commit.at.into(),
            kind: "commit",
            text: commit.subject.clone(),
            note,
            path,
        }
    }

    fn of_checkpoint(checkpoint: &Checkpoint) -> Option<Self> {
        let note = if checkpoint.can_rollback_to {
            "usable"
        } else {
            "not usable"
        };
        Some(Self {
            at: checkpoint.timestamp?,
            kind: "checkpoint",
            text: checkpoint.name.clone(),
            note: note.to_owned(),
            path: Some(format!(
                "/ui/project/checkpoints/{}",
                segment(&checkpoint.name)
            )),
        })
    }

    fn of_note(note: &Note) -> Option<Self> {
        let kind = if note.checkpoint {
            "checkpoint"
        } else {
            "progress"
        };
        Some(Self {
            at: note.at?,
            kind,
            text: note.text.clone(),
            note: String::new(),
            path: None,
        })
    }
}

#[derive(Template)]
#[template(path = "project/timeline.html")]
struct TimelinePage {
    frame: Frame,
    top: Top,
    moments: Vec<Moment>,
    /// The next step that the session noted.
    next_step: Option<String>,
    malformed: u64,
    sessions: Vec<String>,
    all_sessions: u64,
    commits: u64,
    next: Option<String>,
    /// Whether there is no repository.
    no_repository: bool,
}

crate::frame::framed!(TimelinePage);

async fn show(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let state = super::super::State::of(&query);
    let answer = async {
        let progress: Progress = ui
            .rest
            .get(&caller, &format!("{API}/progress?limit=20"))
            .await?;
        let after = state.query(&["after"]);
        let commits: Result<Part<SeenCommit>, Failure> = ui
            .rest
            .get(&caller, &format!("{API}/commits?limit={LIMIT}{after}"))
            .await;
        let (commits, no_repository) = match commits {
            Ok(commits) => (commits, false),
            Err(failure) if failure.detail.contains("E_NOT_A_REPO") => (
                Part {
                    items: Vec::new(),
                    total: 0,
                    next: None,
                },
                true,
            ),
            Err(failure) => return Err(failure),
        };
        let checkpoints: Option<Part<Checkpoint>> =
            optional(&ui, &caller, "checkpoints?limit=1000").await;
        // The page shows the time of its commits: what is newer is on the pages before, what is
        // older on those after.
        let newest = if after.is_empty() {
            Timestamp::MAX
        } else {
            commits
                .items
                .first()
                .map_or(Timestamp::MAX, |one| Time::from(one.at).0)
        };
        let oldest = commits
            .next
            .as_ref()
            .and(commits.items.last())
            .map(|commit| Time::from(commit.at).0);
        let here = |moment: &Moment| {
            moment.at.0 <= newest && oldest.is_none_or(|oldest| moment.at.0 >= oldest)
        };
        let mut moments: Vec<Moment> = commits.items.iter().map(Moment::of_commit).collect();
        let checkpoints = checkpoints.map(|part| part.items).unwrap_or_default();
        moments.extend(
            checkpoints
                .iter()
                .filter_map(Moment::of_checkpoint)
                .filter(here),
        );
        let notes = progress
            .current
            .as_ref()
            .map(|log| log.entries.as_slice())
            .unwrap_or_default();
        moments.extend(notes.iter().rev().filter_map(Moment::of_note).filter(here));
        moments.sort_by_key(|moment| std::cmp::Reverse(moment.at.0));
        Ok(page(&TimelinePage {
            frame: live_frame("Timeline", &ui, &caller),
            top: Top::new(Tab::Timeline, &state, &ui, &caller),
            moments,
            malformed: progress
                .current
                .as_ref()
                .map_or(0, |log| log.malformed_lines),
            next_step: progress.current.and_then(|log| log.next),
            sessions: progress.items,
            all_sessions: progress.total,
            commits: commits.total,
            next: commits.next,
            no_repository,
        }))
    };
    answered(&ui, &caller, Tab::Timeline, answer.await)
}

#[derive(Template)]
#[template(path = "project/session.html")]
struct SessionPage {
    frame: Frame,
    top: Top,
    log: Log,
}

crate::frame::framed!(SessionPage);

async fn session(
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
        let name = super::super::path_value(&path, "session");
        let log = ui
            .rest
            .get(&caller, &format!("{API}/progress/{}", segment(name)))
            .await?;
        let frame = frame(&format!("Session {name}"), &ui, &caller);
        Ok(page(&SessionPage {
            frame,
            top: Top::new(Tab::Timeline, &state, &ui, &caller),
            log,
        }))
    };
    answered(&ui, &caller, Tab::Timeline, answer.await)
}
