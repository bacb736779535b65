//! Pages that show a list: what they all do with their URL, the route behind it, and its answer.

use axum::extract::RawQuery;
use axum::response::Response;
use helmdeck_core::Caller;

use super::{State, answered};
use crate::Ui;
use crate::frame::{Frame, Framed, Place, page};
use crate::json::Read;
use crate::rest::Failure;

/// A page that shows what a route lists, in pages.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListOf {
    pub(super) place: Place,
    pub(super) title: &'static str,
    /// Path of the route.
    pub(super) route: &'static str,
    /// Parameters of the page that the route knows, besides the cursor.
    pub(super) filters: &'static [&'static str],
    /// Parameters of the page that the route does not know.
    pub(super) own: &'static [&'static str],
    /// Name of the parameter that says where a page starts.
    pub(super) cursor: &'static str,
    /// Rows on one page.
    pub(super) rows: usize,
}

/// Rows of a list, with what the URL of the page says.
#[derive(Debug)]
pub(super) struct Listed<T> {
    state: State,
    done: String,
    of: ListOf,
    pub(super) rows: T,
}

impl ListOf {
    /// What most lists have.
    pub(super) const PLAIN: Self = Self {
        place: Place::Overview,
        title: "",
        route: "",
        filters: &[],
        own: &[],
        cursor: "after",
        rows: 50,
    };

    /// Returns the rows that the URL of a page names.
    ///
    /// # Errors
    /// The route's refusal.
    pub(super) async fn read<T: Read>(
        &self,
        ui: &Ui,
        caller: &Caller,
        query: &RawQuery,
    ) -> Result<Listed<T>, Failure> {
        self.read_with(ui, caller, query, "").await
    }

    /// As [`Self::read`], with more parameters for the route (`&since=...`).
    ///
    /// # Errors
    /// The route's refusal.
    pub(super) async fn read_with<T: Read>(
        &self,
        ui: &Ui,
        caller: &Caller,
        query: &RawQuery,
        more: &str,
    ) -> Result<Listed<T>, Failure> {
        let state = State::of(query);
        let (filter, after) = (state.query(self.filters), state.query(&[self.cursor]));
        let route = format!("{}?limit={}{filter}{more}{after}", self.route, self.rows);
        let rows = ui.rest.get(caller, &route).await?;
        Ok(Listed {
            done: state.done(ui, caller),
            state,
            of: *self,
            rows,
        })
    }

    /// Answers with the page of a list, or with that of its error.
    pub(super) async fn show<T: Read, P: Framed>(
        &self,
        ui: &Ui,
        caller: &Caller,
        query: &RawQuery,
        make: impl FnOnce(Frame, Listed<T>) -> P,
    ) -> Response {
        let listed = self.read(ui, caller, query).await;
        let shown = listed.map(|listed| {
            page(&make(
                Frame::new(self.title, self.place, caller, ui),
                listed,
            ))
        });
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
        self.of
            .filters
            .iter()
            .any(|name| !self.get(name).is_empty())
            || self.is_older()
    }

    /// Returns whether this is not the first page, which has the newest rows.
    pub(super) fn is_older(&self) -> bool {
        !self.get(self.of.cursor).is_empty()
    }

    /// Returns the parameters of the page that the route knows, as a query (`&state=failed`), for
    /// its live updates.
    pub(super) fn filter(&self) -> String {
        self.state.query(self.of.filters)
    }

    /// Returns the URL of the next page.
    pub(super) fn older(&self, next: &str) -> String {
        let state = self.filter() + &self.state.query(self.of.own);
        let next = format!("&{}={}", self.of.cursor, crate::rest::segment(next));
        format!("?{}", (state + &next).trim_start_matches('&'))
    }
}
