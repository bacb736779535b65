//! What `changes` finds and `apply_and_push` publishes.

use helmdeck_core::Code;

use super::*;

/// Returns the files of a commit of the published repository.
fn files(origin: &Origin, name: &str) -> Vec<String> {
    git(&origin.bare(), &["ls-tree", "-r", "--name-only", name])
        .lines()
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn all_changes_become_one_commit_on_a_new_branch() {
    let origin = Origin::over_http(true);
    let desk = Desk::new().login(USER, PASSWORD);
    let checkout = desk.fetch(&origin.url(), "").await;
    let repo = desk.repo();
    assert_eq!(
        desk.changes(&checkout).await,
        Changes {
            patch: Vec::new(),
            files: Vec::new()
        }
    );

    write(&repo, "greeting.txt", "hello there\n");
    write(&repo, "new file.txt", "one\ntwo\n");
    write(&repo, "ünïcode.txt", "no line end");
    std::fs::write(repo.join("binary"), [0, 1, 2, 255, 0]).unwrap();
    std::fs::remove_file(repo.join("src/main.py")).unwrap();
    std::os::unix::fs::symlink("greeting.txt", repo.join("link")).unwrap();
    // What commands commit by themselves counts too.
    git(&repo, &["add", "."]);
    git(&repo, &["commit", "-q", "-m", "own"]);
    write(&repo, "after.txt", "after\n");
    // What tools leave behind does not.
    write(&repo, "src/__pycache__/main.cpython-311.pyc", "x");
    write(&repo, ".pytest_cache/v/x", "x");

    let changes = desk.changes(&checkout).await;
    let list: Vec<_> = changes
        .files
        .iter()
        .map(|file| (file.path.as_str(), file.added, file.removed))
        .collect();
    let expected = [
        ("after.txt", Some(1), Some(0)),
        ("binary", None, None),
        ("greeting.txt", Some(1), Some(1)),
        ("link", Some(1), Some(0)),
        ("new file.txt", Some(2), Some(0)),
        ("src/main.py", Some(0), Some(1)),
        ("ünïcode.txt", Some(1), Some(0)),
    ];
    assert_eq!(list, expected);

    let commit = Desk::told(desk.try_push(&checkout, "fix/greeting").await);
    assert_eq!(origin.id("fix/greeting"), commit);
    assert_eq!(origin.id("fix/greeting~1"), checkout.commit, "one commit");
    assert_eq!(
        origin.id("main"),
        checkout.commit,
        "the default branch stays"
    );
    let now = [
        "after.txt",
        "binary",
        "greeting.txt",
        "link",
        "new file.txt",
        "\"\\303\\274n\\303\\257code.txt\"",
    ];
    assert_eq!(files(&origin, &commit), now);
    let said = git(
        &origin.bare(),
        &["show", "-s", "--format=%an <%ae> %cn: %B", &commit],
    );
    assert_eq!(said, "helmdeck <helmdeck@localhost> helmdeck: Mend it");

    // The patch that was reported is what a stranger can apply.
    write(origin.folder.path(), "patch", "");
    std::fs::write(origin.folder.path().join("patch"), &changes.patch).unwrap();
    git(&origin.work(), &["apply", "--index", "../patch"]);
    let tree = git(&origin.work(), &["write-tree"]);
    assert_eq!(
        tree,
        git(
            &origin.bare(),
            &["rev-parse", &format!("{commit}^{{tree}}")]
        )
    );
}

#[tokio::test]
async fn a_shallow_work_tree_of_a_tag_can_be_pushed_from() {
    let origin = Origin::over_http(false);
    let desk = Desk::new();
    let wish = Wish {
        depth: Some(1),
        ..named("v1")
    };
    let checkout = Desk::told(desk.try_fetch(&origin.url(), &wish).await);
    write(&desk.repo(), "greeting.txt", "hi\n");
    let commit = Desk::told(desk.try_push(&checkout, "from-tag").await);
    assert_eq!(origin.id(&format!("{commit}~1")), origin.id("v1"));
}

#[tokio::test]
async fn the_default_branch_one_that_exists_and_no_change_are_refused() {
    let origin = Origin::over_http(false);
    let desk = Desk::new();
    let checkout = desk.fetch(&origin.url(), "side").await;
    assert_eq!(
        desk.try_push(&checkout, "empty").await.unwrap_err().code(),
        Code::InvalidInput
    );
    write(&desk.repo(), "greeting.txt", "hi\n");
    let before = git(&origin.bare(), &["show-ref"]);
    for branch in ["main", "side"] {
        assert_eq!(
            desk.try_push(&checkout, branch).await.unwrap_err().code(),
            Code::Conflict,
            "{branch}"
        );
    }
    for branch in ["HEAD", "refs/heads/x", "-f", "a..b", "main:main", "+x"] {
        assert_eq!(
            desk.try_push(&checkout, branch).await.unwrap_err().code(),
            Code::InvalidInput,
            "{branch}"
        );
    }
    assert_eq!(git(&origin.bare(), &["show-ref"]), before);

    // The default branch of now, and that of when the work tree was made.
    git(&origin.bare(), &["symbolic-ref", "HEAD", "refs/heads/side"]);
    git(&origin.bare(), &["branch", "-D", "main"]);
    for branch in ["main", "side"] {
        assert_eq!(
            desk.try_push(&checkout, branch).await.unwrap_err().code(),
            Code::Conflict,
            "{branch}"
        );
    }
}

#[tokio::test]
async fn a_branch_that_appears_in_between_is_not_overwritten() {
    let origin = Origin::over_http(false);
    let desk = Desk::new();
    let checkout = desk.fetch(&origin.url(), "").await;
    let remote = desk.open(&origin.url()).await.unwrap();
    // As the push sees it that loses the race: the branch was not there when it looked.
    git(&origin.bare(), &["branch", "race", "v1"]);
    let error = remote
        .push_new_branch(&checkout.mirror(&desk.session), &checkout.commit, "race")
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Conflict, "{error}");
    assert_eq!(origin.id("race"), origin.id("v1"));
}

