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
mod servers;
mod tokens;
mod vault;

use axum::Router;
use axum::extract::RawQuery;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use helmdeck_core::Caller;

use crate::Ui;
use crate::assets;
use crate::frame::{Place, failed};
use crate::request::PathParams;
use crate::rest::{Failure, segment};

pub(crate) fn routes() -> Router<Ui> {
    Router::new()
        .route("/ui/assets/{name}", get(assets::asset))
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
fn done(path: &str, sentence: &str) -> Response {
    let separator = if path.contains('?') { '&' } else { '?' };
    see_other(&format!("{path}{separator}done={}", segment(sentence)))
}

/// Parameters of a page's URL: its whole state.
#[derive(Debug, Default)]
struct State(Vec<(String, String)>);

impl State {
    fn of(query: &RawQuery) -> Self {
        Self(form_urlencoded::parse(query.0.as_deref().unwrap_or_default().as_bytes()).into_owned().collect())
    }

    /// Returns a parameter, empty if there is none.
    fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
    }

    /// Returns these parameters, without empty ones, as a query for a route. `names` are those that the route knows.
    fn query(&self, names: &[&str]) -> String {
        let known = self.0.iter().filter(|(name, value)| names.contains(&name.as_str()) && !value.is_empty());
        known.map(|(name, value)| format!("&{name}={}", segment(value))).collect()
    }
}

/// Returns a value of the path, empty if the route has none.
fn path_value<'a>(path: &'a PathParams, name: &str) -> &'a str {
    path.0.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
}
