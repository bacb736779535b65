//! A repository, a session, a model, and everything else that a run meets.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use helmdeck_core::clock::SystemClock;
use helmdeck_core::context::{
    ArtifactRef, Artifacts, ByteStream, CallSecrets, Packs, ProgressSink,
};
use helmdeck_core::memory::{
    About, FactList, Forget, Forgotten, ListFacts, Memory, NewFact, NewNote, NoMemory, Note,
    NoteContext, NoteList, Owner, RecallFacts, Recalled, Views,
};
use helmdeck_core::outcome::Remark;
use helmdeck_core::secrets::Grant;
use helmdeck_core::session::Exec;
use helmdeck_core::{
    Clock, Code, Context, Error, Handler, Identity, Json, Manifest, Outcome, PackName, Result,
    RunId, Secret, Timestamp, Version,
};
use helmdeck_egress::Egress;
use helmdeck_llm::Client;
use helmdeck_testkit::{ChatReply, ChatServer, FolderSession};
use serde_json::{Value, json};

use crate::repo::{self, Git};
use crate::swe::Config;
use crate::swe::repository::{
    Address, Checkout, Difference, GitRepository, Repository, RepositoryRef,
};
use crate::swe::solve::Solve;

pub(super) const KEY: &str = "sk-canary-0123456789";

/// A repository with a bug, and all around it.
pub(super) struct Fixture {
    pub(super) server: ChatServer,
    pub(super) upstream: tempfile::TempDir,
    pub(super) artifacts: Arc<Shelf>,
    pub(super) lines: Arc<Lines>,
    pub(super) repository: Arc<LocalGit>,
    pub(super) packs: Arc<OtherPacks>,
    pub(super) key: Option<Secret>,
    pub(super) memory: Option<(Arc<Notebook>, Identity)>,
    pub(super) config: Config,
    pub(super) llm: helmdeck_llm::Config,
    pub(super) allow: Vec<helmdeck_egress::Allowed>,
    pub(super) deadline: Option<Duration>,
    /// Whether repositories are fetched and pushed as in a real run.
    pub(super) real_git: bool,
}

