//! Files that packs wrote, from outside: the commands and the routes of the real program, over a
//! local folder and over a bucket of a real S3-compatible server.

use std::process::Command;
use std::sync::Arc;

use helmdeck_core::{Call, Identity, Json, PackName, Reply, Secret};
use helmdeck_engine::{Config, Engine, S3Credentials, S3Location};
use helmdeck_testkit::{S3, function, manifest};
use serde_json::{Value, json};

use crate::support::program::{Home, Run, SERVE, Server};
use crate::support::{KEY, wait_for};

/// A home whose files are in its folder or in a bucket.
struct Fixture {
    home: Home,
    bucket: Option<(Arc<S3>, String)>,
}

impl Fixture {
    fn both() -> [Self; 2] {
        let s3 = S3::shared();
        let bucket = s3.bucket();
        [
            Self {
                home: Home::new(),
                bucket: None,
            },
            Self {
                home: Home::new(),
                bucket: Some((s3, bucket)),
            },
        ]
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let Some((s3, bucket)) = &self.bucket else {
            return Vec::new();
        };
        vec![
            ("HELMDECK_ARTIFACTS__URL", s3.url(bucket, "deck")),
            ("HELMDECK_S3_ACCESS_KEY_ID", s3.key_id().to_owned()),
            ("HELMDECK_S3_SECRET_ACCESS_KEY", s3.secret().to_owned()),
        ]
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.command(KEY, arguments);
        command.envs(self.environment());
        command
    }

    fn run(&self, arguments: &[&str]) -> Run {
        Run::of(self.command(arguments).output().unwrap())
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let run = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(run.code, 0, "{arguments:?}: {}", run.stderr);
        serde_json::from_str(&run.stdout).unwrap()
    }

    fn serve(&self) -> Server {
        Server::launch(self.command(SERVE))
    }

    /// Writes files as a pack of an engine beside the program, and returns their keys.
    async fn write(&self, user: &str, texts: &[String]) -> Vec<String> {
        let texts = texts.to_vec();
        let (pack, _) = function(&manifest("t.files", "", ""), move |cx, _| {
            let texts = texts.clone();
            async move {
                for (n, text) in texts.iter().enumerate() {
                    cx.put_artifact(
                        &format!("{n}.txt"),
                        "text/plain; charset=utf-8",
                        text.clone(),
                    )
                    .await?;
                }
                Ok(Reply::json(Json::parse("{}".to_owned()).unwrap()))
            }
        });
        let builder = Engine::builder(Config::default()).builtins(vec![pack]);
        let builder = match &self.bucket {
            None => builder.artifacts(self.home.data().join("artifacts")),
            Some((s3, bucket)) => {
                let secret = Secret::new(s3.secret().to_owned());
                let credentials = S3Credentials {
                    key_id: s3.key_id().to_owned(),
                    secret,
                    token: None,
                };
                builder.artifacts_in(
                    S3Location::parse(&s3.url(bucket, "deck")).unwrap(),
                    credentials,
                )
            }
        };
        let identity = Arc::new(Identity::new("local", user).unwrap());
        let outcome = builder
            .build()
            .call(Call::new(PackName::new("t.files").unwrap(), "{}", identity))
            .await
            .unwrap();
        outcome
            .artifacts
            .iter()
            .map(|artifact| artifact.key.clone())
            .collect()
    }

    /// Writes over the bytes of a file.
    fn put_raw(&self, key: &str, bytes: &[u8]) {
        let (run, name) = key.rsplit_once('/').unwrap();
        let is_it = |path: &str| path.ends_with(&format!("-{name}"));
        match &self.bucket {
            None => {
                let folder = self.home.data().join("artifacts/files").join(run);
                let mut files = std::fs::read_dir(&folder)
                    .unwrap()
                    .map(|entry| entry.unwrap().path());
                std::fs::write(
                    files.find(|path| is_it(path.to_str().unwrap())).unwrap(),
                    bytes,
                )
                .unwrap();
            }
            Some((s3, bucket)) => {
                let folder = format!("deck/files/{run}/");
                let keys = s3.keys(bucket);
                s3.put(
                    bucket,
                    keys.iter()
                        .find(|key| key.starts_with(&folder) && is_it(key))
                        .unwrap(),
                    bytes,
                );
            }
        }
    }

