//! MCP over streamable HTTP, at `/mcp`: limits and checks, then a call of a pack or rmcp.
//!
//! Sessions exist for the revisions before 2026-07-28 only; since then each request is
//! self-contained.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use helmdeck_core::{Caller, Clock, Code, Correlation, Tracer};
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use rmcp::model::{ErrorCode, ProtocolVersion};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::McpConfig;
use super::call::{self, ToolRun};
use super::extra::Extra;
use super::handler::Agent;
use super::message::{self, CallMeta, Id, Message, Refusal, ToolCall};
use super::running::Unstarted;
use super::sessions::{Reservation, SealedSessions, Session, Sessions};
use super::span::{self, Asked};
use super::state::{CallerContext, McpState, visiting};
use super::stream::Stream;
use super::table::Tables;
use crate::ServerConfig;
use crate::headers::{EVENTS, JSON};
use crate::limits::Admission;
use crate::problem::Problem;
use crate::validity::Validity;
use crate::{body, session_header};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const REVISION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

type Boxed = http::Response<BoxBody<Bytes, Infallible>>;

/// The MCP transport over HTTP. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Mcp(Arc<Inner>);

struct Inner {
    mcp: Arc<McpState>,
    sessions: Arc<Sessions>,
    service: StreamableHttpService<Agent, LocalSessionManager>,
    /// Cancelled to end every session.
    stop: CancellationToken,
    max_body_bytes: u64,
    body_timeout: Duration,
}

impl Mcp {
    pub(crate) fn new(
        engine: helmdeck_engine::Engine,
        server: &ServerConfig,
        config: McpConfig,
        clock: Arc<dyn Clock>,
        extra: Option<Arc<dyn Extra>>,
        sealed: Option<SealedSessions>,
        tracer: Option<Tracer>,
    ) -> Self {
        let stop = CancellationToken::new();
        let sessions = Arc::new(Sessions::new(config.clone(), clock, sealed));
        let max_body_bytes = usize::try_from(server.max_body_bytes).unwrap_or(usize::MAX);
        // Host and Origin are checked before, for all transports.
        let mut settings = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_json_response(true)
            .with_sse_keep_alive(Some(config.keep_alive))
            .with_max_request_body_bytes(max_body_bytes)
            .with_cancellation_token(stop.clone());
        settings.session_store = sessions.store();
        let mcp = Arc::new(McpState {
            tables: Tables::new(engine.clone(), config.families.clone()),
            place: None,
            engine,
            config,
            extra,
            tracer,
            deadline: server.request_deadline,
            drain: CancellationToken::new(),
        });
        let own = Arc::clone(&mcp);
        let service = StreamableHttpService::new(
            move || Ok(Agent::new(Arc::clone(&own))),
            Arc::clone(&sessions.manager),
            settings,
        );
        let (max_body_bytes, body_timeout) = (server.max_body_bytes, server.body_timeout);
        Self(Arc::new(Inner {
            mcp,
            sessions,
            service,
            stop,
            max_body_bytes,
            body_timeout,
        }))
    }

    /// Ends the streams of clients that only listen; running calls continue.
    pub(crate) fn drain(&self) {
        self.0.mcp.drain.cancel();
    }

    /// Ends every session.
    pub(crate) fn stop(&self) {
        self.0.stop.cancel();
    }

    /// Returns the number of sessions in rmcp, of ours, and of beginning ones.
    #[cfg(test)]
    pub(crate) async fn counts(&self) -> (usize, usize, usize) {
        let theirs = self.0.sessions.manager.sessions.read().await.len();
        let (ours, beginning) = self.0.sessions.counts();
        (theirs, ours, beginning)
    }

    /// Answers one request.
    ///
    /// Its permit is released when the answer is sent, or at once if the request only opens a
    /// stream.
    pub(crate) async fn handle(
        &self,
        caller: Caller,
        permit: Option<Admission>,
        request: Request<Body>,
    ) -> Response {
        self.0
            .handle(caller, permit, request)
            .await
            .unwrap_or_else(IntoResponse::into_response)
    }
}

/// Facts about a request before its body is read.
struct Asking {
    visit: CallerContext,
    session: Option<Arc<Session>>,
    permit: Option<Admission>,
}

