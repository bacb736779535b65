//! Test fixture: engines with a pack that writes files.
//!
//! The files go to a local folder, or to a bucket of a real S3-compatible server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use helmdeck_core::context::ByteStream;
use helmdeck_core::waiting::Looks;
use helmdeck_core::{
    ArtifactRef, Builtin, Call, Code, Context, Error, Identity, Json, PackName, Reply, Result,
    Secret,
};
use helmdeck_engine::{Engine, S3Credentials, S3Location};
use helmdeck_memory::JanitorConfig;
use helmdeck_testkit::{ManualClock, S3, function, manifest, patient};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The prefix of our files in a bucket.
pub(crate) const PREFIX: &str = "team/a";
pub(crate) const DAY: u64 = 86_400;

enum Kind {
    Folder(TempDir),
    Bucket(Arc<S3>, String),
}

pub(crate) struct Fixture {
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<ManualClock>,
    kind: Kind,
}

impl Fixture {
    /// One over each kind of place.
    pub(crate) fn both() -> [Self; 2] {
        let s3 = S3::shared();
        let bucket = s3.bucket();
        [
            Self::over(Kind::Folder(tempfile::tempdir().unwrap())),
            Self::over(Kind::Bucket(s3, bucket)),
        ]
    }

    pub(crate) fn bucket() -> Self {
        let s3 = S3::shared();
        let bucket = s3.bucket();
        Self::over(Kind::Bucket(s3, bucket))
    }

    fn over(kind: Kind) -> Self {
        let clock = Arc::new(ManualClock::default());
        let mut config = patient();
        config.artifacts.max_bytes = 18 << 20;
        config.artifacts.sweep_interval = Duration::from_millis(5);
        let builder = Engine::builder(config)
            .builtins(packs())
            .clock(Arc::clone(&clock) as _);
        let builder = match &kind {
            // Not there yet: the first file makes it.
            Kind::Folder(folder) => builder.artifacts(folder.path().join("files")),
            Kind::Bucket(s3, bucket) => builder.artifacts_in(
                S3Location::parse(&s3.url(bucket, PREFIX)).unwrap(),
                credentials(s3),
            ),
        };
        let engine = builder.build();
        assert!(engine.refused().is_empty(), "{:?}", engine.refused());
        Self {
            engine,
            clock,
            kind,
        }
    }

    /// Which of the two.
    pub(crate) const fn name(&self) -> &'static str {
        match self.kind {
            Kind::Folder(_) => "folder",
            Kind::Bucket(..) => "bucket",
        }
    }

    pub(crate) const fn is_folder(&self) -> bool {
        matches!(self.kind, Kind::Folder(_))
    }

    pub(crate) fn folder(&self) -> std::path::PathBuf {
        match &self.kind {
            Kind::Folder(folder) => folder.path().join("files"),
            Kind::Bucket(..) => unreachable!("a bucket"),
        }
    }

    /// Runs the pack, and returns the artifact that it wrote.
    pub(crate) async fn write_as(
        &self,
        who: &Identity,
        pack: &str,
        input: Value,
    ) -> Result<ArtifactRef> {
        let call = Call::new(
            PackName::new(pack).unwrap(),
            input.to_string(),
            Arc::new(who.clone()),
        );
        let outcome = self.engine.call(call).await?;
        Ok(outcome.artifacts[0].clone())
    }

    pub(crate) async fn write(&self, input: Value) -> Result<ArtifactRef> {
        self.write_as(&Identity::local(), "t.write", input).await
    }

    /// Returns the names of all objects of ours, as the place itself lists them.
    pub(crate) fn objects(&self) -> Vec<String> {
        let mut names = match &self.kind {
            Kind::Folder(_) => files(&self.folder()),
            Kind::Bucket(s3, bucket) => {
                let all = s3.keys(bucket);
                all.iter()
                    .filter_map(|key| {
                        Some(key.strip_prefix(PREFIX)?.trim_start_matches('/').to_owned())
                    })
                    .collect()
            }
        };
        names.sort();
        names
    }

    /// Returns the name of the object with the bytes of a file.
    pub(crate) fn file(&self, key: &str) -> String {
        let (run, name) = key.rsplit_once('/').unwrap();
        let (folder, end) = (format!("files/{run}/"), format!("-{name}"));
        self.objects()
            .into_iter()
            .find(|object| object.starts_with(&folder) && object.ends_with(&end))
            .unwrap()
    }

    pub(crate) fn raw(&self, name: &str) -> Option<Vec<u8>> {
        match &self.kind {
            Kind::Folder(_) => std::fs::read(self.folder().join(name)).ok(),
            Kind::Bucket(s3, bucket) => s3.get(bucket, &format!("{PREFIX}/{name}")),
        }
    }

    pub(crate) fn put_raw(&self, name: &str, bytes: &[u8]) {
        match &self.kind {
            Kind::Folder(_) => {
                let path = self.folder().join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, bytes).unwrap();
            }
            Kind::Bucket(s3, bucket) => s3.put(bucket, &format!("{PREFIX}/{name}"), bytes),
        }
    }

    pub(crate) fn delete_raw(&self, name: &str) {
        match &self.kind {
            Kind::Folder(_) => std::fs::remove_file(self.folder().join(name)).unwrap(),
            Kind::Bucket(s3, bucket) => s3.delete(bucket, &format!("{PREFIX}/{name}")),
        }
    }

    /// Returns the bytes of a file, or the error that ended them.
    pub(crate) async fn read(&self, who: &Identity, key: &str) -> Result<Vec<u8>> {
        let (_, mut pieces) = self.engine.open_artifact(Some(who), key).await?;
        let mut whole = Vec::new();
        while let Some(piece) = pieces.next().await {
            whole.extend_from_slice(&piece?);
        }
        Ok(whole)
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub(crate) fn start_sweeping(&self) {
        self.engine.start_sweeping(JanitorConfig::default());
    }

    pub(crate) fn count(&self, metric: &str) -> u64 {
        let metrics = self.engine.metrics();
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
        line.map_or(0, |number| number.parse().unwrap())
    }

    /// Waits until a sweep that began after now has come to its end.
    pub(crate) async fn swept(&self) {
        let wanted = self.count("helmdeck_artifact_sweeps_total") + 2;
        until(
            || self.count("helmdeck_artifact_sweeps_total") >= wanted,
            "two sweeps",
        )
        .await;
    }
}

