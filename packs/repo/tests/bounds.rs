//! What a repository, its folder or its server may not do, however it is made.

use std::os::unix::fs::{PermissionsExt, symlink};

use helmdeck_core::Code;

use super::*;

#[tokio::test]
async fn no_credential_goes_where_everybody_on_the_way_reads_it() {
    let credential = |host: &str| {
        let hosts: Arc<[_]> = [host.parse().unwrap()].into();
        Some(
            Secret::new(PASSWORD.to_owned())
                .of_user(USER)
                .for_hosts(hosts),
        )
    };
    let desk = Desk::new();
    for (url, host, sent) in [
        ("http://example.com/o/r.git", "example.com", false),
        ("http://example.com:8080/o/r.git", "example.com", false),
        ("http://localhost/o/r.git", "localhost", false),
        ("http://10.0.0.1/o/r.git", "10.0.0.1", false),
        ("http://127.0.0.1:8080/o/r.git", "127.0.0.1", true),
        ("https://example.com/o/r.git", "example.com", true),
    ] {
        let url = RepoUrl::parse(url).unwrap();
        let named = desk.git.open(&url, credential(host), true).await;
        let expected = if sent { Ok(true) } else { Err(Code::Forbidden) };
        let got = named
            .map(|remote| remote.credential().is_some())
            .map_err(|error| error.code());
        assert_eq!(got, expected, "{url}");
        let unnamed = desk.git.open(&url, credential(host), false).await.unwrap();
        assert_eq!(unnamed.credential().is_some(), sent, "{url}");
    }
}

#[tokio::test]
async fn a_repository_over_the_limit_is_not_kept() {
    let origin = Origin::new();
    let mut noise = vec![0; 3 << 20];
    std::io::Read::read_exact(
        &mut std::fs::File::open("/dev/urandom").unwrap(),
        &mut noise,
    )
    .unwrap();
    std::fs::write(origin.work().join("noise"), noise).unwrap();
    origin.commit("more.txt", "more");
    let config = |max_bytes| Config {
        paths: Paths::All,
        max_bytes,
        ..Config::default()
    };
    let mut desk = Desk::with(config(1 << 20), &[]);
    let error = desk.refusal(&origin.url()).await;
    assert!(
        error.code() == Code::TooLarge && error.message().contains("repo.max_bytes"),
        "{error}"
    );
    let kept: u64 = files(desk.session.supplies())
        .iter()
        .map(|(_, metadata)| metadata.len())
        .sum();
    assert!(kept < 1 << 20, "{kept} bytes stay");
    // What fits is fetched, into the same place.
    let checkout = desk
        .try_fetch(
            &origin.url(),
            &Wish {
                depth: Some(1),
                ..named("v1")
            },
        )
        .await;
    assert_eq!(Desk::told(checkout).commit, origin.id("v1"));
    desk.git = Desk::with(config(16 << 20), &[]).git;
    desk.fetch(&origin.url(), "").await;
}

#[tokio::test]
async fn a_fetch_that_grows_without_end_is_stopped_in_the_middle() {
    let origin = Origin::new();
    // A git that does not stop by itself.
    let program = program(
        &origin,
        "for word; do [ \"$word\" = fetch ] && { exec cat /dev/zero > objects/pack/tmp; }; done",
    );
    let config = Config {
        paths: Paths::All,
        max_bytes: 1 << 20,
        program,
        ..Config::default()
    };
    let desk = Desk::with(config, &[]);
    assert_eq!(desk.refusal(&origin.url()).await.code(), Code::TooLarge);
    assert!(
        !files(desk.session.supplies())
            .iter()
            .any(|(path, _)| path.ends_with("tmp"))
    );
}

/// Writes a git that does something first.
fn program(origin: &Origin, script: &str) -> PathBuf {
    let path = origin.folder.path().join("git");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\nexec git \"$@\"\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn a_copy_that_a_killed_git_left_is_made_anew() {
    let origin = Origin::over_http(false);
    let flag = origin.folder.path().join("kill");
    let locks = "touch shallow.lock packed-refs.lock; rm -rf objects/pack";
    let script = format!(
        "for word; do [ \"$word\" = fetch ] && [ -e {0} ] && {{ rm {0}; {locks}; kill -9 $$; }}; done",
        flag.display()
    );
    let desk = Desk::with(
        Config {
            program: program(&origin, &script),
            ..Config::default()
        },
        &["127.0.0.1"],
    );
    desk.fetch(&origin.url(), "").await;
    std::fs::write(&flag, "").unwrap();
    let commit = origin.commit("new.txt", "new");
    assert_eq!(
        desk.refusal(&origin.url()).await.code(),
        Code::HandlerFailed
    );
    let wish = Wish {
        depth: Some(1),
        ..Wish::default()
    };
    assert_eq!(
        Desk::told(desk.try_fetch(&origin.url(), &wish).await).commit,
        commit
    );
}

#[tokio::test]
async fn a_refusal_leaves_the_copy_as_it_was() {
    let origin = Origin::over_http(false);
    let desk = Desk::new();
    let checkout = desk.fetch(&origin.url(), "").await;
    let kept = checkout.mirror(&desk.session).join("kept");
    std::fs::write(&kept, "").unwrap();
    let none = named("0123456789012345678901234567890123456789");
    assert_eq!(
        desk.try_fetch(&origin.url(), &none)
            .await
            .unwrap_err()
            .code(),
        Code::NotFound
    );
    desk.fetch(&origin.url(), "").await;
    assert!(kept.exists());
}

