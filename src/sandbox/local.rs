//! Sessions on this machine: a folder each, and commands in a sandbox.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use helmdeck_core::session::{Exec, Executed};
use helmdeck_core::{Clock, Code, Error, Result, Timestamp};
use helmdeck_process::Spawner;
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::cgroup::{Cgroup, Cgroups};
use super::command::{self, Allowed, Run};
use super::config::SessionConfig;
use super::limits::Limits;
use super::metrics::SessionMetrics;
use super::place::{Folder, Record, SessionFolder};
use super::runtime::{DetectedRuntime, Reason, SessionRuntime, Wish};
use super::sandbox::{Folders, Sandbox};
use super::{check, fill, probe};

/// Interval of checks for sessions that expired or were ended by another process.
const WATCH: Duration = Duration::from_secs(1);
/// Number of such checks per sweep for sessions of ended processes.
const SWEEP: u32 = 60;
/// Time limit for the end of a session that another process holds.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Dependencies of a local runtime.
#[derive(Clone)]
pub(crate) struct RuntimeDependencies {
    pub(crate) folder: PathBuf,
    pub(crate) program: PathBuf,
    /// Whether preserved sessions outlive this process.
    pub(crate) outlive: bool,
    /// Name of this server among its replicas, if there are any.
    pub(crate) replica: Option<Arc<str>>,
    pub(crate) config: SessionConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: SessionMetrics,
}

/// A session that this process made, or uses.
struct Live {
    record: Mutex<Record>,
    folder: Folder,
    /// Held by the process that made it.
    lock: Mutex<Option<File>>,
    /// Ends what runs in it.
    stop: CancellationToken,
    /// Commands run one after the other.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Live {
    fn new(record: Record, folder: Folder, lock: Option<File>) -> Arc<Self> {
        Arc::new(Self {
            record: Mutex::new(record),
            folder,
            lock: Mutex::new(lock),
            stop: CancellationToken::new(),
            turn: Arc::default(),
        })
    }

    fn record(&self) -> Record {
        self.record.lock().clone()
    }

    fn is_ours(&self) -> bool {
        self.lock.lock().is_some()
    }
}

/// The sessions of this machine.
pub(crate) struct LocalRuntime {
    /// Weak reference to itself, for tasks that must not keep it alive.
    this: Weak<Self>,
    parts: RuntimeDependencies,
    place: SessionFolder,
    live: Mutex<HashMap<String, Arc<Live>>>,
    sandbox: OnceCell<Sandbox>,
    limits: OnceCell<Arc<Limits>>,
    spawner: OnceCell<Spawner>,
    watching: std::sync::Once,
    tasks: TaskTracker,
    closed: CancellationToken,
}

