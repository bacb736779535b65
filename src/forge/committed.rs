//! Tracked, unmodified files. They are safe to remove because git can restore them.

use std::collections::BTreeSet;

use crate::git::Run;
use crate::project::Project;

/// Returns the commit that is checked out, in hex. `None` without git, or before the first commit.
pub(crate) fn head(project: &Project) -> Option<String> {
    project
        .git()
        .ok()?
        .head()
        .ok()
        .flatten()
        .map(|head| head.to_string())
}

/// Returns the branch that is checked out.
pub(crate) fn branch(project: &Project) -> Option<String> {
    project.git().ok()?.branch().ok().flatten()
}

/// Returns the files below a folder that no other branch has or had, as far as this clone knows.
///
/// If another branch removes a file too, and each side adds a similar one, git takes both for
/// renamings of it and finds a conflict. So a file that is not among these is emptied, and not
/// removed. `None` if git cannot say.
pub(crate) fn only_here(project: &Project, folder: &str) -> Option<BTreeSet<String>> {
    let own = project
        .git()
        .ok()?
        .branch()
        .ok()
        .flatten()
        .map(|branch| format!("--exclude={branch}"));
    let added = [
        "log",
        "--format=",
        "--name-only",
        "-z",
        "--no-renames",
        "--diff-filter=A",
        "--relative",
        "HEAD",
        "--not",
    ];
    let mut args = added.to_vec();
    args.extend(own.as_deref());
    args.extend(["--branches", "--remotes", "--", folder]);
    names(project, &args)
}

/// Returns the files of the last commit below a folder that another branch has or had too, as far
/// as this clone knows.
pub(crate) fn shared(project: &Project, folder: &str) -> Option<BTreeSet<String>> {
    let own = branch(project).map(|name| format!("refs/heads/{name}"));
    // Without another one, git would look through the whole history for nothing.
    let some = names(
        project,
        &[
            "for-each-ref",
            "--count=2",
            "--format=%(refname)",
            "refs/heads/",
            "refs/remotes/",
        ],
    )?;
    if some.iter().all(|name| Some(name) == own.as_ref()) {
        return Some(BTreeSet::new());
    }
    Some(
        tracked(project, folder)?
            .difference(&only_here(project, folder)?)
            .cloned()
            .collect(),
    )
}

/// Returns the unmodified tracked files below a folder, compared with the last commit.
///
/// `None` if git cannot say.
pub(crate) fn below(project: &Project, folder: &str) -> Option<BTreeSet<String>> {
    let mut clean = tracked(project, folder)?;
    // One comparison of the commit with the files would be quadratic in the number of all files.
    for place in [&["--cached", "HEAD"][..], &[]] {
        let diff = ["diff", "--no-ext-diff", "--relative", "-z", "--name-only"];
        for changed in names(project, &[&diff[..], place, &["--", folder]].concat())? {
            clean.remove(&changed);
        }
    }
    Some(clean)
}

fn tracked(project: &Project, folder: &str) -> Option<BTreeSet<String>> {
    names(
        project,
        &["ls-tree", "-r", "-z", "--name-only", "HEAD", "--", folder],
    )
}

/// Runs git in the root of the project, and returns the names that it lists.
fn names(project: &Project, args: &[&str]) -> Option<BTreeSet<String>> {
    let run = Run {
        folder: Some(project.root().to_owned()),
        ..Run::default()
    };
    let output = project
        .git()
        .ok()?
        .run(args, &run)
        .ok()
        .filter(|output| output.ok())?;
    let names = output
        .stdout
        .split(|byte| matches!(byte, 0 | b'\n'))
        .filter(|name| !name.is_empty());
    Some(
        names
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect(),
    )
}