    fn objects(&self) -> usize {
        match &self.bucket {
            None => count(&self.home.data().join("artifacts")),
            Some((s3, bucket)) => s3.keys(bucket).len(),
        }
    }
}

fn count(folder: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    entries
        .map(|path| if path.is_dir() { count(&path) } else { 1 })
        .sum()
}

/// Three MiB that differ everywhere.
fn long() -> String {
    (0..300_000).map(|n| format!("{n:010}")).collect()
}

#[tokio::test]
async fn the_command_lists_fetches_checks_and_deletes_files() {
    for place in Fixture::both() {
        assert_eq!(place.json(&["artifact", "list"])["artifacts"], json!([]));
        let keys = place.write("local", &["first".to_owned(), long()]).await;
        let others = place.write("eve", &["hers".to_owned()]).await;

        let listed = place.json(&["artifact", "list"]);
        let mut found: Vec<&str> = listed["artifacts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|listed| listed["key"].as_str().unwrap())
            .collect();
        found.sort_unstable();
        assert_eq!(found, keys);
        assert_eq!(
            place.json(&["artifact", "list", "--all"])["artifacts"]
                .as_array()
                .unwrap()
                .len(),
            3
        );
        assert_eq!(
            place.json(&["artifact", "list", "--user", "eve"])["artifacts"][0]["key"],
            others[0].as_str()
        );
        let page = place.json(&["artifact", "list", "--limit", "1"]);
        let rest = place.json(&[
            "artifact",
            "list",
            "--after",
            page["next"].as_str().unwrap(),
        ]);
        assert_eq!(
            (rest["artifacts"].as_array().unwrap().len(), &rest["next"]),
            (1, &Value::Null)
        );
        let text = place.run(&["artifact", "list", "--pack", "t.files"]).stdout;
        assert!(
            text.starts_with("CREATED") && text.contains(&keys[0]) && text.contains("5 B"),
            "{text}"
        );

        assert_eq!(place.run(&["artifact", "get", &keys[0]]).stdout, "first");
        assert!(place.run(&["artifact", "get", &keys[1]]).stdout == long());
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out.txt");
        let to_file = ["artifact", "get", &keys[1], "-o", target.to_str().unwrap()];
        assert_eq!(place.run(&to_file).code, 0);
        assert!(std::fs::read_to_string(&target).unwrap() == long());
        assert_eq!(place.run(&to_file).code, 2, "it is there");

        let mut damaged = long();
        damaged.replace_range(2_999_999.., "x");
        place.put_raw(&keys[1], damaged.as_bytes());
        let broken = place.run(&[&to_file[..], &["--force"]].concat());
        assert_eq!(broken.code, 8, "{}", broken.stderr);
        assert!(
            std::fs::read_to_string(&target).unwrap() == long(),
            "what was there stays"
        );
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "and nothing beside it"
        );
        let broken = place.run(&["artifact", "get", &keys[1]]);
        assert_eq!(broken.code, 8);
        place.put_raw(&keys[0], b"fIrst");
        let broken = place.run(&["artifact", "get", &keys[0]]);
        assert_eq!(
            (broken.code, broken.stdout.as_str()),
            (8, ""),
            "{}",
            broken.stderr
        );
        assert!(
            broken.stderr.contains("damaged") && !broken.stderr.contains("artifact check"),
            "{}",
            broken.stderr
        );

        assert_eq!(place.json(&["artifact", "check"])["ok"], true);
        assert_eq!(place.json(&["check"])["ok"], true);
        assert_eq!(
            place.json(&["artifact", "rm", &keys[0], &others[0]])["deleted"],
            json!([keys[0], others[0]])
        );
        assert_eq!(place.run(&["artifact", "rm", &keys[0]]).code, 3);
        assert_eq!(place.run(&["artifact", "get", &keys[0]]).code, 3);
        assert_eq!(
            place.objects(),
            3,
            "the damaged one, and nothing of the others"
        );
    }
}