impl LocalRuntime {
    pub(crate) fn new(parts: RuntimeDependencies) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            place: SessionFolder::new(parts.folder.clone()),
            parts,
            live: Mutex::default(),
            sandbox: OnceCell::new(),
            limits: OnceCell::new(),
            spawner: OnceCell::new(),
            watching: std::sync::Once::new(),
            tasks: TaskTracker::new(),
            closed: CancellationToken::new(),
        })
    }

    /// Finds the sandbox once. After a failure, each call tries again.
    async fn sandbox(&self) -> Result<&Sandbox> {
        let spawner = self.spawner().await?;
        let parts = &self.parts;
        self.sandbox
            .get_or_try_init(|| probe::probe(spawner, &parts.program, &parts.config, &self.tasks))
            .await
    }

    /// Finds out once how limits are enforced, and makes that ready.
    async fn limits(&self) -> Result<&Arc<Limits>> {
        let sandboxed = self.sandbox().await?.bwrap.is_some();
        let prepare = || async {
            let place = self.place.clone();
            let limits = blocking(move || Limits::prepare(&place)).await?;
            tracing::info!("sessions: {}", limits.describe(sandboxed));
            Ok::<_, Error>(Arc::new(limits))
        };
        let limits = self.limits.get_or_try_init(prepare).await?;
        limits.check(&self.parts.config, sandboxed)?;
        Ok(limits)
    }

    async fn spawner(&self) -> Result<&Spawner> {
        let start = || async { Spawner::new("helmdeck-sessions", Handle::current()) };
        self.spawner.get_or_try_init(start).await.map_err(|error| {
            Error::new(
                Code::ResourceExhausted,
                "cannot start another thread: the system limit is reached",
            )
            .with_source(error)
        })
    }

    /// Starts the background checks, once.
    fn watch(&self) {
        self.watching.call_once(|| {
            let (this, closed) = (self.this.clone(), self.closed.clone());
            let watch = async move {
                for look in 1_u32.. {
                    tokio::time::sleep(WATCH).await;
                    let Some(this) = this.upgrade() else { return };
                    this.look(look % SWEEP == 0).await;
                }
            };
            tokio::spawn(closed.run_until_cancelled_owned(watch));
        });
    }

    /// Ends sessions that expired or were ended by another process.
    async fn look(&self, sweep: bool) {
        let now = self.parts.clock.now();
        let all: Vec<_> = self.live.lock().values().cloned().collect();
        for live in all {
            let read = {
                let live = Arc::clone(&live);
                blocking(move || live.folder.read()).await
            };
            match read {
                Ok(Ok(Some(record))) => {
                    let expired = record.expires_at <= now;
                    let id = record.id.clone();
                    *live.record.lock() = record;
                    if expired {
                        self.terminate_later(&id, Reason::Expired);
                    }
                }
                Ok(Ok(None)) => self.terminate_later(&live.record().id, Reason::Asked),
                // Its state is unknown now, so only its expiry counts.
                Ok(Err(_)) | Err(_) => {
                    let record = live.record();
                    if record.expires_at <= now {
                        self.terminate_later(&record.id, Reason::Expired);
                    }
                }
            }
        }
        if sweep {
            self.sweep().await;
        }
    }

    /// Finds a session in this process, else on disk.
    async fn find(&self, id: &str) -> Result<Option<Arc<Live>>> {
        let now = self.parts.clock.now();
        let known = self.live.lock().get(id).cloned();
        if let Some(live) = known {
            return Ok(
                (live.record().expires_at > now && !live.stop.is_cancelled()).then_some(live),
            );
        }
        let Some(folder) = self.place.of(id) else {
            return Ok(None);
        };
        let read = {
            let folder = folder.clone();
            blocking(move || folder.read()).await?
        };
        let Some(record) = read
            .map_err(unread)?
            .filter(|record| record.expires_at > now)
        else {
            return Ok(None);
        };
        let whole = {
            let (place, folder) = (self.place.clone(), folder.clone());
            blocking(move || place.make_whole(&folder))
                .await?
                .map_err(unread)?
        };
        whole.map_err(|why| Error::new(Code::SessionUnavailable, why))?;
        self.watch();
        let live = Live::new(record, folder, None);
        Ok(Some(Arc::clone(
            self.live.lock().entry(id.to_owned()).or_insert(live),
        )))
    }

    async fn found(&self, live: &Live) -> Result<DetectedRuntime> {
        let folders = Folders::of(live.folder.path());
        let (folder_inside, supplies_inside) = self.sandbox().await?.inside(&folders);
        let Folders {
            folder, supplies, ..
        } = folders;
        Ok(DetectedRuntime {
            record: live.record(),
            folder,
            supplies,
            folder_inside,
            supplies_inside,
        })
    }

    async fn end(&self, id: &str, why: Reason) -> Result<bool> {
        let live = self.live.lock().get(id).cloned();
        let Some(live) = live else {
            let Some(folder) = self.place.of(id) else {
                return Ok(false);
            };
            let place = self.place.clone();
            return removed(blocking(move || place.end(&folder, END_LIMIT)).await?);
        };
        live.stop.cancel();
        // A running command holds the turn until all its processes are gone.
        let _turn = live.turn.lock().await;
        let lock = live.lock.lock().take();
        let first = self.live.lock().remove(id).is_some();
        let (place, folder) = (self.place.clone(), live.folder.clone());
        let Some(lock) = lock else {
            // Only used here: another process holds it, or none does.
            let ends = matches!(why, Reason::Asked | Reason::Expired);
            return match ends {
                true => removed(blocking(move || place.end(&folder, END_LIMIT)).await?),
                false => Ok(false),
            };
        };
        let result = removed(
            blocking(move || place.remove(&folder, lock, END_LIMIT))
                .await?
                .map(|()| first),
        );
        if first {
            self.parts.metrics.ended(why);
        }
        result
    }

    fn ended() -> Error {
        Error::new(Code::SessionUnavailable, "the session has ended")
    }
}