pub(crate) async fn until(done: impl Fn() -> bool, what: &str) {
    let mut looks = Looks::default();
    while !done() {
        assert!(!looks.are_over(), "waited in vain for {what}");
        tokio::time::sleep(looks.pause()).await;
    }
}

pub(crate) fn credentials(s3: &S3) -> S3Credentials {
    S3Credentials {
        key_id: s3.key_id().to_owned(),
        secret: Secret::new(s3.secret().to_owned()),
        token: None,
    }
}

fn files(folder: &Path) -> Vec<String> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                open.push(entry.path());
            } else {
                found.push(
                    entry
                        .path()
                        .strip_prefix(folder)
                        .unwrap()
                        .to_string_lossy()
                        .into_owned(),
                );
            }
        }
    }
    found
}

/// Bytes that are nowhere the same for long.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Packs `t.write` and `t.other`, which write files of noise: `{name, bytes}`.
///
/// `stream` = a piece at a time; `fails` = the source fails at the end; `hangs` = it never ends;
/// `waits` = it continues when a file of this name exists; `count` = number of files; `then` =
/// input of one more write after that, whose failure is not the call's. `t.other` keeps its files
/// for an hour.
fn packs() -> Vec<Builtin> {
    [
        ("t.write", ""),
        ("t.other", "[artifacts]\nretention = \"1h\""),
    ]
    .map(|(name, rest)| {
        function(&manifest(name, "", rest), |cx, input| async move {
            write(cx, input).await
        })
        .0
    })
    .into()
}

async fn write(cx: Context, input: Json) -> Result<Reply> {
    let input: Value = serde_json::from_str(input.as_str()).unwrap();
    write_one(&cx, &input).await?;
    if input["then"].is_object() {
        let _ = write_one(&cx, &input["then"]).await;
    }
    Ok(Reply::json(Json::parse("{}".to_owned()).unwrap()))
}

async fn write_one(cx: &Context, input: &Value) -> Result<()> {
    let bytes = noise(usize::try_from(input["bytes"].as_u64().unwrap_or(10)).unwrap());
    let name = input["name"].as_str().unwrap_or("a.bin");
    if let Some(count) = input["count"].as_u64() {
        let each = stream::iter(0..count).map(|n| {
            let bytes = Bytes::from(bytes.clone());
            async move {
                cx.put_artifact(&format!("{n}-{name}"), "text/plain", bytes)
                    .await
            }
        });
        let written: Vec<Result<ArtifactRef>> = each.buffer_unordered(16).collect().await;
        written.into_iter().collect::<Result<Vec<_>>>()?;
    } else if input["stream"] == true {
        cx.put_artifact_stream(name, "application/octet-stream", source(bytes, input))
            .await?;
    } else {
        cx.put_artifact(name, "text/plain", bytes).await?;
    }
    Ok(())
}

fn source(bytes: Vec<u8>, input: &Value) -> ByteStream {
    let mut pieces: Vec<Result<Bytes>> = bytes
        .chunks(100_000)
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    if input["fails"] == true {
        pieces.push(Err(Error::new(Code::HandlerFailed, "the source failed")));
    }
    let pieces = stream::iter(pieces);
    if let Some(path) = input["waits"].as_str().map(std::path::PathBuf::from) {
        let waiting = async move {
            until(|| path.exists(), "the word to go on").await;
            Ok(Bytes::from_static(b"the end"))
        };
        return Box::pin(pieces.chain(stream::once(waiting)));
    }
    if input["hangs"] == true {
        Box::pin(pieces.chain(stream::pending()))
    } else {
        Box::pin(pieces)
    }
}

/// Two tenants with two users each; names that run together where they are not kept apart.
pub(crate) fn people() -> [Identity; 4] {
    [("ab", "c"), ("ab", "d"), ("a", "bc"), ("a", "d")]
        .map(|(tenant, user)| Identity::new(tenant, user).unwrap())
}

pub(crate) fn large(stream: bool) -> Value {
    json!({"name": "large.bin", "bytes": 9 << 20, "stream": stream})
}
