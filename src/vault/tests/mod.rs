//! Tests of the crate as a whole, over real files.

mod heads;

use std::sync::Arc;

use helmdeck_core::secrets::{Grant, Secrets};
use helmdeck_core::{Clock, Code, Identity, PackName, SystemClock};
use helmdeck_memory::KeyRing;
use helmdeck_system::System;
use helmdeck_system::vault::{VaultChange, VaultRow};
use proptest::prelude::*;
use zeroize::Zeroizing;

use crate::{About, Book, Change, Kind, Material, Vault, VaultError, list_in_the_clear, remove};

const SECRET: &str = "canary-5d1e77";

struct Fixture {
    system: System,
    _folder: tempfile::TempDir,
}

fn ring(current: &str, previous: Option<&str>) -> KeyRing {
    let previous = previous.map(|digit| digit.repeat(64));
    KeyRing::parse(
        ("K", &current.repeat(64)),
        previous.as_deref().map(|text| ("P", text)),
    )
    .unwrap()
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::default())
}

fn pack(name: &str) -> PackName {
    PackName::new(name).unwrap()
}

fn material(kind: Kind, text: &str) -> Material {
    Material::new(kind, Zeroizing::new(text.to_owned()), None).unwrap()
}

fn open_to(subjects: &str, packs: &str) -> About {
    About {
        hosts: vec!["api.example.com".parse().unwrap()],
        subjects: vec![subjects.parse().unwrap()],
        packs: vec![packs.parse().unwrap()],
        ..About::of(Kind::ApiKey)
    }
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            system: System::at(folder.path().join("helmdeck.db")),
            _folder: folder,
        }
    }

    fn book(&self, ring: KeyRing) -> Book {
        Book::new(self.system.clone(), ring, clock())
    }

    async fn vault(&self) -> Vault {
        Vault::open(self.system.clone(), ring("a", None), clock())
            .await
            .unwrap()
    }

    async fn with(about: About) -> (Self, Vault) {
        let fixture = Self::new();
        fixture
            .book(ring("a", None))
            .set("token", about, material(Kind::ApiKey, SECRET))
            .await
            .unwrap();
        let vault = fixture.vault().await;
        (fixture, vault)
    }
}

fn grant(vault: &Vault, name: &str) -> helmdeck_core::Result<Option<Grant>> {
    vault.grant(name, &Identity::local(), &pack("github.search"))
}

fn reveal(vault: &Vault, name: &str) -> helmdeck_core::Result<String> {
    let Some(grant) = grant(vault, name)? else {
        return Ok(String::new());
    };
    Ok(vault
        .reveal(&grant, &Identity::local(), &pack("github.search"))?
        .expose()
        .to_owned())
}

#[tokio::test]
async fn a_credential_is_set_used_rotated_and_removed() {
    let (fixture, vault) = Fixture::with(open_to("local/local", "github.*")).await;
    let (book, first) = (
        fixture.book(ring("a", None)),
        grant(&vault, "token").unwrap().unwrap(),
    );
    assert_eq!(reveal(&vault, "token").unwrap(), SECRET);
    let secret = vault
        .reveal(&first, &Identity::local(), &pack("github.search"))
        .unwrap();
    assert!(
        secret.expose_for("api.example.com").is_ok() && secret.expose_for("example.com").is_err()
    );
    assert!(!vault.refresh().await.unwrap(), "nothing changed");

    let generation = vault.generation();
    let saved = book
        .rotate("token", material(Kind::ApiKey, "another"))
        .await
        .unwrap();
    assert!(saved.replaced && saved.version > first.version);
    assert!(vault.refresh().await.unwrap() && vault.generation() != generation);
    assert_eq!(reveal(&vault, "token").unwrap(), "another");
    assert_eq!(
        grant(&vault, "token").unwrap().unwrap().version,
        saved.version
    );

    remove(&fixture.system, "token").await.unwrap();
    assert!(vault.refresh().await.unwrap());
    assert_eq!(grant(&vault, "token").unwrap(), None);
    let late = vault
        .reveal(&first, &Identity::local(), &pack("github.search"))
        .unwrap_err();
    assert_eq!(late.code(), Code::Forbidden);
    assert!(matches!(
        remove(&fixture.system, "token").await,
        Err(VaultError::Missing(_))
    ));
    assert!(matches!(
        book.rotate("token", material(Kind::ApiKey, "x")).await,
        Err(VaultError::Missing(_))
    ));
    let again = book
        .set(
            "token",
            open_to("local/local", "*"),
            material(Kind::ApiKey, SECRET),
        )
        .await
        .unwrap();
    assert!(
        !again.replaced && again.version > saved.version,
        "never taken for the one before"
    );
}