#[async_trait]
impl SessionRuntime for LocalRuntime {
    async fn create(&self, wish: Wish) -> Result<DetectedRuntime> {
        if self.closed.is_cancelled() {
            return Err(Error::new(
                Code::SessionUnavailable,
                "the server is shutting down",
            ));
        }
        let sandbox = self.sandbox().await?.clone();
        let limits = Arc::clone(self.limits().await?);
        self.sweep().await;
        let (place, config, now) = (
            self.place.clone(),
            self.parts.config.clone(),
            self.parts.clock.now(),
        );
        let replica = self.parts.replica.clone();
        let create = move || {
            let memory = wish.memory.unwrap_or(config.memory);
            let owner = (wish.tenant.clone(), wish.user.clone());
            let required = config.require_limits;
            let make = |id| Record {
                id,
                tenant: wish.tenant,
                user: wish.user,
                pack: wish.pack,
                created_at: now,
                expires_at: wish.expires_at,
                preserved: false,
                memory,
            };
            let fits = |records: &[Record]| check::fits(records, &owner.0, &owner.1, now, &config);
            let fill = |folder: &Folder| {
                let images = limits.images().map(|images| (images, required));
                fill::fill(folder, sandbox.user, images, config.disk)
            };
            place.create(now, replica.as_deref(), make, fits, fill)
        };
        let (folder, record, lock) = blocking(create).await?.map_err(check::Unmade::into_error)?;
        let live = Live::new(record.clone(), folder, Some(lock));
        self.live
            .lock()
            .insert(record.id.clone(), Arc::clone(&live));
        self.parts.metrics.made();
        if self.closed.is_cancelled() {
            // Made while the other sessions were being ended.
            self.terminate(&record.id, Reason::Shutdown).await?;
            return Err(Self::ended());
        }
        self.watch();
        self.found(&live).await
    }

    async fn get(&self, id: &str) -> Result<Option<DetectedRuntime>> {
        match self.find(id).await? {
            Some(live) => Ok(Some(self.found(&live).await?)),
            None => Ok(None),
        }
    }

    async fn exec(&self, id: &str, command: Exec) -> Result<Executed> {
        check::command(&command)?;
        let live = self.find(id).await?.ok_or_else(Self::ended)?;
        let sandbox = self.sandbox().await?;
        let limits = self.limits().await?;
        let turn = tokio::select! {
            turn = Arc::clone(&live.turn).lock_owned() => turn,
            () = live.stop.cancelled() => return Err(Self::ended()),
        };
        let (running, own) = {
            let folder = live.folder.clone();
            blocking(move || (folder.running(), folder.has_own_file_system())).await?
        };
        let running = running.map_err(unread)?.ok_or_else(Self::ended)?;
        if self.parts.config.require_limits && limits.images().is_some() && !own {
            let message = "sessions.require_limits is set, and the session has no file system of its own; make a new one";
            return Err(Error::new(Code::SessionUnavailable, message));
        }
        let record = live.record();
        let left = record.expires_at.since(self.parts.clock.now());
        if left.is_zero() || live.stop.is_cancelled() {
            return Err(Self::ended());
        }
        let folders = Folders::of(live.folder.path());
        let config = &self.parts.config;
        let cgroup = match &limits.memory {
            Ok(cgroups) => {
                let (cgroups, memory, processes) =
                    (cgroups.clone(), record.memory, config.processes);
                Some(
                    blocking(move || cgroups.make(memory, processes))
                        .await?
                        .map_err(no_cgroup)?,
                )
            }
            Err(_) => None,
        };
        let allowed = Allowed {
            memory: cgroup.is_none().then_some(record.memory),
            disk: config.disk,
            folder: folders.folder.clone(),
            supplies: folders.supplies.clone(),
            owner: sandbox.user,
            timeout: command.timeout.min(left),
        };
        let line = sandbox.line(
            &folders,
            config,
            record.memory,
            cgroup.as_ref().map(Cgroup::path),
            &command,
        );
        let spawner = self.spawner().await?;
        let run = Run {
            spawner,
            line,
            allowed,
            cgroup,
            stop: &live.stop,
            tasks: &self.tasks,
        };
        command::run(run, &command, (turn, running)).await
    }

