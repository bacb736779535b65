//! Command line of `helmdeck ui`.

use clap::Args;
use helmdeck_core::Permissions;
use url::Url;

use super::token::parse_scope;

/// `helmdeck ui`.
#[derive(Debug, Args)]
pub(crate) struct UiArgs {
    /// Server, like `https://deck.example` [default: the one that runs, else the one of [server]
    /// listen]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<Url>,
    /// Tenant to sign in as
    #[arg(long, default_value = "local")]
    pub(crate) tenant: String,
    /// User to sign in as
    #[arg(long, default_value = "local")]
    pub(crate) user: String,
    /// Scopes of the browser, separated by spaces
    #[arg(long, value_name = "SCOPES", value_parser = parse_scope, default_value = "admin")]
    pub(crate) scope: Permissions,
}
