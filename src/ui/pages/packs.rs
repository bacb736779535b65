//! Packs: a list by family, and one with its contract and a form that runs it.

use std::collections::BTreeMap;

use askama::Template;
use axum::Router;
use axum::response::Response;
use helmdeck_core::Caller;
use helmdeck_core::text::shell_quoted;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::files::Artifact;
use super::{answered, path_value, see_other};
use crate::Ui;
use crate::frame::{Frame, Place, page, with_status};
use crate::json::answer;
use crate::request::{PathParams, Post, Sent, Visit, form_at, page_at};
use crate::rest::{self, Failure, segment};
use crate::schema_form::{self, Field};
use crate::shown::{self, Time};

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route("/ui/packs", page_at(|visit| Box::pin(list(visit))))
        .route(
            "/ui/packs/{name}",
            page_at(|visit| Box::pin(show(visit))).merge(form_at(|post| Box::pin(run(post)))),
        )
}

answer! {
    #[derive(Debug)]
    struct PackList {
        packs: Vec<Summary>,
    }

    /// A pack in the list.
    #[derive(Debug)]
    struct Summary {
        name: String,
        description: String,
        read_only: bool,
        cached: bool,
        asynchronous: bool = "async",
        waits_for: Option<String>,
    }
}

/// Packs whose names begin with the same word.
#[derive(Debug)]
struct Family {
    name: String,
    packs: Vec<Summary>,
}

#[derive(Template)]
#[template(path = "packs.html")]
struct PacksPage {
    frame: Frame,
    filter: String,
    all: bool,
    count: u64,
    families: Vec<Family>,
}

crate::frame::framed!(PacksPage);

answer! {
    /// Contract of a pack.
    #[derive(Debug)]
    struct Pack {
        name: String,
        version: String,
        title: Option<String>,
        description: String,
        read_only: bool,
        destructive: bool,
        waits_for: Option<String>,
        outdated: Option<String>,
        handler: String,
        timeout_s: f64,
        input: Value,
        output: Value,
        cache: Option<Value>,
        cached: bool,
        credentials: Value = default,
        examples: Vec<Example> = default,
    }

    #[derive(Debug)]
    struct Example {
        description: String = default,
        input: Value,
    }

    /// What the cache knows of a call.
    #[derive(Debug)]
    struct Explanation {
        key_parts: BTreeMap<String, String>,
        key: Option<String>,
        tags: Vec<String>,
        entry: String,
        age_s: Option<f64>,
        fresh_until: Option<Time>,
        nearest: Option<Nearest>,
        /// Why the last answer was not kept.
        refused: Option<String>,
    }
}

impl Explanation {
    fn age(&self) -> Option<String> {
        let age = std::time::Duration::try_from_secs_f64(self.age_s?).ok()?;
        Some(shown::millis(
            u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
        ))
    }
}

answer! {
    /// The nearest answer to a call that has none.
    #[derive(Debug)]
    struct Nearest {
        written_at: Time,
        differs_in: Vec<String>,
    }

    /// Answer of the route that runs a pack.
    #[derive(Debug)]
    struct Ran {
        output: Value = default,
        duration_ms: u64 = default,
        artifacts: Vec<Artifact> = default,
        cache: Option<CacheStatus>,
    }

    #[derive(Debug)]
    struct CacheStatus {
        status: String,
        reason: Option<String>,
        /// Why the answer was not kept.
        why: Option<String>,
        retry_after_ms: Option<u64>,
    }
}

