//! One connection to one server, from the handshake to its end.

use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use helmdeck_core::secrets::Grant;
use helmdeck_core::{Code, Error, Result, Secret};
use helmdeck_egress::Egress;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::RoleClient;
use rmcp::model::{
    ListToolsRequest, PaginatedRequestParams, ProtocolVersion, ServerResult, SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer, PeerRequestOptions,
};
use rmcp::service::{RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::client::{McpClient, redacted};
use super::failure;
use super::lines::{BoundedLines, log_stderr};
use super::listing::{Cut, Listing, MAX_PAGES, MAX_TOOLS, Tool};
use super::process::{self, Program};
use super::sieve::Sieve;
use super::web::Web;
use helmdeck_process::Group;

/// Ratio of the longest message to the largest answer.
///
/// JSON escapes text, and the same data comes as structured content and as text.
const MESSAGE_FACTOR: u64 = 4;
const MIN_MESSAGE_BYTES: u64 = 1 << 20;
/// How long stderr is read after the end of a program that did not start.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Ends streams without a waiter. Calls have their own deadlines.
const READ_TIMEOUT: Duration = Duration::from_secs(3600);

/// Transport of a server, with all secrets filled in.
pub(crate) enum Way {
    Program(Program),
    Http {
        url: Url,
        headers: BTreeMap<String, String>,
        egress: Egress,
    },
}

/// Why a connection ended.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionEnd {
    pub(crate) code: Code,
    pub(crate) why: String,
}

/// Connection to a server, shared by all callers.
pub(crate) struct Connection {
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) client: McpClient,
    pub(crate) since: Instant,
    /// Secrets that the connection was opened with; redacted from all that comes back.
    pub(crate) secrets: Vec<Secret>,
    pub(crate) grants: Vec<Grant>,
    /// Retires the connection: no new calls, then a clean end.
    pub(crate) retire: CancellationToken,
    calls: AtomicUsize,
    last_used: Mutex<Instant>,
    ended: watch::Sender<Option<ConnectionEnd>>,
}

/// Guard of a call in progress: the connection is not idle.
pub(crate) struct InUse(Arc<Connection>);

