//! What `swe.solve` needs of a repository: a work tree to work in, the change made there, and a branch for it.

use async_trait::async_trait;
use helmdeck_core::{Context, Result};

/// Where a repository is, without any secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// The one text that stands for it however its URL is spelled.
    pub(super) key: String,
    /// The host; `None` for a folder of this machine.
    pub(super) host: Option<String>,
}

/// A work tree in the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Checkout {
    /// Its folder, below the session's.
    pub(super) folder: String,
    /// The commit that it stands at, as it was fetched.
    pub(super) commit: String,
    /// The branch that was asked for; `None` if that was a tag, a commit or nothing.
    pub(super) branch: Option<String>,
    /// The branch that the remote has as its default, if it says.
    pub(super) default_branch: Option<String>,
}

/// What is fetched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) url: &'a str,
    pub(super) reference: Option<&'a str>,
    pub(super) credential: Option<&'a str>,
}

/// The way to repositories.
#[async_trait]
pub(super) trait Repository: Send + Sync {
    /// Reads an address. Touches nothing.
    ///
    /// # Errors
    /// `invalid_input`; no message repeats what may be a password.
    fn address(&self, url: &str) -> Result<Address>;

    /// Fetches a repository into the session.
    ///
    /// # Errors
    /// `not_found`, `credential_invalid`, `forbidden`, `invalid_input` and those of the session.
    async fn checkout(&self, context: &Context, wanted: Wanted<'_>) -> Result<Checkout>;

    /// Returns what the work tree differs from its commit by, as a unified diff; empty if by nothing.
    ///
    /// # Errors
    /// `too_large`, and those of the session.
    async fn patch(&self, context: &Context, checkout: &Checkout) -> Result<String>;

    /// Pushes a patch on the commit of the checkout as a new branch, in one step, and returns its commit.
    ///
    /// # Errors
    /// `conflict` if the remote refuses it, `credential_invalid`, `forbidden`.
    async fn push(
        &self,
        context: &Context,
        wanted: Wanted<'_>,
        checkout: &Checkout,
        patch: &str,
        branch: &str,
        message: &str,
    ) -> Result<String>;
}
