//! Metrics of MCP servers.

use helmdeck_core::Result;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

type Server = [(&'static str, String); 1];
type ServerAndOutcome = [(&'static str, String); 2];

helmdeck_core::metrics! {
    /// Metrics of all servers.
    #[derive(Debug, Default)]
    pub struct McpMetrics {
        up: Family<Server, Gauge> = "mcp_server_up" "1 while there is a connection to the MCP server";
        starts: Family<Server, Counter> = "mcp_server_starts" "How often the MCP server was started";
        crashes: Family<Server, Counter> = "mcp_server_crashes" "How often the MCP server ended unasked";
        calls: Family<ServerAndOutcome, Counter> =
            "mcp_server_calls" "Calls that went to the MCP server, by outcome (ok or an error code)";
    }
}

/// Metrics of one server.
#[derive(Clone)]
pub(crate) struct ServerMetrics {
    name: String,
    pub(crate) up: Gauge,
    pub(crate) starts: Counter,
    pub(crate) crashes: Counter,
    calls: Family<ServerAndOutcome, Counter>,
}

impl McpMetrics {
    pub(crate) fn server(&self, name: &str) -> ServerMetrics {
        let labels = [("server", name.to_owned())];
        ServerMetrics {
            name: name.to_owned(),
            up: self.up.get_or_create_owned(&labels),
            starts: self.starts.get_or_create_owned(&labels),
            crashes: self.crashes.get_or_create_owned(&labels),
            calls: self.calls.clone(),
        }
    }
}

impl ServerMetrics {
    pub(crate) fn called<T>(&self, result: &Result<T>) {
        let outcome = result
            .as_ref()
            .err()
            .map_or("ok", |error| error.code().as_str());
        self.calls
            .get_or_create(&[
                ("server", self.name.clone()),
                ("outcome", outcome.to_owned()),
            ])
            .inc();
    }
}
