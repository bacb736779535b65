//! Where a credential goes, and where it never is.

use std::sync::atomic::{AtomicBool, Ordering};

use helmdeck_core::Code;

use super::*;

#[tokio::test]
async fn a_credential_goes_to_its_own_hosts_only() {
    let origin = Origin::over_http(true);
    let url = RepoUrl::parse(&origin.url()).unwrap();
    let bound = |host: &str| {
        let hosts: Arc<[_]> = [host.parse().unwrap()].into();
        Some(
            Secret::new(PASSWORD.to_owned())
                .of_user(USER)
                .for_hosts(hosts),
        )
    };
    let free = Some(Secret::new(PASSWORD.to_owned()).of_user(USER));
    let desk = Desk::new();
    for (secret, named, used) in [
        (bound("127.0.0.1"), true, Ok(true)),
        (bound("127.0.0.1"), false, Ok(true)),
        (bound("github.com"), true, Err(Code::Forbidden)),
        // A credential that the caller did not name is left out for other hosts.
        (bound("github.com"), false, Ok(false)),
        (free.clone(), true, Err(Code::Forbidden)),
        (free.clone(), false, Ok(false)),
        (None, true, Ok(false)),
    ] {
        let opened = desk.git.open(&url, secret, named).await;
        assert_eq!(
            opened
                .map(|remote| remote.credential().is_some())
                .map_err(|error| error.code()),
            used
        );
    }
    let operator = Config {
        credential_hosts: vec!["127.0.0.*".parse().unwrap()],
        ..Config::default()
    };
    let desk = Desk::with(operator, &["127.0.0.1"]);
    assert!(
        desk.git
            .open(&url, free, true)
            .await
            .unwrap()
            .credential()
            .is_some()
    );
}

#[tokio::test]
async fn a_credential_of_the_wrong_kind_is_said_and_not_sent() {
    let desk = Desk::new();
    for (url, secret) in [
        (
            "http://127.0.0.1/a",
            "-----BEGIN OPENSSH PRIVATE KEY-----\nx",
        ),
        ("http://127.0.0.1/a", "two\nlines"),
        ("http://127.0.0.1/a", "  "),
        ("ssh://git@127.0.0.1/a", "ghp_token"),
        (
            "ssh://git@127.0.0.1/a",
            "-----BEGIN OPENSSH PRIVATE KEY-----\nx",
        ),
    ] {
        let desk = Desk::with(
            Config {
                connect: Some("/bin/false".into()),
                ..Config::default()
            },
            &[],
        );
        let desk = desk.login(USER, secret);
        let error = desk.open(url).await.err().expect(url);
        assert_eq!(error.code(), Code::CredentialInvalid, "{url}: {error}");
        assert!(
            !format!("{error}{}", error.cause()).contains(secret.trim())
                || secret.trim().is_empty()
        );
    }
    let error = desk.open("git@127.0.0.1:a").await.err().unwrap();
    assert_eq!(
        error.code(),
        Code::Forbidden,
        "without a way out there is no ssh: {error}"
    );
}

/// Looks at every process of this machine until it is stopped; returns where the secret was seen.
fn look(
    secret: &'static str,
    stop: Arc<AtomicBool>,
) -> std::thread::JoinHandle<(Vec<String>, usize)> {
    std::thread::spawn(move || {
        let (mut seen, mut rounds) = (Vec::new(), 0);
        while !stop.load(Ordering::Relaxed) {
            rounds += 1;
            for process in std::fs::read_dir("/proc").unwrap().flatten() {
                for file in ["cmdline", "environ"] {
                    let path = process.path().join(file);
                    let bytes = std::fs::read(&path).unwrap_or_default();
                    if String::from_utf8_lossy(&bytes).contains(secret) {
                        seen.push(path.display().to_string());
                    }
                }
            }
        }
        (seen, rounds)
    })
}

/// Returns the files below a folder that contain a text.
///
/// Files that other tests remove meanwhile are skipped.
fn holding(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Some(entries) = unless_gone(std::fs::read_dir(folder)) else {
            continue;
        };
        for entry in entries {
            let Some(entry) = unless_gone(entry) else {
                continue;
            };
            let Some(kind) = unless_gone(entry.file_type()) else {
                continue;
            };
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file()
                && unless_gone(std::fs::read(entry.path()))
                    .is_some_and(|bytes| String::from_utf8_lossy(&bytes).contains(text))
            {
                found.push(entry.path());
            }
        }
    }
    found
}

fn unless_gone<T>(result: std::io::Result<T>) -> Option<T> {
    match result {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        result => Some(result.unwrap()),
    }
}