pub(super) fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@t",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Fixture {
    /// Makes a fixture whose model answers these in turn.
    pub(super) async fn new(replies: Vec<ChatReply>) -> Self {
        Self::around(ChatServer::playing(replies).await)
    }

    pub(super) fn around(server: ChatServer) -> Self {
        let upstream = tempfile::tempdir().unwrap();
        std::fs::write(upstream.path().join("greet.sh"), "echo helo\n").unwrap();
        let test = "test \"$(sh greet.sh)\" = hello || { echo failed; exit 1; }\necho passed\n";
        std::fs::write(upstream.path().join("test.sh"), test).unwrap();
        git(upstream.path(), &["init", "-q"]);
        git(upstream.path(), &["add", "-A"]);
        git(upstream.path(), &["commit", "-qm", "first"]);
        let llm = helmdeck_llm::Config {
            endpoint: server.url(),
            model: "small".into(),
            retry_wait: Duration::from_millis(1),
            max_repeats: 1,
            ..helmdeck_llm::Config::default()
        };
        Self {
            server,
            upstream,
            artifacts: Arc::default(),
            lines: Arc::default(),
            repository: Arc::default(),
            packs: Arc::default(),
            key: Some(Secret::new(KEY.to_owned())),
            memory: None,
            config: Config::default(),
            llm,
            allow: Vec::new(),
            deadline: None,
            real_git: false,
        }
    }

    pub(super) fn task(&self) -> &'static str {
        " The greeting is \"helo\".\r\nMake it right. ö"
    }

    pub(super) fn upstream_commit(&self) -> String {
        git(self.upstream.path(), &["rev-parse", "HEAD"])
    }

    /// Applies a patch to a fresh clone, and runs its tests.
    pub(super) fn apply(&self, patch: &str) {
        let folder = tempfile::tempdir().unwrap();
        git(
            folder.path(),
            &[
                "clone",
                "-q",
                self.upstream.path().to_str().unwrap(),
                "clone",
            ],
        );
        let clone = folder.path().join("clone");
        std::fs::write(folder.path().join("patch"), patch).unwrap();
        git(&clone, &["apply", "../patch"]);
        assert!(
            Command::new("sh")
                .arg("test.sh")
                .current_dir(&clone)
                .status()
                .unwrap()
                .success()
        );
    }

    pub(super) fn context(&self) -> Context {
        let run = RunId::next(SystemClock::default().now());
        let identity = self
            .memory
            .as_ref()
            .map_or_else(Identity::local, |(_, identity)| identity.clone());
        let name = PackName::new("swe.solve").unwrap();
        let mut context = Context::new(
            name,
            Version::new(1).unwrap(),
            Arc::new(identity.clone()),
            run,
        );
        context.deadline = self.deadline.map(|left| std::time::Instant::now() + left);
        context.session = Some(Arc::new(FolderSession::new()));
        context.artifacts = Some(Arc::clone(&self.artifacts) as Arc<dyn Artifacts>);
        context.progress = Some(Arc::clone(&self.lines) as Arc<dyn ProgressSink>);
        context.packs = Some(Arc::clone(&self.packs) as Arc<dyn Packs>);
        context.secrets = Some(Arc::new(Keys(
            self.key
                .iter()
                .map(|_| Grant {
                    name: "llm".into(),
                    version: 1,
                })
                .collect(),
            self.key.clone(),
        )));
        context.memory = match &self.memory {
            Some((notes, _)) => Memory::bind(
                Arc::clone(notes) as Arc<dyn Views>,
                Owner::at_a_door(Arc::new(identity)),
            ),
            None => Err(NoMemory::Off),
        };
        context
    }

    /// Runs the pack on the repository, as its schemas have it.
    pub(super) async fn solve(&self, more: Value) -> Result<Value> {
        self.solve_in(self.context(), more).await
    }

    pub(super) async fn solve_in(&self, context: Context, more: Value) -> Result<Value> {
        let manifest = Manifest::parse("solve.toml", include_str!("../solve.toml"), &|_| {
            Err("none".into())
        })
        .unwrap();
        let mut input =
            json!({"repo_url": self.upstream.path().to_str().unwrap(), "task": self.task()});
        for (name, value) in more.as_object().unwrap() {
            input[name] = value.clone();
        }
        let text = manifest
            .input
            .fill(&input.to_string())
            .unwrap()
            .into_owned();
        manifest
            .input
            .validate(&serde_json::from_str(&text).unwrap())
            .unwrap();
        let egress = Egress::new(helmdeck_egress::Config {
            allow: self.allow.clone(),
            ..Default::default()
        });
        let solve = Solve {
            config: self.config.clone(),
            client: Client::new(&egress, self.llm.clone()).unwrap(),
            repository: if self.real_git {
                let config = repo::Config {
                    paths: repo::Paths::All,
                    ..repo::Config::default()
                };
                Arc::new(GitRepository(Git::new(config, egress.clone())))
            } else {
                Arc::clone(&self.repository) as Arc<dyn Repository>
            },
            github_host: Some("github.com".into()),
            clock: Arc::new(SystemClock::default()),
        };
        let reply = solve.run(context, Json::parse(text).unwrap()).await?;
        let output = reply.output.unwrap().to_value();
        manifest.output.validate(&output).unwrap();
        Ok(output)
    }
}

/// git, in folders of this machine. What is pushed is written down.
#[derive(Default)]
pub(super) struct LocalGit {
    pub(super) pushed: Mutex<Vec<(String, String, String)>>,
    pub(super) refuses: Mutex<Option<Error>>,
    pub(super) address: Mutex<Option<Address>>,
    pub(super) hides_patch: Mutex<Option<Error>>,
}

#[async_trait]
impl Repository for LocalGit {
    fn address(&self, url: &str) -> Result<Address> {
        let folder = Address {
            key: url.to_owned(),
            host: None,
        };
        Ok(self.address.lock().unwrap().clone().unwrap_or(folder))
    }

    async fn checkout(&self, context: &Context, wanted: RepositoryRef<'_>) -> Result<Checkout> {
        let folder = context.session()?.folder().to_owned();
        git(&folder, &["clone", "-q", wanted.url, "repo"]);
        let commit = git(&folder.join("repo"), &["rev-parse", "HEAD"]);
        Ok(Checkout {
            folder: "repo".into(),
            commit,
            branch: None,
            default_branch: Some("main".into()),
        })
    }

