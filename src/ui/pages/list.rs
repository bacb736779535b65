//! Pages that show a list: what they all do with their URL, the route behind it, and its answer.

use askama::Template;
use axum::extract::RawQuery;
use axum::response::Response;
use helmdeck_core::Caller;
use serde::de::DeserializeOwned;

use super::{State, answered};
use crate::Ui;
use crate::frame::{Frame, Place, page};
use crate::rest::Failure;

/// Rows on one page.
const ROWS: usize = 50;

/// A page that shows what a route lists, in pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListOf {
    pub(super) place: Place,
    pub(super) title: &'static str,
    /// Path of the route.
    pub(super) route: &'static str,
    /// Parameters of the page that the route knows, besides `after`.
    pub(super) filters: &'static [&'static str],
}

/// Rows of a list, with what the URL of the page says.
#[derive(Debug)]
pub(super) struct Listed<T> {
    state: State,
    done: String,
    filters: &'static [&'static str],
    pub(super) rows: T,
}

impl ListOf {
    /// Returns the rows that the URL of a page names.
    ///
    /// # Errors
    /// The route's refusal.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        ui: &Ui,
        caller: &Caller,
        query: &RawQuery,
    ) -> Result<Listed<T>, Failure> {
        let state = State::of(query);
        let (filter, after) = (state.query(self.filters), state.query(&["after"]));
        let rows = ui.rest.get(caller, &format!("{}?limit={ROWS}{filter}{after}", self.route)).await?;
        Ok(Listed { done: state.done(ui, caller), state, filters: self.filters, rows })
    }

    /// Answers with the page of a list, or with that of its error.
    pub(super) async fn show<T: DeserializeOwned, P: Template>(
        &self,
        ui: &Ui,
        caller: &Caller,
        query: &RawQuery,
        make: impl FnOnce(Frame, Listed<T>) -> P,
    ) -> Response {
        let listed = self.read(ui, caller, query).await;
        let shown = listed.map(|listed| page(&make(Frame::new(self.title, self.place, caller, ui), listed)));
        answered(ui, caller, self.place, shown)
    }
}

impl<T> Listed<T> {
    /// Returns a parameter of the page, empty if there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        self.state.get(name)
    }

    /// Returns what was done before the browser came to the page, empty if nothing was.
    pub(super) fn done(&self) -> &str {
        &self.done
    }

    /// Returns whether the list is a part only: other rows may exist if there are none here.
    pub(super) fn is_filtered(&self) -> bool {
        self.filters.iter().chain(&["after"]).any(|name| !self.get(name).is_empty())
    }

    /// Returns the URL of the next page.
    pub(super) fn older(&self, next: &str) -> String {
        format!("?{}&after={}", self.state.query(self.filters).trim_start_matches('&'), crate::rest::segment(next))
            .replace("?&", "?")
    }
}