#[tokio::test]
async fn a_password_is_in_no_argument_variable_file_or_error_while_a_slow_push_runs() {
    let origin = Origin::over_http(true);
    let desk = Desk::new().login(USER, PASSWORD);
    let stop = Arc::new(AtomicBool::new(false));
    let looking = look(PASSWORD, Arc::clone(&stop));
    let checkout = desk.fetch(&origin.url(), "").await;
    write(&desk.repo(), "greeting.txt", "hi\n");
    origin.tell("stall-push");
    let control = origin.folder.path().join("control");
    let commit = {
        let pushing = desk.try_push(&checkout, "slow");
        let watching = async {
            while !control.join("stalled").exists() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            // In the middle of the push, with every program at work.
            for folder in scratch_folders() {
                assert_eq!(holding(&folder, PASSWORD), Vec::<PathBuf>::new());
            }
            std::fs::remove_file(control.join("stall-push")).unwrap();
        };
        let (pushed, ()) = tokio::join!(pushing, watching);
        Desk::told(pushed)
    };
    stop.store(true, Ordering::Relaxed);
    let (seen, rounds) = looking.join().unwrap();
    assert!(
        seen.is_empty() && rounds > 3,
        "seen in {seen:?} in {rounds} rounds"
    );
    assert_eq!(origin.id("slow"), commit);
    assert_eq!(
        holding(desk.session.folder(), PASSWORD),
        Vec::<PathBuf>::new()
    );
    assert_eq!(
        holding(desk.session.supplies(), PASSWORD),
        Vec::<PathBuf>::new()
    );
    assert_eq!(
        git(&desk.repo(), &["remote", "get-url", "origin"]),
        origin.url()
    );
}

/// Returns the temporary folders of all runs of git of now.
fn scratch_folders() -> Vec<PathBuf> {
    let ours = |name: &str| name.starts_with("helmdeck-git-") || name.starts_with("helmdeck-push-");
    std::fs::read_dir(std::env::temp_dir())
        .unwrap()
        .flatten()
        .filter(|entry| ours(&entry.file_name().to_string_lossy()))
        .map(|entry| entry.path())
        .filter(|path| std::fs::read_dir(path).is_ok())
        .collect()
}

#[tokio::test]
async fn an_error_does_not_hold_the_password_even_if_the_server_repeats_it() {
    // The second one looks another way where a log escapes it.
    for password in [PASSWORD, "spar\"row\\'3f9c"] {
        repeated(password).await;
    }
}

async fn repeated(password: &'static str) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 8192];
            let count = stream.read(&mut buffer).await.unwrap_or(0);
            let known = String::from_utf8_lossy(&buffer[..count])
                .to_lowercase()
                .contains("authorization: basic");
            let (status, body) = if known {
                ("500 Oops", format!("you said {password}\n"))
            } else {
                (
                    "401 No\r\nwww-authenticate: Basic realm=\"x\"",
                    String::new(),
                )
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let desk = Desk::new().login(USER, password);
    let error = desk
        .refusal(&format!("http://127.0.0.1:{port}/o/r.git"))
        .await;
    for shown in [password.to_owned(), password.escape_debug().to_string()] {
        assert!(
            !error.to_string().contains(&shown) && !error.cause().contains(&shown),
            "{}",
            error.cause()
        );
    }
    assert!(error.cause().contains("[secret]"), "{}", error.cause());
}

#[tokio::test]
async fn an_ssh_key_is_held_by_an_agent_that_ends_with_the_way_to_the_repository() {
    let folder = tempfile::tempdir().unwrap();
    for (name, passphrase) in [("plain", ""), ("locked", "open sesame")] {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-C", "", "-N", passphrase, "-f"])
            .arg(folder.path().join(name))
            .status();
        assert!(made.unwrap().success());
    }
    let key = |name: &str| {
        let hosts: Arc<[_]> = ["127.0.0.1".parse().unwrap()].into();
        Secret::new(read(folder.path(), name)).for_hosts(hosts)
    };
    let with = |secret: Secret| {
        let config = Config {
            connect: Some("/bin/false".into()),
            ..Config::default()
        };
        Desk {
            credential: Some(secret),
            ..Desk::with(config, &["127.0.0.1"])
        }
    };
    let url = "ssh://git@127.0.0.1:1/a.git";
    for secret in [
        key("plain"),
        key("locked").with_passphrase("open sesame".to_owned()),
    ] {
        let remote = with(secret).open(url).await;
        let remote = Desk::told(remote);
        let socket = remote.agent_socket().unwrap().to_owned();
        let listed = Command::new("ssh-add")
            .arg("-l")
            .env("SSH_AUTH_SOCK", &socket)
            .output()
            .unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(listed.contains("ED25519"), "{listed}");
        drop(remote);
        assert!(!socket.exists());
        let after = Command::new("ssh-add")
            .arg("-l")
            .env("SSH_AUTH_SOCK", &socket)
            .output()
            .unwrap();
        assert!(!after.status.success());
    }
    for secret in [
        key("locked").with_passphrase("wrong".to_owned()),
        key("locked"),
    ] {
        assert_eq!(
            with(secret).open(url).await.err().unwrap().code(),
            Code::CredentialInvalid
        );
    }
}
