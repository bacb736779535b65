//! What an embedder can add to the MCP transport: tools, prompts, resources and whatever else packs have no words for.

use futures_util::future::BoxFuture;
use rmcp::model::{
    ClientNotification, ClientRequest, ErrorCode, ErrorData, ServerConfig, ServerResult, SubscriptionFilter, Tool,
};
use rmcp::service::{DynService, NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};

/// A handler for what the packs do not answer. Every [`ServerHandler`] is one.
///
/// The transport asks it for tools that are no packs, resources that are not ours, prompts, completion, log levels and subscriptions; its
/// lists are added to ours and its capabilities are announced beside ours. Tasks are packs alone. It is offered to every caller: what it may do for whom
/// is its own concern. Its requests come from the same transports, through the same checks, as those of packs.
pub trait Extra: Send + Sync + 'static {
    /// Returns what it can do.
    fn info(&self) -> ServerConfig;
    /// Answers a request.
    fn request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> BoxFuture<'_, Result<ServerResult, ErrorData>>;
    /// Takes a notification.
    fn notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> BoxFuture<'_, ()>;
    /// Returns a tool by its name.
    fn tool(&self, name: &str) -> Option<Tool>;
    /// Returns the part of the wanted notifications that it sends, `None` if it sends none.
    fn accepted(&self, wanted: &SubscriptionFilter) -> Option<SubscriptionFilter>;
    /// Serves one subscription until it ends.
    fn listen(&self, context: SubscriptionContext) -> BoxFuture<'_, Result<(), ErrorData>>;
}

impl<H: ServerHandler> Extra for H {
    fn info(&self) -> ServerConfig {
        ServerHandler::get_info(self)
    }

    fn request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> BoxFuture<'_, Result<ServerResult, ErrorData>> {
        DynService::handle_request(self, request, context)
    }

    fn notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // It never fails for a handler.
            let _ = DynService::handle_notification(self, notification, context).await;
        })
    }

    fn tool(&self, name: &str) -> Option<Tool> {
        self.get_tool(name)
    }

    fn accepted(&self, wanted: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.accepted_subscription_filter(wanted)
    }

    fn listen(&self, context: SubscriptionContext) -> BoxFuture<'_, Result<(), ErrorData>> {
        Box::pin(ServerHandler::listen(self, context))
    }
}

/// Returns the error for a method that nobody answers. It does not repeat the name, which then ends up in the log.
pub(crate) fn unknown_method() -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "Method not found", None)
}
