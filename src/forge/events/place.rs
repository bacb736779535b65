//! Where and by whom something was done.

use super::envelope::{Envelope, Origin};
use crate::files;
use crate::git::Git;
use crate::project::Project;

/// How many characters of what its path is named by tell a work tree from others of its name.
const TELLING: usize = 8;
/// The longest name of a folder that is kept, in characters.
const LONGEST: usize = 40;

/// Finds out where this is. What git does not say is left out: an event is not lost for it.
pub(super) fn find(project: &Project, session: Option<&str>, last: Option<&Envelope>) -> Origin {
    let git = project.git().ok();
    let ask = |question: fn(&Git) -> Option<String>| git.and_then(question);
    Origin {
        // It never changes, and is far back.
        repo: last
            .and_then(|last| last.repo.clone())
            .or_else(|| ask(|git| git.root_commit().ok().flatten().map(|commit| commit.to_string()))),
        worktree: worktree(project),
        branch: ask(|git| git.branch().ok().flatten()),
        head: ask(|git| git.head().ok().flatten().map(|commit| commit.to_string())),
        session: session.map(ToOwned::to_owned).or_else(|| current(project)),
        agent: project.environment().agent.clone(),
    }
}

fn current(project: &Project) -> Option<String> {
    project.sessions().current().ok().flatten().map(|session| session.id)
}

/// Names a work tree without its path, which is nobody else's business.
fn worktree(project: &Project) -> String {
    let path = project.root();
    let name: String = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .chars()
        .filter(|c| !c.is_control())
        .take(LONGEST)
        .collect();
    let telling = files::etag(path.as_os_str().as_encoded_bytes());
    format!("{name}-{}", &telling[..TELLING.min(telling.len())])
}