/// Returns all files and folders below a folder.
fn files(folder: &Path) -> Vec<(PathBuf, std::fs::Metadata)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() {
                folders.push(entry.path());
            }
            found.push((entry.path(), metadata));
        }
    }
    found
}

#[tokio::test]
async fn another_user_reads_the_copy_whatever_this_process_makes_of_new_files() {
    let origin = Origin::over_http(false);
    let desk = Desk::new();
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let checkout = desk.fetch(&origin.url(), "").await;
    origin.commit("new.txt", "new");
    desk.fetch(&origin.url(), "").await;
    desk.try_fetch(
        &origin.url(),
        &Wish {
            depth: Some(1),
            ..named("v1")
        },
    )
    .await
    .unwrap();
    desk.changes(&checkout).await;
    rustix::process::umask(before);
    let mirror = checkout.mirror(&desk.session);
    let mut seen = files(&mirror);
    for path in [
        mirror,
        desk.session.supplies().join("gitconfig"),
        desk.session.supplies().join("junk"),
    ] {
        seen.push((path.clone(), std::fs::metadata(path).unwrap()));
    }
    assert!(seen.len() > 10);
    for (path, metadata) in seen {
        let wanted = if metadata.is_dir() { 0o755 } else { 0o444 };
        let mode = metadata.permissions().mode() & 0o777;
        assert_eq!(mode & wanted, wanted, "{}: {mode:o}", path.display());
    }
}

#[tokio::test]
async fn no_git_folder_leads_out_of_the_folders_that_may_be_used() {
    let secret = Origin::new();
    let allowed = tempfile::tempdir().unwrap();
    let desk = Desk::with(
        Config {
            paths: Paths::Below(vec![allowed.path().to_owned()]),
            ..Config::default()
        },
        &[],
    );
    let refused = async |name: &str, code: Code| {
        let error = desk
            .refusal(allowed.path().join(name).to_str().unwrap())
            .await;
        assert_eq!(error.code(), code, "{name}: {error}: {}", error.cause());
    };
    let bare = secret.bare();
    let bare = bare.to_str().unwrap();
    let at = allowed.path();

    write(at, "file/.git", &format!("gitdir: {bare}\n"));
    refused("file", Code::Forbidden).await;
    std::fs::create_dir(at.join("link")).unwrap();
    symlink(bare, at.join("link/.git")).unwrap();
    refused("link", Code::Forbidden).await;
    write(at, "common/.git/HEAD", "ref: refs/heads/main\n");
    write(at, "common/.git/commondir", bare);
    refused("common", Code::Forbidden).await;
    // One that borrows the objects, at once or by way of another one.
    let borrowing = |name: &str, from: &str| {
        git(at, &["init", "-q", "--bare", name]);
        write(at, &format!("{name}/objects/info/alternates"), from);
    };
    borrowing("borrow", &format!("{bare}/objects\n"));
    refused("borrow", Code::Forbidden).await;
    borrowing("twice", "../../borrow/objects\n");
    refused("twice", Code::Forbidden).await;
    git(at, &["init", "-q", "--bare", "objects"]);
    std::fs::remove_dir_all(at.join("objects/objects")).unwrap();
    symlink(secret.bare().join("objects"), at.join("objects/objects")).unwrap();
    refused("objects", Code::Forbidden).await;
    // What git would find beside it, and a bundle.
    std::fs::create_dir(at.join("beside")).unwrap();
    symlink(bare, at.join("beside.git")).unwrap();
    refused("beside", Code::NotFound).await;
    git(
        &secret.bare(),
        &[
            "bundle",
            "create",
            "-q",
            at.join("bundle").to_str().unwrap(),
            "main",
        ],
    );
    refused("bundle", Code::NotFound).await;

    // The same ways to a repository that may be used.
    git(at, &["clone", "-q", "--bare", bare, "own.git"]);
    write(at, "fine/.git", "gitdir: ../own.git\n");
    borrowing("lent", "../../own.git/objects\n");
    std::fs::copy(at.join("own.git/packed-refs"), at.join("lent/packed-refs")).unwrap();
    for name in ["own.git", "fine", "lent"] {
        desk.fetch(at.join(name).to_str().unwrap(), "main").await;
    }
    git(
        &at.join("own.git"),
        &["worktree", "add", "-q", "../tree", "side"],
    );
    desk.fetch(at.join("tree").to_str().unwrap(), "").await;
}

#[tokio::test]
async fn a_default_branch_that_is_no_name_of_one_is_none() {
    let origin = Origin::over_http(false);
    let desk = Desk::new();
    let id = origin.id("side");
    write(&origin.bare(), "refs/heads/-x", &format!("{id}\n"));
    write(&origin.bare(), "HEAD", "ref: refs/heads/-x\n");
    let checkout = desk.fetch(&origin.url(), "").await;
    assert_eq!(
        (checkout.default_branch, checkout.branch, checkout.commit),
        (None, None, id)
    );
}

#[tokio::test]
async fn a_default_branch_that_does_not_exist_yet_is_not_made() {
    let origin = Origin::over_http(false);
    git(
        &origin.bare(),
        &["symbolic-ref", "HEAD", "refs/heads/master"],
    );
    let desk = Desk::new();
    let checkout = desk.fetch(&origin.url(), "side").await;
    write(&desk.repo(), "greeting.txt", "hi\n");
    let error = desk.try_push(&checkout, "master").await.unwrap_err();
    assert!(
        error.code() == Code::Conflict && error.message().contains("does not exist yet"),
        "{error}"
    );
    let commit = Desk::told(desk.try_push(&checkout, "mended").await);
    assert_eq!(origin.id("mended"), commit);
}
