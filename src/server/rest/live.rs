//! One stream of what happens on the server, for pages: calls, jobs, statistics, events.
//!
//! A stream reads bounded tails when it is woken, at most four times a second. Nothing is done
//! without a reader.

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use helmdeck_core::{Caller, Code, PackName, Permission};
use helmdeck_engine::{CallFilter, CallRecord, Engine, Job, PastCall, Tail};
use helmdeck_events::{Event, Lagged, Subscription};
use http::HeaderMap;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::audit::Whose;
use super::events::{LAST_EVENT_ID, UNBUFFERED};
use super::jobs::JOB;
use super::project::ProjectState;
use super::reply::Problems;
use super::request::Params;
use super::state::EventState;
use super::statistics::need_statistics;
use crate::access::{By, need, reach};
use crate::app::App;
use crate::draining::RECONNECT;
use crate::headers::{EVENTS, NO_STORE};
use crate::limits::{Permit, Share};
use crate::problem::Problem;

/// Shortest time between two messages of a stream: what happens in between comes together.
const PAUSE: Duration = Duration::from_millis(250);
/// Interval of comments on a stream without events, which show its client that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Maximum age of a stream. Its client reconnects then, with a token that is still valid.
const STREAM_LIFE: Duration = Duration::from_secs(2 * 60);
/// Limit of calls, and of jobs, in one message. The rest is counted.
const MOST: usize = 50;
/// Number of the newest calls and jobs that a new stream begins with.
///
/// So nothing is lost between a page and its stream.
const FIRST: u64 = 20;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(follow))
}

/// What to follow.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct LiveQuery {
    /// Topics, with commas: `calls`, `jobs`, `stats`, `server`, `project`, `conversations`
    topics: String,
    /// Only calls of this pack
    #[param(value_type = Option<String>)]
    pack: Option<PackName>,
    /// Only calls with this outcome: `ok`, an error code, or `failed` for every error
    outcome: Option<String>,
    /// Only calls and conversations of this tenant
    tenant: Option<String>,
    /// Only calls and conversations of this user
    user: Option<String>,
}

/// Streams what happens on this server as it happens. One stream has several topics.
///
/// `calls`: ended calls (`{"calls": [...], "skipped": n}`), as `list_calls` shows them, with its
/// rights. `jobs`: changed jobs of this process, as `list_jobs` shows them. `stats`: there are new
/// statistics (`metrics:read`). `server`: packs that came, went or are refused, purges (`admin`).
/// `project`: files of the project have changed, seen within two seconds
/// (`packs:run:forge.health`). `conversations`: the events of the caller's conversations, and for
/// an administrator of all: changed health, cut summaries, dropped turns (`memory:read`). `lost`
/// says that something was missed: read the lists again. A new stream begins with up to 20 of the
/// newest calls and changes of jobs; `Last-Event-ID` resumes. A stream sends at most four messages
/// a second, and ends after two minutes: reconnect to go on.
#[utoipa::path(get, path = "/api/v1/events", tag = "operations", operation_id = "follow_server",
    params(
        LiveQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "The `id` of the last message that was received"),
    ),
    responses(
        (status = 200, description = "The events", content_type = "text/event-stream", body = String),
        Problems,
    ))]
async fn follow(
    State(state): State<EventState>,
    State(project): State<ProjectState>,
    By(caller): By,
    asked: Params<LiveQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let asked = asked.read()?;
    let last = headers
        .get(LAST_EVENT_ID)
        .and_then(|value| value.to_str().ok());
    let full =
        |error: helmdeck_core::Error| error.with_message("you have too many event streams open");
    let share = state
        .streams_of
        .enter(&caller.identity.without_session())
        .map_err(full)?;
    let permit = state
        .streams
        .enter()
        .map_err(|error| error.with_message("too many event streams are open"))?;
    let open = Open {
        feed: Feed::new(&state, &project, caller, asked, last)?,
        first: true,
        ended: false,
        drain: state.drain.clone(),
        ends: Instant::now() + STREAM_LIFE,
        _permits: (permit, share),
    };
    let messages = stream::unfold(open, |mut open| async move {
        let message = open.next().await?;
        Some((Ok::<_, Infallible>(message), open))
    });
    let headers = [
        (CONTENT_TYPE, EVENTS),
        (CACHE_CONTROL, NO_STORE),
        UNBUFFERED,
    ];
    Ok((headers, Body::from_stream(messages)).into_response())
}

/// An open stream.
struct Open {
    feed: Feed,
    /// Whether nothing was sent yet.
    first: bool,
    /// Whether the server ended the stream.
    ended: bool,
    drain: CancellationToken,
    ends: Instant,
    /// Held until the stream is dropped.
    _permits: (Permit, Share),
}