    async fn extend(&self, id: &str, until: Timestamp) -> Result<()> {
        let live = self.find(id).await?.ok_or_else(Self::ended)?;
        let place = self.place.clone();
        let extend = move || {
            let change = |record: &mut Record| {
                record.preserved = true;
                record.expires_at = record.expires_at.max(until);
            };
            let changed = place.change(&live.folder, change).map_err(|error| {
                Error::new(
                    Code::Internal,
                    "what is known of the session cannot be written",
                )
                .with_source(error)
            })?;
            *live.record.lock() = changed.ok_or_else(Self::ended)?;
            Ok(())
        };
        blocking(extend).await?
    }

    async fn terminate(&self, id: &str, why: Reason) -> Result<bool> {
        let gone = || Error::new(Code::Internal, "the sessions are gone");
        let (this, id) = (self.this.upgrade().ok_or_else(gone)?, id.to_owned());
        // A separate task, so that it completes even if the caller stops waiting.
        let end = self.tasks.spawn(async move { this.end(&id, why).await });
        end.await.map_err(lost)?
    }

    fn terminate_later(&self, id: &str, why: Reason) {
        let (Some(this), Ok(runtime)) = (self.this.upgrade(), Handle::try_current()) else {
            return;
        };
        // At once, so that no command starts in it.
        if let Some(live) = self.live.lock().get(id) {
            live.stop.cancel();
        }
        let id = id.to_owned();
        let end = async move {
            if let Err(error) = this.end(&id, why).await {
                tracing::warn!(session = id, cause = error.cause(), "{}", error.message());
            }
        };
        self.tasks.spawn_on(end, &runtime);
    }

    async fn list(&self) -> Result<Vec<Record>> {
        let (place, now) = (self.place.clone(), self.parts.clock.now());
        let records = blocking(move || place.records()).await?;
        let mut records = records.map_err(|error| {
            Error::new(Code::Internal, "the sessions cannot be read").with_source(error)
        })?;
        records.retain(|record| record.expires_at > now);
        records.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        Ok(records)
    }

    async fn sweep(&self) {
        let (place, now) = (self.place.clone(), self.parts.clock.now());
        let limits = self.limits.get().cloned();
        let reap = move || match limits {
            Some(limits) => limits
                .memory
                .as_ref()
                .map(Cgroups::reap)
                .unwrap_or_default(),
            None => Cgroups::find()
                .map(|cgroups| cgroups.reap())
                .unwrap_or_default(),
        };
        let _ = blocking(reap).await;
        match blocking(move || place.sweep(now)).await {
            Ok(Ok(count)) => {
                (0..count).for_each(|_| self.parts.metrics.ended_elsewhere(Reason::Abandoned))
            }
            Ok(Err(error)) => tracing::warn!(%error, "what ended sessions left cannot be removed"),
            Err(_) => {}
        }
    }

    async fn probe(&self) -> Result<String> {
        let sandbox = self.sandbox().await?;
        let user = sandbox
            .user
            .map_or_else(String::new, |user| format!(" as user {user}"));
        let how = match &sandbox.bwrap {
            Some(_) => format!("commands run in a sandbox{user}"),
            None => "commands run WITHOUT a sandbox, as sessions.allow_unsandboxed says".to_owned(),
        };
        let limits = match self.limits.get() {
            Some(limits) => Arc::clone(limits),
            None => {
                let place = self.place.clone();
                Arc::new(blocking(move || Limits::find(place.path())).await?)
            }
        };
        let sandboxed = sandbox.bwrap.is_some();
        limits.check(&self.parts.config, sandboxed)?;
        Ok(format!("{how}; {}", limits.describe(sandboxed)))
    }

