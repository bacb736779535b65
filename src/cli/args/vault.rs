//! `helmdeck vault`: its commands and flags.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use helmdeck_core::caller::Glob;
use helmdeck_vault::{Kind, Subjects};

/// `helmdeck vault`.
#[derive(Debug, Subcommand)]
pub(crate) enum VaultCommand {
    /// Set a credential: make it, or replace it whole; the secret comes from stdin or a prompt
    #[command(after_help = "Examples:\n  \
        helmdeck vault set github-token --type api_key --host api.github.com --allow local/local --pack 'github.*'\n  \
        pass show deploy | helmdeck vault set deploy --type login --user bot --host git.example.com --allow 'acme/*' --pack 'repo.*'\n  \
        helmdeck vault set deploy-key --type ssh --host github.com --allow local/local --pack repo.push < ~/.ssh/id_ed25519\n\n\
        The secret is never an argument: every user of the machine can read those. `helmdeck key generate` makes a vault key.")]
    Set(SetArgs),
    /// List credentials without their secrets (without the key: names, versions and times)
    List,
    /// Give a credential a new secret; cached answers made with the old one go
    Rotate {
        /// The credential
        name: String,
        /// An ssh key's passphrase: a file that holds it on one line
        #[arg(long, value_name = "FILE")]
        passphrase_file: Option<PathBuf>,
    },
    /// Remove a credential, and cached answers made with it (works without the key)
    Remove {
        /// The credential
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Let more callers or packs use a credential
    Grant(GrantArgs),
    /// Take a grant back, written as it was given
    Revoke(GrantArgs),
    /// Say who used credentials with which packs, and who was refused (works without the key)
    Log {
        /// Only of this credential
        name: Option<String>,
        /// The most lines, a line being a caller, a pack and a day
        #[arg(long, value_name = "COUNT", default_value_t = 100)]
        limit: usize,
    },
    /// Seal every credential with the current key; then previous keys can go
    #[command(
        after_help = "Set HELMDECK_VAULT_KEY to the new key and HELMDECK_VAULT_KEY_PREVIOUS to the old one, restart\n\
        servers with both, and run this. It does all or nothing, and can be run again."
    )]
    Rekey,
}

/// `helmdeck vault set`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Its name, like github-token
    pub(crate) name: String,
    /// What kind of secret it is
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    pub(crate) kind: SecretKind,
    /// Where it may be sent: a host, `*` for any characters; several with commas or repeated
    #[arg(long, value_name = "HOST", required = true, value_delimiter = ',', value_parser = parse_host)]
    pub(crate) host: Vec<Glob>,
    /// Who may use it: tenant/user, `*` for any characters; nobody unless given
    #[arg(long, value_name = "TENANT/USER", value_delimiter = ',')]
    pub(crate) allow: Vec<Subjects>,
    /// With which packs: a name, `*` for any characters; none unless given
    #[arg(long, value_name = "PACK", value_delimiter = ',')]
    pub(crate) pack: Vec<Glob>,
    /// The user of a login
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// An ssh key's passphrase: a file that holds it on one line
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

/// `helmdeck vault grant` and `revoke`.
#[derive(Debug, Args)]
pub(crate) struct GrantArgs {
    /// The credential
    pub(crate) name: String,
    /// Who: tenant/user, `*` for any characters; several with commas or repeated
    #[arg(long, value_name = "TENANT/USER", value_delimiter = ',', required_unless_present = "pack")]
    pub(crate) allow: Vec<Subjects>,
    /// With which packs: a name, `*` for any characters; several with commas or repeated
    #[arg(long, value_name = "PACK", value_delimiter = ',')]
    pub(crate) pack: Vec<Glob>,
}

/// What kind of secret it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum SecretKind {
    /// One text: a key or token
    ApiKey,
    /// A password, and the user that --user names
    Login,
    /// A private key, from stdin
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
