//! What all pages have in common: the frame around them, their headers, and errors.

use askama::Template;
use axum::response::{IntoResponse, Response};
use helmdeck_core::{Caller, Permission, Timestamp};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, StatusCode};

use crate::assets;
use crate::rest::Failure;

/// What a page may load: our style sheet and script, and what the script asks, from here.
///
/// Nothing inline, no frame around it, forms to here only.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; \
     base-uri 'none'; frame-ancestors 'none'",
);

/// A page in the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Overview,
    Packs,
    Calls,
    Jobs,
    Cache,
    Memory,
    Conversations,
    Files,
    Project,
    Tokens,
    Vault,
    Servers,
    Operate,
}

impl Place {
    /// Path and name of each place, in the order of the navigation.
    const ALL: [(Self, &'static str, &'static str); 13] = [
        (Self::Overview, "/ui", "Overview"),
        (Self::Packs, "/ui/packs", "Packs"),
        (Self::Calls, "/ui/calls", "Calls"),
        (Self::Jobs, "/ui/jobs", "Jobs"),
        (Self::Cache, "/ui/cache", "Cache"),
        (Self::Memory, "/ui/memory", "Memory"),
        (Self::Conversations, "/ui/conversations", "Conversations"),
        (Self::Files, "/ui/files", "Files"),
        (Self::Project, "/ui/project", "Project"),
        (Self::Tokens, "/ui/tokens", "Tokens"),
        (Self::Vault, "/ui/vault", "Vault"),
        (Self::Servers, "/ui/servers", "Servers"),
        (Self::Operate, "/ui/operate", "Operate"),
    ];

    /// Says whether only an administrator can use the page.
    const fn needs_admin(self) -> bool {
        matches!(self, Self::Servers | Self::Operate)
    }

    const fn needs_memory(self) -> bool {
        matches!(
            self,
            Self::Calls | Self::Cache | Self::Memory | Self::Conversations
        )
    }
}

/// Frame of a page.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) title: String,
    place: Place,
    /// The caller, as `tenant/user`.
    pub(crate) caller: String,
    pub(crate) admin: bool,
    /// Whether the caller may make API tokens.
    pub(crate) makes_tokens: bool,
    /// Whether callers sign in, and so can sign out.
    pub(crate) signs_in: bool,
    /// Whether gate 1 is open.
    pub(crate) memory: bool,
    /// Whether there is a system database, which has the tokens.
    tokens: bool,
    /// Whether there is a vault.
    vault: bool,
    pub(crate) now: Timestamp,
    /// Token that every form of the page sends back.
    pub(crate) form_token: String,
    /// Address of the stream of changes; `None` = the page has no live updates.
    pub(crate) live: Option<String>,
}

/// Entry of the navigation.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) path: &'static str,
    pub(crate) name: &'static str,
    pub(crate) current: bool,
}

impl Frame {
    pub(crate) fn new(title: &str, place: Place, caller: &Caller, ui: &crate::Ui) -> Self {
        let identity = &caller.identity;
        Self {
            title: title.to_owned(),
            place,
            caller: format!("{}/{}", identity.tenant(), identity.user()),
            admin: caller.permissions.allow(&Permission::Admin),
            makes_tokens: caller.permissions.allow(&Permission::TokensWrite),
            signs_in: ui.signs_in,
            memory: ui.memory,
            tokens: ui.tokens,
            vault: ui.vault,
            now: ui.clock.now(),
            form_token: ui.form_token(caller),
            live: None,
        }
    }

    /// Gives the page live updates: `view` and its state, as a query (`view=calls&pack=a.b`).
    pub(crate) fn live(mut self, view: &str) -> Self {
        self.live = Some(format!("/ui/stream?{view}"));
        self
    }

    /// Milliseconds since 1970, for relative times of the script.
    pub(crate) fn now_ms(&self) -> i64 {
        self.now.micros() / 1_000
    }

    pub(crate) fn script(&self) -> &'static str {
        assets::script_path()
    }

    /// Returns whether the page is about the project, which has more rules of style.
    pub(crate) fn is_project(&self) -> bool {
        self.place == Place::Project
    }

    /// Returns whether the page is about memory, and memory is off.
    pub(crate) fn is_off(&self) -> bool {
        self.place.needs_memory() && !self.memory
    }

    /// Returns the entries of the navigation: what needs memory is there if memory is on, and so
    /// on.
    pub(crate) fn links(&self) -> Vec<Link> {
        let is_there = |place: Place| match place {
            Place::Tokens => self.tokens,
            Place::Vault => self.vault,
            _ => (self.memory || !place.needs_memory()) && (self.admin || !place.needs_admin()),
        };
        let shown = Place::ALL
            .into_iter()
            .filter(|(place, ..)| is_there(*place));
        shown
            .map(|(place, path, name)| Link {
                path,
                name,
                current: place == self.place,
            })
            .collect()
    }

    pub(crate) fn style(&self) -> &'static str {
        assets::style_path()
    }
}

/// What stands in the frame of a page.
pub(crate) trait Framed: Template {
    fn frame(&self) -> &Frame;
}

/// Says that a template stands in the frame that it has as a member.
macro_rules! framed {
    ($page:ty) => {
        impl $crate::frame::Framed for $page {
            fn frame(&self) -> &$crate::frame::Frame {
                &self.frame
            }
        }
    };
}
pub(crate) use framed;

/// A page: the frame, and what stands in it.
///
/// It is compiled once: as a part of each template, it would be there forty times.
#[derive(Template)]
#[template(path = "base.html")]
struct Whole<'a> {
    frame: &'a Frame,
    main: &'a str,
}

/// Answers with a page.
pub(crate) fn page(page: &impl Framed) -> Response {
    with_status(StatusCode::OK, page)
}

/// Answers with a page and a status.
pub(crate) fn with_status(status: StatusCode, page: &impl Framed) -> Response {
    answer(
        status,
        page.render().and_then(|main| {
            Whole {
                frame: page.frame(),
                main: &main,
            }
            .render()
        }),
    )
}

/// Answers with the whole text of a page.
pub(crate) fn answer(status: StatusCode, html: askama::Result<String>) -> Response {
    let Ok(html) = html else {
        return (
            StatusCode::INTERNAL_SERVER_ERROR,
            "the page cannot be written",
        )
            .into_response();
    };
    let headers = [
        (
            CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        ),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, HeaderValue::from_static("same-origin")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            HeaderValue::from_static("same-origin"),
        ),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (status, headers, html).into_response()
}

/// Page of an error.
#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    frame: Frame,
    failure: &'a Failure,
}

crate::frame::framed!(ErrorPage<'_>);

/// Answers with the page of an error.
pub(crate) fn failed(ui: &crate::Ui, caller: &Caller, place: Place, failure: &Failure) -> Response {
    let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let frame = Frame::new(heading(failure.status), place, caller, ui);
    with_status(status, &ErrorPage { frame, failure })
}

/// Returns what kind of error a status is, for a person.
const fn heading(status: u16) -> &'static str {
    match status {
        403 => "You may not do this",
        404 => "Not found",
        429 => "Too many requests",
        400..=499 => "This cannot be done",
        _ => "The server failed",
    }
}