impl Inner {
    async fn handle(
        self: &Arc<Self>,
        caller: Caller,
        permit: Option<Admission>,
        request: Request<Body>,
    ) -> Result<Response, Problem> {
        let (mut parts, body) = request.into_parts();
        let validity = parts
            .extensions
            .get::<Validity>()
            .cloned()
            .unwrap_or_default();
        let sessionless = text(&parts.headers, &REVISION)
            .is_some_and(|it| it >= ProtocolVersion::NO_INITIALIZE.as_str());
        let identity = session_header::narrowed(&parts.headers, &caller.identity)?;
        let caller = Caller { identity, ..caller };
        let mut asking = Asking {
            visit: CallerContext::new(caller, validity),
            session: None,
            permit,
        };
        if sessionless {
            parts.headers.remove(SESSION);
        } else if parts.headers.contains_key(SESSION) {
            let id = text(&parts.headers, &SESSION).unwrap_or_default();
            let session = self
                .sessions
                .find(id, &asking.visit.caller, &asking.visit.validity)
                .await?;
            let session = session.ok_or_else(|| {
                Problem::new(
                    Code::NotFound,
                    "there is no such MCP session; begin a new one",
                )
            })?;
            parts.headers.insert(SESSION, header(session.id())?);
            asking.visit.caller = session.caller(&asking.visit.caller);
            let latest = Arc::clone(&session);
            asking.visit.validity = Validity::new(move || {
                let latest = Arc::clone(&latest);
                async move { latest.standing().await }
            });
            asking.session = Some(session);
        }
        match parts.method {
            Method::POST => self.post(parts, body, asking).await,
            _ => Ok(self.listen(parts, asking).await),
        }
    }

    /// Handles GET, which opens a stream of server messages, and DELETE, which ends the session.
    async fn listen(&self, parts: Parts, asking: Asking) -> Response {
        let deletes = parts.method == Method::DELETE;
        let session = asking.session.clone();
        if let Some(session) = session.as_ref().filter(|_| deletes)
            && let Err(error) = self.sessions.end(session).await
        {
            return Problem::from(error).into_response();
        }
        let response = Box::pin(
            self.service
                .handle(self.request(parts, Bytes::new(), asking)),
        )
        .await;
        match session {
            Some(session) if deletes => {
                self.sessions.close(session.id()).await;
                response.map(Body::new)
            }
            Some(session) => {
                let end = self.mcp.drain.clone();
                response.map(|body| Body::new(Stream::new(body, Some(end), session.listen())))
            }
            None => response.map(Body::new),
        }
    }

    async fn post(
        self: &Arc<Self>,
        parts: Parts,
        body: Body,
        mut asking: Asking,
    ) -> Result<Response, Problem> {
        let slot = asking.permit.as_ref().map(|permit| &permit.slot);
        let bytes = body::read(
            &parts.headers,
            body,
            self.max_body_bytes,
            self.body_timeout,
            slot,
        )
        .await?;
        match message::read(&bytes) {
            Err(refusal) => return Ok(refused(&refusal).map(Body::new)),
            Ok(Message::Request { id, method, params }) if method == "tools/call" => {
                let call = ToolCall::read(params);
                return Ok(self.call(parts, &bytes, asking, &id, call.as_ref()).await);
            }
            Ok(Message::Request { id, method, .. })
                if method == "initialize" && has_no_handshake(&parts.headers) =>
            {
                let unknown =
                    "Method not found: initialize; this revision has no handshake".to_owned();
                let refusal = Refusal {
                    code: ErrorCode::METHOD_NOT_FOUND,
                    message: unknown,
                };
                return Ok(json(StatusCode::NOT_FOUND, refusal.to_json_for(&id)).map(Body::new));
            }
            Ok(Message::Request { method, .. })
                if method == "initialize" && asking.session.is_none() =>
            {
                return Arc::clone(self).begin(parts, bytes.clone(), asking).await;
            }
            Ok(Message::Request { id, method, params }) => {
                // An open listener costs no work; the limit of connections bounds them.
                let permit = asking.permit.take_if(|_| method != "subscriptions/listen");
                asking.permit = None;
                let mut correlation = Correlation::current();
                let asked = || asked(&parts.headers, &id, None);
                let named = self
                    .mcp
                    .tracer
                    .as_ref()
                    .and_then(|_| message::trace(params));
                let span = span::begin(
                    self.mcp.tracer.as_ref(),
                    &mut correlation,
                    named,
                    &method,
                    asked,
                );
                let response = match span {
                    Some(_) => Box::pin(correlation.scope(self.pass(parts, &bytes, asking))).await,
                    None => self.pass(parts, &bytes, asking).await,
                };
                return Ok(response.map(|body| Body::new(Stream::new(body, None, permit))));
            }
            Ok(Message::Notification { method, params }) if method == "notifications/cancelled" => {
                if let (Some(session), Some(id)) = (&asking.session, message::cancelled(params)) {
                    session.running.cancel(&id);
                }
            }
            Ok(_) => {}
        }
        let permit = asking.permit.take();
        let response = self.pass(parts, &bytes, asking).await;
        Ok(response.map(|body| Body::new(Stream::new(body, None, permit))))
    }