#[tokio::test]
async fn logins_and_keys_come_back_with_all_their_parts() {
    let (fixture, vault) = Fixture::with(open_to("local/local", "*")).await;
    let book = fixture.book(ring("a", None));
    let login = About {
        kind: Kind::Login,
        user: Some("bot".to_owned()),
        ..open_to("local/local", "*")
    };
    assert!(
        book.set(
            "x",
            About {
                user: None,
                ..login.clone()
            },
            material(Kind::Login, "p")
        )
        .await
        .is_err()
    );
    book.set("login", login, material(Kind::Login, "pass word"))
        .await
        .unwrap();
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n";
    let passphrase = Some(Zeroizing::new("open sesame".to_owned()));
    let ssh = Material::new(Kind::Ssh, Zeroizing::new(key.to_owned()), passphrase).unwrap();
    book.set(
        "ssh",
        About {
            kind: Kind::Ssh,
            ..open_to("local/local", "*")
        },
        ssh,
    )
    .await
    .unwrap();
    vault.refresh().await.unwrap();
    let secret = |name| {
        let grant = grant(&vault, name).unwrap().unwrap();
        vault
            .reveal(&grant, &Identity::local(), &pack("a.b"))
            .unwrap()
    };
    assert_eq!(
        (secret("login").expose(), secret("login").user()),
        ("pass word", Some("bot"))
    );
    assert_eq!(
        (secret("ssh").expose(), secret("ssh").passphrase()),
        (key, Some("open sesame"))
    );
    let refused = book
        .rotate("ssh", material(Kind::ApiKey, "no key"))
        .await
        .unwrap_err();
    assert!(matches!(refused, VaultError::Refused(_)), "{refused}");
}

#[tokio::test]
async fn refusals_look_like_missing_and_are_logged() {
    let (fixture, vault) = Fixture::with(open_to("acme/*", "github.*")).await;
    let refused = grant(&vault, "token").unwrap_err();
    let missing = vault.missing("token");
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::Forbidden, missing.message())
    );
    assert_eq!(refused.problem(), missing.problem());
    let caller = Identity::new("acme", "ann").unwrap();
    let granted = vault
        .grant("token", &caller, &pack("github.search"))
        .unwrap()
        .unwrap();
    assert!(vault.grant("token", &caller, &pack("repo.map")).is_err());
    vault
        .reveal(&granted, &caller, &pack("github.search"))
        .unwrap();
    vault.flush().await.unwrap();
    vault
        .reveal(&granted, &caller, &pack("github.search"))
        .unwrap();
    vault.flush().await.unwrap();
    let uses = fixture
        .system
        .vault_uses(Some("token".to_owned()), 10)
        .await
        .unwrap();
    let mut counts: Vec<_> = uses
        .iter()
        .map(|line| {
            (
                line.subject.as_str(),
                line.pack.as_str(),
                line.granted,
                line.refused,
            )
        })
        .collect();
    counts.sort_unstable();
    assert_eq!(
        counts,
        [
            ("ann", "github.search", 2, 0),
            ("ann", "repo.map", 0, 1),
            ("local", "github.search", 0, 1)
        ],
        "what there is not is not logged"
    );
}

