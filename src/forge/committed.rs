//! Tracked, unmodified files. They are safe to remove because git can restore them.

use std::collections::BTreeSet;

use crate::git::Run;
use crate::project::Project;

/// Returns the commit that is checked out, in hex. `None` without git, or before the first commit.
pub(crate) fn head(project: &Project) -> Option<String> {
    project.git().ok()?.head().ok().flatten().map(|head| head.to_string())
}

/// Returns the branch that is checked out.
pub(crate) fn branch(project: &Project) -> Option<String> {
    project.git().ok()?.branch().ok().flatten()
}

/// Returns the files below a folder that no other branch has or had, as far as this clone knows.
///
/// If another branch removes a file too, and each side adds a similar one, git takes both for renamings of it and finds
/// a conflict. So a file that is not among these is emptied, and not removed. `None` if git cannot say.
pub(crate) fn only_here(project: &Project, folder: &str) -> Option<BTreeSet<String>> {
    let git = project.git().ok()?;
    let run = Run { folder: Some(project.root().to_owned()), ..Run::default() };
    let own = git.branch().ok().flatten().map(|branch| format!("--exclude={branch}"));
    let added =
        ["log", "--format=", "--name-only", "-z", "--no-renames", "--diff-filter=A", "--relative", "HEAD", "--not"];
    let mut args = added.to_vec();
    args.extend(own.as_deref());
    args.extend(["--branches", "--remotes", "--", folder]);
    let output = git.run(&args, &run).ok().filter(|output| output.ok())?;
    let names = output.stdout.split(|byte| matches!(byte, 0 | b'\n')).filter(|name| !name.is_empty());
    Some(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

/// Returns the unmodified tracked files below a folder, compared with the last commit.
///
/// `None` if git cannot say.
pub(crate) fn below(project: &Project, folder: &str) -> Option<BTreeSet<String>> {
    let git = project.git().ok()?;
    let run = Run { folder: Some(project.root().to_owned()), ..Run::default() };
    let names = |args: &[&str]| -> Option<BTreeSet<String>> {
        let output = git.run(args, &run).ok().filter(|output| output.ok())?;
        let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Some(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    };
    let tracked = names(&["ls-tree", "-r", "-z", "--name-only", "HEAD", "--", folder])?;
    let changed = names(&["diff", "--no-ext-diff", "--relative", "-z", "--name-only", "HEAD", "--", folder])?;
    Some(tracked.difference(&changed).cloned().collect())
}