    /// Begins a session in a separate task, which runs to its end even if the client disconnects.
    ///
    /// Otherwise a session could exist in rmcp's record and not in ours, and nothing would ever end
    /// it.
    async fn begin(
        self: Arc<Self>,
        parts: Parts,
        bytes: Bytes,
        asking: Asking,
    ) -> Result<Response, Problem> {
        let (answer, answered) = oneshot::channel();
        tokio::spawn(async move {
            let (caller, validity) = (asking.visit.caller.clone(), asking.visit.validity.clone());
            let mut begun = None;
            let response = match self.sessions.room(&caller).await {
                Err(error) => Err(error.into()),
                Ok(place) => {
                    let mut response = self.pass(parts, &bytes, asking).await;
                    let id = text(response.headers(), &SESSION).map(str::to_owned);
                    begun = id.clone();
                    let bound = self.bind(
                        place,
                        id.as_deref(),
                        &bytes,
                        &caller,
                        validity,
                        &mut response,
                    );
                    bound.map(|()| response)
                }
            };
            let failed = response.is_err();
            // The client that disconnected will never learn the id of its session.
            let unheard = answer.send(response).is_err();
            if let (true, Some(id)) = (failed || unheard, begun) {
                self.sessions.close(&id).await;
            }
        });
        let begun = answered
            .await
            .unwrap_or_else(|_| Err(Problem::new(Code::Internal, "the session could not begin")));
        begun.map(|response| response.map(Body::new))
    }

    /// Binds the session that rmcp began, if it did, and puts its id for the client into the
    /// answer.
    fn bind(
        &self,
        place: Reservation,
        id: Option<&str>,
        request: &[u8],
        caller: &Caller,
        validity: Validity,
        response: &mut Boxed,
    ) -> Result<(), Problem> {
        let Some(id) = id else { return Ok(()) };
        let handshake = message::handshake(request)
            .ok_or_else(|| Problem::new(Code::Internal, "the handshake cannot be read again"))?;
        let shown = self.sessions.bind(place, id, caller, validity, handshake)?;
        response.headers_mut().insert(SESSION, header(&shown)?);
        Ok(())
    }

    /// Answers a `tools/call`. One that is not plain is checked by rmcp first.
    async fn call(
        &self,
        parts: Parts,
        bytes: &Bytes,
        mut asking: Asking,
        id: &Id<'_>,
        call: Option<&ToolCall<'_>>,
    ) -> Response {
        // In a session, a client cancels a call by its id. Without a session it disconnects, which
        // drops this future.
        let started = match &asking.session {
            None => None,
            Some(session) => match session.running.start(&id.value) {
                Ok(started) => Some(started),
                Err(Unstarted::Cancelled) => return nothing(),
                Err(Unstarted::Taken) => {
                    return json(
                        StatusCode::BAD_REQUEST,
                        Refusal::id_in_use().to_json_for(id),
                    )
                    .map(Body::new);
                }
            },
        };
        let asked = self
            .mcp
            .tracer
            .as_ref()
            .map(|_| asked(&parts.headers, id, call.map(|call| &*call.name)));
        let cancel = started
            .as_ref()
            .map_or_else(CancellationToken::new, |started| started.cancel.clone());
        let plain = call.and_then(|call| {
            let meta = call
                .meta()
                .filter(|meta| in_order(&parts.headers, &asking, call, meta))?;
            call::plain(&self.mcp, &asking.visit, call, meta, bytes)
        });
        // The answer may be streamed: a client that drops the stream has disconnected too.
        let kept = (cancel.clone().drop_guard(), started, asking.permit.take());
        let run = match plain {
            Some(run) => run,
            None => {
                let (back, handed) = oneshot::channel();
                asking.visit.arguments = call.and_then(|call| call::raw_arguments(call, bytes));
                asking.visit.back = Some(Arc::new(Mutex::new(Some(back))));
                let trace = call.and_then(|call| call.meta()?.trace());
                let response = self.pass(parts, bytes, asking).await;
                match handed.await {
                    Ok(run) => ToolRun { trace, ..run },
                    Err(_) => return response.map(|body| Body::new(Stream::new(body, None, kept))),
                }
            }
        };
        let run = run.begin(&self.mcp, || asked.unwrap_or_default());
        if run.progress.is_some() {
            return self.stream(run, id.text, cancel, kept);
        }
        let response = if run.is_traced() {
            Box::pin(run.answer_correlated(&self.mcp, id.text, &cancel, None)).await
        } else {
            run.answer(&self.mcp, id.text, &cancel, None).await
        };
        response.map_or_else(nothing, |text| json(StatusCode::OK, text).map(Body::new))
    }

