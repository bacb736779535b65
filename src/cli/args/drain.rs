//! Arguments of `helmdeck drain`.

use clap::Args;
use url::Url;

/// `helmdeck drain`.
#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// Server, like `http://127.0.0.1:7700` [default: the one that runs, else the one of [server]
    /// listen]
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<Url>,
}