/// A machine whose clock is wrong by an hour: a bucket refuses signatures of 15 minutes ago.
#[tokio::test]
async fn a_bucket_is_used_by_a_machine_whose_clock_is_wrong() {
    let [_, place] = Fixture::both();
    let keys = place.write("local", &["first".to_owned(), long()]).await;
    let libraries = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let mut libraries = libraries.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    let library = libraries
        .find(|library| library.exists())
        .expect("libfaketime is missing (Debian: faketime)");
    for wrong in ["+1h", "-1h"] {
        let run = |arguments: &[&str]| {
            let mut command = place.command(arguments);
            command
                .env("LD_PRELOAD", &library)
                .env("FAKETIME", wrong)
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            Run::of(command.output().unwrap())
        };
        let listed = run(&["artifact", "list", "--json"]);
        assert_eq!(listed.code, 0, "{wrong}: {}", listed.stderr);
        let found: Value = serde_json::from_str(&listed.stdout).unwrap();
        assert_eq!(found["artifacts"].as_array().unwrap().len(), 2, "{wrong}");
        let read = run(&["artifact", "get", &keys[1]]);
        assert!(read.stdout == long(), "{wrong}: {}", read.stderr);
        assert!(
            read.stderr.contains("the clock of this machine differs"),
            "{wrong}: {}",
            read.stderr
        );
    }
}

#[tokio::test]
async fn the_routes_list_stream_and_delete_files() {
    for place in Fixture::both() {
        let server = place.serve();
        let keys = place.write("local", &["first".to_owned(), long()]).await;
        let others = place.write("eve", &["hers".to_owned()]).await;
        let listed = server
            .ask("GET /api/v1/artifacts?pack=t.files&limit=10", "")
            .json();
        assert_eq!(
            (
                listed["artifacts"].as_array().unwrap().len(),
                &listed["next"]
            ),
            (2, &Value::Null)
        );
        assert_eq!(
            server.ask("GET /api/v1/artifacts?all=true", "").json()["artifacts"]
                .as_array()
                .unwrap()
                .len(),
            3
        );
        for bad in ["limit=0", "limit=1001", "after=x", "pack=*", "prefix=a"] {
            assert_eq!(
                server.ask(&format!("GET /api/v1/artifacts?{bad}"), "").code,
                400,
                "{bad}"
            );
        }

        let path = format!("/api/v1/artifacts/{}", keys[1]);
        let whole = server.ask(&format!("GET {path}\nRange: bytes=0-9"), "");
        assert!(whole.code == 200 && whole.body == long());
        for (header, value) in [
            ("content-length", "3000000"),
            ("content-type", "text/plain; charset=utf-8"),
            ("x-content-type-options", "nosniff"),
            ("content-disposition", "attachment; filename=\"1.txt\""),
            ("accept-ranges", "none"),
        ] {
            assert_eq!(whole.header(header), Some(value), "{header}");
        }
        let etag = whole.header("etag").unwrap();
        let head = server.exchange(&format!("HEAD {path}"), "").unwrap();
        assert_eq!(
            (head.code, head.header("content-length"), head.body.as_str()),
            (200, Some("3000000"), "")
        );
        assert_eq!(head.header("repr-digest"), whole.header("repr-digest"));
        let same = server
            .exchange(&format!("GET {path}\nIf-None-Match: {etag}"), "")
            .unwrap();
        assert_eq!((same.code, same.body.as_str()), (304, ""));

        // The last byte is wrong: a client that counts the announced bytes sees that the file is
        // not whole.
        let mut damaged = long();
        damaged.replace_range(2_999_999.., "x");
        place.put_raw(&keys[1], damaged.as_bytes());
        assert!(server.try_ask(&format!("GET {path}"), "").is_none());
        place.put_raw(&keys[0], b"FIRST");
        let refused = server.ask(&format!("GET /api/v1/artifacts/{}", keys[0]), "");
        assert_eq!(
            (refused.code, refused.status().as_str()),
            (502, "artifact_failed")
        );

        for key in [&keys[0], &keys[1], &others[0]] {
            let path = format!("/api/v1/artifacts/{key}");
            assert_eq!(
                server.exchange(&format!("DELETE {path}"), "").unwrap().code,
                204
            );
            assert_eq!(server.ask(&format!("DELETE {path}"), "").code, 404);
        }
        assert_eq!(place.objects(), 0);
        assert_eq!(
            server.ask("GET /readyz", "").json()["checks"]["artifacts"],
            "ok"
        );
    }
}