#[tokio::test]
async fn what_the_server_does_not_take_is_a_conflict_or_the_credentials_fault() {
    let origin = Origin::over_http(false);
    let desk = Desk::new();
    let checkout = desk.fetch(&origin.url(), "").await;
    write(&desk.repo(), "greeting.txt", "hi\n");
    let hook = origin.bare().join("hooks/pre-receive");
    write(
        &origin.bare(),
        "hooks/pre-receive",
        "#!/bin/sh\necho no, says the rule\nexit 1\n",
    );
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let error = desk.try_push(&checkout, "refused").await.unwrap_err();
    assert_eq!(error.code(), Code::Conflict, "{error}: {}", error.cause());
    std::fs::remove_file(hook).unwrap();

    origin.tell("refuse-push");
    let error = desk.try_push(&checkout, "refused").await.unwrap_err();
    assert_eq!(
        error.code(),
        Code::CredentialInvalid,
        "{error}: {}",
        error.cause()
    );
    assert!(!git(&origin.bare(), &["show-ref"]).contains("refused"));
}

#[tokio::test]
async fn a_repository_of_this_machine_is_pushed_to_without_its_hooks() {
    let origin = Origin::new();
    let desk = Desk::new();
    let checkout = desk.fetch(&origin.url(), "").await;
    write(&desk.repo(), "greeting.txt", "hi\n");
    let canary = origin.folder.path().join("canary");
    let touch = format!("#!/bin/sh\ntouch {}\n", canary.display());
    for hook in [
        "pre-receive",
        "update",
        "post-receive",
        "post-update",
        "reference-transaction",
        "proc-receive",
    ] {
        let path = format!("hooks/{hook}");
        write(&origin.bare(), &path, &touch);
        std::fs::set_permissions(
            origin.bare().join(path),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
    }
    for setting in [
        "core.alternateRefsCommand",
        "core.fsmonitor",
        "core.sshCommand",
        "uploadpack.packObjectsHook",
    ] {
        git(
            &origin.bare(),
            &["config", setting, &format!("touch {}", canary.display())],
        );
    }
    git(
        &origin.bare(),
        &["config", "receive.procReceiveRefs", "refs/heads"],
    );
    write(
        &origin.bare(),
        "objects/info/alternates",
        &format!("{}\n", origin.work().join(".git/objects").display()),
    );
    let error = desk.try_push(&checkout, "local").await;
    assert!(!canary.exists(), "something of the repository ran");
    // Without its hook a repository that wants one for every push takes none.
    assert_eq!(error.unwrap_err().code(), Code::Conflict);
    git(
        &origin.bare(),
        &["config", "--unset", "receive.procReceiveRefs"],
    );
    let commit = Desk::told(desk.try_push(&checkout, "local").await);
    desk.fetch(&origin.url(), "local").await;
    assert_eq!(origin.id("local"), commit);
    assert!(!canary.exists(), "something of the repository ran");
}

#[tokio::test]
async fn a_patch_over_the_limit_is_too_large() {
    let origin = Origin::new();
    let desk = Desk::new();
    let checkout = desk.fetch(&origin.url(), "").await;
    write(&desk.repo(), "large.txt", &"line\n".repeat(1 << 20));
    let found = changes::changes(&desk.session, &checkout, 1 << 20)
        .await
        .map(|changes| changes.patch.len());
    let error = found.unwrap_err();
    assert!(
        error.code() == Code::TooLarge && error.message().contains("1048576"),
        "{error}"
    );
    assert_eq!(
        std::fs::read_dir(desk.session.folder()).unwrap().count(),
        1,
        "nothing is left behind"
    );
}

#[tokio::test]
async fn a_patch_that_does_not_apply_and_one_that_leaves_the_repository_are_refused() {
    let origin = Origin::over_http(false);
    let desk = Desk::new();
    let checkout = desk.fetch(&origin.url(), "").await;
    let remote = desk.open(&origin.url()).await.unwrap();
    for path in [
        "none.txt",
        "../outside.txt",
        "/outside.txt",
        ".git/hooks/pre-push",
        "a/../../outside.txt",
    ] {
        let patch = format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-x\n+y\n");
        let new = format!(
            "diff --git a/{path} b/{path}\nnew file mode 100755\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+y\n"
        );
        for patch in [&patch, &new] {
            if path == "none.txt" && patch == &new {
                continue;
            }
            let proposal = Proposal {
                patch: patch.as_bytes(),
                branch: "odd",
                message: "odd",
            };
            let pushed =
                publish::apply_and_push(&desk.git, &remote, &desk.session, &checkout, proposal)
                    .await;
            assert_eq!(pushed.unwrap_err().code(), Code::InvalidInput, "{patch}");
        }
    }
}

#[tokio::test]
async fn path_that_git_refuses_is_named() {
    let origin = Origin::over_http(true);
    let desk = Desk::new().login(USER, PASSWORD);
    let checkout = desk.fetch(&origin.url(), "").await;
    for path in [".GIT/x", "git~1/x", "deep/.Git"] {
        write(&desk.repo(), path, "x");
        let error = changes::changes(&desk.session, &checkout, 1 << 20)
            .await
            .unwrap_err();
        let message =
            format!("git does not accept the path \"{path}\" in \"repo\"; rename or remove it");
        assert_eq!(
            (error.code(), error.message()),
            (Code::InvalidInput, message.as_str())
        );
        let top = desk.repo().join(path.split('/').next().unwrap());
        std::fs::remove_dir_all(top).unwrap();
    }
}

#[tokio::test]
async fn branches_that_differ_in_case_alone_are_taken() {
    let origin = Origin::over_http(true);
    let desk = Desk::new().login(USER, PASSWORD);
    let checkout = desk.fetch(&origin.url(), "").await;
    write(&desk.repo(), "new.txt", "new\n");
    for branch in ["MAIN", "Main"] {
        let error = desk.try_push(&checkout, branch).await.unwrap_err();
        assert!(
            error.code() == Code::Conflict && error.message().contains("is the default branch"),
            "{branch}: {error}"
        );
    }
    Desk::told(desk.try_push(&checkout, "fix/one").await);
    let error = desk.try_push(&checkout, "Fix/ONE").await.unwrap_err();
    assert_eq!(
        error.message(),
        "branch \"fix/one\" exists already; choose a name other than \"Fix/ONE\""
    );
    for branch in ["+main", "heads/main", "tags/v9"] {
        assert_eq!(
            desk.try_push(&checkout, branch).await.unwrap_err().code(),
            Code::InvalidInput,
            "{branch}"
        );
    }
}
