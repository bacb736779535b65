//! Publishes a patch as a new branch, from a clean bare repository outside of any session.
//!
//! Exactly the patch is pushed.

use bytes::Bytes;
use helmdeck_core::session::Session;
use helmdeck_core::{Code, Error, Result};

use super::checkout::{self, Checkout};
use super::git::{Git, Remote, is_id};
use super::names::{check_branch, same};

/// Usual names of default branches.
const USUAL_DEFAULTS: [&str; 5] = ["main", "master", "trunk", "develop", "default"];

/// A patch and the name of the branch that it becomes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Proposal<'a> {
    /// A unified diff against the commit of the work tree.
    pub(crate) patch: &'a [u8],
    /// The new branch, without `refs/heads/`.
    pub(crate) branch: &'a str,
    /// The message of the commit.
    pub(crate) message: &'a str,
}

/// Commits a patch on top of a work tree's commit and pushes it as a new branch.
///
/// Returns the new commit. It reads nothing of the session but the clean copy among its supplies,
/// which commands cannot change.
///
/// # Errors
/// `invalid_input` for an invalid branch name, or a patch that is empty or does not apply;
/// `conflict` for the default branch, one that exists, or a rejected push; else as
/// [`Remote::fetch`].
pub(crate) async fn apply_and_push(
    git: &Git,
    remote: &Remote,
    session: &dyn Session,
    checkout: &Checkout,
    proposal: Proposal<'_>,
) -> Result<String> {
    let branch = proposal.branch;
    check_branch(branch)?;
    if proposal.patch.is_empty() {
        return Err(Error::new(
            Code::InvalidInput,
            "there are no changes to push",
        ));
    }
    let refs = remote.list().await?;
    let defaults = [
        refs.default_branch.as_deref(),
        checkout.default_branch.as_deref(),
    ];
    if let Some(default) = defaults
        .into_iter()
        .flatten()
        .find(|default| same(default, branch))
    {
        let message = format!(
            "{default:?} is the default branch, which is never pushed to; choose a name other than {branch:?}"
        );
        return Err(Error::new(Code::Conflict, message));
    }
    // Where HEAD names a branch that does not exist yet, git says nothing of it: pushing that one
    // would make it the default.
    if !refs.ids.contains_key("HEAD") && USUAL_DEFAULTS.iter().any(|usual| same(usual, branch)) {
        let message = format!(
            "the default branch of the repository does not exist yet and {branch:?} may be it; choose another name"
        );
        return Err(Error::new(Code::Conflict, message));
    }
    let branches = refs
        .ids
        .keys()
        .filter_map(|name| name.strip_prefix("refs/heads/"));
    if let Some(taken) = branches.into_iter().find(|taken| same(taken, branch)) {
        let message =
            format!("branch {taken:?} exists already; choose a name other than {branch:?}");
        return Err(Error::new(Code::Conflict, message));
    }
    let folder = tempfile::Builder::new()
        .prefix("helmdeck-push-")
        .tempdir()
        .map_err(|error| {
            Error::new(Code::ResourceExhausted, "no temporary folder can be made")
                .with_source(error)
        })?;
    let commit = commit(git, folder.path(), session, checkout, proposal).await?;
    remote
        .push_new_branch(folder.path(), &commit, branch)
        .await?;
    Ok(commit)
}

/// Makes the commit in an empty bare repository that borrows the objects of the clean copy.
async fn commit(
    git: &Git,
    folder: &std::path::Path,
    session: &dyn Session,
    checkout: &Checkout,
    proposal: Proposal<'_>,
) -> Result<String> {
    let base = checkout::base(checkout)?;
    let mirror = checkout.mirror(session);
    let failed = |error| {
        Error::new(
            Code::ResourceExhausted,
            "a temporary file cannot be written",
        )
        .with_source(error)
    };
    git.local_text(
        folder,
        &["init", "--quiet", "--bare", "--template="],
        &[],
        Bytes::new(),
    )
    .await?;
    let objects = mirror.join("objects");
    std::fs::create_dir_all(folder.join("objects/info")).map_err(failed)?;
    std::fs::write(
        folder.join("objects/info/alternates"),
        format!("{}\n", objects.display()),
    )
    .map_err(failed)?;
    if mirror.join("shallow").exists() {
        std::fs::copy(mirror.join("shallow"), folder.join("shallow")).map_err(failed)?;
    }
    git.local_text(folder, &["read-tree", base], &[], Bytes::new())
        .await?;
    let apply = ["apply", "--cached", "--binary", "--whitespace=nowarn", "-"];
    let applied = git
        .local(folder, &apply, &[], Bytes::copy_from_slice(proposal.patch))
        .await?;
    if !applied.succeeded() {
        let message = "the patch does not apply to the commit of the work tree";
        return Err(Error::new(Code::InvalidInput, message).with_source(applied.stderr));
    }
    let tree = git
        .local_text(folder, &["write-tree"], &[], Bytes::new())
        .await?;
    let unchanged = git
        .local_text(
            folder,
            &["rev-parse", &format!("{base}^{{tree}}")],
            &[],
            Bytes::new(),
        )
        .await?;
    if tree == unchanged {
        return Err(Error::new(
            Code::InvalidInput,
            "there are no changes to push",
        ));
    }
    let (name, email) = (
        git.config().author_name.as_str(),
        git.config().author_email.as_str(),
    );
    let who = [
        ("GIT_AUTHOR_NAME", name),
        ("GIT_AUTHOR_EMAIL", email),
        ("GIT_COMMITTER_NAME", name),
        ("GIT_COMMITTER_EMAIL", email),
    ];
    let message = Bytes::from(format!("{}\n", proposal.message.trim()));
    let arguments = ["commit-tree", &tree, "-p", base, "-F", "-"];
    let commit = git.local_text(folder, &arguments, &who, message).await?;
    if is_id(&commit) {
        Ok(commit)
    } else {
        Err(Error::new(Code::Internal, "git made no commit"))
    }
}