impl Drop for InUse {
    fn drop(&mut self) {
        *self.0.last_used.lock() = Instant::now();
        self.0.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Connection {
    pub(crate) fn is_open(&self) -> bool {
        self.ended.borrow().is_none()
            && !self.retire.is_cancelled()
            && !self.peer.is_transport_closed()
    }

    pub(crate) fn in_use(self: &Arc<Self>) -> InUse {
        self.calls.fetch_add(1, Ordering::SeqCst);
        InUse(Arc::clone(self))
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Returns when it was last used; now during a call.
    pub(crate) fn last_used(&self) -> Instant {
        match self.calls.load(Ordering::SeqCst) {
            0 => *self.last_used.lock(),
            _ => Instant::now(),
        }
    }

    pub(crate) fn set_ended(&self, ended: ConnectionEnd) {
        self.ended.send_replace(Some(ended));
    }

    /// Returns why it ended. Waits a moment for the reason.
    pub(crate) async fn why_ended(&self) -> Option<ConnectionEnd> {
        let mut ended = self.ended.subscribe();
        let found =
            tokio::time::timeout(Duration::from_secs(1), ended.wait_for(Option::is_some)).await;
        found.ok()?.ok()?.clone()
    }
}

/// A new connection, with what its supervisor needs.
pub(crate) struct Opened {
    pub(crate) connection: Arc<Connection>,
    pub(crate) service: RunningService<RoleClient, McpClient>,
    pub(crate) group: Option<Group>,
    /// Set if the program wrote a message that is too long.
    pub(crate) too_long: Arc<OnceLock<usize>>,
}

/// Opens a connection with the handshake of 2025-11-25 and before.
///
/// If the server refuses it, the connection uses 2026-07-28, which has none.
///
/// # Errors
/// `handler_failed`, with the last line of stderr as the cause; `forbidden` if the host may not be
/// reached.
pub(crate) async fn open(
    name: &str,
    way: &Way,
    max_output_bytes: u64,
    secrets: Vec<Secret>,
    grants: Vec<Grant>,
) -> Result<Opened> {
    let limit = max_output_bytes
        .saturating_mul(MESSAGE_FACTOR)
        .max(MIN_MESSAGE_BYTES);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let modern = ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::LATEST],
    };
    match attempt(
        name,
        way,
        limit,
        &secrets,
        &grants,
        ClientLifecycleMode::Initialize,
    )
    .await
    {
        Err(Refusal {
            by_server: true, ..
        }) => attempt(name, way, limit, &secrets, &grants, modern).await,
        other => other,
    }
    .map_err(|refusal| refusal.error)
}

struct Refusal {
    error: Error,
    /// Whether the server answers, but refuses this handshake.
    by_server: bool,
}

async fn attempt(
    name: &str,
    way: &Way,
    limit: usize,
    secrets: &[Secret],
    grants: &[Grant],
    mode: ClientLifecycleMode,
) -> Result<Opened, Refusal> {
    let fail = |error| Refusal {
        error,
        by_server: false,
    };
    let client = McpClient::new(secrets);
    let too_long = Arc::new(OnceLock::new());
    let (service, group) = match way {
        Way::Program(program) => {
            let (group, pipes) = program.spawn().map_err(fail)?;
            let last = Arc::new(Mutex::new(String::new()));
            let logging = tokio::spawn({
                let (name, secrets, last) = (name.to_owned(), secrets.to_vec(), Arc::clone(&last));
                async move { log_stderr(pipes.stderr, &name, &secrets, &last).await }
            });
            let stdout =
                BoundedLines::new(pipes.stdout, Sieve::new(name), limit, Arc::clone(&too_long));
            // The reader's limit is reached first, so no line is dropped silently.
            let transport =
                AsyncRwTransport::new(stdout, pipes.stdin).with_max_line_length(usize::MAX);
            match client.clone().serve_with_lifecycle(transport, mode).await {
                Ok(service) => (service, Some(group)),
                Err(error) => {
                    let by_server = matches!(error, ClientInitializeError::JsonRpcError(_));
                    let status = if by_server {
                        // It still runs; dropping its group kills it.
                        drop(group);
                        None
                    } else {
                        process::kill(group).await
                    };
                    // The last line of stderr is useful for the error, and may still be in the
                    // pipe.
                    let _ = tokio::time::timeout(LAST_WORDS, logging).await;
                    let last = last.lock().clone();
                    return Err(Refusal {
                        error: failure::not_started(
                            name,
                            &error,
                            status,
                            too_long.get(),
                            last,
                            secrets,
                        ),
                        by_server,
                    });
                }
            }
        }
        Way::Http {
            url,
            headers,
            egress,
        } => {
            let http = egress
                .reaching_only(url, READ_TIMEOUT)
                .client()
                .await
                .map_err(|error| fail(error.into()))?;
            let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                .custom_headers(header_map(headers).map_err(fail)?)
                .max_sse_event_size(limit);
            let transport = StreamableHttpClientTransport::with_client(
                Web::new(http, Sieve::new(name), limit),
                config,
            );
            let service = client
                .clone()
                .serve_with_lifecycle(transport, mode)
                .await
                .map_err(|error| Refusal {
                    by_server: matches!(error, ClientInitializeError::JsonRpcError(_)),
                    error: failure::not_started(name, &error, None, None, String::new(), secrets),
                })?;
            (service, None)
        }
    };
    let connection = connection(
        service.peer().clone(),
        client,
        secrets.to_vec(),
        grants.to_vec(),
    );
    Ok(Opened {
        connection,
        service,
        group,
        too_long,
    })
}

pub(crate) fn connection(
    peer: Peer<RoleClient>,
    client: McpClient,
    secrets: Vec<Secret>,
    grants: Vec<Grant>,
) -> Arc<Connection> {
    Arc::new(Connection {
        peer,
        client,
        since: Instant::now(),
        secrets,
        grants,
        retire: CancellationToken::new(),
        calls: AtomicUsize::new(0),
        last_used: Mutex::new(Instant::now()),
        ended: watch::Sender::new(None),
    })
}

fn header_map(headers: &BTreeMap<String, String>) -> Result<HashMap<HeaderName, HeaderValue>> {
    let bad = |name: &str| {
        Error::new(
            Code::CredentialInvalid,
            format!("the header {name} cannot be sent as it is"),
        )
    };
    headers
        .iter()
        .map(|(name, value)| {
            let mut value = HeaderValue::from_str(value).map_err(|_| bad(name))?;
            value.set_sensitive(true);
            Ok((
                HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad(name))?,
                value,
            ))
        })
        .collect()
}

