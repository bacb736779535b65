//! An engine with a pack that runs commands from its input in a session.
//!
//! The session is in the sandbox of the real program.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use helmdeck_core::session::{Ended, Exec};
use helmdeck_core::{Builtin, Call, Code, Error, Identity, Json, Outcome, PackName, Reply, Result};
use helmdeck_engine::{Config, Engine, SessionPlace};
use helmdeck_testkit::{function, manifest};
use serde_json::{Value, json};

use super::STUCK;

/// An engine over a separate folder.
pub(crate) struct SessionFixture {
    pub(crate) engine: Engine,
    pub(crate) data: tempfile::TempDir,
}

/// What a command came to, as the pack answers it.
#[derive(Debug)]
pub(crate) struct Came {
    pub(crate) ended: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) left_out: u64,
    pub(crate) session: Option<String>,
}

/// Returns the pack `test.<name>`, which runs `argv` of its input.
pub(crate) fn runs(name: &str, session: &str) -> Builtin {
    let text = manifest(
        &format!("test.{name}"),
        "",
        &format!("timeout = \"10m\"\n[input]\ntype = \"object\"\n[session]\n{session}"),
    );
    function(&text, |context, input: Json| async move {
        let input: Value = serde_json::from_slice(input.bytes()).unwrap();
        let Some(session) = &context.session else {
            return Ok(Reply::json(Json::parse("{\"ended\":\"no session\"}").unwrap()));
        };
        let executed = session.exec(command(&input)).await?;
        let text = |captured: &helmdeck_core::session::Captured| {
            String::from_utf8_lossy(&[&captured.head[..], &captured.tail[..]].concat()).into_owned()
        };
        let value = json!({
            "ended": named(executed.ended), "stdout": text(&executed.stdout), "stderr": text(&executed.stderr),
            "left_out": executed.stdout.left_out, "folder": session.folder(),
        });
        if input["fail"].is_boolean() {
            return Err(Error::new(Code::HandlerFailed, "as the test wants"));
        }
        Ok(Reply::json(Json::parse(value.to_string()).unwrap()))
    })
    .0
}