    async fn patch(&self, context: &Context, checkout: &Checkout) -> Result<Difference> {
        if let Some(error) = self.hides_patch.lock().unwrap().clone() {
            return Err(error);
        }
        let script = format!(
            "git add -A && git diff --cached --binary --full-index {}",
            checkout.commit
        );
        let mut exec = Exec::new(["sh", "-c", &script]);
        exec.cwd.clone_from(&checkout.folder);
        let executed = context.session()?.exec(exec).await?;
        let folder = context.session()?.folder().join(&checkout.folder);
        let names = git(
            &folder,
            &["diff", "--cached", "--name-only", "-z", &checkout.commit],
        );
        let files = names.split_terminator('\0').map(str::to_owned).collect();
        Ok(Difference {
            patch: executed.stdout.all().unwrap().into(),
            files,
        })
    }

    async fn push(
        &self,
        _: &Context,
        _: RepositoryRef<'_>,
        _: &Checkout,
        patch: &[u8],
        branch: &str,
        message: &str,
    ) -> Result<String> {
        if let Some(error) = self.refuses.lock().unwrap().clone() {
            return Err(error);
        }
        self.pushed.lock().unwrap().push((
            String::from_utf8(patch.to_vec()).unwrap(),
            branch.to_owned(),
            message.to_owned(),
        ));
        Ok("c0ffee".to_owned())
    }
}

/// The credentials of a call: the model's key, or nothing.
struct Keys(Vec<Grant>, Option<Secret>);

impl CallSecrets for Keys {
    fn grants(&self) -> &[Grant] {
        &self.0
    }

    fn get(&self, name: &str) -> Result<Option<Secret>> {
        match &self.1 {
            Some(secret) if name == "llm" => Ok(Some(secret.clone())),
            _ => Err(Error::new(Code::Forbidden, "not declared")),
        }
    }

    fn revealed(&self) -> Vec<Secret> {
        self.1.iter().cloned().collect()
    }
}

/// Files that were stored, as they were given.
#[derive(Default)]
pub(super) struct Shelf {
    pub(super) files: Mutex<BTreeMap<String, Bytes>>,
    pub(super) full: Mutex<bool>,
}

impl Shelf {
    /// Returns the one trajectory.
    pub(super) fn trajectory(&self) -> Value {
        let files = self.files.lock().unwrap();
        let found: Vec<_> = files
            .iter()
            .filter(|(key, _)| key.starts_with("swe.solve/run/trajectory."))
            .collect();
        assert_eq!(found.len(), 1);
        serde_json::from_slice(found[0].1).unwrap()
    }
}

#[async_trait]
impl Artifacts for Shelf {
    async fn put(&self, name: &str, media_type: &str, bytes: Bytes) -> Result<ArtifactRef> {
        if *self.full.lock().unwrap() {
            return Err(Error::new(Code::ArtifactFailed, "the shelf is full"));
        }
        let key = format!("swe.solve/run/{name}");
        let size = bytes.len() as u64;
        self.files.lock().unwrap().insert(key.clone(), bytes);
        Ok(ArtifactRef {
            key,
            name: name.to_owned(),
            media_type: media_type.to_owned(),
            size,
            sha256: String::new(),
            expires_at: Timestamp::MAX,
        })
    }

    async fn put_stream(&self, _: &str, _: &str, _: ByteStream) -> Result<ArtifactRef> {
        Err(Error::new(
            Code::Internal,
            "swe.solve stores whole files only",
        ))
    }
}

/// Lines of progress.
#[derive(Default)]
pub(super) struct Lines(pub(super) Mutex<Vec<(f32, String)>>);

impl ProgressSink for Lines {
    fn report(&self, percent: Option<f32>, message: &str) {
        self.0
            .lock()
            .unwrap()
            .push((percent.unwrap(), message.to_owned()));
    }
}

/// The packs that a run calls: GitHub's.
#[derive(Default)]
pub(super) struct OtherPacks {
    pub(super) pull_request: Mutex<Option<Result<String>>>,
    pub(super) calls: Mutex<Vec<(String, Value)>>,
}

