//! Conformance suite of both artifact backends: write, read, list, delete, forget and sweep.

use std::time::Duration;

use helmdeck_core::{Code, Identity, PackName};
use serde_json::json;

use crate::files::{DAY, Fixture, PREFIX, large, noise, people, until};

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_of_any_size_round_trip() {
    const PART: usize = 8 << 20;
    for fixture in Fixture::both() {
        for stream in [false, true] {
            let sizes: &[usize] = if stream {
                &[0, 1, (1 << 20) + 1, PART, PART + 1]
            } else {
                &[0, 1 << 20, 2 * PART + 1]
            };
            for &bytes in sizes {
                let written = fixture
                    .write(json!({"bytes": bytes, "stream": stream}))
                    .await
                    .unwrap();
                let expected = noise(bytes);
                let read = fixture
                    .read(&Identity::local(), &written.key)
                    .await
                    .unwrap();
                assert!(read == expected, "{} {bytes} {stream}", fixture.name());
                assert_eq!(written.size, bytes as u64);
                assert!(
                    written.key.starts_with("t.write/") && written.key.ends_with("/a.bin"),
                    "{}",
                    written.key
                );
            }
        }
        assert_eq!(fixture.count("helmdeck_artifacts_stored_total"), 8);
        // SHA-256 of no bytes: a well-known value.
        let empty = fixture
            .write(json!({"bytes": 0, "stream": true}))
            .await
            .unwrap();
        assert_eq!(
            empty.sha256,
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert!(
            fixture
                .engine
                .ready()
                .await
                .iter()
                .all(|(_, state)| state.is_ok())
        );
        fixture.engine.probe_artifacts().await.unwrap();
        fixture.engine.reach_artifacts().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_owner_reads_lists_and_deletes() {
    for fixture in Fixture::both() {
        let mut keys = Vec::new();
        for who in people() {
            keys.push(
                fixture
                    .write_as(&who, "t.write", json!({}))
                    .await
                    .unwrap()
                    .key,
            );
        }
        for (who, own) in people().iter().zip(&keys) {
            let listed = fixture
                .engine
                .artifacts(Some(who), None, 10, None)
                .await
                .unwrap();
            let found: Vec<&str> = listed
                .artifacts
                .iter()
                .map(|listed| listed.artifact.key.as_str())
                .collect();
            assert_eq!(
                (found, listed.next),
                (vec![own.as_str()], None),
                "{} {who:?}",
                fixture.name()
            );
            assert_eq!(
                (&*listed.artifacts[0].tenant, &*listed.artifacts[0].user),
                (who.tenant(), who.user())
            );
            for key in keys.iter().filter(|key| *key != own) {
                assert_eq!(
                    fixture.read(who, key).await.unwrap_err().code(),
                    Code::NotFound
                );
                assert_eq!(
                    fixture
                        .engine
                        .delete_artifact(Some(who), key)
                        .await
                        .unwrap_err()
                        .code(),
                    Code::NotFound
                );
            }
        }
        assert_eq!(
            fixture
                .engine
                .artifacts(None, None, 10, None)
                .await
                .unwrap()
                .artifacts
                .len(),
            4,
            "an operator sees all"
        );

        fixture
            .engine
            .delete_artifact(Some(&people()[0]), &keys[0])
            .await
            .unwrap();
        assert_eq!(
            fixture
                .engine
                .delete_artifact(Some(&people()[0]), &keys[0])
                .await
                .unwrap_err()
                .code(),
            Code::NotFound
        );
        fixture
            .engine
            .delete_artifact(None, &keys[1])
            .await
            .unwrap();
        assert_eq!(fixture.engine.forget_artifacts("a", "bc").await.unwrap(), 1);
        let left = fixture
            .engine
            .artifacts(None, None, 10, None)
            .await
            .unwrap()
            .artifacts;
        assert_eq!(
            left.iter()
                .map(|left| &left.artifact.key)
                .collect::<Vec<_>>(),
            [&keys[3]]
        );
        let objects = fixture.objects();
        assert_eq!(
            objects.len(),
            3,
            "nothing is left of the others: {objects:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_is_newest_first_in_pages_by_pack() {
    let me = Identity::local();
    for fixture in Fixture::both() {
        let mut written = Vec::new();
        for n in 0..7 {
            let pack = if n % 2 == 0 { "t.write" } else { "t.other" };
            written.push(
                fixture
                    .write_as(&me, pack, json!({"name": format!("{n}-1-2.bin")}))
                    .await
                    .unwrap()
                    .key,
            );
            fixture.advance(1);
        }
        written.reverse();
        let (mut paged, mut after) = (Vec::new(), None);
        loop {
            let page = fixture
                .engine
                .artifacts(Some(&me), None, 3, after.as_deref())
                .await
                .unwrap();
            assert!(page.artifacts.len() <= 3);
            paged.extend(page.artifacts.into_iter().map(|listed| listed.artifact.key));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(paged, written, "{}", fixture.name());
        let pack = PackName::new("t.other").unwrap();
        let of_pack = fixture
            .engine
            .artifacts(Some(&me), Some(&pack), 10, None)
            .await
            .unwrap()
            .artifacts;
        assert_eq!(of_pack.len(), 3);
        assert!(
            of_pack
                .iter()
                .all(|listed| listed.artifact.key.starts_with("t.other/"))
        );
        // No page of another's, and no place outside.
        for after in ["x", "../../about", "a/b/c/d"] {
            let refused = fixture
                .engine
                .artifacts(Some(&me), None, 3, Some(after))
                .await
                .unwrap_err();
            assert_eq!(refused.code(), Code::InvalidInput, "{after}");
        }
        // The retention of its pack.
        fixture.advance(3600);
        assert_eq!(
            fixture
                .engine
                .artifacts(Some(&me), None, 10, None)
                .await
                .unwrap()
                .artifacts
                .len(),
            4
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_never_looks_whole() {
    let me = Identity::local();
    for fixture in Fixture::both() {
        for bytes in [1000_usize, 9 << 20] {
            let written = fixture.write(json!({"bytes": bytes})).await.unwrap();
            let place = fixture.file(&written.key);
            let good = fixture.raw(&place).unwrap();
            assert!(good == noise(bytes));

            let mut flipped = good.clone();
            flipped[bytes - 1] ^= 1;
            fixture.put_raw(&place, &flipped);
            let (_, mut pieces) = match fixture.engine.open_artifact(Some(&me), &written.key).await
            {
                Ok(opened) => opened,
                Err(error) => {
                    assert_eq!((error.code(), bytes), (Code::ArtifactFailed, 1000));
                    fixture.put_raw(&place, &good[..bytes - 1]);
                    let cut = fixture.read(&me, &written.key).await.unwrap_err();
                    assert_eq!(cut.code(), Code::ArtifactFailed);
                    continue;
                }
            };
            let mut seen = 0;
            let failure = loop {
                match futures_util::StreamExt::next(&mut pieces).await {
                    Some(Ok(piece)) => seen += piece.len(),
                    Some(Err(error)) => break error,
                    None => panic!("{}: a damaged file looked whole", fixture.name()),
                }
            };
            assert_eq!(failure.code(), Code::ArtifactFailed);
            assert!(seen < bytes, "the last piece is held back");
            fixture.put_raw(&place, &good[..bytes / 2]);
            assert_eq!(
                fixture.read(&me, &written.key).await.unwrap_err().code(),
                Code::ArtifactFailed
            );
            fixture.delete_raw(&place);
            assert_eq!(
                fixture.read(&me, &written.key).await.unwrap_err().code(),
                Code::NotFound
            );
        }
        let written = fixture.write(json!({})).await.unwrap();
        fixture.put_raw(&format!("about/{}", written.key), b"{");
        assert_eq!(
            fixture.read(&me, &written.key).await.unwrap_err().code(),
            Code::NotFound,
            "nobody knows whose it is"
        );
        assert_eq!(
            fixture
                .engine
                .open_artifact(None, &written.key)
                .await
                .err()
                .unwrap()
                .code(),
            Code::ArtifactFailed
        );
        let listed = fixture
            .engine
            .artifacts(Some(&me), None, 10, None)
            .await
            .unwrap();
        assert_eq!(listed.artifacts.len(), 2, "one bad object hides no other");
        assert!(
            fixture
                .engine
                .ready()
                .await
                .iter()
                .all(|(_, state)| state.is_ok()),
            "the place itself is well"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_upload_leaves_nothing() {
    for fixture in Fixture::both() {
        for (input, code) in [
            (json!({"bytes": 19 << 20}), Code::TooLarge),
            (json!({"bytes": 19 << 20, "stream": true}), Code::TooLarge),
            (
                json!({"bytes": 9 << 20, "stream": true, "fails": true}),
                Code::HandlerFailed,
            ),
            (
                json!({"bytes": 10, "stream": true, "fails": true}),
                Code::HandlerFailed,
            ),
        ] {
            assert_eq!(
                fixture.write(input.clone()).await.unwrap_err().code(),
                code,
                "{} {input}",
                fixture.name()
            );
        }
        until(|| fixture.objects().is_empty(), "the end of all parts").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_upload_is_invisible_and_swept_at_expiry() {
    for fixture in Fixture::both() {
        let hanging = fixture.write(json!({"bytes": 9 << 20, "stream": true, "hangs": true}));
        let begun = async {
            until(
                || {
                    fixture
                        .objects()
                        .iter()
                        .any(|name| name.starts_with("owners/"))
                },
                "its entry",
            )
            .await;
            // Most often some of the file is under way by then.
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        tokio::select! {
            ended = hanging => panic!("it hangs: {ended:?}"),
            () = begun => {}
        }
        let me = Identity::local();
        assert_eq!(
            fixture
                .engine
                .artifacts(Some(&me), None, 10, None)
                .await
                .unwrap()
                .artifacts,
            []
        );
        until(
            || {
                fixture
                    .objects()
                    .iter()
                    .all(|name| name.starts_with("owners/"))
            },
            "the end of all parts",
        )
        .await;
        fixture.start_sweeping();
        fixture.swept().await;
        assert_eq!(fixture.objects().len(), 1);
        fixture.advance(7 * DAY + 1);
        until(|| fixture.objects().is_empty(), "the end of the entry").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn crash_leftovers_are_invisible_and_swept() {
    let me = Identity::local();
    for fixture in Fixture::both() {
        // Of a file that is there, each state that a killed writer or deleter can have left.
        let mut keys = Vec::new();
        for name in ["entry-only", "no-about", "no-file", "entry-and-about"] {
            keys.push(
                fixture
                    .write_as(&me, "t.other", json!({"name": name}))
                    .await
                    .unwrap()
                    .key,
            );
        }
        fixture.delete_raw(&fixture.file(&keys[0]));
        fixture.delete_raw(&format!("about/{}", keys[0]));
        fixture.delete_raw(&format!("about/{}", keys[1]));
        fixture.delete_raw(&fixture.file(&keys[2]));
        fixture.delete_raw(&fixture.file(&keys[3]));
        for key in &keys {
            assert_eq!(
                fixture.read(&me, key).await.unwrap_err().code(),
                Code::NotFound,
                "{} {key}",
                fixture.name()
            );
        }
        let kept = fixture.write(json!({})).await.unwrap();
        fixture.start_sweeping();
        // Past its end, but it may still be written.
        fixture.advance(3601);
        fixture.swept().await;
        let left = fixture.objects();
        assert!(
            left.iter()
                .any(|name| name.starts_with("files/") && name.ends_with("-no-about"))
                && !left.contains(&format!("about/{}", keys[2])),
            "{left:?}"
        );
        fixture.advance(DAY);
        until(|| fixture.objects().len() == 3, "the end of what was left").await;
        assert_eq!(fixture.read(&me, &kept.key).await.unwrap(), noise(10));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partial_file_of_killed_writer_is_swept_after_a_day() {
    let [fixture, _] = Fixture::both();
    assert!(fixture.is_folder());
    let kept = fixture.write(json!({})).await.unwrap();
    let file = fixture.folder().join(fixture.file(&kept.key));
    let [half, young] =
        ["#3", "#4"].map(|end| std::path::PathBuf::from(format!("{}{end}", file.display())));
    for path in [&half, &young] {
        std::fs::write(path, "half").unwrap();
    }
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(2 * DAY);
    std::fs::File::options()
        .write(true)
        .open(&half)
        .unwrap()
        .set_modified(long_ago)
        .unwrap();
    fixture.start_sweeping();
    until(|| !half.exists(), "the end of the half").await;
    assert!(young.exists(), "it may still be written");
    assert_eq!(
        fixture.read(&Identity::local(), &kept.key).await.unwrap(),
        noise(10)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sweep_deletes_only_expired_artifacts() {
    let me = Identity::local();
    for fixture in Fixture::both() {
        let ended = fixture.write_as(&me, "t.other", json!({})).await.unwrap();
        let bad = fixture
            .write_as(&me, "t.other", json!({"name": "bad"}))
            .await
            .unwrap();
        fixture.put_raw(&format!("about/{}", bad.key), b"not JSON");
        let kept = fixture.write(json!({})).await.unwrap();
        for foreign in ["owners/readme.txt", "files/notes.txt", "other/x"] {
            fixture.put_raw(foreign, b"not ours");
        }
        fixture.start_sweeping();
        fixture.swept().await;
        assert_eq!(fixture.objects().len(), 12, "nothing has ended");
        fixture.advance(3600);
        until(|| fixture.count("helmdeck_swept_total") == 2, "two files").await;
        let objects = fixture.objects();
        assert_eq!(objects.len(), 6, "{} {objects:?}", fixture.name());
        assert!(
            objects.contains(&"owners/readme.txt".to_owned())
                && objects.contains(&"other/x".to_owned())
        );
        assert_eq!(
            fixture.read(&me, &ended.key).await.unwrap_err().code(),
            Code::NotFound
        );
        assert_eq!(fixture.read(&me, &kept.key).await.unwrap(), noise(10));
        fixture.swept().await;
        assert_eq!(fixture.count("helmdeck_artifacts_kept"), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_artifact_lives_as_long_as_its_replacement() {
    let me = Identity::local();
    for fixture in Fixture::both() {
        let written = fixture.write_as(&me, "t.other", json!({})).await.unwrap();
        // The entry of an earlier write that a crash kept from going.
        let entry = fixture
            .objects()
            .into_iter()
            .find(|name| name.starts_with("owners/"))
            .unwrap();
        let (folder, name) = entry.rsplit_once('/').unwrap();
        fixture.put_raw(
            &format!(
                "{folder}/00000000000000000001-00000000000000000001-{}",
                name.rsplit('-').next().unwrap()
            ),
            b"",
        );
        assert_eq!(
            fixture
                .engine
                .artifacts(Some(&me), None, 10, None)
                .await
                .unwrap()
                .artifacts
                .len(),
            1
        );
        fixture.start_sweeping();
        until(
            || fixture.objects().len() == 3,
            "the end of the earlier entry",
        )
        .await;
        assert_eq!(
            fixture.read(&me, &written.key).await.unwrap(),
            noise(10),
            "{}",
            fixture.name()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn artifact_replacement_is_atomic() {
    let me = Identity::local();
    for fixture in Fixture::both() {
        let replaced = fixture
            .write(json!({"bytes": 10, "then": {"bytes": 20, "stream": true}}))
            .await
            .unwrap();
        assert_eq!(
            (
                replaced.size,
                fixture.read(&me, &replaced.key).await.unwrap()
            ),
            (20, noise(20)),
            "{}",
            fixture.name()
        );
        assert_eq!(
            fixture.objects().len(),
            3,
            "nothing is left of the earlier one"
        );

        let fails = json!({"bytes": 10, "then": {"bytes": 20, "stream": true, "fails": true}});
        let kept = fixture.write(fails).await.unwrap();
        assert_eq!(
            (kept.size, fixture.read(&me, &kept.key).await.unwrap()),
            (10, noise(10)),
            "{}",
            fixture.name()
        );
        assert_eq!(
            fixture.objects().len(),
            6,
            "nothing is left of the later one"
        );

        // While the later one is written, the earlier is read.
        let folder = tempfile::tempdir().unwrap();
        let go = folder.path().join("go");
        let waits = json!({"name": "b.bin", "stream": true, "bytes": 20, "waits": go});
        let writing = fixture.write(json!({"name": "b.bin", "bytes": 10, "then": waits}));
        let reading = async {
            let entries = || {
                fixture
                    .objects()
                    .iter()
                    .filter(|name| name.ends_with("-b.bin"))
                    .count()
            };
            until(|| entries() >= 3, "the file").await;
            let listed = fixture
                .engine
                .artifacts(Some(&me), None, 10, None)
                .await
                .unwrap()
                .artifacts;
            let earlier = listed
                .iter()
                .find(|listed| listed.artifact.name == "b.bin")
                .unwrap();
            assert_eq!(
                fixture.read(&me, &earlier.artifact.key).await.unwrap(),
                noise(10),
                "{}",
                fixture.name()
            );
            std::fs::write(&go, "").unwrap();
        };
        let (written, ()) = tokio::join!(writing, reading);
        assert_eq!(written.unwrap().name, "b.bin");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sweep_removes_replaced_bytes_and_counts_once() {
    let me = Identity::local();
    for fixture in Fixture::both() {
        let kept = fixture.write(json!({})).await.unwrap();
        let file = fixture.file(&kept.key);
        // Bytes and entry of an earlier write of the same name, as a crash leaves them.
        let start = file
            .rsplit('/')
            .next()
            .unwrap()
            .split('-')
            .next()
            .unwrap()
            .to_owned();
        let entry = fixture
            .objects()
            .into_iter()
            .find(|name| name.starts_with("owners/"))
            .unwrap();
        let (folder, name) = entry.rsplit_once('/').unwrap();
        let (old, one) = ("00000000000000000001", "00000000000000000001");
        fixture.put_raw(&file.replace(&start, old), b"earlier");
        fixture.put_raw(
            &format!("{folder}/{one}-{old}-{}", name.rsplit('-').next().unwrap()),
            b"",
        );
        fixture.start_sweeping();
        until(
            || fixture.objects().len() == 3,
            "the end of the earlier one",
        )
        .await;
        assert_eq!(
            fixture.read(&me, &kept.key).await.unwrap(),
            noise(10),
            "{}",
            fixture.name()
        );
        fixture.swept().await;
        assert_eq!(fixture.count("helmdeck_artifacts_kept"), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_sweeps_span_server_pages() {
    let fixture = Fixture::bucket();
    let me = Identity::local();
    fixture
        .write_as(&me, "t.other", json!({"count": 1100}))
        .await
        .unwrap();
    fixture.write(json!({})).await.unwrap();
    let page = fixture
        .engine
        .artifacts(Some(&me), None, 1050, None)
        .await
        .unwrap();
    assert_eq!(page.artifacts.len(), 1050);
    let rest = fixture
        .engine
        .artifacts(Some(&me), None, 1050, page.next.as_deref())
        .await
        .unwrap();
    assert_eq!((rest.artifacts.len(), rest.next), (51, None));
    fixture
        .write_as(&me, "t.write", json!({"count": 120, "name": "long"}))
        .await
        .unwrap();
    fixture.start_sweeping();
    fixture.swept().await;
    assert_eq!(fixture.count("helmdeck_artifacts_kept"), 1221);
    fixture.advance(3601);
    until(
        || fixture.count("helmdeck_swept_total") == 1100,
        "1100 files",
    )
    .await;
    fixture.swept().await;
    assert_eq!(fixture.count("helmdeck_artifacts_kept"), 121);
    fixture
        .engine
        .forget_artifacts(me.tenant(), me.user())
        .await
        .unwrap();
    fixture.write(json!({})).await.unwrap();
    assert_eq!(fixture.objects().len(), 3);
    assert!(
        fixture
            .objects()
            .iter()
            .all(|name| !name.starts_with(PREFIX))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn forgetting_stops_an_upload_in_progress() {
    for fixture in Fixture::both() {
        let me = Identity::local();
        fixture.write(large(true)).await.unwrap();
        let hanging = fixture.write(json!({"bytes": 10, "stream": true, "hangs": true}));
        let forgetting = async {
            until(
                || {
                    fixture
                        .objects()
                        .iter()
                        .filter(|name| name.starts_with("owners/"))
                        .count()
                        == 2
                },
                "the entry",
            )
            .await;
            fixture
                .engine
                .forget_artifacts(me.tenant(), me.user())
                .await
        };
        tokio::select! {
            _ = hanging => panic!("it hangs"),
            forgotten = forgetting => assert_eq!(forgotten.unwrap(), 2, "{}", fixture.name()),
        }
        assert_eq!(fixture.objects(), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn artifact_of_forgotten_owner_never_becomes_visible() {
    for fixture in Fixture::both() {
        let me = Identity::local();
        let folder = tempfile::tempdir().unwrap();
        let go = folder.path().join("go");
        let writing = fixture.write(json!({"bytes": 10, "stream": true, "waits": go}));
        let forgetting = async {
            until(|| !fixture.objects().is_empty(), "the entry").await;
            // A part of it may be seen before all of it is.
            let forgets = async || {
                fixture
                    .engine
                    .forget_artifacts(me.tenant(), me.user())
                    .await
                    .unwrap()
                    > 0
            };
            helmdeck_testkit::until("something to forget", forgets).await;
            std::fs::write(&go, "").unwrap();
        };
        let (written, ()) = tokio::join!(writing, forgetting);
        assert_eq!(
            written.unwrap_err().code(),
            Code::ArtifactFailed,
            "{}",
            fixture.name()
        );
        assert_eq!(
            fixture.objects(),
            Vec::<String>::new(),
            "{}",
            fixture.name()
        );
        assert_eq!(
            fixture
                .engine
                .artifacts(None, None, 10, None)
                .await
                .unwrap()
                .artifacts,
            []
        );
        fixture.write(json!({})).await.unwrap();
    }
}