/// Redacts a list of tools; `Value::Null` if the result is not JSON.
fn clean(value: Value, secrets: &[Secret]) -> Value {
    let text = value.to_string();
    match helmdeck_redact::text(&text, secrets) {
        Cow::Borrowed(_) => value,
        Cow::Owned(clean) => serde_json::from_str(&clean).unwrap_or_default(),
    }
}

impl Connection {
    /// Requests all tools, page by page, bypassing caches.
    ///
    /// # Errors
    /// The error of the connection.
    pub(crate) async fn list(&self, name: &str) -> Result<Listing> {
        let (mut tools, mut cursor, mut cut) = (Vec::new(), None, None);
        for page in 0.. {
            let mut params = PaginatedRequestParams::default();
            params.cursor = cursor;
            let request = ListToolsRequest {
                method: Default::default(),
                params: Some(params),
                extensions: Default::default(),
            };
            let asked = self
                .peer
                .send_cancellable_request(request.into(), PeerRequestOptions::no_options())
                .await;
            let answer = match asked {
                Ok(handle) => handle.await_response().await,
                Err(error) => Err(error),
            };
            // Parsed as JSON, not as the library's types, so that one bad tool does not hide the
            // others.
            let value = match answer {
                Ok(ServerResult::ListToolsResult(result)) => {
                    serde_json::to_value(result).unwrap_or_default()
                }
                Ok(ServerResult::CustomResult(result)) => {
                    serde_json::to_value(result).unwrap_or_default()
                }
                Ok(_) => Value::Null,
                Err(error) => {
                    return Err(failure::of_request(name, "listing its tools", error, self).await);
                }
            };
            let value = clean(value, &self.secrets);
            let Some(listed) = value.get("tools").and_then(Value::as_array) else {
                let message = format!(
                    "the MCP server \"{name}\" answered the list of tools with something else"
                );
                return Err(Error::new(Code::HandlerFailed, message));
            };
            tools.extend(listed.iter().filter_map(Tool::read));
            cursor = value
                .get("nextCursor")
                .and_then(Value::as_str)
                .map(str::to_owned);
            if tools.len() > MAX_TOOLS {
                cut = Some(Cut::Tools);
            } else if cursor.is_some() && page + 1 >= MAX_PAGES {
                cut = Some(Cut::Pages);
            }
            if cut.is_some() || cursor.is_none() {
                break;
            }
        }
        tools.truncate(MAX_TOOLS);
        if let Some(cut) = cut {
            tracing::warn!(mcp.server = name, tools = tools.len(), "{cut}");
        }
        let info = self.peer.peer_info();
        let server = info.as_ref().and_then(|info| info.server_info.as_ref());
        Ok(Listing {
            server: server
                .map(|server| {
                    redacted(
                        &format!("{} {}", server.name, server.version),
                        &self.secrets,
                    )
                })
                .unwrap_or_default(),
            protocol: info
                .as_ref()
                .map(|info| info.protocol_version.to_string())
                .unwrap_or_default(),
            tools,
            cut,
        })
    }

    /// Returns whether the protocol has no handshake, so that list changes need a subscription.
    pub(crate) fn must_subscribe(&self) -> bool {
        self.peer
            .peer_info()
            .is_some_and(|info| !info.protocol_version.has_initialize())
    }

    /// Subscribes to changes of the list of tools, and notifies of each.
    ///
    /// Ends with the subscription (MCP 2026-07-28, `subscriptions/listen`).
    pub(crate) async fn listen(&self) -> Result<(), ServiceError> {
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        let mut subscription = self.peer.listen(filter).await?;
        while subscription.next().await?.is_some() {
            self.client.changed.notify_one();
        }
        Ok(())
    }
}
