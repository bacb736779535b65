//! The overview: what is wrong and what to do, what calls did, what runs.

use std::collections::BTreeMap;

use askama::Template;
use axum::Router;
use axum::response::Response;
use futures_util::future::BoxFuture;
use helmdeck_core::{Caller, Permission};
use http::Method;

use super::answered;
use super::calls::{self, Call, CallRow};
use super::jobs::{Job, JobList, JobRow};
use super::statistics::{Numbers, StatisticsPart};
use crate::Ui;
use crate::frame::{Frame, Place, page};
use crate::json::{self, answer};
use crate::live::{Change, Live, Viewer};
use crate::request::{Visit, page_at};
use crate::rest::{Failure, segment};

pub(super) fn routes() -> Router<Ui> {
    Router::new().route("/ui", page_at(|visit| Box::pin(show(visit))))
}

/// Number of the newest calls on the page.
const CALLS: usize = 10;
/// Number of failed calls of a pack from which it is worth a look, if they are a tenth of all.
const FAILED: u64 = 3;

answer! {
    /// The server's readiness, check by check.
    #[derive(Debug, Default)]
    struct Readiness {
        status: String,
        checks: BTreeMap<String, String>,
    }

    #[derive(Debug)]
    struct PackList {
        packs: Vec<PackName>,
        refused: Vec<Refused>,
    }

    #[derive(Debug)]
    struct PackName {
        cached: bool,
    }

    /// A manifest that could not be read.
    #[derive(Debug)]
    struct Refused {
        file: String,
        line: Option<usize>,
        message: String,
    }

    /// MCP server whose tools are packs.
    #[derive(Debug)]
    struct McpServer {
        name: String,
        error: Option<String>,
    }

    #[derive(Debug, Default)]
    struct McpServerList {
        servers: Vec<McpServer>,
    }
}

/// Something that is wrong.
#[derive(Debug, PartialEq, Eq)]
struct Trouble {
    /// What, and where.
    what: String,
    /// What to do about it.
    advice: String,
    /// Page to look at next, and its name.
    link: Option<(String, &'static str)>,
}

/// State of the server, and what is wrong with it.
#[derive(Template)]
#[template(path = "server_state.html")]
struct ServerState {
    readiness: Readiness,
    memory: bool,
    packs: usize,
    cached_packs: usize,
    /// Those that are configured, for administrators.
    servers: Vec<McpServer>,
    troubles: Vec<Trouble>,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    server: ServerState,
    /// `None` = the caller may not see them.
    statistics: Option<StatisticsPart>,
    running: Vec<Job>,
    calls: Option<Vec<Call>>,
}

crate::frame::framed!(OverviewPage);

impl OverviewPage {
    fn call<'a>(&self, call: &'a Call) -> CallRow<'a> {
        CallRow {
            call,
            now: self.frame.now,
        }
    }

    fn row<'a>(&self, job: &'a Job) -> JobRow<'a> {
        JobRow {
            job,
            now: self.frame.now,
        }
    }
}

async fn show(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let state = super::State::of(&query);
    let answer = async {
        let topics = super::topics(&ui, &caller);
        let statistics = if topics.contains(&"stats") {
            Some(StatisticsPart::read(&ui, &caller, state.get("window"), state.get("pack")).await?)
        } else {
            None
        };
        let mut server = ServerState::read(&ui, &caller, statistics.as_ref()).await?;
        let mut running = Vec::new();
        for state in ["running", "queued"] {
            // Without a data folder there are no jobs.
            if let Ok(list) = ui
                .rest
                .get::<JobList>(&caller, &format!("/api/v1/jobs?limit=10&state={state}"))
                .await
            {
                running.extend(list.jobs);
            }
        }
        let mut calls = None;
        if topics.contains(&"calls") {
            match calls::newest(&ui, &caller, CALLS).await {
                Ok(rows) => calls = Some(rows),
                // A store that is open and damaged is ready, and answers nothing.
                Err(failure) => server.troubles.push(unreadable(&failure)),
            }
        }
        let mut frame = Frame::new("Overview", Place::Overview, &caller, &ui);
        if !topics.is_empty() {
            let filter = state.query(&["window", "pack"]);
            let unread = if topics.contains(&"calls") && calls.is_none() {
                "&unread=true"
            } else {
                ""
            };
            frame = frame.live(&format!(
                "view=overview&topics={}{filter}{unread}",
                topics.join(",")
            ));
        }
        Ok(page(&OverviewPage {
            frame,
            server,
            statistics,
            running,
            calls,
        }))
    };
    answered(&ui, &caller, Place::Overview, answer.await)
}

