//! MCP over stdin and stdout: one client, one message per line. Only messages are written to
//! stdout.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::{Caller, Clock, RunId, SystemClock, Tracer};
use helmdeck_engine::Engine;
use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ServerJsonRpcMessage, ServerResult};
use rmcp::service::ServerInitializeError;
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::McpConfig;
use super::call::{self, ToolRun};
use super::extra::Extra;
use super::handler::{Agent, is_handed_back};
use super::message::{self, Id, Message, Refusal, ToolCall};
use super::running::{Running, Unstarted};
use super::span::Asked;
use super::state::{CallerContext, LocalClient, McpState};
use super::table::Tables;
use crate::ServerConfig;
use crate::validity::Validity;

/// Limit of answers that wait for a slow client.
const QUEUE: usize = 64;
/// Time limit for running calls after the client closed its end.
const LAST_CALLS: Duration = Duration::from_secs(5);

/// MCP server of an engine over stdin and stdout.
pub struct Stdio {
    mcp: McpState,
    caller: Caller,
    max_line_bytes: usize,
    max_calls: usize,
}

impl std::fmt::Debug for Stdio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stdio")
            .field("door", &self.mcp)
            .finish_non_exhaustive()
    }
}

/// Gives the caller a session if it has none: the process serves one client.
fn in_session(caller: Caller) -> Caller {
    if caller.identity.session().is_some() || caller.identity.is_anonymous() {
        return caller;
    }
    let id = format!("stdio-{}", RunId::next(SystemClock::default().now()));
    match (*caller.identity).clone().with_session(&id) {
        Ok(identity) => Caller {
            identity: Arc::new(identity),
            ..caller
        },
        Err(_) => caller,
    }
}

impl Stdio {
    /// Makes a server for an engine and this caller.
    ///
    /// From the server's settings it takes the message limit, the deadline and the limit of
    /// requests at once. At that many calls it reads no more lines until one call has been
    /// answered.
    #[must_use]
    pub fn new(engine: Engine, server: &ServerConfig, config: McpConfig, caller: Caller) -> Self {
        let mcp = McpState {
            tables: Tables::new(engine.clone(), config.families.clone()),
            place: None,
            engine,
            config,
            extra: None,
            tracer: None,
            deadline: server.request_deadline,
            drain: CancellationToken::new(),
        };
        let max_line_bytes = usize::try_from(server.max_body_bytes).unwrap_or(usize::MAX);
        let max_calls = server.max_requests.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            mcp,
            caller: in_session(caller),
            max_line_bytes,
            max_calls,
        }
    }

    /// Sets the folder of the client, the base of relative paths in its calls.
    #[must_use]
    pub fn place(mut self, place: LocalClient) -> Self {
        self.mcp.place = Some(place);
        self
    }

    /// Adds a handler for requests that packs do not answer.
    #[must_use]
    pub fn extra(mut self, extra: Arc<dyn Extra>) -> Self {
        self.mcp.extra = Some(extra);
        self
    }

    /// Sets what makes spans of messages. Without it none are made.
    #[must_use]
    pub fn tracer(mut self, tracer: Option<Tracer>) -> Self {
        self.mcp.tracer = tracer;
        self
    }

    /// Serves this process's stdin and stdout; see [`Stdio::serve_over`].
    ///
    /// # Errors
    /// As [`Stdio::serve_over`].
    pub async fn serve(self, stop: CancellationToken) -> io::Result<()> {
        let (input, output) = rmcp::transport::stdio_pipes();
        Box::pin(self.serve_over(input, output, stop)).await
    }

    /// Serves a client until it closes its end or `stop` is cancelled.
    ///
    /// Running calls then have 5 seconds to finish.
    ///
    /// # Errors
    /// If the client cannot be written to; a client that sends invalid messages is no error.
    pub async fn serve_over<R, W>(
        self,
        input: R,
        output: W,
        stop: CancellationToken,
    ) -> io::Result<()>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (out, lines) = mpsc::channel(QUEUE);
        let lost = CancellationToken::new();
        let writer = tokio::spawn(write(output, lines, lost.clone()));
        let mcp = Arc::new(self.mcp);
        let calls = TaskTracker::new();
        let running = Running::default();
        let transport = Lines {
            input: BufReader::new(input),
            line: Vec::new(),
            too_long: false,
            max_line_bytes: self.max_line_bytes,
            out,
            mcp: Arc::clone(&mcp),
            visit: CallerContext::new(self.caller, Validity::default()),
            greeted: false,
            running: running.clone(),
            calls: calls.clone(),
            slots: Arc::new(Semaphore::new(self.max_calls)),
        };
        // Stop also when the client no longer reads: running calls are of no use then.
        let stop = Stop { stop, lost };
        let served = tokio::select! {
            biased;
            () = stop.wanted() => Ok(()),
            served = converse(Arc::clone(&mcp), transport) => served,
        };
        mcp.drain.cancel();
        calls.close();
        if tokio::time::timeout(LAST_CALLS, calls.wait())
            .await
            .is_err()
        {
            running.cancel_all();
            calls.wait().await;
        }
        let written = writer
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)));
        served.and(written)
    }
}

