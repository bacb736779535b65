//! Command line of `helmdeck pack`, and how commands name a pack.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use helmdeck_core::{PackName, Version};

/// Pack reference: a name with an optional version. Whether it names a pack, the engine decides.
#[derive(Debug, Clone)]
pub(crate) struct PackRef {
    /// Name, as it was typed.
    pub(crate) name: String,
    /// Version; `None` is the latest.
    pub(crate) version: Option<Version>,
}

impl PackRef {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (name, version) = text
            .split_once('@')
            .map_or((text, None), |(name, version)| (name, Some(version)));
        let version = version.filter(|version| *version != "latest");
        Ok(Self {
            name: name.to_owned(),
            version: version.map(Version::parse).transpose()?,
        })
    }
}

/// `helmdeck pack`.
#[derive(Debug, Subcommand)]
pub(crate) enum PackCommand {
    /// List the packs that can work, by family
    List(PackListArgs),
    /// Show a pack's input and output schemas
    Show {
        /// Pack, with its version if not the latest
        #[arg(value_name = "PACK[@VERSION]", value_parser = PackRef::parse)]
        pack: PackRef,
    },
    /// Check manifests, schemas and examples
    Check {
        /// Manifest or folder of manifests [default: the configured packs folder and the built-in
        /// packs]
        path: Option<PathBuf>,
        /// Run the examples of command packs and send those of http packs
        #[arg(long)]
        run: bool,
    },
    /// Create a working pack from a template
    New {
        /// Pack name, like team.lookup
        #[arg(value_parser = PackName::new)]
        name: PackName,
        /// Handler of the pack
        #[arg(long, value_enum, default_value = "command")]
        kind: PackKind,
        /// Folder to make the pack's folder in [default: the configured packs folder]
        #[arg(long, value_name = "FOLDER")]
        dir: Option<PathBuf>,
    },
}

/// `helmdeck pack list`.
#[derive(Debug, Args)]
pub(crate) struct PackListArgs {
    /// Only packs with this text in their name
    pub(crate) filter: Option<String>,
    /// Include packs that cannot work yet, with what they wait for
    #[arg(long)]
    pub(crate) all: bool,
    /// Show versions, handlers and whole descriptions
    #[arg(long)]
    pub(crate) long: bool,
}

/// Handler kind of a new pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PackKind {
    /// A program
    Command,
    /// A cacheable tool of an MCP server
    Mcp,
    /// An HTTP request
    Http,
    /// A Rust function in this project's source
    Builtin,
}