impl ServerState {
    /// Returns how many MCP servers have an error.
    fn down(&self) -> usize {
        self.servers
            .iter()
            .filter(|server| server.error.is_some())
            .count()
    }

    async fn read(
        ui: &Ui,
        caller: &Caller,
        statistics: Option<&StatisticsPart>,
    ) -> Result<Self, Failure> {
        let packs: PackList = ui.rest.get(caller, "/api/v1/packs").await?;
        // A server that is not ready answers 503 with the same checks.
        let readiness =
            readiness(ui.rest.open(caller, Method::GET, "/readyz", None).await?).await?;
        let servers: McpServerList = if caller.permissions.allow(&Permission::Admin) {
            ui.rest
                .get(caller, "/api/v1/mcp/servers")
                .await
                .unwrap_or_default()
        } else {
            McpServerList::default()
        };
        let failing = statistics
            .map(|part| part.all.packs.as_slice())
            .unwrap_or_default();
        let mut troubles = troubles(&readiness, &packs.refused, failing);
        troubles.extend(servers.servers.iter().filter_map(of_server));
        Ok(Self {
            troubles,
            servers: servers.servers,
            readiness,
            memory: ui.memory,
            packs: packs.packs.len(),
            cached_packs: packs.packs.iter().filter(|pack| pack.cached).count(),
        })
    }
}

/// Returns what is wrong, and what to do about each.
fn troubles(readiness: &Readiness, refused: &[Refused], packs: &[Numbers]) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    let checks = readiness
        .checks
        .iter()
        .filter(|(name, word)| *word != "ok" && *name != "manifests");
    for (name, word) in checks {
        let advice = match name.as_str() {
            "packs" => "Put a manifest into the packs folder; `helmdeck pack new` writes one.",
            "store" => "Calls go on without the cache. `helmdeck check` says what the store needs.",
            "artifacts" => {
                "Packs that write files fail until the storage answers. `helmdeck check` tries it."
            }
            _ => "`helmdeck check` says more.",
        };
        troubles.push(Trouble {
            what: format!("{name}: {word}"),
            advice: advice.to_owned(),
            link: None,
        });
    }
    for Refused {
        file,
        line,
        message,
    } in refused
    {
        let place = line.map_or_else(|| file.clone(), |line| format!("{file}:{line}"));
        troubles.push(Trouble {
            what: format!("{place}: {message}"),
            advice: "Correct the manifest. It is read again when it is saved.".to_owned(),
            link: None,
        });
    }
    for numbers in packs {
        let pack = &numbers.pack;
        if numbers.errors >= FAILED && numbers.errors * 10 >= numbers.calls {
            troubles.push(Trouble {
                what: format!(
                    "{pack}: {} of {} calls failed",
                    numbers.errors, numbers.calls
                ),
                advice: "Look at the calls: the outcome says whose fault it was.".to_owned(),
                link: Some((
                    format!("/ui/calls?pack={}&outcome=failed", segment(pack)),
                    "Failed calls",
                )),
            });
        }
    }
    troubles
}

/// Returns what is wrong with an MCP server.
fn of_server(server: &McpServer) -> Option<Trouble> {
    Some(Trouble {
        what: format!("MCP server {}: {}", server.name, server.error.as_deref()?),
        advice: "Its packs fail until it answers. It is tried again by itself.".to_owned(),
        link: Some(("/ui/servers".to_owned(), "Servers")),
    })
}

