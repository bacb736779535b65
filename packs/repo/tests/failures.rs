//! What goes wrong, and as which error it comes back.

use helmdeck_core::{Code, Fault};

use super::*;

#[tokio::test]
async fn what_is_not_there_is_not_found_and_never_an_empty_repository() {
    let origin = Origin::over_http(false);
    let desk = Desk::new();
    for url in [
        origin.url().replace("o/r.git", "o/none.git"),
        format!("{}/none.git", origin.folder.path().display()),
    ] {
        assert_eq!(desk.refusal(&url).await.code(), Code::NotFound, "{url}");
    }
    for name in [
        "none",
        "0123456789012345678901234567890123456789",
        "abcdef0",
        "refs/heads/none",
    ] {
        let error = desk
            .try_fetch(&origin.url(), &named(name))
            .await
            .unwrap_err();
        assert_eq!(
            error.code(),
            Code::NotFound,
            "{name}: {error}: {}",
            error.cause()
        );
    }
    for name in ["--upload-pack=touch x", "a b", "..", "a\nb"] {
        assert_eq!(
            desk.try_fetch(&origin.url(), &named(name))
                .await
                .unwrap_err()
                .code(),
            Code::InvalidInput,
            "{name}"
        );
    }
    git(&origin.bare(), &["init", "-q", "--bare", "../empty.git"]);
    let error = desk
        .refusal(&origin.url().replace("r.git", "empty.git"))
        .await;
    assert_eq!(
        (error.code(), error.message()),
        (Code::NotFound, "the repository has no commits yet")
    );
}

#[tokio::test]
async fn a_wrong_password_and_a_missing_one_are_the_callers_to_mend() {
    let origin = Origin::over_http(true);
    for desk in [
        Desk::new(),
        Desk::new().login(USER, "wrong"),
        Desk::new().login("other", PASSWORD),
    ] {
        let error = desk.refusal(&origin.url()).await;
        assert_eq!(
            error.code(),
            Code::CredentialInvalid,
            "{error}: {}",
            error.cause()
        );
    }
    Desk::new()
        .login(USER, PASSWORD)
        .fetch(&origin.url(), "")
        .await;
}

#[tokio::test]
async fn a_refused_address_is_forbidden_and_a_dead_one_may_be_tried_again() {
    let origin = Origin::over_http(false);
    let inward = Desk::with(Config::default(), &[]);
    let port = origin.server.as_ref().unwrap().1;
    for host in ["127.0.0.1", "2130706433", "[::ffff:127.0.0.1]", "localhost"] {
        let error = inward
            .refusal(&format!("http://{host}:{port}/o/r.git"))
            .await;
        assert_eq!(
            error.code(),
            Code::Forbidden,
            "{host}: {error}: {}",
            error.cause()
        );
        assert!(error.message().contains("loopback"), "{error}");
    }
    let error = inward
        .refusal(&format!("https://127.0.0.1:{port}/o/r.git"))
        .await;
    assert_eq!(error.code(), Code::Forbidden, "{error}");
    let error = inward.refusal("http://169.254.169.254/o/r.git").await;
    assert!(
        error.code() == Code::Forbidden && error.message().contains("metadata"),
        "{error}"
    );

    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    for scheme in ["http", "https"] {
        let error = Desk::new()
            .refusal(&format!("{scheme}://127.0.0.1:{closed}/o/r.git"))
            .await;
        assert_eq!(
            (error.code(), error.code().fault()),
            (Code::Timeout, Fault::Host),
            "{error}: {}",
            error.cause()
        );
    }
    let error = Desk::new()
        .refusal("https://no-such-host.invalid/o/r.git")
        .await;
    assert_eq!(error.code(), Code::Timeout, "{error}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Origin::over_http(false);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let location = target.url();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let answer = format!(
                "HTTP/1.1 302 Found\r\nlocation: {location}/info/refs?service=git-upload-pack\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let error = Desk::new()
        .refusal(&format!("http://127.0.0.1:{port}/o/r.git"))
        .await;
    assert_eq!(
        error.code(),
        Code::HandlerFailed,
        "{error}: {}",
        error.cause()
    );
}

#[tokio::test]
async fn folders_of_this_machine_are_used_only_where_the_operator_allows_it() {
    let origin = Origin::new();
    let nobody = Desk::with(Config::default(), &[]);
    // The same whether it is there or not.
    for url in [
        origin.url(),
        format!("{}/none", origin.folder.path().display()),
    ] {
        let error = nobody.refusal(&url).await;
        assert!(
            error.code() == Code::Forbidden && error.message().contains("repo.paths"),
            "{error}"
        );
    }
    let below = |folder: PathBuf| {
        Desk::with(
            Config {
                paths: Paths::Below(vec![folder]),
                ..Config::default()
            },
            &[],
        )
    };
    below(origin.folder.path().join("root"))
        .fetch(&origin.url(), "")
        .await;
    assert_eq!(
        below(origin.work()).refusal(&origin.url()).await.code(),
        Code::Forbidden
    );
    // A link in an allowed folder is judged by where it leads.
    let allowed = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(origin.bare(), allowed.path().join("link")).unwrap();
    let desk = below(allowed.path().to_owned());
    assert_eq!(
        desk.refusal(allowed.path().join("link").to_str().unwrap())
            .await
            .code(),
        Code::Forbidden
    );
}

#[tokio::test]
async fn a_missing_git_is_said() {
    let desk = Desk::with(
        Config {
            program: "/no/such/git".into(),
            paths: Paths::All,
            ..Config::default()
        },
        &[],
    );
    let error = desk.refusal(&Origin::new().url()).await;
    assert!(
        error.code() == Code::Internal && error.message().contains("installed"),
        "{error}"
    );
}
