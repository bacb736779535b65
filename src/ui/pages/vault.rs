//! The vault: credentials with their grants and uses, never a value.

use askama::Template;
use axum::Router;
use axum::response::Response;
use http::{Method, StatusCode};
use serde_json::json;

use super::list::{ListOf, Listed};
use super::{answered, done, path_value};
use crate::Ui;
use crate::frame::{Frame, Place, failed, page};
use crate::json::answer;
use crate::request::{Post, Visit, form_at, page_at};
use crate::rest::{Failure, segment};
use crate::shown::{self, Time};

const LIST: ListOf = ListOf {
    place: Place::Vault,
    title: "Vault",
    route: "/api/v1/credentials",
    filters: &["name"],
    ..ListOf::PLAIN
};

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route("/ui/vault", page_at(|visit| Box::pin(list(visit))))
        .route("/ui/vault/{name}", page_at(|visit| Box::pin(show(visit))))
        .route(
            "/ui/vault/{name}/{action}",
            form_at(|post| Box::pin(change(post))),
        )
}

answer! {
    /// A credential without its value.
    #[derive(Debug)]
    struct Credential {
        name: String,
        kind: Option<String> = "type",
        hosts: Vec<String> = default,
        subjects: Vec<String> = default,
        packs: Vec<String> = default,
        user: Option<String>,
        error: Option<String>,
        updated_at: Time,
        last_used_at: Option<Time>,
        last_used_by: Option<String>,
        granted: u64,
        refused: u64,
    }
}

impl Credential {
    /// Path of its page.
    fn path(&self) -> String {
        format!("/ui/vault/{}", segment(&self.name))
    }
}

answer! {
    #[derive(Debug)]
    struct CredentialList {
        credentials: Vec<Credential>,
        next: Option<String>,
    }

    /// Uses of a credential by a caller and a pack on one day.
    #[derive(Debug)]
    struct Use {
        tenant: String,
        user: String,
        pack: String,
        day: String,
        granted: u64,
        refused: u64,
        last_at: Time,
    }

    #[derive(Debug)]
    struct Uses {
        uses: Vec<Use>,
    }
}

#[derive(Template)]
#[template(path = "vault.html")]
struct VaultPage {
    frame: Frame,
    list: Listed<CredentialList>,
}

crate::frame::framed!(VaultPage);

#[derive(Template)]
#[template(path = "credential.html")]
struct CredentialPage {
    frame: Frame,
    done: String,
    credential: Credential,
    uses: Vec<Use>,
}

crate::frame::framed!(CredentialPage);

async fn list(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    LIST.show(&ui, &caller, &query, |frame, list| VaultPage {
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
    let name = path_value(&path, "name");
    let answer = async {
        let found: CredentialList = ui
            .rest
            .get(&caller, &format!("{}?name={}", LIST.route, segment(name)))
            .await?;
        let missing = || {
            Failure::new(
                StatusCode::NOT_FOUND,
                "no credential of this name exists, or it is not yours",
            )
        };
        let credential = found.credentials.into_iter().next().ok_or_else(missing)?;
        let uses: Uses = ui
            .rest
            .get(
                &caller,
                &format!("{}/{}/uses?limit=100", LIST.route, segment(name)),
            )
            .await?;
        Ok(page(&CredentialPage {
            frame: Frame::new(name, LIST.place, &caller, &ui),
            done: super::State::of(&query).done(&ui, &caller),
            credential,
            uses: uses.uses,
        }))
    };
    answered(&ui, &caller, LIST.place, answer.await)
}

/// Grants or revokes.
async fn change(Post { ui, path, sent }: Post) -> Response {
    let (name, action) = (
        segment(path_value(&path, "name")),
        path_value(&path, "action"),
    );
    if !matches!(action, "grant" | "revoke") {
        let failure = Failure::new(StatusCode::NOT_FOUND, "there is no such action");
        return failed(&ui, &sent.caller, LIST.place, &failure);
    }
    let words = |name: &str| {
        sent.value(name)
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let grant = json!({ "subjects": words("subjects"), "packs": words("packs") });
    let route = format!("{}/{name}/{action}", LIST.route);
    match ui
        .rest
        .send(&sent.caller, Method::POST, &route, Some(&grant))
        .await
    {
        Ok(_) if action == "grant" => done(
            &ui,
            &sent.caller,
            &format!("/ui/vault/{name}"),
            "It is granted.",
        ),
        Ok(_) => done(
            &ui,
            &sent.caller,
            &format!("/ui/vault/{name}"),
            "It is revoked. The next call is refused.",
        ),
        Err(failure) => failed(&ui, &sent.caller, LIST.place, &failure),
    }
}