fn unreadable(failure: &Failure) -> Trouble {
    Trouble {
        what: format!("The audit of calls cannot be read: {}", failure.detail),
        advice: "`helmdeck check` says what the store needs.".to_owned(),
        link: None,
    }
}

async fn readiness(response: Response) -> Result<Readiness, Failure> {
    use http_body_util::BodyExt;
    let body = response
        .into_body()
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let odd = |_| {
        Failure::new(
            http::StatusCode::BAD_GATEWAY,
            "the server does not say whether it is ready",
        )
    };
    json::from_slice(&body).map_err(odd)
}

/// Live view of the overview.
struct LiveOverview {
    topics: String,
    window: String,
    pack: String,
    /// Whether the audit could not be read.
    unread: bool,
}

/// Returns the live view of the overview.
pub(super) fn live(state: &super::State) -> Box<dyn Live> {
    let value = |name| state.get(name).to_owned();
    let unread = state.get("unread") == "true";
    Box::new(LiveOverview {
        topics: value("topics"),
        window: value("window"),
        pack: value("pack"),
        unread,
    })
}

impl LiveOverview {
    /// Reads the parts that new statistics change.
    async fn parts(&mut self, at: &Viewer) -> Result<Vec<Change>, Failure> {
        let statistics = StatisticsPart::read(&at.ui, &at.caller, &self.window, &self.pack).await?;
        let mut server = ServerState::read(&at.ui, &at.caller, Some(&statistics)).await?;
        if self.unread {
            match calls::newest(&at.ui, &at.caller, 1).await {
                Ok(_) => self.unread = false,
                Err(failure) => server.troubles.push(unreadable(&failure)),
            }
        }
        let parts = [
            ("statistics", statistics.render()),
            ("server", server.render()),
        ];
        let put = |(id, html): (&str, askama::Result<String>)| {
            Some(Change::Put {
                id: id.to_owned(),
                html: html.ok()?,
            })
        };
        Ok(parts.into_iter().filter_map(put).collect())
    }
}

impl Live for LiveOverview {
    fn source(&self) -> String {
        format!("/api/v1/events?topics={}", segment(&self.topics))
    }

    fn changes<'a>(
        &'a mut self,
        at: &'a Viewer,
        name: &'a str,
        data: &'a [u8],
    ) -> BoxFuture<'a, Vec<Change>> {
        Box::pin(async move {
            match name {
                "calls" => calls::changes(at, data, CALLS),
                "jobs" => super::jobs::rows(at, data, CALLS, |job| !job.is_final()),
                // What cannot be read now comes with the next statistics.
                "stats" => self.parts(at).await.unwrap_or_default(),
                _ => Vec::new(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::json::Read;

    #[test]
    fn each_trouble_says_what_to_do() {
        let readiness = Readiness {
            status: "degraded".to_owned(),
            checks: [
                ("store", "it fails"),
                ("packs", "ok"),
                ("manifests", "refused: 1"),
            ]
            .map(|(name, word)| (name.to_owned(), word.to_owned()))
            .into(),
        };
        let refused = Refused {
            file: "a.toml".to_owned(),
            line: Some(3),
            message: "no name".to_owned(),
        };
        let numbers = |pack: &str, calls: u64, errors: u64| {
            Numbers::read(&json!({
                "pack": pack, "calls": calls, "errors": errors, "cache": {}, "saved_calls": 0, "saved_ms": 0,
                "saved_upstream_calls": 0, "p50_us": 1, "p99_us": 1,
            }))
            .unwrap()
        };
        let packs = [
            numbers("a.b", 30, 3),
            numbers("a.c", 31, 3),
            numbers("a.d", 2, 2),
        ];
        let found = troubles(&readiness, &[refused], &packs);
        let what: Vec<&str> = found.iter().map(|trouble| trouble.what.as_str()).collect();
        assert_eq!(
            what,
            [
                "store: it fails",
                "a.toml:3: no name",
                "a.b: 3 of 30 calls failed"
            ]
        );
        assert!(found.iter().all(|trouble| !trouble.advice.is_empty()));
    }
}
