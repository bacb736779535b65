//! Access of `swe.solve` to a repository: a work tree, its changes, and a branch for them.

use async_trait::async_trait;
use bytes::Bytes;
use helmdeck_core::session::{Ended, Exec, Session};
use helmdeck_core::{Context, Result, Secret};

use crate::repo::{self, Git, Proposal, RepoUrl, Wish};

/// The folder of the work tree, below the session's.
const FOLDER: &str = "repo";

/// The largest patch, in bytes.
const MAX_PATCH_BYTES: usize = 8 << 20;

/// The credential of a repository where a call names none.
const DEFAULT_CREDENTIAL: &str = "github-token";

/// Location of a repository, without any secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// The canonical text of it, for every spelling of its URL.
    pub(super) key: String,
    /// The host; `None` for a folder of this machine.
    pub(super) host: Option<String>,
}

/// A work tree in the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Checkout {
    /// Its folder, below the session's.
    pub(super) folder: String,
    /// Its commit, as fetched.
    pub(super) commit: String,
    /// The requested branch; `None` for a tag, a commit or nothing.
    pub(super) branch: Option<String>,
    /// The branch that the remote has as its default, if it says.
    pub(super) default_branch: Option<String>,
}

/// Difference between a work tree and its commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Difference {
    /// A unified diff; empty without changes.
    pub(super) patch: Bytes,
    /// The files in it, by their paths in the repository.
    pub(super) files: Vec<String>,
}

/// Requested part of a repository.
#[derive(Debug, Clone, Copy)]
pub(super) struct RepositoryRef<'a> {
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
    async fn checkout(&self, context: &Context, wanted: RepositoryRef<'_>) -> Result<Checkout>;

    /// Returns what the work tree differs from its commit by.
    ///
    /// # Errors
    /// `too_large`, and those of the session.
    async fn patch(&self, context: &Context, checkout: &Checkout) -> Result<Difference>;

    /// Pushes a patch on the commit of the checkout as a new branch, in one step, and returns its
    /// commit.
    ///
    /// # Errors
    /// `conflict` if the remote refuses it, `credential_invalid`, `forbidden`.
    async fn push(
        &self,
        context: &Context,
        wanted: RepositoryRef<'_>,
        checkout: &Checkout,
        patch: &[u8],
        branch: &str,
        message: &str,
    ) -> Result<String>;
}

/// Repositories through trusted git.
///
/// What commands of the session wrote is read only inside the session.
pub(super) struct GitRepository(pub(super) Git);

impl GitRepository {
    async fn open(&self, context: &Context, wanted: RepositoryRef<'_>) -> Result<repo::Remote> {
        let url = RepoUrl::parse(wanted.url)?;
        let secret = credential(context, wanted.credential.unwrap_or(DEFAULT_CREDENTIAL))?;
        self.0.open(&url, secret, wanted.credential.is_some()).await
    }
}

/// Returns a secret by its name; `None` if the credential does not exist.
pub(super) fn credential(context: &Context, name: &str) -> Result<Option<Secret>> {
    let Some(secrets) = &context.secrets else {
        return Ok(None);
    };
    if secrets.grants().iter().any(|grant| grant.name == name) {
        secrets.get(name)
    } else {
        Ok(None)
    }
}

/// Returns whether any reference of the work tree's repository reaches a commit; `None` if unknown.
///
/// Runs before any command of a model in that repository.
pub(super) async fn is_reachable(
    session: &dyn Session,
    checkout: &Checkout,
    commit: &str,
) -> Option<bool> {
    if commit.is_empty() || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let git = async |arguments: &[&str]| {
        let mut exec = Exec::new([&["git"], arguments].concat());
        exec.cwd.clone_from(&checkout.folder);
        session.exec(exec).await.ok()
    };
    // For the other two, a missing commit is an error.
    if git(&["cat-file", "-e", &format!("{commit}^{{commit}}")])
        .await?
        .ended
        != Ended::Exited(0)
    {
        return Some(false);
    }
    if git(&["merge-base", "--is-ancestor", commit, "HEAD"])
        .await?
        .ended
        == Ended::Exited(0)
    {
        return Some(true);
    }
    let references = git(&["for-each-ref", "--count=1", "--contains", commit]).await?;
    (references.ended == Ended::Exited(0))
        .then(|| references.stdout.all().is_some_and(|text| !text.is_empty()))
}

#[async_trait]
impl Repository for GitRepository {
    fn address(&self, url: &str) -> Result<Address> {
        let url = RepoUrl::parse(url)?;
        Ok(Address {
            key: url.key(),
            host: url.host().map(ToString::to_string),
        })
    }

    async fn checkout(&self, context: &Context, wanted: RepositoryRef<'_>) -> Result<Checkout> {
        let remote = self.open(context, wanted).await?;
        let wish = Wish {
            reference: wanted.reference.map(str::to_owned),
            depth: None,
        };
        let made = repo::check_out(&self.0, &remote, &**context.session()?, FOLDER, &wish).await?;
        Ok(Checkout {
            folder: made.path,
            commit: made.commit,
            branch: made.branch,
            default_branch: made.default_branch,
        })
    }

    async fn patch(&self, context: &Context, checkout: &Checkout) -> Result<Difference> {
        let session = &**context.session()?;
        let made = repo::Checkout::of(session, &checkout.folder)?;
        let changes = repo::changes(session, &made, MAX_PATCH_BYTES).await?;
        let files = changes.files.into_iter().map(|file| file.path).collect();
        Ok(Difference {
            patch: changes.patch.into(),
            files,
        })
    }

    async fn push(
        &self,
        context: &Context,
        wanted: RepositoryRef<'_>,
        checkout: &Checkout,
        patch: &[u8],
        branch: &str,
        message: &str,
    ) -> Result<String> {
        let session = &**context.session()?;
        let made = repo::Checkout::of(session, &checkout.folder)?;
        let remote = self.open(context, wanted).await?;
        repo::apply_and_push(
            &self.0,
            &remote,
            session,
            &made,
            Proposal {
                patch,
                branch,
                message,
            },
        )
        .await
    }
}
