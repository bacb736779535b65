//! Extension of the MCP transport by an embedding program: tools, prompts, resources and more.

use futures_util::future::BoxFuture;
use rmcp::model::{
    ClientNotification, ClientRequest, ErrorCode, ErrorData, ServerConfig, ServerResult,
    SubscriptionFilter, Tool,
};
use rmcp::service::{DynService, NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};

/// Handler for requests that packs do not answer. Every [`ServerHandler`] is one.
///
/// It answers other tools and resources, prompts, completion, log levels and subscriptions. Its
/// lists and capabilities are added to ours. It has no tasks. Every caller can use it, so it must
/// check permissions itself. Its requests pass the same checks as those of packs.
pub trait Extra: Send + Sync + 'static {
    /// Returns its capabilities.
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
    /// Returns the accepted part of the requested notifications, `None` if it sends none.
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
            // The call cannot fail for a handler.
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

/// Returns the error for an unknown method. It does not repeat the name.
pub(crate) fn unknown_method() -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "Method not found", None)
}
