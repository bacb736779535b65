//! Conversations: a list, and one with its turns, its summary and its health.

use askama::Template;
use axum::Router;
use axum::response::Response;
use http::Method;
use serde_json::{Value, json};

use super::list::{ListOf, Listed};
use super::{answered, done, path_value};
use crate::Ui;
use crate::frame::{Frame, Place, failed, page};
use crate::json::answer;
use crate::request::{Post, Sent, Visit, form_at, page_at};
use crate::rest::{self, segment};
use crate::shown::{self, Time};

const LIST: ListOf = ListOf {
    place: Place::Conversations,
    title: "Conversations",
    route: "/api/v1/conversations",
    filters: &["tenant", "user"],
    ..ListOf::PLAIN
};

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route("/ui/conversations", page_at(|visit| Box::pin(list(visit))))
        .route(
            "/ui/conversations/{session}",
            page_at(|visit| Box::pin(show(visit))),
        )
        .route(
            "/ui/conversations/{session}/export",
            page_at(|visit| Box::pin(export(visit))),
        )
        .route(
            "/ui/conversations/{session}/turns/{turn}/delete",
            form_at(|post| Box::pin(delete_turn(post))),
        )
        .route(
            "/ui/conversations/{session}/{action}",
            form_at(|post| Box::pin(change(post))),
        )
}

answer! {
    /// A conversation in the list.
    #[derive(Debug)]
    struct Summary {
        tenant: String,
        user: String,
        session: String,
        turns: u64,
        bytes: u64,
        updated_at: Time,
        expires_at: Option<Time>,
        health: String,
    }
}

impl Summary {
    /// Path of its page.
    fn path(&self) -> String {
        let owner = format!(
            "tenant={}&user={}",
            segment(&self.tenant),
            segment(&self.user)
        );
        format!("/ui/conversations/{}?{owner}", segment(&self.session))
    }
}

answer! {
    #[derive(Debug)]
    struct ConversationList {
        sessions: Vec<Summary>,
        total: u64,
        next: Option<String>,
    }
}

#[derive(Template)]
#[template(path = "conversations.html")]
struct ConversationsPage {
    frame: Frame,
    list: Listed<ConversationList>,
}

crate::frame::framed!(ConversationsPage);

answer! {
    /// What the strategy makes of a conversation.
    #[derive(Debug)]
    struct Trace {
        strategy: String,
        summary: String,
        recent_turn_count: u64,
        estimated_tokens: u64,
        health: String,
        kept_turns: u64,
        kept_bytes: u64,
        backlog_turns: u64,
        omitted_turns: u64,
        failures: u64,
        last_failure: Option<String>,
    }

    #[derive(Debug)]
    struct TurnList {
        items: Vec<Turn>,
        total: u64,
        next: Option<String>,
        unreadable: u64,
    }

    #[derive(Debug)]
    struct Turn {
        key: String,
        timestamp: Time,
        tokens: u64,
        /// Whether it is in the summary.
        folded: bool,
        value: Option<TurnValue>,
    }

    #[derive(Debug)]
    struct TurnValue {
        user_message: String,
        assistant_response: String,
    }
}

#[derive(Template)]
#[template(path = "conversation.html")]
struct ConversationPage {
    frame: Frame,
    done: String,
    session: String,
    tenant: String,
    user: String,
    /// Text that the shown turns contain.
    search: String,
    trace: Trace,
    turns: TurnList,
}

crate::frame::framed!(ConversationPage);

impl ConversationPage {
    /// Query that names the owner.
    fn owner(&self) -> String {
        format!(
            "?tenant={}&user={}",
            segment(&self.tenant),
            segment(&self.user)
        )
    }

    /// URL of the next page of turns.
    fn older(&self, next: &str) -> String {
        let search = if self.search.is_empty() {
            String::new()
        } else {
            format!("&content_search={}", segment(&self.search))
        };
        format!("{}{search}&after={}", self.owner(), segment(next))
    }

    /// Path of a form's action.
    fn action(&self, name: &str) -> String {
        format!("/ui/conversations/{}/{name}", segment(&self.session))
    }
}

