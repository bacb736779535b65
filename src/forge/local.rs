//! Check that `.forge/.local` is not tracked.
//!
//! It belongs to one clone. A tracked one would contain another clone's locks and journal.

use crate::error::{Category, Error, Result};
use crate::git::Run;
use crate::layout::LOCAL;
use crate::project::Project;

/// Returns the first path below `.forge/.local` that git tracks, if there is one.
///
/// # Errors
/// The errors of git.
pub(crate) fn tracked(project: &Project) -> Result<Option<String>> {
    let Ok(git) = project.git() else {
        return Ok(None);
    };
    let run = Run {
        folder: Some(project.root().to_owned()),
        ..Run::default()
    };
    let listed = git.run(
        &["--literal-pathspecs", "ls-files", "-z", "--", LOCAL],
        &run,
    )?;
    Ok(listed
        .records()
        .next()
        .map(|path| String::from_utf8_lossy(path).into_owned()))
}

/// Refuses to work on a `.forge/.local` that came with the repository.
///
/// # Errors
/// `Refused` (`E_LOCAL_TRACKED`) with the way out.
pub(crate) fn check(project: &Project) -> Result<()> {
    let Some(path) = tracked(project)? else {
        return Ok(());
    };
    let message = format!(
        "git tracks {path:?}, and {LOCAL} belongs to one clone alone: it is somebody else's"
    );
    Err(Error::new(Category::Refused, "E_LOCAL_TRACKED", message)
        .hint(format!(
            "look at what it holds; then `git rm --cached -r {LOCAL}` and remove the folder"
        ))
        .next(format!("git rm --cached -r {LOCAL}")))
}
