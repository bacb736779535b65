//! What `check_out` makes of branches, tags and commits, and of what stood there before.

use helmdeck_core::Code;

use super::*;

#[tokio::test]
async fn a_branch_a_tag_and_a_commit_land_where_they_point() {
    let origin = Origin::new();
    let side = origin.id("side");
    for (name, at, branch) in [
        ("", "main", Some("main")),
        ("main", "main", Some("main")),
        ("refs/heads/side", "side", Some("side")),
        ("side", "side", Some("side")),
        ("v1", "v1", None),
        ("refs/tags/v1", "v1", None),
        (side.as_str(), "side", None),
        (&side[..7], "side", None),
    ] {
        let desk = Desk::new();
        let checkout = desk.fetch(&origin.url(), name).await;
        let id = origin.id(at);
        assert_eq!(
            (&checkout.commit, checkout.branch.as_deref()),
            (&id, branch),
            "{name}"
        );
        assert_eq!(checkout.default_branch.as_deref(), Some("main"));
        assert_eq!(git(&desk.repo(), &["rev-parse", "HEAD"]), id, "{name}");
        assert_eq!(git(&desk.repo(), &["status", "--porcelain"]), "", "{name}");
        assert_eq!(
            git(&desk.repo(), &["remote", "get-url", "origin"]),
            origin.url()
        );
        assert_eq!(Checkout::of(&desk.session, "repo").unwrap(), checkout);
    }
}

#[tokio::test]
async fn depth_bounds_the_history_and_the_whole_of_it_can_still_be_had() {
    let origin = Origin::over_http(false);
    let desk = Desk::new();
    let count = || git(&desk.repo(), &["rev-list", "--count", "HEAD"]);
    for (name, commits) in [("", "1"), ("v1", "1"), (&origin.id("side"), "1")] {
        let wish = Wish {
            depth: Some(1),
            ..named(name)
        };
        Desk::told(desk.try_fetch(&origin.url(), &wish).await);
        assert_eq!(count(), commits, "{name}");
    }
    desk.fetch(&origin.url(), "").await;
    assert_eq!(count(), "2");
}

#[tokio::test]
async fn a_commit_that_no_branch_leads_to_any_more_is_fetched_by_its_id() {
    let origin = Origin::over_http(false);
    let old = origin.commit("lost.txt", "lost");
    git(&origin.work(), &["reset", "-q", "--hard", "HEAD~1"]);
    git(
        &origin.bare(),
        &["config", "uploadpack.allowAnySHA1InWant", "true"],
    );
    origin.commit("other.txt", "other");
    let checkout = Desk::new().fetch(&origin.url(), &old).await;
    assert_eq!(checkout.commit, old);
}

#[tokio::test]
async fn fetching_again_lands_on_what_is_upstream_by_then_whatever_happened_to_the_folder() {
    let origin = Origin::over_http(false);
    let desk = Desk::new();
    desk.fetch(&origin.url(), "").await;
    let repo = desk.repo();
    write(&repo, "greeting.txt", "changed\n");
    write(&repo, "new.txt", "new\n");
    write(
        &repo,
        ".git/hooks/post-checkout",
        "#!/bin/sh\ntouch ../ran\n",
    );
    git(&repo, &["checkout", "-q", "-b", "own"]);
    git(&repo, &["config", "core.fsmonitor", "touch ran"]);

    let newest = origin.commit("greeting.txt", "good morning\n");
    let again = desk.fetch(&origin.url(), "").await;
    assert_eq!(again.commit, newest);
    assert_eq!(read(&repo, "greeting.txt"), "good morning\n");
    assert!(!repo.join("new.txt").exists() && !repo.join(".git/hooks").exists());
    assert_eq!(git(&repo, &["branch", "--show-current"]), "main");

    // History that was rewritten and a branch that is gone, too.
    git(&origin.work(), &["reset", "-q", "--hard", "v1"]);
    git(&origin.bare(), &["branch", "-D", "side"]);
    let rewritten = origin.commit("greeting.txt", "anew\n");
    assert_eq!(desk.fetch(&origin.url(), "").await.commit, rewritten);
    assert_eq!(
        desk.try_fetch(&origin.url(), &named("side"))
            .await
            .unwrap_err()
            .code(),
        Code::NotFound
    );
}

