//! Attacks planted in the work tree, to have something run or sent. None has an effect.
//!
//! Each would touch a file outside.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// A work tree with a change, and the file that must stay untouched.
struct Trap {
    origin: Origin,
    desk: Desk,
    checkout: Checkout,
    canary: PathBuf,
}

impl Trap {
    async fn set() -> Self {
        let (origin, desk) = (Origin::over_http(true), Desk::new().login(USER, PASSWORD));
        let checkout = desk.fetch(&origin.url(), "").await;
        write(&desk.repo(), "greeting.txt", "changed\n");
        let canary = origin.folder.path().join("canary");
        Self {
            origin,
            desk,
            checkout,
            canary,
        }
    }

    fn touch(&self) -> String {
        format!("touch {}; cat", self.canary.display())
    }

    fn plant_program(&self, name: &str) {
        write(
            &self.desk.repo(),
            name,
            &format!("#!/bin/sh\n{}\n", self.touch()),
        );
        let path = self.desk.repo().join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn config(&self, name: &str, value: &str) {
        git(&self.desk.repo(), &["config", name, value]);
    }

    /// Looks for changes, pushes and fetches anew.
    ///
    /// Then exactly one changed line was published, and nothing ran.
    async fn spring(&self, extra: &[&str]) {
        let changes = self.desk.changes(&self.checkout).await;
        let mut paths: Vec<&str> = changes
            .files
            .iter()
            .map(|file| file.path.as_str())
            .collect();
        paths.retain(|path| !extra.contains(path));
        assert_eq!(paths, ["greeting.txt"]);
        let commit = Desk::told(self.desk.try_push(&self.checkout, "mended").await);
        let published = git(
            &self.origin.bare(),
            &["show", &format!("{commit}:greeting.txt")],
        );
        assert_eq!(published, "changed");
        let listed = git(
            &self.origin.bare(),
            &["diff", "--name-only", &self.checkout.commit, &commit],
        );
        let mut listed: Vec<&str> = listed.lines().collect();
        listed.retain(|path| !extra.contains(path));
        assert_eq!(listed, ["greeting.txt"]);
        self.desk.fetch(&self.origin.url(), "mended").await;
        assert!(!self.canary.exists(), "something of the work tree ran");
        git(&self.origin.bare(), &["fsck", "--full"]);
    }
}

#[tokio::test]
async fn no_hook_runs() {
    let trap = Trap::set().await;
    for hook in [
        "pre-push",
        "post-checkout",
        "pre-commit",
        "post-index-change",
        "reference-transaction",
        "pre-applypatch",
    ] {
        trap.plant_program(&format!(".git/hooks/{hook}"));
    }
    trap.plant_program("hooks/pre-push");
    trap.config("core.hooksPath", "hooks");
    trap.spring(&["hooks/pre-push"]).await;
}

#[tokio::test]
async fn no_setting_that_names_a_program_runs_one() {
    let trap = Trap::set().await;
    let touch = trap.touch();
    for name in [
        "core.fsmonitor",
        "core.sshCommand",
        "core.editor",
        "core.pager",
        "core.askPass",
        "core.gitProxy",
        "diff.external",
        "diff.x.textconv",
        "diff.x.command",
        "filter.x.clean",
        "filter.x.smudge",
        "filter.x.process",
        "merge.x.driver",
        "credential.helper",
        "gpg.program",
        "alias.add",
        "alias.push",
        "remote.origin.uploadpack",
        "remote.origin.receivepack",
        "uploadpack.packObjectsHook",
        "core.alternateRefsCommand",
        "sequence.editor",
        "pager.diff",
    ] {
        let value = if name.starts_with("alias.") {
            format!("!{touch}")
        } else {
            touch.clone()
        };
        trap.config(name, &value);
    }
    trap.config("filter.x.required", "true");
    trap.config("commit.gpgSign", "true");
    trap.config("push.gpgSign", "true");
    trap.config("remote.origin.url", &format!("ext::sh -c {touch}"));
    trap.config("protocol.ext.allow", "always");
    trap.config("url.ext::sh.insteadOf", "http://");
    write(
        &trap.desk.repo(),
        ".gitattributes",
        "* filter=x diff=x merge=x\n",
    );
    write(
        &trap.desk.repo(),
        ".git/info/attributes",
        "* filter=x diff=x\n",
    );
    let more = trap.desk.session.folder().join("more.cfg");
    std::fs::write(
        &more,
        format!("[core]\n\tfsmonitor = {touch}\n[filter \"y\"]\n\tclean = {touch}\n"),
    )
    .unwrap();
    trap.config("include.path", more.to_str().unwrap());
    write(
        trap.desk.session.folder(),
        ".gitconfig",
        &format!("[core]\n\tfsmonitor = {touch}\n"),
    );
    write(
        trap.desk.session.folder(),
        ".config/git/attributes",
        "* filter=x\n",
    );
    trap.spring(&[".gitattributes"]).await;
}

#[tokio::test]
async fn a_submodule_is_not_gone_to() {
    let trap = Trap::set().await;
    let url = format!("ext::sh -c \"{}\"", trap.touch());
    let text = format!("[submodule \"x\"]\n\tpath = x\n\turl = {url}\n");
    write(&trap.desk.repo(), ".gitmodules", &text);
    let inner = trap.desk.repo().join("x");
    std::fs::create_dir(&inner).unwrap();
    git(&inner, &["init", "-q"]);
    git(&inner, &["commit", "-q", "--allow-empty", "-m", "inner"]);
    trap.config("submodule.x.url", &url);
    trap.config("submodule.x.active", "true");
    trap.config("submodule.recurse", "true");
    trap.config("push.recurseSubmodules", "on-demand");
    let changes = trap.desk.changes(&trap.checkout).await;
    assert!(
        changes.files.iter().any(|file| file.path == ".gitmodules"),
        "{changes:?}"
    );
    // A server may refuse such a file, or take it; nothing goes there either way.
    let pushed = trap.desk.try_push(&trap.checkout, "submodule").await;
    assert!(
        pushed.is_ok() || pushed.is_err_and(|error| error.code() == helmdeck_core::Code::Conflict)
    );
    assert!(!trap.canary.exists(), "something of the work tree ran");
}

#[tokio::test]
async fn a_git_folder_that_is_gone_or_a_file_or_a_link_or_another_one_does_not_matter() {
    for how in ["gone", "file", "link", "other"] {
        let trap = Trap::set().await;
        let dot_git = trap.desk.repo().join(".git");
        std::fs::remove_dir_all(&dot_git).unwrap();
        let elsewhere = trap.origin.folder.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        git(&elsewhere, &["init", "-q", "--bare"]);
        git(&elsewhere, &["config", "core.fsmonitor", &trap.touch()]);
        match how {
            "file" => {
                std::fs::write(&dot_git, format!("gitdir: {}\n", elsewhere.display())).unwrap()
            }
            "link" => symlink(&elsewhere, &dot_git).unwrap(),
            "other" => {
                git(&trap.desk.repo(), &["init", "-q"]);
                git(&trap.desk.repo(), &["add", "."]);
                git(
                    &trap.desk.repo(),
                    &["commit", "-q", "-m", "another history"],
                );
            }
            _ => {}
        }
        trap.spring(&[]).await;
        assert!(
            elsewhere.join("HEAD").exists(),
            "what a link points to stays"
        );
    }
}

#[tokio::test]
async fn replaced_objects_grafts_and_foreign_objects_change_nothing() {
    let trap = Trap::set().await;
    let repo = trap.desk.repo();
    // The commit that the work tree was made of pretends to be another one.
    let other = git(
        &repo,
        &[
            "commit-tree",
            "-m",
            "other",
            "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
        ],
    );
    git(&repo, &["replace", &trap.checkout.commit, &other]);
    write(
        &repo,
        ".git/info/grafts",
        &format!("{}\n", trap.checkout.commit),
    );
    write(&repo, ".git/objects/info/alternates", "/nowhere/objects\n");
    write(
        &repo,
        ".git/shallow",
        &format!("{}\n", trap.checkout.commit),
    );
    std::fs::write(repo.join(".git/index"), "garbage").unwrap();
    trap.spring(&[]).await;
}

#[tokio::test]
async fn the_copy_that_is_pushed_from_is_not_what_commands_can_write() {
    let trap = Trap::set().await;
    let mirror = trap.checkout.mirror(&trap.desk.session);
    let inside = walk(trap.desk.session.folder());
    let outside = walk(&mirror);
    // No file of the copy is the same file as one that commands can write.
    assert!(outside.iter().all(|file| !inside.contains(file)) && !outside.is_empty());
    trap.spring(&[]).await;
}

/// Returns the device and number of every file.
fn walk(folder: &Path) -> Vec<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() {
                folders.push(entry.path())
            } else {
                found.push((metadata.dev(), metadata.ino()))
            }
        }
    }
    found
}