impl CacheStatus {
    fn meaning(&self) -> &'static str {
        match (self.status.as_str(), &self.why) {
            ("hit", _) => "from the cache",
            ("miss", Some(_)) => "run now",
            ("miss", None) => "run now, and stored",
            ("stale", _) => "from the cache, older than its ttl",
            ("revalidated", _) => "from the cache, after a check that nothing has changed",
            ("coalesced", _) => "from an equal call that ran at the same time",
            _ => "not cached",
        }
    }

    /// Returns why, and what comes next.
    fn details(&self) -> String {
        let reason = self.reason.as_ref().map(|word| format!(" ({word})"));
        let not_kept = self.why.as_ref().map(|word| format!("; not kept: {word}"));
        let asked_again = self
            .retry_after_ms
            .map(|after| format!("; asked again in {}", shown::millis(after)));
        [reason, not_kept, asked_again]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// What a call of the page answered.
#[derive(Debug)]
struct Outcome {
    output: String,
    duration: String,
    artifacts: Vec<Artifact>,
    cache: Option<CacheStatus>,
    /// Line that makes the same call with `curl`.
    curl: String,
    /// Line that makes the same call at a shell.
    shell: String,
    /// Message that makes the same call over MCP.
    mcp: String,
}

#[derive(Template)]
#[template(path = "pack.html")]
struct PackPage {
    frame: Frame,
    pack: Pack,
    fields: Vec<Field>,
    json: String,
    input_schema: String,
    output_schema: String,
    cache: Option<String>,
    credentials: Option<String>,
    outcome: Option<Outcome>,
    /// What the cache knows of the call, or why it is not cached.
    explanation: Option<Result<Explanation, String>>,
    failure: Option<Failure>,
}

crate::frame::framed!(PackPage);

async fn list(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let state = super::State::of(&query);
    let answer = async {
        let all = state.get("all") == "true";
        let list: PackList = ui
            .rest
            .get(&caller, &format!("/api/v1/packs?all={all}"))
            .await?;
        let filter = state.get("filter").trim().to_lowercase();
        let matches = |pack: &Summary| {
            filter.split_whitespace().all(|word| {
                pack.name.contains(word) || pack.description.to_lowercase().contains(word)
            })
        };
        let mut families: BTreeMap<String, Vec<Summary>> = BTreeMap::new();
        for pack in list.packs.into_iter().filter(matches) {
            families
                .entry(pack.name.split('.').next().unwrap_or_default().to_owned())
                .or_default()
                .push(pack);
        }
        let families: Vec<Family> = families
            .into_iter()
            .map(|(name, packs)| Family { name, packs })
            .collect();
        Ok(page(&PacksPage {
            frame: Frame::new("Packs", Place::Packs, &caller, &ui),
            filter: state.get("filter").to_owned(),
            all,
            count: families
                .iter()
                .map(|family| family.packs.len() as u64)
                .sum(),
            families,
        }))
    };
    answered(&ui, &caller, Place::Packs, answer.await)
}

async fn show(
    Visit {
        ui,
        caller,
        path,
        query,
        ..
    }: Visit,
) -> Response {
    let state = super::State::of(&query);
    let answer = async {
        let pack = find(&ui, &caller, &path).await?;
        let example = state
            .get("example")
            .parse()
            .ok()
            .and_then(|number: usize| pack.examples.get(number));
        let input = example.map_or_else(|| json!({}), |example| example.input.clone());
        Ok(page(&pack_page(&ui, &caller, pack, &input)))
    };
    answered(&ui, &caller, Place::Packs, answer.await)
}

async fn run(Post { ui, path, sent }: Post) -> Response {
    let answer = async {
        let pack = find(&ui, &sent.caller, &path).await?;
        let input = match schema_form::input(&pack.input, &sent) {
            Ok(input) => input,
            Err(wrong) => {
                let mut shown = pack_page(&ui, &sent.caller, pack, &json!({}));
                schema_form::refill(&mut shown.fields, &sent);
                sent.value("json").clone_into(&mut shown.json);
                shown.failure = Some(Failure::new(StatusCode::BAD_REQUEST, wrong));
                return Ok(with_status(StatusCode::BAD_REQUEST, &shown));
            }
        };
        let mut route = format!("/api/v1/packs/{}", segment(&pack.name));
        if sent.value("do") == "explain" {
            let mut shown = pack_page(&ui, &sent.caller, pack, &input);
            shown.explanation = Some(explain(&ui, &sent.caller, &shown.pack.name, &input).await);
            return Ok(page(&shown));
        }
        if sent.value("do") == "job" {
            route.push_str("/jobs");
        }
        let called = ui
            .rest
            .send(&sent.caller, Method::POST, &route, Some(&input))
            .await;
        let mut shown = pack_page(&ui, &sent.caller, pack, &input);
        match called {
            Ok(answer) if answer.status == StatusCode::ACCEPTED => {
                let job: Value = rest::read(&answer)?;
                return Ok(see_other(&format!(
                    "/ui/jobs/{}",
                    segment(job["id"].as_str().unwrap_or_default())
                )));
            }
            Ok(answer) => {
                let curl = curl(&ui, &sent, &shown.pack.name, &input);
                let outcome = outcome(&shown.pack.name, &input, rest::read(&answer)?, curl);
                if outcome.cache.is_some() {
                    shown.explanation =
                        Some(explain(&ui, &sent.caller, &shown.pack.name, &input).await);
                }
                shown.outcome = Some(outcome);
            }
            Err(failure) => {
                let status =
                    StatusCode::from_u16(failure.status).unwrap_or(StatusCode::BAD_GATEWAY);
                shown.failure = Some(failure);
                return Ok(with_status(status, &shown));
            }
        }
        Ok(page(&shown))
    };
    answered(&ui, &sent.caller, Place::Packs, answer.await)
}

/// Returns what the cache knows of a call.
///
/// # Errors
/// Why the call is not cached, for the reader.
async fn explain(
    ui: &Ui,
    caller: &Caller,
    pack: &str,
    input: &Value,
) -> Result<Explanation, String> {
    let route = format!("/api/v1/packs/{}/explain", segment(pack));
    let answer = ui
        .rest
        .send(caller, Method::POST, &route, Some(input))
        .await;
    answer
        .and_then(|answer| rest::read(&answer))
        .map_err(|failure| failure.detail)
}

async fn find(ui: &Ui, caller: &Caller, path: &PathParams) -> Result<Pack, Failure> {
    ui.rest
        .get(
            caller,
            &format!("/api/v1/packs/{}", segment(path_value(path, "name"))),
        )
        .await
}

fn pack_page(ui: &Ui, caller: &Caller, pack: Pack, input: &Value) -> PackPage {
    let fields = schema_form::fields(&pack.input, input);
    let some = |value: &Value| match value {
        Value::Null => None,
        Value::Array(items) if items.is_empty() => None,
        value => Some(shown::json(value)),
    };
    PackPage {
        frame: Frame::new(
            pack.title.as_deref().unwrap_or(&pack.name),
            Place::Packs,
            caller,
            ui,
        ),
        fields,
        json: shown::json(input),
        input_schema: shown::json(&pack.input),
        output_schema: shown::json(&pack.output),
        cache: pack.cache.as_ref().and_then(some),
        credentials: some(&pack.credentials),
        pack,
        outcome: None,
        explanation: None,
        failure: None,
    }
}

fn outcome(pack: &str, input: &Value, ran: Ran, curl: String) -> Outcome {
    let text = input.to_string();
    let quoted = shell_quoted(&text);
    let message = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": pack, "arguments": input },
    });
    Outcome {
        output: shown::json(&ran.output),
        duration: shown::millis(ran.duration_ms),
        artifacts: ran.artifacts,
        cache: ran.cache,
        curl,
        shell: format!("helmdeck run {pack} --input {quoted}"),
        mcp: message.to_string(),
    }
}

/// Returns the line that makes a call with `curl`, at the address that the browser has.
fn curl(ui: &Ui, sent: &Sent, pack: &str, input: &Value) -> String {
    let token = if ui.signs_in {
        " --oauth2-bearer \"$HELMDECK_TOKEN\""
    } else {
        ""
    };
    let url = shell_quoted(&format!("{}/api/v1/packs/{pack}", sent.origin));
    format!(
        "curl{token} --json {} {url}",
        shell_quoted(&input.to_string())
    )
}
