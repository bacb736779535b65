//! API tokens: list, create and revoke. The text of a new one is on the answer to its form only.

use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::Response;
use helmdeck_core::Caller;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::list::{ListOf, Listed};
use super::{answered, done, path_value};
use crate::Ui;
use crate::frame::{Frame, Place, failed, with_status};
use crate::json::answer;
use crate::request::{Post, Sent, Visit, form_at, page_at};
use crate::rest::{self, Failure, segment};
use crate::shown::Time;

const LIST: ListOf = ListOf {
    place: Place::Tokens,
    title: "Tokens",
    route: "/api/v1/tokens",
    filters: &["tenant", "user", "live"],
    ..ListOf::PLAIN
};
/// Seconds of a day.
const DAY: u64 = 24 * 3600;

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route(
            "/ui/tokens",
            page_at(|visit| Box::pin(list(visit))).merge(form_at(|post| Box::pin(create(post)))),
        )
        .route(
            "/ui/tokens/{id}/revoke",
            form_at(|post| Box::pin(revoke(post))),
        )
}

answer! {
    /// A token without its text.
    #[derive(Debug)]
    struct Token {
        id: String,
        name: String,
        tenant: String,
        user: String,
        scope: String,
        state: String,
        created_at: Time,
        expires_at: Option<Time>,
        used_at: Option<Time>,
    }

    #[derive(Debug)]
    struct TokenList {
        tokens: Vec<Token>,
        next: Option<String>,
        /// Whether the server accepts such tokens.
        accepted: bool,
    }

    /// A token with its text.
    #[derive(Debug)]
    struct Made {
        name: String,
        tenant: String,
        user: String,
        scope: String,
        expires_at: Option<Time>,
        token: String,
    }
}

#[derive(Template)]
#[template(path = "tokens.html")]
struct TokensPage {
    frame: Frame,
    list: Listed<TokenList>,
    made: Option<Made>,
    failure: Option<Failure>,
    /// Name and scope that were sent, to correct them.
    name: String,
    scope: String,
}

crate::frame::framed!(TokensPage);

impl TokensPage {
    fn new(frame: Frame, list: Listed<TokenList>) -> Self {
        Self {
            frame,
            list,
            made: None,
            failure: None,
            name: String::new(),
            scope: String::new(),
        }
    }
}

async fn list(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    LIST.show(&ui, &caller, &query, TokensPage::new).await
}

async fn create(Post { ui, sent, .. }: Post) -> Response {
    let caller = &sent.caller;
    let made = make(&ui, caller, &sent).await;
    let answer = async {
        let listed = LIST.read(&ui, caller, &RawQuery(None)).await?;
        let mut shown = TokensPage::new(Frame::new(LIST.title, LIST.place, caller, &ui), listed);
        let status = match made {
            Ok(made) => {
                shown.made = Some(made);
                StatusCode::OK
            }
            Err(failure) => {
                let status =
                    StatusCode::from_u16(failure.status).unwrap_or(StatusCode::BAD_REQUEST);
                (shown.name, shown.scope) = (
                    sent.value("name").to_owned(),
                    sent.value("scope").to_owned(),
                );
                shown.failure = Some(failure);
                status
            }
        };
        Ok(with_status(status, &shown))
    };
    answered(&ui, caller, LIST.place, answer.await)
}

async fn make(ui: &Ui, caller: &Caller, sent: &Sent) -> Result<Made, Failure> {
    let mut wanted = json!({ "name": sent.value("name") });
    for name in ["tenant", "user", "scope"] {
        if let Some(value) = sent.get(name) {
            wanted[name] = value.into();
        }
    }
    match sent.value("days") {
        "never" => wanted["never_expires"] = true.into(),
        days => {
            if let Ok(days) = days.parse::<u64>() {
                wanted["ttl_seconds"] = days.saturating_mul(DAY).into();
            }
        }
    }
    rest::read(
        &ui.rest
            .send(caller, Method::POST, LIST.route, Some::<&Value>(&wanted))
            .await?,
    )
}

async fn revoke(Post { ui, path, sent }: Post) -> Response {
    let route = format!("{}/{}", LIST.route, segment(path_value(&path, "id")));
    match ui
        .rest
        .send(&sent.caller, Method::DELETE, &route, None)
        .await
    {
        Ok(_) => done(
            &ui,
            &sent.caller,
            "/ui/tokens",
            "The token is revoked. Every server refuses it within a second.",
        ),
        Err(failure) => failed(&ui, &sent.caller, LIST.place, &failure),
    }
}
