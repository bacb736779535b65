//! The pages: one file per place of the navigation.

mod cache;
mod calls;
mod conversations;
mod files;
mod jobs;
mod list;
mod memory;
mod operate;
mod overview;
mod packs;
mod project;
mod servers;
mod statistics;
mod tokens;
mod vault;

use axum::Router;
use axum::body::Body;
use axum::extract::RawQuery;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use helmdeck_core::{Caller, Permission};
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode};

use crate::Ui;
use crate::assets;
use crate::frame::{Place, failed};
use crate::live::{self, Live};
use crate::request::{PathParams, Visit, page_at};
use crate::rest::{Failure, segment};
use crate::sign_in;

/// Parameter with what was done before the browser came to a page.
const DONE: &str = "done";

pub(crate) fn routes() -> Router<Ui> {
    Router::new()
        .route("/ui/assets/{name}", get(assets::asset))
        .merge(live::routes())
        .route(sign_in::script_path(), get(sign_in::script))
        .merge(overview::routes())
        .merge(packs::routes())
        .merge(calls::routes())
        .merge(jobs::routes())
        .merge(cache::routes())
        .merge(memory::routes())
        .merge(conversations::routes())
        .merge(files::routes())
        .merge(tokens::routes())
        .merge(vault::routes())
        .merge(servers::routes())
        .merge(operate::routes())
        .merge(project::routes())
        .route("/ui/", get(async || see_other("/ui")))
        .route("/ui/{*rest}", page_at(|visit| Box::pin(missing(visit))))
}

/// Answers an address that has no page.
async fn missing(Visit { ui, caller, .. }: Visit) -> Response {
    let failure = Failure::new(StatusCode::NOT_FOUND, "there is no such page");
    failed(&ui, &caller, Place::Overview, &failure)
}

/// Returns the live view of a page by its name, in the state that the page was in.
pub(crate) fn view(name: &str, state: &State) -> Option<Box<dyn Live>> {
    match name {
        "overview" => Some(overview::live(state)),
        "calls" => Some(calls::live(state)),
        "jobs" => Some(jobs::live(state)),
        "job" => Some(jobs::live_job(state)),
        _ => None,
    }
}

/// Returns the topics of the stream that a visitor may follow.
fn topics(ui: &Ui, caller: &Caller) -> Vec<&'static str> {
    let may = |permission| caller.permissions.allow(&permission);
    let topics = [
        ("jobs", !caller.identity.is_anonymous()),
        (
            "calls",
            ui.memory && may(Permission::MemoryRead) && !caller.identity.is_anonymous(),
        ),
        ("stats", may(Permission::MetricsRead)),
    ];
    topics
        .into_iter()
        .filter(|(_, may)| *may)
        .map(|(topic, _)| topic)
        .collect()
}

/// Answers with a page, or with the page of its error.
fn answered(ui: &Ui, caller: &Caller, place: Place, answer: Result<Response, Failure>) -> Response {
    answer.unwrap_or_else(|failure| failed(ui, caller, place, &failure))
}

/// Sends the browser to a page after a change, so that a reload repeats nothing.
fn see_other(path: &str) -> Response {
    Redirect::to(path).into_response()
}

/// Sends the browser to a page, with a sentence about what was done.
///
/// The sentence is sealed: a link that somebody else made shows none.
fn done(ui: &Ui, caller: &Caller, path: &str, sentence: &str) -> Response {
    let separator = if path.contains('?') { '&' } else { '?' };
    let seal = ui.seal(caller, DONE, sentence);
    see_other(&format!(
        "{path}{separator}{DONE}={}&seal={seal}",
        segment(sentence)
    ))
}

/// Sends JSON as a file, which a browser does not render.
fn download(name: &str, json: impl Into<Body>) -> Response {
    let mut response = Response::new(json.into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(attachment) = HeaderValue::try_from(format!("attachment; filename=\"{name}\"")) {
        headers.insert(CONTENT_DISPOSITION, attachment);
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Parameters of a page's URL: its whole state.
#[derive(Debug, Default)]
pub(crate) struct State(Vec<(String, String)>);

impl State {
    pub(crate) fn of(query: &RawQuery) -> Self {
        Self(
            form_urlencoded::parse(query.0.as_deref().unwrap_or_default().as_bytes())
                .into_owned()
                .collect(),
        )
    }

    /// Returns a parameter, empty if there is none.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map_or("", |(_, value)| value.as_str())
    }

    /// Returns the sentence about what the caller did before it came to the page, empty if there is
    /// none.
    fn done(&self, ui: &Ui, caller: &Caller) -> String {
        let sentence = self.get(DONE);
        if ui.seal(caller, DONE, sentence) == self.get("seal") {
            sentence.to_owned()
        } else {
            String::new()
        }
    }

    /// Returns these parameters, without empty ones, as a query for a route. `names` are those that
    /// the route knows.
    fn query(&self, names: &[&str]) -> String {
        let known = self
            .0
            .iter()
            .filter(|(name, value)| names.contains(&name.as_str()) && !value.is_empty());
        known
            .map(|(name, value)| format!("&{name}={}", segment(value)))
            .collect()
    }
}

/// Returns a value of the path, empty if the route has none.
fn path_value<'a>(path: &'a PathParams, name: &str) -> &'a str {
    path.0
        .iter()
        .find(|(known, _)| *known == name)
        .map_or("", |(_, value)| value)
}