struct Stop {
    stop: CancellationToken,
    lost: CancellationToken,
}

impl Stop {
    async fn wanted(&self) {
        tokio::select! { () = self.stop.cancelled() => {}, () = self.lost.cancelled() => {} }
    }
}

async fn converse<R>(mcp: Arc<McpState>, transport: Lines<R>) -> io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
{
    match rmcp::serve_server(Agent::new(mcp), transport).await {
        Ok(service) => service
            .waiting()
            .await
            .map(|_| ())
            .map_err(io::Error::other),
        // The client left before `initialize`, or does not speak MCP. That is no error of the
        // server.
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => {
            tracing::warn!(%error, "the client did not begin as the protocol says");
            Ok(())
        }
    }
}

async fn write<W: AsyncWrite + Unpin>(
    mut output: W,
    mut lines: mpsc::Receiver<Vec<u8>>,
    lost: CancellationToken,
) -> io::Result<()> {
    while let Some(mut line) = lines.recv().await {
        line.push(b'\n');
        let written = async {
            output.write_all(&line).await?;
            output.flush().await
        };
        if let Err(error) = written.await {
            lost.cancel();
            // A client says goodbye by closing its end.
            return if error.kind() == io::ErrorKind::BrokenPipe {
                Ok(())
            } else {
                Err(error)
            };
        }
    }
    Ok(())
}

/// Reader of one client's lines. It answers calls of packs and passes everything else to rmcp.
struct Lines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    /// Whether to discard the rest of the line.
    too_long: bool,
    max_line_bytes: usize,
    out: mpsc::Sender<Vec<u8>>,
    mcp: Arc<McpState>,
    visit: CallerContext,
    /// Whether `initialize` was answered.
    greeted: bool,
    running: Running,
    calls: TaskTracker,
    /// Slots of running calls.
    slots: Arc<Semaphore>,
}

impl<R: AsyncRead + Send + Unpin> Lines<R> {
    /// Reads one line, `None` at the end of the input.
    ///
    /// Dropping the future loses nothing: the bytes stay in `line`.
    async fn line(&mut self) -> Option<Result<Bytes, Refusal>> {
        loop {
            let read = match self.input.fill_buf().await {
                Ok([]) => return None,
                Ok(read) => read,
                Err(error) => {
                    tracing::warn!(%error, "stdin cannot be read");
                    return None;
                }
            };
            let end = read.iter().position(|byte| *byte == b'\n');
            let part = &read[..end.unwrap_or(read.len())];
            self.too_long |= self.line.len() + part.len() > self.max_line_bytes;
            if self.too_long {
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(part);
            }
            let taken = end.map_or(read.len(), |end| end + 1);
            self.input.consume(taken);
            if end.is_none() {
                continue;
            }
            if std::mem::take(&mut self.too_long) {
                let message = format!(
                    "Invalid Request: the message is larger than {} bytes",
                    self.max_line_bytes
                );
                return Some(Err(Refusal {
                    code: ErrorCode::INVALID_REQUEST,
                    message,
                }));
            }
            let line = std::mem::take(&mut self.line);
            if !line.trim_ascii().is_empty() {
                return Some(Ok(line.into()));
            }
        }
    }

