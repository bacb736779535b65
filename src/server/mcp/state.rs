//! Shared state of the MCP transports, and the caller of a message.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use helmdeck_core::text;
use helmdeck_core::{Call, Caller, Code, Correlation, Error, PackName, Permission, Tracer};
use helmdeck_engine::Engine;
use rmcp::model::{ErrorCode, ErrorData, Extensions};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::McpConfig;
use super::call::Handback;
use super::extra::Extra;
use super::table::{Tables, ToolEntry, pack_name};
use super::wish::CacheWish;
use crate::problem::with_request_id;
use crate::validity::Validity;

/// State shared by all sessions. It holds no caller's data.
pub(crate) struct McpState {
    pub(crate) engine: Engine,
    pub(crate) config: McpConfig,
    pub(crate) tables: Tables,
    /// The client's folder on this machine: over stdio only.
    pub(crate) place: Option<LocalClient>,
    pub(crate) extra: Option<Arc<dyn Extra>>,
    /// `None` = no spans are made.
    pub(crate) tracer: Option<Tracer>,
    /// Time limit of a call.
    pub(crate) deadline: Duration,
    /// Cancelled to end the streams of clients that only listen.
    pub(crate) drain: CancellationToken,
}

/// Makes the paths of an input absolute, by a schema; `None` if there is nothing to change.
pub type Absolute = Arc<dyn Fn(&Value, &str) -> Option<String> + Send + Sync>;

/// A client on this machine, with the base of its relative paths.
#[derive(Clone)]
pub struct LocalClient {
    /// Base of relative paths, for the instructions.
    pub folder: PathBuf,
    /// Makes paths absolute; its first argument is the schema of the pack's input.
    pub absolute: Absolute,
}

impl std::fmt::Debug for LocalClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalClient")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for McpState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Sender of a message, put into its extensions by the transport.
///
/// A message without a sender is refused.
#[derive(Clone)]
pub(crate) struct CallerContext {
    /// The caller, narrowed to the session if there is one.
    pub(crate) caller: Caller,
    /// Check whether the caller's credential is still valid.
    pub(crate) validity: Validity,
    /// The arguments of a `tools/call`, as they were written.
    pub(crate) arguments: Option<Bytes>,
    /// Takes a `tools/call` that rmcp checked back to the transport.
    pub(crate) back: Option<Handback>,
    /// The call's slot among running calls, if the transport counts them.
    pub(crate) slot: Option<Arc<OwnedSemaphorePermit>>,
}

impl CallerContext {
    pub(crate) fn new(caller: Caller, validity: Validity) -> Self {
        Self {
            caller,
            validity,
            arguments: None,
            back: None,
            slot: None,
        }
    }

    /// Returns the sender of a message.
    ///
    /// # Errors
    /// `unauthenticated` if the transport named no caller.
    pub(crate) fn of(extensions: &Extensions) -> Result<&Self, ErrorData> {
        let visit = extensions.get::<Self>();
        let visit = visit.or_else(|| {
            extensions
                .get::<::http::request::Parts>()?
                .extensions
                .get::<Self>()
        });
        visit.ok_or_else(|| {
            rpc_error(&Error::new(
                Code::Unauthenticated,
                "the transport named no caller",
            ))
        })
    }
}

tokio::task_local! {
    /// Sender of the current request.
    ///
    /// The calls that rmcp makes to a handler before it hands a request over carry no sender.
    static CONTEXT: Caller;
}

/// Runs a future with the sender as the current caller.
pub(crate) async fn visiting<F: Future>(visit: &CallerContext, work: F) -> F::Output {
    CONTEXT.scope(visit.caller.clone(), work).await
}

/// Says whether the current caller may run a pack; `false` without a caller.
pub(crate) fn is_for_visitor(pack: &PackName) -> bool {
    CONTEXT
        .try_with(|caller| caller.need_run(pack).is_ok())
        .unwrap_or(false)
}

impl McpState {
    /// Returns a tool that a caller may use.
    ///
    /// # Errors
    /// The same error for a tool that does not exist and for one that the caller may not use, built
    /// from the name alone: callers cannot learn which packs exist.
    pub(crate) fn tool(&self, caller: &Caller, name: &str) -> Result<Arc<ToolEntry>, ErrorData> {
        let table = self.tables.current();
        if let Some(entry) = table.get(name)
            && caller.need_run(&entry.pack).is_ok()
        {
            return Ok(Arc::clone(entry));
        }
        let refused = pack_name(name).and_then(|pack| caller.need_run(&pack).err());
        Err(refused.map_or_else(
            || unknown_tool(name, table.nearest(name, caller)),
            |error| rpc_error(&error),
        ))
    }

    /// Waits for a tool that is not registered yet, for callers that may run it.
    ///
    /// It may be a tool of an MCP server that has not listed its tools, or a manifest that waits
    /// for such a server.
    ///
    /// # Errors
    /// Why the server does not answer.
    pub(crate) async fn await_tool(&self, caller: &Caller, name: &str) -> Result<(), Error> {
        let may_run = || pack_name(name).is_none_or(|pack| caller.need_run(&pack).is_ok());
        if self.tables.current().get(name).is_some() || !may_run() {
            return Ok(());
        }
        match self.engine.await_tool(&name.replace('.', "__")).await {
            // The error must not reveal the name of a server that has tools for other callers only.
            Err(error) if error.code() == Code::NotFound => Ok(()),
            other => other,
        }
    }

    /// Builds a call of a pack. The caller's permission was checked before.
    pub(crate) fn call(
        &self,
        caller: &Caller,
        entry: &ToolEntry,
        arguments: Bytes,
        wish: CacheWish,
    ) -> Call {
        let arguments = match (&self.place, &entry.paths) {
            (Some(place), Some(schema)) => std::str::from_utf8(&arguments)
                .ok()
                .and_then(|text| (place.absolute)(schema, text))
                .map_or(arguments, Bytes::from),
            _ => arguments,
        };
        let mut call = Call::new(entry.pack.clone(), arguments, Arc::clone(&caller.identity));
        call.correlation = Correlation::current();
        call.administrator = caller.permissions.allow(&Permission::Admin);
        call.deadline = Instant::now().checked_add(self.deadline);
        wish.apply(&mut call);
        call
    }
}

/// Returns an error outside a tool's result as a JSON-RPC error; its `data` is the whole problem.
pub(crate) fn rpc_error(error: &Error) -> ErrorData {
    let code = match error.code() {
        Code::InvalidInput | Code::TooLarge => ErrorCode::INVALID_PARAMS,
        Code::NotFound => ErrorCode::RESOURCE_NOT_FOUND,
        Code::Unauthenticated | Code::Forbidden => ErrorCode::INVALID_REQUEST,
        _ => ErrorCode::INTERNAL_ERROR,
    };
    ErrorData::new(code, error.to_string(), Some(with_request_id(error)))
}

fn unknown_tool(name: &str, nearest: Option<String>) -> ErrorData {
    let shown = text::escaped(name, 80);
    let hint = nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest}?"));
    ErrorData::invalid_params(format!("Unknown tool: {shown}{hint}"), None)
}