#[tokio::test]
async fn grants_change_without_a_new_version() {
    let (fixture, vault) = Fixture::with(About::of(Kind::ApiKey)).await;
    let book = fixture.book(ring("a", None));
    assert!(grant(&vault, "token").is_err(), "nobody by default");
    let of = |text: &str| vec![text.parse().unwrap()];
    let all = Change {
        allow: of("local/*"),
        allow_packs: vec!["*".parse().unwrap()],
        ..Change::default()
    };
    book.regrant("token", all).await.unwrap();
    let (before, generation) = (grant_version(&vault).await, vault.generation());
    book.regrant(
        "token",
        Change {
            revoke: of("local/*"),
            ..Change::default()
        },
    )
    .await
    .unwrap();
    assert!(vault.refresh().await.unwrap() && vault.generation() != generation);
    assert_eq!(grant(&vault, "token").unwrap_err().code(), Code::Forbidden);
    let error = book
        .regrant(
            "token",
            Change {
                revoke: of("local/local"),
                ..Change::default()
            },
        )
        .await
        .unwrap_err();
    assert!(error.to_string().contains("nothing is"), "{error}");
    book.regrant(
        "token",
        Change {
            allow: of("local/local"),
            ..Change::default()
        },
    )
    .await
    .unwrap();
    assert_eq!(grant_version(&vault).await, before);
    assert_eq!(reveal(&vault, "token").unwrap(), SECRET);
}

async fn grant_version(vault: &Vault) -> u64 {
    vault.refresh().await.unwrap();
    grant(vault, "token").unwrap().unwrap().version
}

#[tokio::test]
async fn another_key_is_named_and_rekeying_takes_both() {
    let (fixture, vault) = Fixture::with(open_to("local/local", "*")).await;
    let before = grant_version(&vault).await;
    let error = fixture
        .book(ring("b", None))
        .list()
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(ring("a", None).current_id())
            && error.contains(ring("b", None).current_id()),
        "{error}"
    );
    assert!(matches!(
        Vault::open(fixture.system.clone(), ring("b", None), clock()).await,
        Err(VaultError::WrongKey { .. })
    ));
    let set = fixture
        .book(ring("b", None))
        .set("more", About::of(Kind::ApiKey), material(Kind::ApiKey, "x"))
        .await;
    assert!(
        matches!(set, Err(VaultError::WrongKey { .. })),
        "a vault is never sealed with two keys by mistake"
    );

    let both = fixture.book(ring("b", Some("a")));
    both.set(
        "more",
        open_to("local/local", "*"),
        material(Kind::ApiKey, "new key"),
    )
    .await
    .unwrap();
    let rekeyed = both.rekey().await.unwrap().unwrap();
    assert_eq!(
        (rekeyed.resealed, rekeyed.already, rekeyed.unreadable.len()),
        (1, 1, 0)
    );
    assert_eq!(both.rekey().await.unwrap().unwrap().resealed, 0);
    let new = Vault::open(fixture.system.clone(), ring("b", None), clock())
        .await
        .unwrap();
    assert_eq!(
        (reveal(&new, "token").unwrap(), grant_version(&new).await),
        (SECRET.to_owned(), before)
    );
    assert!(matches!(
        fixture.book(ring("a", None)).check().await,
        Err(VaultError::WrongKey { .. })
    ));
    // Who holds only the old key opens nothing any more.
    vault.refresh().await.unwrap();
    assert_eq!(reveal(&vault, "token").unwrap_err().code(), Code::Forbidden);
    // A vault without rows belongs to the first writer: a lost key is no dead end.
    for name in ["token", "more"] {
        remove(&fixture.system, name).await.unwrap();
    }
    fixture
        .book(ring("c", None))
        .set(
            "fresh",
            About::of(Kind::ApiKey),
            material(Kind::ApiKey, "x"),
        )
        .await
        .unwrap();
    assert!(matches!(
        both.list().await,
        Err(VaultError::WrongKey { .. })
    ));
}

