//! Files of the memory, with their age and their damage.

use askama::Template;
use axum::Router;
use axum::response::Response;

use super::{API, Part, Tab, Top, answered, live_frame};
use crate::Ui;
use crate::frame::{Frame, page};
use crate::json::answer;
use crate::request::{Visit, page_at};
use crate::rest::segment;
use crate::shown::{self, Time};

/// Number of files on a page.
const LIMIT: usize = 200;

pub(super) fn routes() -> Router<Ui> {
    Router::new().route("/ui/project/files", page_at(|visit| Box::pin(list(visit))))
}

answer! {
    /// A file of the memory.
    #[derive(Debug)]
    struct File {
        path: String,
        folder: Option<String>,
        bytes: u64,
        etag: Option<String>,
        modified_at: Time,
        last_entry_at: Option<Time>,
        damage: Option<Damage>,
    }

    #[derive(Debug)]
    struct Damage {
        detail: String,
        next: Option<String>,
    }
}

#[derive(Template)]
#[template(path = "project/files.html")]
struct FilesPage {
    frame: Frame,
    top: Top,
    list: Part<File>,
}

crate::frame::framed!(FilesPage);

impl FilesPage {
    /// Returns the address of the next page.
    fn more(&self) -> Option<String> {
        Some(format!("?after={}", segment(self.list.next.as_deref()?)))
    }
}

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
                &format!("{API}/tree?limit={LIMIT}{}", state.query(&["after"])),
            )
            .await?;
        Ok(page(&FilesPage {
            frame: live_frame("Files", &ui, &caller),
            top: Top::new(Tab::Files, &state, &ui, &caller),
            list,
        }))
    };
    answered(&ui, &caller, Tab::Files, answer.await)
}