impl Open {
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        if !std::mem::take(&mut self.first) {
            tokio::select! {
                biased;
                () = self.drain.cancelled() => return self.end(),
                () = tokio::time::sleep_until(self.ends) => return None,
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(Bytes::from_static(b":\n\n")),
                () = self.feed.changed() => {}
            }
            tokio::select! {
                biased;
                () = self.drain.cancelled() => return self.end(),
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
        let message = self.feed.message();
        // Nothing that this caller may see: a comment does no harm.
        Some(if message.is_empty() {
            Bytes::from_static(b":\n\n")
        } else {
            message.into()
        })
    }

    /// Ends the stream of a server that stops.
    fn end(&mut self) -> Option<Bytes> {
        self.ended = true;
        Some(Bytes::from_static(RECONNECT))
    }
}

/// Calls that a stream follows.
struct Calls {
    tail: Arc<Tail<CallRecord>>,
    whose: Whose,
    filter: CallFilter,
    news: watch::Receiver<u64>,
}

/// Topics of a stream, and how far they were read.
struct Feed {
    engine: Engine,
    caller: Caller,
    calls: Option<Calls>,
    jobs: Option<watch::Receiver<u64>>,
    /// Readings of the statistics, and how many of them were sent.
    statistics: Option<(watch::Receiver<u64>, u64)>,
    /// Changes of the project, and how many of them were sent.
    project: Option<(watch::Receiver<u64>, u64)>,
    /// Whether to send events of the server.
    server: bool,
    /// Whose conversations' events to send.
    conversations: Option<Whose>,
    events: Option<Subscription>,
    /// Events that are not sent yet, by topic.
    waiting: Vec<(&'static str, Value)>,
    position: Position,
    /// Whether something before the position was missed.
    lost: bool,
}

/// How far a stream has read, as the `id` of its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    /// Identifies the process: numbers of another one mean nothing here.
    process: u64,
    calls: u64,
    jobs: u64,
    server: u64,
}

impl Position {
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('-').map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Self {
            process: next()?,
            calls: next()?,
            jobs: next()?,
            server: next()?,
        })
    }

    fn text(self) -> String {
        format!(
            "{}-{}-{}-{}",
            self.process, self.calls, self.jobs, self.server
        )
    }
}

impl Feed {
    fn new(
        state: &EventState,
        project: &ProjectState,
        caller: Caller,
        asked: LiveQuery,
        last: Option<&str>,
    ) -> Result<Self, Problem> {
        let engine = state.engine.engine.clone();
        let has = |topic: &str| asked.topics.split(',').any(|asked| asked == topic);
        if let Some(wrong) = asked
            .topics
            .split(',')
            .find(|topic| !TOPICS.contains(topic))
        {
            let detail = format!("topics: {wrong:?} is none of {}", TOPICS.join(", "));
            return Err(Problem::new(Code::InvalidInput, detail));
        }
        let calls = if has("calls") {
            need(&caller, &Permission::MemoryRead)?;
            let tail = Arc::clone(state.engine.memory()?.recent_calls());
            let whose = Whose::of(&caller, asked.tenant.as_deref(), asked.user.as_deref())?;
            let filter = CallFilter {
                pack: asked.pack.clone(),
                outcome: asked.outcome.clone(),
                ..CallFilter::default()
            };
            Some(Calls {
                news: tail.follow(),
                tail,
                whose,
                filter,
            })
        } else {
            None
        };
        let jobs = if has("jobs") {
            reach(&caller, JOB)?;
            Some(engine.job_changes().follow())
        } else {
            None
        };
        let statistics = if has("stats") {
            need_statistics(&caller)?;
            let readings = engine.statistics().follow();
            let seen = *readings.borrow();
            Some((readings, seen))
        } else {
            None
        };
        let project = if has("project") {
            let changes = project.follow(&caller)?;
            let seen = *changes.borrow();
            Some((changes, seen))
        } else {
            None
        };
        let process = state.process;
        let known = last
            .and_then(Position::parse)
            .filter(|known| known.process == process);
        let mut lost = last.is_some() && known.is_none();
        let server = has("server");
        if server {
            need(&caller, &Permission::Admin)?;
        }
        let conversations = if has("conversations") {
            need(&caller, &Permission::MemoryRead)?;
            Some(Whose::of(
                &caller,
                asked.tenant.as_deref(),
                asked.user.as_deref(),
            )?)
        } else {
            None
        };
        let events = if server || conversations.is_some() {
            match known.map(|known| engine.events().subscribe_after(known.server)) {
                Some(Ok(resumed)) => Some(resumed),
                Some(Err(Lagged { .. })) => {
                    lost = true;
                    Some(engine.events().subscribe())
                }
                None => Some(engine.events().subscribe()),
            }
        } else {
            None
        };
        let position = known.unwrap_or_else(|| Position {
            process,
            calls: calls
                .as_ref()
                .map_or(0, |calls| calls.tail.last().saturating_sub(FIRST)),
            jobs: engine.job_changes().last().saturating_sub(FIRST),
            server: engine.events().last(),
        });
        Ok(Self {
            engine,
            caller,
            calls,
            jobs,
            statistics,
            project,
            server,
            conversations,
            events,
            waiting: Vec::new(),
            position,
            lost,
        })
    }

