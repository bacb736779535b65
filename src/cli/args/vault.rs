//! Command line of `helmdeck vault`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use helmdeck_core::caller::Glob;
use helmdeck_vault::{Kind, Subjects};

/// `helmdeck vault`.
#[derive(Debug, Subcommand)]
pub(crate) enum VaultCommand {
    /// Create or replace a credential; the secret is read from stdin or a prompt
    #[command(after_help = "Examples:\n  \
        helmdeck vault set github-token --type api_key --host api.github.com --allow local/local --pack 'github.*'\n  \
        pass show deploy | helmdeck vault set deploy --type login --user bot --host git.example.com --allow 'acme/*' --pack 'repo.*'\n  \
        helmdeck vault set deploy-key --type ssh --host github.com --allow local/local --pack repo.push < ~/.ssh/id_ed25519\n\n\
        The secret is never an argument, because every user of the machine can read those. `helmdeck key generate` makes a\n\
        vault key.")]
    Set(SetArgs),
    /// List credentials without their secrets (without the key: names, versions and times only)
    List,
    /// Replace a credential's secret; deletes cached answers made with the old one
    Rotate {
        /// Credential name
        name: String,
        /// File with the passphrase of an ssh key, on one line
        #[arg(long, value_name = "FILE")]
        passphrase_file: Option<PathBuf>,
    },
    /// Remove a credential and the cached answers made with it (works without the key)
    Remove {
        /// Credential name
        name: String,
        /// Skip the confirmation prompt
        #[arg(long)]
        yes: bool,
    },
    /// Grant more callers or packs the use of a credential
    Grant(GrantArgs),
    /// Revoke a grant; write it exactly as it was granted
    Revoke(GrantArgs),
    /// Show who used credentials with which packs, and who was refused (works without the key)
    Log {
        /// Only this credential
        name: Option<String>,
        /// Maximum number of lines; one per caller, pack and day
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        limit: usize,
    },
    /// Re-encrypt every credential with the current key; then remove the previous keys
    #[command(
        after_help = "Set HELMDECK_VAULT_KEY to the new key and HELMDECK_VAULT_KEY_PREVIOUS to the old one, restart\n\
        servers with both, and run this. It changes all or nothing, and is safe to run again."
    )]
    Rekey,
}

/// `helmdeck vault set`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Credential name, like github-token
    pub(crate) name: String,
    /// Type of the secret
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    pub(crate) kind: SecretKind,
    /// Hosts it may be sent to; `*` matches any characters (comma-separated or repeated)
    #[arg(long, value_name = "HOST", required = true, value_delimiter = ',', value_parser = parse_host)]
    pub(crate) host: Vec<Glob>,
    /// Callers that may use it: tenant/user; `*` matches any characters [default: none]
    #[arg(long, value_name = "TENANT/USER", value_delimiter = ',')]
    pub(crate) allow: Vec<Subjects>,
    /// Packs that may use it; `*` matches any characters [default: none]
    #[arg(long, value_name = "PACK", value_delimiter = ',')]
    pub(crate) pack: Vec<Glob>,
    /// User name of a login
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// File with the passphrase of an ssh key, on one line
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

/// `helmdeck vault grant` and `revoke`.
#[derive(Debug, Args)]
pub(crate) struct GrantArgs {
    /// Credential name
    pub(crate) name: String,
    /// Callers: tenant/user; `*` matches any characters (comma-separated or repeated)
    #[arg(
        long,
        value_name = "TENANT/USER",
        value_delimiter = ',',
        required_unless_present = "pack"
    )]
    pub(crate) allow: Vec<Subjects>,
    /// Packs; `*` matches any characters (comma-separated or repeated)
    #[arg(long, value_name = "PACK", value_delimiter = ',')]
    pub(crate) pack: Vec<Glob>,
}

/// Type of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum SecretKind {
    /// An API key or token
    ApiKey,
    /// A password, with the user name from --user
    Login,
    /// A private key, read from stdin
    Ssh,
}

impl From<SecretKind> for Kind {
    fn from(kind: SecretKind) -> Self {
        match kind {
            SecretKind::ApiKey => Self::ApiKey,
            SecretKind::Login => Self::Login,
            SecretKind::Ssh => Self::Ssh,
        }
    }
}

fn parse_host(text: &str) -> Result<Glob, String> {
    helmdeck_vault::parse_host(text).map_err(|error| error.to_string())
}