#[tokio::test]
async fn a_folder_that_is_none_of_ours_and_a_link_stay_untouched() {
    let origin = Origin::new();
    let desk = Desk::new();
    write(&desk.repo(), "mine.txt", "mine");
    assert_eq!(desk.refusal(&origin.url()).await.code(), Code::Conflict);
    assert_eq!(read(&desk.repo(), "mine.txt"), "mine");

    let desk = Desk::new();
    let outside = tempfile::tempdir().unwrap();
    write(outside.path(), "mine.txt", "mine");
    std::os::unix::fs::symlink(outside.path(), desk.repo()).unwrap();
    assert_eq!(desk.refusal(&origin.url()).await.code(), Code::Conflict);

    // Commands may put a link where the work tree was: the link goes, what it points to stays.
    let desk = Desk::new();
    desk.fetch(&origin.url(), "").await;
    std::fs::remove_dir_all(desk.repo()).unwrap();
    std::os::unix::fs::symlink(outside.path(), desk.repo()).unwrap();
    desk.fetch(&origin.url(), "").await;
    assert!(desk.repo().symlink_metadata().unwrap().is_dir());
    assert_eq!(read(outside.path(), "mine.txt"), "mine");
}

#[tokio::test]
async fn a_copy_that_was_left_half_made_is_made_anew() {
    let origin = Origin::over_http(false);
    let desk = Desk::new();
    let checkout = desk.fetch(&origin.url(), "").await;
    let mirror = checkout.mirror(&desk.session);
    // As a fetch leaves it that was killed: a mark, locks, and refs without their objects.
    std::fs::write(mirror.with_extension("git.unfinished"), "").unwrap();
    std::fs::write(mirror.join("packed-refs.lock"), "").unwrap();
    std::fs::write(mirror.join("shallow.lock"), "").unwrap();
    std::fs::remove_dir_all(mirror.join("objects")).unwrap();
    let again = desk.fetch(&origin.url(), "").await;
    assert_eq!(again, checkout);
    assert!(!mirror.with_extension("git.unfinished").exists());
    git(&mirror, &["fsck", "--full"]);
}

#[tokio::test]
async fn a_dropped_fetch_leaves_no_program_and_the_next_one_works() {
    let origin = Origin::over_http(false);
    origin.tell("stall-fetch");
    let desk = Desk::new();
    {
        let url = origin.url();
        let wish = Wish::default();
        let fetch = desk.try_fetch(&url, &wish);
        tokio::pin!(fetch);
        let stalled = origin.folder.path().join("control/stalled");
        while !stalled.exists() {
            tokio::select! {
                _ = &mut fetch => panic!("it should wait"),
                () = tokio::time::sleep(std::time::Duration::from_millis(5)) => {}
            }
        }
    }
    std::fs::remove_file(origin.folder.path().join("control/stall-fetch")).unwrap();
    assert_eq!(
        desk.fetch(&origin.url(), "").await.commit,
        origin.id("main")
    );
}

#[tokio::test]
async fn two_fetches_into_one_session_wait_for_each_other() {
    let origin = Origin::over_http(false);
    let desk = Desk::new();
    let remote = desk.open(&origin.url()).await.unwrap();
    let (wish, folder) = (Wish::default(), desk.session.supplies());
    let renew = || super::super::mirror::renew(&desk.git, &remote, folder, &wish);
    let (one, two, three) = tokio::join!(renew(), renew(), renew());
    assert_eq!(
        [one, two, three].map(|mirror| Desk::told(mirror).commit),
        [(); 3].map(|()| origin.id("main"))
    );
}
