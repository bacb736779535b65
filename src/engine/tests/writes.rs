//! Visibility of a write: the caller's answers and those its tenant shares are fresh afterwards.
//!
//! The answers of other callers stay cached.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use helmdeck_core::{Builtin, CacheStatus, Call, Code, Error, Identity, Json, Reply};
use helmdeck_engine::{CacheConfig, Config};
use helmdeck_testkit::{call, function, manifest, patient};
use tokio::sync::Semaphore;

use crate::support::{EngineFixture, status, with_input};

const EVERYBODY: [(&str, &str); 4] = [("t", "alice"), ("t", "bob"), ("u", "alice"), ("u", "bob")];
const PACKS: [&str; 3] = ["t.caller", "t.session", "t.shared"];

/// A cached pack of each scope, all with one tag.
fn readers() -> Vec<Builtin> {
    let reader = |scope: &str| {
        let memory = format!(
            "[memory]\ncache = true\nttl = \"60s\"\nscope = \"{scope}\"\ntags = [\"repo:{{repo}}\"]"
        );
        let text = manifest(&format!("t.{scope}"), "read_only = true", &memory);
        function(&with_input(&text), |_, _| async {
            Ok(Reply::json(Json::parse("{}").unwrap()))
        })
        .0
    };
    ["caller", "session", "shared"].map(reader).into()
}

fn by(pack: &str, tenant: &str, user: &str, session: Option<&str>) -> Call {
    let mut call = call(pack, "{\"repo\":\"A/b\"}");
    let identity = Identity::new(tenant, user).unwrap();
    call.identity = Arc::new(match session {
        Some(session) => identity.with_session(session).unwrap(),
        None => identity,
    });
    call
}

/// Runs the calls of all callers, in two conversations, and returns whether each was a hit.
async fn read_all(engine: &EngineFixture) -> Vec<(String, CacheStatus)> {
    let mut all = Vec::new();
    for (tenant, user) in EVERYBODY {
        for pack in PACKS {
            for session in [None, Some("s")] {
                let outcome = engine.call(by(pack, tenant, user, session)).await.unwrap();
                all.push((
                    format!("{pack} {tenant}/{user} {session:?}"),
                    status(&outcome),
                ));
            }
        }
    }
    all
}

/// Says whether a call has scope `session` and names none, so that its answer is not stored.
fn is_nobodys(about: &str) -> bool {
    about.contains("t.session") && about.ends_with("None")
}

#[tokio::test]
async fn write_invalidates_own_and_shared_answers_only() {
    let fails = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&fails);
    let text = manifest("t.write", "", "[memory]\ninvalidates = [\"repo:{repo}\"]");
    let (write, _) = function(&with_input(&text), move |_, _| {
        let fails = told.load(Ordering::SeqCst);
        async move {
            match fails {
                true => Err(Error::new(Code::HandlerFailed, "told to")),
                false => Ok(Reply::json(Json::parse("{}").unwrap())),
            }
        }
    });
    let mut packs = readers();
    packs.push(write);
    // Without a hot tier every answer comes from the store, so the rows of the other callers must
    // still exist.
    for hot_bytes in [64 << 20, 0] {
        let cache = CacheConfig {
            hot_bytes,
            ..patient().cache
        };
        let config = Config {
            cache,
            ..Config::default()
        };
        let engine = EngineFixture::with(packs.clone(), config).await;
        for fail in [false, true] {
            fails.store(fail, Ordering::SeqCst);
            for (tenant, user) in EVERYBODY {
                read_all(&engine).await;
                engine.settle().await;
                let known = read_all(&engine).await;
                let kept = |(about, status): &(String, CacheStatus)| {
                    *status
                        == if is_nobodys(about) {
                            CacheStatus::Bypass
                        } else {
                            CacheStatus::Hit
                        }
                };
                assert!(known.iter().all(kept), "{known:?}");
                assert_eq!(
                    engine
                        .call(by("t.write", tenant, user, Some("other")))
                        .await
                        .is_err(),
                    fail
                );
                let mut shared_was_read = false;
                for other in EVERYBODY {
                    for pack in PACKS {
                        for session in [None, Some("s")] {
                            let outcome = engine
                                .call(by(pack, other.0, other.1, session))
                                .await
                                .unwrap();
                            engine.settle().await;
                            let outdated = match pack {
                                "t.shared" => {
                                    other.0 == tenant
                                        && !std::mem::replace(&mut shared_was_read, true)
                                }
                                // One answer in all conversations, which was fresh again after the
                                // first.
                                "t.caller" => other == (tenant, user) && session.is_none(),
                                _ => other == (tenant, user),
                            };
                            let wanted = match outdated {
                                _ if is_nobodys(&format!("{pack} {session:?}")) => {
                                    CacheStatus::Bypass
                                }
                                true => CacheStatus::Miss,
                                false => CacheStatus::Hit,
                            };
                            let about = format!(
                                "{tenant}/{user} wrote (failed: {fail}), {other:?} {session:?} {pack}"
                            );
                            assert_eq!(status(&outcome), wanted, "{about}");
                        }
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn write_keeps_runs_of_other_callers() {
    let (started, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (tell, wait) = (Arc::clone(&started), Arc::clone(&go));
    let memory = "[memory]\ncache = true\nttl = \"60s\"\ntags = [\"repo:{repo}\"]";
    let text = manifest("t.slow", "read_only = true", memory);
    let (slow, _) = function(&with_input(&text), move |_, _| {
        let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
        async move {
            tell.add_permits(1);
            wait.acquire().await.unwrap().forget();
            Ok(Reply::json(Json::parse("{}").unwrap()))
        }
    });
    let text = manifest("t.write", "", "[memory]\ninvalidates = [\"repo:{repo}\"]");
    let (write, _) = function(&with_input(&text), |_, _| async {
        Ok(Reply::json(Json::parse("{}").unwrap()))
    });
    let engine = Arc::new(EngineFixture::open(vec![slow, write]).await);
    let running: Vec<_> = EVERYBODY
        .map(|(tenant, user)| {
            let engine = Arc::clone(&engine);
            tokio::spawn(
                async move { engine.call(by("t.slow", tenant, user, None)).await.unwrap() },
            )
        })
        .into();
    started.acquire_many(4).await.unwrap().forget();
    engine
        .call(by("t.write", "t", "alice", None))
        .await
        .unwrap();
    go.add_permits(5);
    for run in running {
        assert_eq!(status(&run.await.unwrap()), CacheStatus::Miss);
    }
    for (tenant, user) in EVERYBODY {
        let outdated = (tenant, user) == ("t", "alice");
        let wanted = if outdated {
            CacheStatus::Miss
        } else {
            CacheStatus::Hit
        };
        let again = engine.call(by("t.slow", tenant, user, None)).await.unwrap();
        assert_eq!(
            status(&again),
            wanted,
            "{tenant}/{user}: what began before a write of t/alice"
        );
    }
}