fn command(input: &Value) -> Exec {
    let argv: Vec<&str> = match &input["sh"] {
        Value::String(script) => vec!["sh", "-c", script],
        _ => input["argv"]
            .as_array()
            .unwrap()
            .iter()
            .map(|word| word.as_str().unwrap())
            .collect(),
    };
    let mut command = Exec::new(argv);
    command.timeout = input["timeout_ms"]
        .as_u64()
        .map_or(STUCK, Duration::from_millis);
    command.cwd = input["cwd"].as_str().unwrap_or_default().to_owned();
    command.stdin = input["stdin"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
        .into();
    command.merge_stderr = input["merge"].as_bool().unwrap_or_default();
    for (name, value) in input["env"].as_object().into_iter().flatten() {
        command
            .env
            .insert(name.clone(), value.as_str().unwrap().to_owned());
    }
    command
}

/// Returns how a command ended in one word, or its status.
pub(crate) fn named(ended: Ended) -> String {
    match ended {
        Ended::Exited(status) => status.to_string(),
        other => format!("{other:?}"),
    }
}

/// Returns where sessions of a data folder are, with the program of this build.
pub(crate) fn place(data: &Path) -> SessionPlace {
    SessionPlace {
        folder: data.join("sessions"),
        program: env!("CARGO_BIN_EXE_helmdeck").into(),
        outlive: false,
        replica: None,
    }
}

impl SessionFixture {
    /// Makes an engine with the packs `test.once` (its session ends with the call), `test.keep` (it
    /// is kept) and `test.maybe` (only if one is pinned).
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// The same, with other settings.
    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let data = tempfile::tempdir().unwrap();
        let engine = Self::engine(data.path(), change);
        Self { engine, data }
    }

    /// Makes one more engine over a data folder, as another process has it.
    pub(crate) fn engine(data: &Path, change: impl FnOnce(&mut Config)) -> Engine {
        let mut config = helmdeck_testkit::patient();
        change(&mut config);
        let builtins = vec![
            runs("once", ""),
            runs("keep", "preserve = true"),
            runs("maybe", "optional = true"),
        ];
        let engine = Engine::builder(config)
            .builtins(builtins)
            .sessions(place(data))
            .build();
        assert!(engine.refused().is_empty(), "{:?}", engine.refused());
        engine
    }

    /// Calls a pack as a caller.
    pub(crate) async fn call_as(
        &self,
        identity: &Identity,
        pack: &str,
        input: Value,
    ) -> Result<(Came, Outcome)> {
        let name = PackName::new(&format!("test.{pack}")).unwrap();
        let outcome = self
            .engine
            .call(Call::new(
                name,
                input.to_string(),
                Arc::new(identity.clone()),
            ))
            .await?;
        let value: Value = serde_json::from_slice(outcome.output.bytes()).unwrap();
        let text = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let came = Came {
            ended: text("ended"),
            stdout: text("stdout"),
            stderr: text("stderr"),
            left_out: value["left_out"].as_u64().unwrap_or_default(),
            session: outcome.session_id.as_deref().map(str::to_owned),
        };
        Ok((came, outcome))
    }

    /// Runs a shell script in a session that ends with the call.
    #[track_caller]
    pub(crate) fn sh(&self, script: &str) -> impl Future<Output = Came> {
        self.once(json!({ "sh": script }))
    }

    /// Runs a command in a session that ends with the call.
    pub(crate) async fn once(&self, input: Value) -> Came {
        self.call_as(&Identity::local(), "once", input)
            .await
            .unwrap()
            .0
    }

    /// Makes a session that is kept, and returns it as this process sees it.
    pub(crate) async fn kept(
        &self,
        identity: &Identity,
        script: &str,
    ) -> Arc<dyn helmdeck_core::session::Session> {
        let (came, _) = self
            .call_as(identity, "keep", json!({ "sh": script }))
            .await
            .unwrap();
        assert_eq!(came.ended, "0", "{came:?}");
        self.engine
            .session(identity, &came.session.unwrap())
            .await
            .unwrap()
    }

    /// Returns the folders of sessions that are on the disk.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        folders(self.data.path())
    }
}

/// Returns the folders of sessions of a data folder that are on the disk, whatever state they are
/// in.
pub(crate) fn folders(data: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(data.join("sessions")) else {
        return Vec::new();
    };
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect()
}

/// Returns the processes that have this text in their command line.
fn running(marker: &str) -> impl Iterator<Item = std::path::PathBuf> {
    let entries = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    entries.filter(move |process| {
        let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
        line.windows(marker.len())
            .any(|part| part == marker.as_bytes())
    })
}

/// Says whether a process has this text in its command line.
pub(crate) fn is_running(marker: &str) -> bool {
    running(marker).next().is_some()
}

/// Ends the processes that have this text in their command line.
pub(crate) fn end_running(marker: &str) {
    for process in running(marker) {
        let id = process.file_name().unwrap().to_owned();
        assert!(
            std::process::Command::new("kill")
                .arg(id)
                .status()
                .unwrap()
                .success(),
            "{marker}"
        );
    }
}

/// Returns the cgroup of a command that has this text in its command line.
pub(crate) fn cgroup_of(marker: &str) -> Option<PathBuf> {
    let holds = |cgroup: &Path| {
        let pids = std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
        let line = |pid: &str| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        pids.lines().any(|pid| {
            line(pid)
                .windows(marker.len())
                .any(|part| part == marker.as_bytes())
        })
    };
    let mut todo = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry
                .file_name()
                .to_string_lossy()
                .starts_with("helmdeck-run-")
                && holds(&entry.path())
            {
                return Some(entry.path());
            }
            todo.push(entry.path());
        }
    }
    None
}