#[tokio::test]
async fn who_is_forgotten_leaves_no_file() {
    for place in Fixture::both() {
        place
            .write("alice", &["a".to_owned(), "b".to_owned()])
            .await;
        let kept = place.write("bob", &["c".to_owned()]).await;
        let receipt = place.json(&["memory", "forget", "--subject", "alice", "--yes"]);
        assert_eq!(
            (&receipt["artifacts"], &receipt["verified"]),
            (&json!(2), &json!(true))
        );
        assert!(
            !receipt["not_covered"].to_string().contains("artifacts"),
            "{receipt}"
        );
        assert_eq!(place.objects(), 3);

        // The caller's own, as a pack of the memory family does it.
        place.write("local", &["d".to_owned()]).await;
        let forgotten = place.json(&[
            "run",
            "memory.forget",
            "--input",
            r#"{"all": true, "what": ["artifacts"]}"#,
        ]);
        assert_eq!(forgotten["output"]["removed"], json!({"artifacts": 1}));
        assert_eq!(
            place.json(&["artifact", "list", "--all"])["artifacts"][0]["key"],
            kept[0].as_str()
        );
        assert_eq!(place.objects(), 3);
    }
}

#[test]
fn unreachable_bucket_stops_no_server_and_leaks_nothing() {
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let home = Home::new();
    let file = home.packs().join("../s3-secret");
    std::fs::write(&file, "canary-secret-quokka\n").unwrap();
    let environment = [
        (
            "HELMDECK_ARTIFACTS__URL",
            format!("s3://bucket/p?endpoint=http://{nowhere}"),
        ),
        ("HELMDECK_S3_ACCESS_KEY_ID", "canary-id-quokka".to_owned()),
        (
            "HELMDECK_S3_SECRET_ACCESS_KEY_FILE",
            file.to_str().unwrap().to_owned(),
        ),
        ("HELMDECK_LOG", "trace".to_owned()),
    ];
    let run = |arguments: &[&str]| {
        let mut command = home.command(KEY, arguments);
        Run::of(command.envs(environment.clone()).output().unwrap())
    };
    let mut seen = String::new();
    for (arguments, code) in [
        (&["artifact", "check", "-vv"][..], 1),
        (&["artifact", "list", "-vv"], 1),
        (&["check", "-vv"], 78),
        (&["config", "show", "--origin"], 0),
        (
            &["memory", "forget", "--subject", "alice", "--yes", "-vv"],
            1,
        ),
        (&["run", "test.echo", "repo=a", "-vv"], 0),
    ] {
        let run = run(arguments);
        assert_eq!(run.code, code, "{arguments:?}: {}", run.stderr);
        seen.push_str(&run.stdout);
        seen.push_str(&run.stderr);
    }
    assert!(
        seen.contains(&format!("s3://bucket/p at http://{nowhere}")),
        "the place is named: {seen}"
    );

    let mut command = home.command(KEY, SERVE);
    command.envs(environment.clone());
    let server = Server::launch(command);
    wait_for("the first sweep to fail", || {
        server.ask("GET /readyz", "").json()["status"] == "degraded"
    });
    assert_eq!(server.call("test.echo", &json!({"repo": "b"})).1["runs"], 2);
    let refused = server.ask("GET /api/v1/artifacts", "");
    assert_eq!(
        (refused.code, refused.status().as_str()),
        (502, "artifact_failed")
    );
    seen.push_str(&refused.body);
    seen.push_str(&server.log());
    assert!(!seen.contains("quokka"), "a credential is shown");

    // Without anybody to ask, nothing starts.
    let mut command = home.command(KEY, &["pack", "list"]);
    let run = Run::of(
        command
            .env(environment[0].0, &environment[0].1)
            .output()
            .unwrap(),
    );
    assert_eq!(run.code, 78, "{}", run.stderr);
    assert!(
        run.stderr.contains("HELMDECK_S3_ACCESS_KEY_ID"),
        "{}",
        run.stderr
    );
    // Nor with an invalid address; the message does not repeat it.
    for command in [&["check"][..], &["config", "show"]] {
        let mut command = home.command(KEY, command);
        let run = Run::of(
            command
                .env(environment[0].0, "s3://canary-quokka:x@bucket")
                .output()
                .unwrap(),
        );
        assert_eq!(run.code, 78, "{}", run.stderr);
        assert!(
            run.stderr.contains("artifacts.url") || run.stdout.contains("artifacts.url"),
            "{}",
            run.stderr
        );
        assert!(!format!("{}{}", run.stdout, run.stderr).contains("quokka"));
    }
}
