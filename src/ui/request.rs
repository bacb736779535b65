//! Requests of pages: the caller, and forms that were sent.

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use futures_util::future::BoxFuture;
use helmdeck_core::Caller;
use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Limited};

use crate::Ui;
use crate::frame::{Place, failed};
use crate::rest::Failure;

/// Limit of a form in bytes: an input of a pack may be long.
const MAX_FORM_BYTES: usize = 1 << 20;
/// Field of the token that each form has.
const TOKEN: &str = "form_token";

/// Request of a page.
pub(crate) struct Visit {
    pub(crate) ui: Ui,
    pub(crate) caller: Caller,
    pub(crate) path: PathParams,
    pub(crate) query: RawQuery,
    pub(crate) headers: HeaderMap,
}

/// Form that a page sent.
pub(crate) struct Post {
    pub(crate) ui: Ui,
    pub(crate) path: PathParams,
    pub(crate) sent: Sent,
}

/// Returns the route of a page.
///
/// All pages have one type of handler, as all forms have: axum's part of a handler is compiled
/// once, not for each of them.
pub(crate) fn page_at(page: fn(Visit) -> BoxFuture<'static, Response>) -> MethodRouter<Ui> {
    get(
        move |State(ui): State<Ui>,
              By(caller): By,
              path: PathParams,
              query: RawQuery,
              headers: HeaderMap| {
            page(Visit {
                ui,
                caller,
                path,
                query,
                headers,
            })
        },
    )
}

/// Returns the route that a form is sent to.
pub(crate) fn form_at(change: fn(Post) -> BoxFuture<'static, Response>) -> MethodRouter<Ui> {
    post(move |State(ui): State<Ui>, path: PathParams, sent: Sent| change(Post { ui, path, sent }))
}

/// Caller of a page.
#[derive(Debug, Clone)]
pub(crate) struct By(pub(crate) Caller);

impl<S: Sync> FromRequestParts<S> for By {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        // A request that was not authenticated has no caller.
        let missing = (
            StatusCode::INTERNAL_SERVER_ERROR,
            "the request has no caller",
        );
        parts
            .extensions
            .get::<Caller>()
            .cloned()
            .map(Self)
            .ok_or(missing)
    }
}

/// Values in the path, decoded.
pub(crate) struct PathParams(pub(crate) RawPathParams);

impl FromRequestParts<Ui> for PathParams {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, ui: &Ui) -> Result<Self, Response> {
        let By(caller) = By::from_request_parts(parts, ui)
            .await
            .map_err(IntoResponse::into_response)?;
        let detail = "the address is not UTF-8 when it is decoded";
        let wrong = |_| {
            failed(
                ui,
                &caller,
                Place::Overview,
                &Failure::new(StatusCode::BAD_REQUEST, detail),
            )
        };
        RawPathParams::from_request_parts(parts, ui)
            .await
            .map(Self)
            .map_err(wrong)
    }
}

/// Form of a page, sent by its caller.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) caller: Caller,
    /// Address of the server as the browser has it, such as `https://deck.example`.
    pub(crate) origin: String,
    fields: Vec<(String, String)>,
}

impl Sent {
    /// Returns a field that is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
            .filter(|text| !text.is_empty())
    }

    /// Returns a field, empty if the form has none.
    pub(crate) fn value(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }
}

impl FromRequest<Ui> for Sent {
    type Rejection = Response;

    async fn from_request(request: Request<Body>, ui: &Ui) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let By(caller) = By::from_request_parts(&mut parts, ui)
            .await
            .map_err(IntoResponse::into_response)?;
        let refuse = |status, detail: &str| {
            failed(ui, &caller, Place::Overview, &Failure::new(status, detail))
        };
        let form = "application/x-www-form-urlencoded";
        if parts
            .headers
            .get(CONTENT_TYPE)
            .is_none_or(|kind| !kind.as_bytes().starts_with(form.as_bytes()))
        {
            return Err(refuse(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the page sends forms only",
            ));
        }
        let large = |_| {
            refuse(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the form is larger than 1 MiB; use the REST route",
            )
        };
        let bytes = Limited::new(body, MAX_FORM_BYTES)
            .collect()
            .await
            .map_err(large)?
            .to_bytes();
        let fields: Vec<(String, String)> = form_urlencoded::parse(&bytes).into_owned().collect();
        let token = fields
            .iter()
            .find(|(name, _)| name == TOKEN)
            .map(|(_, value)| value.as_str());
        if token != Some(ui.form_token(&caller).as_str()) {
            let detail =
                "the form is of an older page, or of another site; open the page again and repeat";
            return Err(refuse(StatusCode::FORBIDDEN, detail));
        }
        Ok(Self {
            caller,
            origin: origin(&parts.headers),
            fields,
        })
    }
}

/// Returns the origin that a form was sent to: it is that of its page, which browsers name.
fn origin(headers: &HeaderMap) -> String {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    text(ORIGIN).map_or_else(
        || format!("http://{}", text(HOST).unwrap_or("127.0.0.1:7700")),
        str::to_owned,
    )
}