#[tokio::test]
async fn altered_row_never_gives_a_secret() {
    let (fixture, vault) = Fixture::with(open_to("local/local", "*")).await;
    let book = fixture.book(ring("a", None));
    book.set(
        "other",
        open_to("local/local", "*"),
        material(Kind::ApiKey, "the other one"),
    )
    .await
    .unwrap();
    let (_, rows) = fixture.system.vault().await.unwrap();
    let (other, good) = (rows[0].clone(), rows[1].clone());
    assert_eq!(
        (other.name.as_str(), good.name.as_str()),
        ("other", "token")
    );
    let mut bad = Vec::new();
    for at in 0..good.sealed.len() {
        for bit in [1, 0x80] {
            let mut row = good.clone();
            row.sealed[at] ^= bit;
            bad.push(row);
        }
        bad.push(VaultRow {
            sealed: good.sealed[..at].to_vec(),
            ..good.clone()
        });
    }
    bad.push(VaultRow {
        sealed: [good.sealed.as_slice(), b"x"].concat(),
        ..good.clone()
    });
    bad.push(VaultRow {
        version: good.version + 1,
        ..good.clone()
    });
    bad.push(VaultRow {
        created_at: helmdeck_core::Timestamp(1),
        ..good.clone()
    });
    bad.push(VaultRow {
        updated_at: helmdeck_core::Timestamp(1),
        ..good.clone()
    });
    bad.push(VaultRow {
        key_id: ring("b", None).current_id().to_owned(),
        ..good.clone()
    });
    bad.push(VaultRow {
        sealed: other.sealed.clone(),
        ..good.clone()
    });
    bad.push(VaultRow {
        name: "token".to_owned(),
        ..other.clone()
    });
    let count = bad.len();
    for row in bad {
        let shown = format!("{row:?}");
        let put = VaultChange {
            put: vec![row],
            ..VaultChange::default()
        };
        fixture
            .system
            .change_vault(false, |_, _| (Some(put), ()))
            .await
            .unwrap();
        vault.refresh().await.unwrap();
        match reveal(&vault, "token") {
            Err(error) => assert!(!error.to_string().contains("canary"), "{error}"),
            Ok(secret) => panic!("{secret} from {shown}"),
        }
        assert_eq!(book.check().await.unwrap().1.len(), 1);
    }
    assert!(count > 400, "{count}");
    // No caller may use a renamed row.
    let renamed = VaultRow {
        name: "renamed".to_owned(),
        ..good.clone()
    };
    let put = VaultChange {
        put: vec![good, renamed],
        ..VaultChange::default()
    };
    fixture
        .system
        .change_vault(false, |_, _| (Some(put), ()))
        .await
        .unwrap();
    vault.refresh().await.unwrap();
    assert_eq!(reveal(&vault, "token").unwrap(), SECRET);
    assert!(reveal(&vault, "renamed").is_err());
}

#[tokio::test]
async fn nothing_of_a_secret_or_a_grant_is_in_the_file() {
    let (fixture, _vault) =
        Fixture::with(open_to("tenant-canary/user-canary", "pack.canary*")).await;
    let listed = list_in_the_clear(&fixture.system).await.unwrap();
    assert_eq!(
        listed
            .iter()
            .map(|row| row.name.as_str())
            .collect::<Vec<_>>(),
        ["token"]
    );
    assert!(listed[0].about.is_none() && !format!("{listed:?}").contains("canary"));
    for file in std::fs::read_dir(fixture._folder.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(6).any(|window| window == b"canary"));
    }
}

#[tokio::test]
async fn a_vault_that_is_not_there_is_empty_and_stays_away() {
    let folder = tempfile::tempdir().unwrap();
    let system = System::at(folder.path().join("new/helmdeck.db"));
    let vault = Vault::open(system.clone(), ring("a", None), clock())
        .await
        .unwrap();
    assert_eq!(grant(&vault, "token").unwrap(), None);
    let watch = vault.watch();
    let book = Book::new(system.clone(), ring("a", None), clock());
    assert!(book.list().await.unwrap().is_empty() && book.rekey().await.unwrap().is_none());
    assert!(
        book.rotate("x", material(Kind::ApiKey, "x")).await.is_err()
            && remove(&system, "x").await.is_err()
    );
    watch.stop().await;
    assert!(!folder.path().join("new").exists());
}