    /// Waits until there is something to look at.
    async fn changed(&mut self) {
        let calls = self.calls.as_mut().map(|calls| &mut calls.news);
        tokio::select! {
            () = news(calls) => {}
            () = news(self.jobs.as_mut()) => {}
            () = news(self.statistics.as_mut().map(|(readings, _)| readings)) => {}
            () = news(self.project.as_mut().map(|(changes, _)| changes)) => {}
            event = next_event(self.events.as_mut()) => match event {
                Ok(event) => self.event(&event),
                Err(Lagged { .. }) => self.lost = true,
            },
        }
    }

    /// Keeps an event for the next message, if it is of a topic of this stream.
    fn event(&mut self, event: &Event) {
        self.position.server = event.sequence;
        let (topic, wanted) = match event.kind.conversation() {
            Some(who) => {
                let whose = self.conversations.as_ref();
                (
                    "conversations",
                    whose
                        .is_some_and(|whose| whose.has(who.tenant.as_deref(), who.user.as_deref())),
                )
            }
            None => ("server", self.server),
        };
        if wanted {
            self.waiting
                .extend(serde_json::to_value(event).ok().map(|event| (topic, event)));
        }
    }

    /// Returns what is new as one message, and goes on after it.
    fn message(&mut self) -> String {
        let mut events = Vec::new();
        if let Some(calls) = &mut self.calls {
            calls.news.mark_unchanged();
            let wanted = |call: &CallRecord| {
                calls.whose.has_call(call)
                    && calls.filter.matches(&call.pack, call.outcome, call.at)
            };
            let new = calls.tail.after(self.position.calls, MOST, wanted);
            self.position.calls = new.last;
            self.lost |= new.gap;
            if !new.entries.is_empty() {
                let shown: Vec<PastCall> = new.entries.into_iter().map(PastCall::from).collect();
                events.push(("calls", json!({ "calls": shown, "skipped": new.skipped })));
            }
        }
        if let Some(news) = &mut self.jobs {
            news.mark_unchanged();
            let owner = reach(&self.caller, JOB).ok().flatten();
            let permissions = &self.caller.permissions;
            let theirs = |job: &Arc<Job>| {
                owner.is_none_or(|owner| job.is_of(owner))
                    && permissions.allow_run(job.pack.as_str())
            };
            let new = self
                .engine
                .job_changes()
                .after(self.position.jobs, MOST, theirs);
            self.position.jobs = new.last;
            self.lost |= new.gap || new.skipped > 0;
            let mut newest: Vec<Arc<Job>> = Vec::new();
            for job in new.entries {
                newest.retain(|other| other.id != job.id);
                newest.push(job);
            }
            if !newest.is_empty() {
                let shown: Vec<&Job> = newest.iter().map(|job| &**job).collect();
                events.push(("jobs", json!({ "jobs": shown })));
            }
        }
        if let Some((readings, sent)) = &mut self.statistics {
            let now = *readings.borrow_and_update();
            if now != std::mem::replace(sent, now) {
                events.push(("stats", json!({ "read": now })));
            }
        }
        if let Some((changes, sent)) = &mut self.project {
            let now = *changes.borrow_and_update();
            if now != std::mem::replace(sent, now) {
                events.push(("project", json!({ "changes": now })));
            }
        }
        events.append(&mut self.waiting);
        if std::mem::take(&mut self.lost) {
            events.push(("lost", json!({})));
        }
        let (id, mut message) = (self.position.text(), String::new());
        for (name, data) in events {
            // Writing to a String cannot fail, and compact JSON has no line feeds.
            let _ = write!(message, "id: {id}\nevent: {name}\ndata: {data}\n\n");
        }
        message
    }
}

/// Names of the topics.
const TOPICS: [&str; 6] = [
    "calls",
    "jobs",
    "stats",
    "server",
    "project",
    "conversations",
];

/// Waits for a change of a source; for ever without one.
async fn news(source: Option<&mut watch::Receiver<u64>>) {
    if let Some(source) = source
        && source.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

async fn next_event(source: Option<&mut Subscription>) -> Result<Arc<Event>, Lagged> {
    if let Some(source) = source
        && let Some(event) = source.next().await
    {
        return event;
    }
    std::future::pending().await
}