#[async_trait]
impl Packs for OtherPacks {
    async fn call(
        &self,
        _: &Context,
        pack: &PackName,
        _: Option<Version>,
        input: Json,
    ) -> Result<Outcome> {
        self.calls
            .lock()
            .unwrap()
            .push((pack.to_string(), input.to_value()));
        let none = || Error::new(Code::NotFound, "there is no such pack");
        let output =
            json!({"html_url": self.pull_request.lock().unwrap().clone().ok_or_else(none)??});
        Ok(Outcome {
            pack: pack.clone(),
            version: Version::new(1).unwrap(),
            output: Json::from(output),
            artifacts: Arc::new([]),
            duration: Duration::ZERO,
            session_id: None,
            cache: None,
            pending: false,
            remark: Remark::default(),
        })
    }
}

/// Notes in memory, per caller, newest first.
#[derive(Default)]
pub(super) struct Notebook {
    notes: Mutex<Vec<(String, NewNote)>>,
    pub(super) broken: Mutex<bool>,
}

impl Notebook {
    fn check(&self) -> Result<()> {
        if *self.broken.lock().unwrap() {
            Err(Error::new(Code::Overloaded, "the store is gone"))
        } else {
            Ok(())
        }
    }

    pub(super) fn values(&self) -> Vec<(String, NewNote)> {
        self.notes.lock().unwrap().clone()
    }

    /// Adds a note directly, without a run.
    pub(super) fn plant(&self, owner: &Identity, note: NewNote) {
        self.notes
            .lock()
            .unwrap()
            .push((owner.user().to_owned(), note));
    }
}

fn about(key: &str) -> About {
    About {
        key: key.to_owned(),
        category: String::new(),
        tags: Vec::new(),
        pack: None,
        called_by: None,
        trust: None,
        fingerprint: String::new(),
        version: 1,
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        expires_at: None,
    }
}

#[async_trait]
impl Views for Notebook {
    async fn store_note(&self, owner: &Owner, note: NewNote) -> Result<About> {
        self.check()?;
        let described = about(&note.key);
        self.notes
            .lock()
            .unwrap()
            .push((owner.identity.user().to_owned(), note));
        Ok(described)
    }

    async fn recall_note(&self, owner: &Owner, key: &str) -> Result<Option<Note>> {
        self.check()?;
        let notes = self.notes.lock().unwrap();
        let found = notes
            .iter()
            .find(|(user, note)| user == owner.identity.user() && note.key == key);
        Ok(found.map(|(_, note)| Note {
            about: about(key),
            value: note.value.clone(),
        }))
    }

    async fn list_notes(
        &self,
        owner: &Owner,
        prefix: &str,
        limit: usize,
        _: Option<String>,
    ) -> Result<NoteList> {
        self.check()?;
        let notes = self.notes.lock().unwrap();
        let own = notes
            .iter()
            .rev()
            .filter(|(user, note)| user == owner.identity.user() && note.key.starts_with(prefix));
        Ok(NoteList {
            notes: own.take(limit).map(|(_, note)| about(&note.key)).collect(),
            next: None,
        })
    }

    async fn delete_note(&self, _: &Owner, _: &str) -> Result<bool> {
        Err(unused())
    }

    async fn note_context(&self, _: &Owner) -> Result<NoteContext> {
        Err(unused())
    }

    async fn store_fact(&self, _: &Owner, _: NewFact) -> Result<About> {
        Err(unused())
    }

    async fn recall_facts(&self, _: &Owner, _: RecallFacts) -> Result<Recalled> {
        Err(unused())
    }

    async fn list_facts(&self, _: &Owner, _: ListFacts) -> Result<FactList> {
        Err(unused())
    }

    async fn forget(&self, _: &Owner, _: Forget) -> Result<Forgotten> {
        Err(unused())
    }

    fn cleaned(&self, _: &Owner, _: &[&str], _: Bytes) -> Result<Bytes> {
        Err(unused())
    }
}

fn unused() -> Error {
    Error::new(Code::Internal, "swe.solve uses notes only")
}