async fn list(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    LIST.show(&ui, &caller, &query, |frame, list| ConversationsPage {
        frame,
        list,
    })
    .await
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
    let session = path_value(&path, "session").to_owned();
    let route = format!("/api/v1/conversations/{}", segment(&session));
    let answer = async {
        let owner = state.query(&["tenant", "user"]);
        let trace = ui
            .rest
            .get(
                &caller,
                &format!("{route}/trace?{}", owner.trim_start_matches('&')),
            )
            .await?;
        let after = state.query(&["content_search", "after"]);
        let turns = ui
            .rest
            .get(
                &caller,
                &format!("{route}/turns?texts=true&limit=20{owner}{after}"),
            )
            .await?;
        Ok(page(&ConversationPage {
            frame: Frame::new(
                &format!("Conversation {session}"),
                Place::Conversations,
                &caller,
                &ui,
            ),
            done: state.done(&ui, &caller),
            tenant: state.get("tenant").to_owned(),
            user: state.get("user").to_owned(),
            session,
            search: state.get("content_search").to_owned(),
            trace,
            turns,
        }))
    };
    answered(&ui, &caller, Place::Conversations, answer.await)
}

/// Sends a conversation as a JSON file: its summary, and every turn that is not in it.
async fn export(
    Visit {
        ui,
        caller,
        path,
        query,
        ..
    }: Visit,
) -> Response {
    let owner = super::State::of(&query).query(&["tenant", "user"]);
    let session = segment(path_value(&path, "session"));
    let route = format!(
        "/api/v1/conversations/{session}/snapshot?{}",
        owner.trim_start_matches('&')
    );
    match ui.rest.send(&caller, Method::GET, &route, None).await {
        Ok(answer) => super::download("conversation.json", answer.body),
        Err(failure) => failed(&ui, &caller, Place::Conversations, &failure),
    }
}

/// Returns the query that names the owner of the conversation that a form is about.
fn owner(sent: &Sent) -> String {
    let named = ["tenant", "user"]
        .into_iter()
        .filter_map(|name| Some((name, sent.get(name)?)));
    let query: Vec<String> = named
        .map(|(name, value)| format!("{name}={}", segment(value)))
        .collect();
    if query.is_empty() {
        String::new()
    } else {
        format!("?{}", query.join("&"))
    }
}

async fn delete_turn(Post { ui, path, sent }: Post) -> Response {
    let (session, turn) = (
        segment(path_value(&path, "session")),
        segment(path_value(&path, "turn")),
    );
    let owner = owner(&sent);
    let route = format!("/api/v1/conversations/{session}/turns/{turn}{owner}");
    match ui
        .rest
        .send(&sent.caller, Method::DELETE, &route, None)
        .await
    {
        Ok(_) => done(
            &ui,
            &sent.caller,
            &format!("/ui/conversations/{session}{owner}"),
            "The turn was deleted.",
        ),
        Err(failure) => failed(&ui, &sent.caller, Place::Conversations, &failure),
    }
}

/// Empties, forgets or summarises a conversation.
async fn change(Post { ui, path, sent }: Post) -> Response {
    let session = segment(path_value(&path, "session"));
    let (route, owner) = (format!("/api/v1/conversations/{session}"), owner(&sent));
    let here = format!("/ui/conversations/{session}{owner}");
    let (method, route, back, sentence) = match path_value(&path, "action") {
        "forget" => (
            Method::DELETE,
            format!("{route}{owner}"),
            "/ui/conversations",
            "The conversation was deleted.",
        ),
        "flush" => (
            Method::POST,
            format!("{route}/flush{owner}"),
            here.as_str(),
            "The conversation was emptied.",
        ),
        "fold" => (
            Method::POST,
            format!("{route}/fold{owner}"),
            here.as_str(),
            "The waiting turns were summarised.",
        ),
        _ => {
            let failure =
                rest::Failure::new(http::StatusCode::NOT_FOUND, "there is no such action");
            return failed(&ui, &sent.caller, Place::Conversations, &failure);
        }
    };
    let empty = json!({});
    let body = (method == Method::POST).then_some(&empty);
    match ui.rest.send(&sent.caller, method, &route, body).await {
        Ok(answer) => {
            let removed = serde_json::from_slice::<Value>(&answer.body)
                .ok()
                .and_then(|value| value["removed_turns"].as_u64());
            let receipt = removed
                .map(|turns| format!(" {} removed.", shown::count(turns, "turn")))
                .unwrap_or_default();
            done(&ui, &sent.caller, back, &format!("{sentence}{receipt}"))
        }
        Err(failure) => failed(&ui, &sent.caller, Place::Conversations, &failure),
    }
}