#[tokio::test]
async fn watch_follows_other_processes_and_flushes_uses() {
    let (fixture, vault) = Fixture::with(open_to("local/local", "*")).await;
    let watch = vault.watch();
    reveal(&vault, "token").unwrap();
    let other = System::at(fixture._folder.path().join("helmdeck.db"));
    Book::new(other, ring("a", None), clock())
        .rotate("token", material(Kind::ApiKey, "rotated"))
        .await
        .unwrap();
    let mut looks = helmdeck_core::waiting::Looks::default();
    while reveal(&vault, "token").unwrap() != "rotated"
        || fixture.system.vault_uses(None, 1).await.unwrap().is_empty()
    {
        assert!(!looks.are_over(), "never seen");
        tokio::time::sleep(looks.pause()).await;
    }
    watch.stop().await;
    let uses = fixture.system.vault_uses(None, 9).await.unwrap();
    assert!(
        uses.iter().map(|line| line.granted).sum::<u64>() >= 2,
        "{uses:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Grants allow exactly the callers and packs that match their patterns, by a second
    /// implementation.
    #[test]
    fn grants_match_their_patterns(
        tenant in "[ab]{1,2}", user in "[ab/]{1,3}", name in "[ab]\\.[ab]{1,2}",
        subjects in proptest::collection::vec("[ab*]{1,2}/[ab*/]{1,3}", 0..3),
        packs in proptest::collection::vec("[ab*]{1,2}\\.?[ab*]{0,2}", 0..3),
    ) {
        let about = About {
            subjects: subjects.iter().map(|text| text.parse().unwrap()).collect(),
            packs: packs.iter().map(|text| text.parse().unwrap()).collect(),
            ..About::of(Kind::ApiKey)
        };
        let fits = |pattern: &str, text: &str| naive(pattern.as_bytes(), text.as_bytes());
        let caller = subjects.iter().any(|text| {
            let (of_tenant, of_user) = text.split_once('/').unwrap();
            fits(of_tenant, &tenant) && fits(of_user, &user)
        });
        let expected = caller && packs.iter().any(|pattern| fits(pattern, &name));
        prop_assert_eq!(about.allows(&Identity::new(&tenant, &user).unwrap(), &name), expected);
        prop_assert!(!about.allows(&Identity::anonymous(), &name));
    }
}

/// Matches `*` by trying every length.
fn naive(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|at| naive(rest, &text[at..])),
        Some((byte, rest)) => text.first() == Some(byte) && naive(rest, &text[1..]),
    }
}

#[tokio::test]
async fn vault_of_a_server_waits_for_its_database() {
    let (fixture, vault) = Fixture::with(open_to("local/local", "*")).await;
    drop(vault);
    // As if it was not there yet: a folder is in its place.
    let file = std::path::PathBuf::from(fixture.system.location());
    let later = System::at(file.with_file_name("later.db"));
    let path = std::path::PathBuf::from(later.location());
    std::fs::create_dir(&path).unwrap();
    assert!(
        Vault::open(later.clone(), ring("a", None), clock())
            .await
            .is_err()
    );
    let vault = Vault::open_when_reachable(later.clone(), ring("a", None), clock())
        .await
        .unwrap();
    assert!(vault.trouble().is_some());
    let error = grant(&vault, "token").unwrap_err();
    assert_eq!(
        error.code(),
        Code::Overloaded,
        "neither absent nor forbidden: {error}"
    );
    let wrong = Vault::open_when_reachable(later, ring("b", None), clock())
        .await
        .unwrap();

    std::fs::remove_dir(&path).unwrap();
    for suffix in ["", "-wal"] {
        let from = file.with_file_name(format!("helmdeck.db{suffix}"));
        if from.exists() {
            std::fs::copy(from, path.with_file_name(format!("later.db{suffix}"))).unwrap();
        }
    }
    let watches = [vault.watch(), wrong.watch()];
    helmdeck_testkit::until("the vault", async || vault.trouble().is_none()).await;
    assert_eq!(reveal(&vault, "token").unwrap(), SECRET);
    helmdeck_testkit::until("the key", async || {
        wrong
            .trouble()
            .is_some_and(|why| why.contains("sealed with key"))
    })
    .await;
    assert!(
        grant(&wrong, "token").is_err(),
        "a vault of another key stays shut"
    );
    for watch in watches {
        watch.stop().await;
    }
}