    async fn close(&self) {
        self.closed.cancel();
        let all: Vec<_> = self.live.lock().values().cloned().collect();
        for live in all {
            let record = live.record();
            if self.parts.outlive && record.preserved && live.is_ours() {
                // It stays, without a command. The next process finds its lock free, and sees that
                // it has not expired.
                live.stop.cancel();
                let _turn = live.turn.lock().await;
                self.live.lock().remove(&record.id);
                continue;
            }
            self.terminate_later(&record.id, Reason::Shutdown);
        }
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Runs blocking disk work on another thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(lost)
}

fn lost(error: tokio::task::JoinError) -> Error {
    Error::new(Code::Internal, "the work on a session was lost").with_source(error)
}

fn no_cgroup(error: std::io::Error) -> Error {
    Error::new(
        Code::ResourceExhausted,
        "the cgroup of the command cannot be made",
    )
    .with_source(error)
}

fn unread(error: std::io::Error) -> Error {
    Error::new(
        Code::Internal,
        "what is known of the session cannot be read",
    )
    .with_source(error)
}

fn removed(result: std::io::Result<bool>) -> Result<bool> {
    result.map_err(|error| {
        Error::new(Code::Internal, "something of the session cannot be removed").with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::Used;
    use helmdeck_core::SystemClock;

    /// Makes a runtime with one session, which no command ever ran in.
    fn runtime(data: &std::path::Path) -> (Arc<LocalRuntime>, Arc<Live>) {
        let clock = SystemClock::default();
        let now = clock.now();
        let runtime = LocalRuntime::new(RuntimeDependencies {
            folder: data.join("sessions"),
            program: "/nonexistent".into(),
            replica: None,
            outlive: false,
            config: SessionConfig::default(),
            clock: Arc::new(clock),
            metrics: SessionMetrics::default(),
        });
        let make = |id| Record {
            id,
            tenant: "acme".to_owned(),
            user: "ann".to_owned(),
            pack: "test.pack".to_owned(),
            created_at: now,
            expires_at: now.saturating_add(Duration::from_secs(3600)),
            preserved: false,
            memory: 1,
        };
        let made = runtime
            .place
            .create::<std::io::Error>(now, None, make, |_| Ok(()), |_| Ok(()));
        let (folder, record, lock) = made.unwrap();
        let live = Live::new(record.clone(), folder, Some(lock));
        runtime.live.lock().insert(record.id, Arc::clone(&live));
        (runtime, live)
    }

    #[tokio::test]
    async fn session_survives_a_temporary_read_error() {
        let data = tempfile::tempdir().unwrap();
        let (runtime, live) = runtime(data.path());
        let kept = live.folder.path().join("kept");
        std::fs::rename(live.folder.record_path(), &kept).unwrap();
        std::fs::create_dir(live.folder.record_path()).unwrap();
        runtime.look(true).await;
        assert!(!live.stop.is_cancelled() && kept.exists());
        std::fs::remove_dir(live.folder.record_path()).unwrap();
        runtime.look(true).await;
        runtime.close().await;
        assert!(
            live.stop.is_cancelled() && !live.folder.path().exists(),
            "without a record it has ended"
        );
    }

    #[tokio::test]
    async fn session_ends_without_a_waiter() {
        let data = tempfile::tempdir().unwrap();
        let (runtime, live) = runtime(data.path());
        let record = live.record();
        let path = || live.folder.path().to_owned();
        let found = DetectedRuntime {
            record,
            folder: path(),
            supplies: path(),
            folder_inside: String::new(),
            supplies_inside: String::new(),
        };
        let mut used = Used {
            runtime: Arc::clone(&runtime) as Arc<dyn SessionRuntime>,
            found,
            ends: true,
            kept: false,
        };
        // A command in it is still being killed.
        let turn = live.turn.lock().await;
        tokio::select! {
            biased;
            () = used.finish() => panic!("it ended under what runs in it"),
            () = live.stop.cancelled() => {}
        }
        drop(used);
        assert!(live.folder.path().exists());
        drop(turn);
        runtime.tasks.close();
        runtime.tasks.wait().await;
        assert!(!live.folder.path().exists() && runtime.live.lock().is_empty());
    }
}
