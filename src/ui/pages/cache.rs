//! Cached answers: what is stored, and purging it after a look at what goes.

use askama::Template;
use axum::Router;
use axum::response::Response;
use http::Method;
use serde_json::{Value, json};

use super::list::{ListOf, Listed};
use super::{answered, done};
use crate::Ui;
use crate::frame::{Frame, Place, failed, page};
use crate::json::answer;
use crate::request::{Post, Visit, form_at, page_at};
use crate::rest::{self, segment};
use crate::shown::{self, Time};

const LIST: ListOf = ListOf {
    place: Place::Cache,
    title: "Cache",
    route: "/api/v1/memory/entries",
    filters: &["pack", "tag", "tenant", "subject", "session"],
    ..ListOf::PLAIN
};
/// Members of a purge, as they are in the URL of the page that shows what goes.
const SELECTS: [&str; 6] = ["all", "pack", "tag", "tenant", "subject", "session"];

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route("/ui/cache", page_at(|visit| Box::pin(list(visit))))
        .route(
            "/ui/cache/purge",
            page_at(|visit| Box::pin(preview(visit))).merge(form_at(|post| Box::pin(purge(post)))),
        )
}

answer! {
    /// A cached answer, without its value.
    #[derive(Debug)]
    struct Entry {
        key: String,
        tags: Vec<String>,
        updated_at: Time,
        expires_at: Option<Time>,
        size: u64,
        tenant: String,
        subject: String,
        session: Option<String>,
    }
}

impl Entry {
    /// Returns the pack of the answer: a key starts with it.
    fn pack(&self) -> &str {
        self.key.split('/').next().unwrap_or_default()
    }

    /// Returns the first digits of the key, as `Cache-Status` has them.
    fn short_key(&self) -> &str {
        let digits = self.key.rsplit('/').next().unwrap_or_default();
        digits.get(..16).unwrap_or(digits)
    }
}

answer! {
    #[derive(Debug)]
    struct EntryList {
        entries: Vec<Entry>,
        next: Option<String>,
    }

    /// What a namespace holds of cached answers.
    #[derive(Debug)]
    struct Holder {
        tenant: String,
        subject: String,
        session: Option<String>,
        rows: u64,
        bytes: u64,
    }
}

impl Holder {
    /// URL of the list of its answers.
    fn path(&self) -> String {
        let session = self
            .session
            .as_ref()
            .map(|session| format!("&session={}", segment(session)))
            .unwrap_or_default();
        format!(
            "/ui/cache?tenant={}&subject={}{session}",
            segment(&self.tenant),
            segment(&self.subject)
        )
    }
}

answer! {
    #[derive(Debug)]
    struct Holders {
        namespaces: Vec<Holder>,
        next: Option<String>,
    }

    /// What a purge would delete.
    #[derive(Debug)]
    struct Preview {
        rows: u64,
        bytes: u64,
        complete: bool,
        entries: Vec<Entry>,
    }
}

#[derive(Template)]
#[template(path = "cache.html")]
struct CachePage {
    frame: Frame,
    list: Listed<EntryList>,
    tenant: String,
    subject: String,
    holders: Holders,
}

crate::frame::framed!(CachePage);

impl CachePage {
    /// URL of the page that shows what a purge of this list's namespace deletes.
    fn purge_namespace(&self) -> String {
        let session = self.list.get("session");
        let session = if session.is_empty() {
            String::new()
        } else {
            format!("&session={}", segment(session))
        };
        format!(
            "/ui/cache/purge?tenant={}&subject={}{session}",
            segment(&self.tenant),
            segment(&self.subject)
        )
    }
}

#[derive(Template)]
#[template(path = "purge.html")]
struct PurgePage {
    frame: Frame,
    what: String,
    /// Names and values of the selection, for the form.
    fields: Vec<(&'static str, String)>,
    preview: Preview,
}

crate::frame::framed!(PurgePage);

async fn list(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let answer = async {
        let list: Listed<EntryList> = LIST.read(&ui, &caller, &query).await?;
        let or_own = |name: &str, own: &str| {
            if list.get(name).is_empty() {
                own
            } else {
                list.get(name)
            }
            .to_owned()
        };
        Ok(page(&CachePage {
            frame: Frame::new(LIST.title, LIST.place, &caller, &ui),
            tenant: or_own("tenant", caller.identity.tenant()),
            subject: or_own("subject", caller.identity.user()),
            holders: ui
                .rest
                .get(&caller, "/api/v1/memory/namespaces?kind=cache&limit=20")
                .await?,
            list,
        }))
    };
    answered(&ui, &caller, LIST.place, answer.await)
}

/// Makes the selection of a purge from its parameters.
fn selection(get: impl Fn(&str) -> String) -> Value {
    let given = |name: &str| Some(get(name)).filter(|value| !value.is_empty());
    let mut namespace = json!({ "tenant": get("tenant"), "subject": get("subject") });
    if let Some(session) = given("session") {
        namespace["session"] = session.into();
    }
    match (given("all"), given("key"), given("pack"), given("tag")) {
        (Some(_), ..) => json!({ "all": true }),
        (_, Some(key), ..) => json!({ "namespace": namespace, "key": key }),
        (_, _, Some(pack), _) => json!({ "pack": pack }),
        (.., Some(tag)) => json!({ "tag": tag }),
        _ => json!({ "namespace": namespace }),
    }
}

/// Says in words what a purge selects.
fn described(selection: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let owner = &selection["namespace"];
    if selection["all"] == true {
        return "all cached answers of all callers".to_owned();
    }
    if let Some(pack) = selection["pack"].as_str() {
        return format!("all cached answers of {pack}, of every caller");
    }
    if let Some(tag) = selection["tag"].as_str() {
        return format!("all cached answers with the tag {tag}, of every caller");
    }
    let session = owner["session"]
        .as_str()
        .map(|session| format!(" in session {session}"))
        .unwrap_or_default();
    format!(
        "all cached answers of {}/{}{session}",
        text(&owner["tenant"]),
        text(&owner["subject"])
    )
}

/// Shows what a purge would delete, before it does.
async fn preview(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let state = super::State::of(&query);
    let selected = selection(|name| state.get(name).to_owned());
    let answer = async {
        let route = "/api/v1/memory/purge/preview";
        let looked = ui
            .rest
            .send(&caller, Method::POST, route, Some(&selected))
            .await?;
        let fields = SELECTS
            .iter()
            .map(|name| (*name, state.get(name).to_owned()));
        Ok(page(&PurgePage {
            frame: Frame::new("Purge", LIST.place, &caller, &ui),
            what: described(&selected),
            fields: fields.filter(|(_, value)| !value.is_empty()).collect(),
            preview: rest::read(&looked)?,
        }))
    };
    answered(&ui, &caller, LIST.place, answer.await)
}

async fn purge(Post { ui, sent, .. }: Post) -> Response {
    let selected = selection(|name| sent.value(name).to_owned());
    let purged = ui
        .rest
        .send(
            &sent.caller,
            Method::POST,
            "/api/v1/memory/purge",
            Some(&selected),
        )
        .await;
    match purged.and_then(|answer| rest::read::<Value>(&answer)) {
        Ok(purged) => {
            let rows = shown::count(purged["rows"].as_u64().unwrap_or_default(), "answer");
            let pending = if purged["pending"] == true {
                " The store will delete the rest when it can be reached."
            } else {
                ""
            };
            done(
                &ui,
                &sent.caller,
                "/ui/cache",
                &format!("Purged {rows}.{pending}"),
            )
        }
        Err(failure) => failed(&ui, &sent.caller, LIST.place, &failure),
    }
}