    /// Returns a message for rmcp, `None` if it was handled.
    fn sort(
        &mut self,
        bytes: &Bytes,
        slot: OwnedSemaphorePermit,
    ) -> Result<Option<ClientJsonRpcMessage>, Refusal> {
        let mut visit = self.visit.clone();
        match message::read(bytes)? {
            Message::Request { id, method, params }
                if method == "tools/call"
                    && !self.call(
                        &id,
                        ToolCall::read(params).as_ref(),
                        bytes,
                        slot,
                        &mut visit,
                    )? =>
            {
                return Ok(None);
            }
            Message::Notification { method, params } if method == "notifications/cancelled" => {
                if let Some(id) = message::cancelled(params) {
                    self.running.cancel(&id);
                }
            }
            _ => {}
        }
        let value = message::check_strictly(bytes)?;
        let mut message: ClientJsonRpcMessage = serde_json::from_value(value).map_err(|_| {
            Refusal::invalid_request("Invalid Request: not a message of this protocol")
        })?;
        message.insert_extension(visit);
        Ok(Some(message))
    }

    /// Starts a task that answers a call of a pack, and says whether rmcp has to check the message
    /// first.
    ///
    /// rmcp's handler hands the call back by `visit`.
    fn call(
        &self,
        id: &Id<'_>,
        call: Option<&ToolCall<'_>>,
        bytes: &Bytes,
        slot: OwnedSemaphorePermit,
        visit: &mut CallerContext,
    ) -> Result<bool, Refusal> {
        let started = match self.running.start(&id.value) {
            Ok(started) => started,
            Err(Unstarted::Cancelled) => return Ok(false),
            Err(Unstarted::Taken) => return Err(Refusal::id_in_use()),
        };
        let in_order = |meta: &message::CallMeta<'_>| match &meta.revision {
            None => self.greeted,
            Some(_) => meta.is_self_contained(),
        };
        let plain = call.and_then(|call| {
            call::plain(&self.mcp, visit, call, call.meta().filter(in_order)?, bytes)
        });
        let (asks, slot) = (plain.is_none(), Arc::new(slot));
        let tool = self
            .mcp
            .tracer
            .as_ref()
            .and(call)
            .map(|call| call.name.to_string());
        let trace = if asks {
            call.and_then(|call| call.meta()?.trace())
        } else {
            None
        };
        let asked = Asked {
            id: id.value.to_string(),
            tool,
            revision: None,
            http: false,
        };
        let (back, handed) = oneshot::channel();
        if let Some(run) = plain {
            let _ = back.send(run);
        } else {
            visit.arguments = call.and_then(|call| call::raw_arguments(call, bytes));
            visit.slot = Some(Arc::clone(&slot));
            visit.back = Some(Arc::new(Mutex::new(Some(back))));
        }
        let (mcp, out, id) = (Arc::clone(&self.mcp), self.out.clone(), id.text.to_owned());
        self.calls.spawn(async move {
            let _slot = slot;
            // Fails if rmcp answers: with a refusal, or for the embedder.
            let Ok(run) = handed.await else { return };
            let run = ToolRun {
                trace: trace.or(run.trace.clone()),
                ..run
            }
            .begin(&mcp, || asked);
            if let Some(answer) = run
                .answer_correlated(&mcp, &id, &started.cancel, Some(out.clone()))
                .await
            {
                // If the receiver is closed, there is no client left to answer.
                let _ = out.send(answer).await;
            }
        });
        Ok(asks)
    }
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for Lines<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.greeted |= matches!(
            &message,
            ServerJsonRpcMessage::Response(response) if matches!(response.result, ServerResult::InitializeResult(_))
        );
        let out = self.out.clone();
        async move {
            if is_handed_back(&message) {
                return Ok(());
            }
            let line = serde_json::to_vec(&message)?;
            out.send(line)
                .await
                .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            // A client that sends without reading, or has too many running calls, is not read
            // meanwhile.
            let place = self.out.clone().reserve_owned().await.ok()?;
            let slot = Arc::clone(&self.slots).acquire_owned().await.ok()?;
            let sorted = match self.line().await? {
                Ok(bytes) => self.sort(&bytes, slot),
                Err(refusal) => Err(refusal),
            };
            match sorted {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(refusal) => {
                    place.send(refusal.to_json());
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}
