//! Client side of a connection: accepts progress and list changes, and offers no capability.

#![expect(
    deprecated,
    reason = "roots are on their way out of the protocol; servers ask for them all the same"
)]

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use helmdeck_core::Secret;
use helmdeck_core::context::ProgressSink;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ErrorCode, Implementation, ListRootsResult,
    ProgressNotificationParam, ProgressToken, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, ErrorData, RoleClient};
use tokio::sync::Notify;

/// Limit of a progress or log message, in bytes.
const MAX_MESSAGE_BYTES: usize = 1 << 10;

/// Progress listeners by request.
#[derive(Clone, Default)]
pub(crate) struct Listeners(Arc<Mutex<HashMap<ProgressToken, Arc<dyn ProgressSink>>>>);

/// Guard that removes a listener when its call ends.
pub(crate) struct Listening {
    listeners: Listeners,
    token: ProgressToken,
}

impl Listeners {
    pub(crate) fn add(&self, token: ProgressToken, sink: Arc<dyn ProgressSink>) -> Listening {
        self.0.lock().insert(token.clone(), sink);
        Listening {
            listeners: self.clone(),
            token,
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.listeners.0.lock().remove(&self.token);
    }
}

/// Client side of a connection. Sampling, elicitation and roots are not offered, and refused.
#[derive(Clone)]
pub(crate) struct McpClient {
    pub(crate) listeners: Listeners,
    /// Notified when the server's list of tools has changed.
    pub(crate) changed: Arc<Notify>,
    /// Secrets that the server was given; redacted from all that it sends.
    secrets: Arc<[Secret]>,
}

impl McpClient {
    pub(crate) fn new(secrets: &[Secret]) -> Self {
        Self {
            listeners: Listeners::default(),
            changed: Arc::default(),
            secrets: secrets.into(),
        }
    }
}

/// Returns a message of a server, first redacted, then cut to [`MAX_MESSAGE_BYTES`].
///
/// Redaction comes first because it would not find half of a secret.
pub(crate) fn redacted(text: &str, secrets: &[Secret]) -> String {
    let mut clean = helmdeck_redact::text(text, secrets).into_owned();
    clean.truncate(clean.floor_char_boundary(MAX_MESSAGE_BYTES));
    clean
}

impl ClientHandler for McpClient {
    fn get_info(&self) -> ClientConfig {
        // The newest revision that has a handshake; `connection.rs` falls back to the one without.
        ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("helmdeck", env!("CARGO_PKG_VERSION")),
        )
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_progress(
        &self,
        progress: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let sink = self
            .listeners
            .0
            .lock()
            .get(&progress.progress_token)
            .cloned();
        if let Some(sink) = sink {
            let percent = progress.total.filter(|total| *total > 0.0).map(|total| {
                #[expect(clippy::cast_possible_truncation, reason = "a percentage")]
                let percent = (progress.progress / total * 100.0).clamp(0.0, 100.0) as f32;
                percent
            });
            sink.report(
                percent,
                &redacted(
                    progress.message.as_deref().unwrap_or_default(),
                    &self.secrets,
                ),
            );
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            "roots are not offered",
            None,
        ))
    }
}
