//! Notifications of changes of the tools.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rmcp::RoleServer;
use rmcp::model::{ErrorData, SubscriptionFilter};
use rmcp::service::{NotificationContext, SubscriptionContext};
use tokio_util::sync::CancellationToken;

use super::Agent;
use crate::mcp::state::CallerContext;
use crate::mcp::watch;

impl Agent {
    /// Notifies the session of changes of its tools, once it is initialized.
    pub(super) async fn follow_changes(&self, context: NotificationContext<RoleServer>) {
        let Ok(visit) = CallerContext::of(&context.extensions) else {
            return;
        };
        if self.watching.swap(true, Ordering::Relaxed) {
            return;
        }
        let (caller, validity, peer) = (
            visit.caller.clone(),
            visit.validity.clone(),
            context.peer.clone(),
        );
        let ended = self.ended_token();
        let (mcp, before) = (Arc::clone(&self.mcp), self.mcp.tables.current());
        let listening = watch::changes(
            mcp,
            caller,
            validity,
            before,
            {
                let peer = peer.clone();
                move || peer.is_transport_closed()
            },
            move || {
                let peer = peer.clone();
                async move { peer.notify_tool_list_changed().await.is_ok() }
            },
        );
        tokio::spawn(async move { ended.run_until_cancelled(listening).await });
    }

    /// Returns what a subscription is accepted for.
    pub(super) fn accept_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = self
            .mcp
            .extra
            .as_ref()
            .and_then(|extra| extra.accepted(requested))
            .unwrap_or_default();
        accepted.tools_list_changed = requested.tools_list_changed;
        // No change may be lost once the subscription is acknowledged.
        self.before
            .lock()
            .get_or_insert_with(|| self.mcp.tables.current());
        Some(accepted)
    }

    /// Notifies a subscriber until it leaves.
    pub(super) async fn listen_to_changes(
        &self,
        context: SubscriptionContext,
    ) -> Result<(), ErrorData> {
        let visit = CallerContext::of(&context.request_context().extensions)?;
        let (caller, validity, sink) = (
            visit.caller.clone(),
            visit.validity.clone(),
            context.sink().clone(),
        );
        let cancelled = context.request_context().ct.clone();
        let wants_tools = context.accepted().tools_list_changed == Some(true);
        let before = self.before.lock().take();
        let before = before.unwrap_or_else(|| self.mcp.tables.current());
        let ours = watch::changes(
            Arc::clone(&self.mcp),
            caller,
            validity,
            before,
            || false,
            move || {
                let sink = sink.clone();
                async move { !wants_tools || sink.notify_tool_list_changed().await.is_ok() }
            },
        );
        match &self.mcp.extra {
            None => {
                tokio::select! { () = ours => {}, () = cancelled.cancelled() => {} }
                Ok(())
            }
            Some(extra) => {
                tokio::select! { () = ours => Ok(()), result = extra.listen(context) => result }
            }
        }
    }

    fn ended_token(&self) -> CancellationToken {
        self.ended.token().clone()
    }
}