    /// Answers a call that may report progress: a stream of its notifications, and the response.
    fn stream<K: Send + 'static>(
        &self,
        run: ToolRun,
        id: &str,
        cancel: CancellationToken,
        kept: K,
    ) -> Response {
        let (notify, mut notifications) = mpsc::channel(1);
        let (mcp, id) = (Arc::clone(&self.mcp), id.to_owned());
        // In its own task, so that it runs before the client reads the stream. The end of `kept`
        // cancels it.
        let call = tokio::spawn(async move {
            run.answer_correlated(&mcp, &id, &cancel, Some(notify))
                .await
        });
        let response = stream::once(call).filter_map(async |answer| answer.ok().flatten());
        let texts =
            stream::poll_fn(move |context| notifications.poll_recv(context)).chain(response);
        let events = texts.map(move |text: Vec<u8>| {
            let _kept = &kept;
            Ok::<_, Infallible>(Event::default().data(String::from_utf8_lossy(&text)))
        });
        let keep_alive = KeepAlive::new().interval(self.mcp.config.keep_alive);
        Sse::new(events).keep_alive(keep_alive).into_response()
    }

    /// Passes the request to rmcp.
    async fn pass(&self, parts: Parts, bytes: &Bytes, asking: Asking) -> Boxed {
        if let Err(refusal) = message::check_strictly(bytes) {
            return refused(&refusal);
        }
        let visit = asking.visit.clone();
        // Boxed, so that a plain call does not carry the size of rmcp.
        visiting(
            &visit,
            Box::pin(
                self.service
                    .handle(self.request(parts, bytes.clone(), asking)),
            ),
        )
        .await
    }

    fn request(&self, mut parts: Parts, bytes: Bytes, asking: Asking) -> Request<Full<Bytes>> {
        parts.extensions.insert(asking.visit);
        Request::from_parts(parts, Full::new(bytes))
    }
}

/// Returns what the span of a request shows.
fn asked(headers: &HeaderMap, id: &Id<'_>, tool: Option<&str>) -> Asked {
    let revision = text(headers, &REVISION).map(str::to_owned);
    Asked {
        id: id.value.to_string(),
        tool: tool.map(str::to_owned),
        revision,
        http: true,
    }
}

/// Says whether the headers of a call are acceptable.
///
/// A call without a session must repeat its parameters in headers (SEP-2243).
fn in_order(
    headers: &HeaderMap,
    asking: &Asking,
    call: &ToolCall<'_>,
    meta: &CallMeta<'_>,
) -> bool {
    let accepts = |wanted: &str| {
        text(headers, &ACCEPT).is_some_and(|it| it.split(',').any(|kind| kind.trim() == wanted))
    };
    let kind = text(headers, &CONTENT_TYPE).and_then(|kind| kind.split(';').next());
    let revision = text(headers, &REVISION);
    let says = match &asking.session {
        Some(_) => {
            let known = |it: &str| {
                ProtocolVersion::KNOWN_VERSIONS
                    .iter()
                    .any(|known| known.as_str() == it)
            };
            meta.revision.is_none() && (revision.is_none_or(known))
        }
        None => {
            meta.is_self_contained()
                && revision == meta.revision.as_deref()
                && text(headers, &METHOD) == Some("tools/call")
                && text(headers, &NAME) == Some(&*call.name)
        }
    };
    says && kind.is_some_and(|kind| kind.trim() == "application/json")
        && accepts("application/json")
        && accepts("text/event-stream")
}

/// Says whether a request names a supported revision without a handshake.
fn has_no_handshake(headers: &HeaderMap) -> bool {
    let known = ProtocolVersion::KNOWN_VERSIONS
        .iter()
        .filter(|known| **known >= ProtocolVersion::NO_INITIALIZE);
    text(headers, &REVISION).is_some_and(|it| known.into_iter().any(|known| known.as_str() == it))
}

/// Returns a session id as a header.
fn header(id: &str) -> Result<HeaderValue, Problem> {
    HeaderValue::from_str(id)
        .map_err(|_| Problem::new(Code::Internal, "the session id is no header value"))
}

/// Returns the value of a header that occurs exactly once.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

fn refused(refusal: &Refusal) -> Boxed {
    json(StatusCode::BAD_REQUEST, refusal.to_json())
}

fn json(status: StatusCode, text: Vec<u8>) -> Boxed {
    let mut response = http::Response::new(Full::from(text).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// Answers a call that its client cancelled: an empty stream.
fn nothing() -> Response {
    let mut response = Response::new(Body::empty());
    response.headers_mut().insert(CONTENT_TYPE, EVENTS);
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}
