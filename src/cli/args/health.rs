//! Arguments of `helmdeck health`.

use std::time::Duration;

use clap::Args;
use helmdeck_core::duration::parse_duration;
use url::Url;

/// `helmdeck health`.
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Server, like `http://127.0.0.1:7700` [default: the one that runs, else the one of [server]
    /// listen]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<Url>,
    /// Stop waiting after this long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "5s")]
    pub(crate) timeout: Duration,
}
