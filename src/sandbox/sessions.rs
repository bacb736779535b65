//! Sessions: private folders and the commands that run in them.
//!
//! [`Sessions`] checks which caller may use which session.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::manifest::SessionSpec;
use helmdeck_core::session::{Exec, Executed, Session};
use helmdeck_core::{Clock, Code, Error, Identity, PackName, Result, Timestamp};
use prometheus_client::registry::Registry;
use serde::Serialize;

use crate::config::SessionConfig;
use crate::local::{LocalRuntime, RuntimeDependencies};
use crate::metrics::SessionMetrics;
use crate::place::{self, Record};
use crate::runtime::{DetectedRuntime, Reason, SessionRuntime, Wish};

/// Location of sessions, and the program that runs their commands.
#[derive(Debug, Clone)]
pub struct SessionPlace {
    /// Parent of all session folders. The first session makes it (0700).
    pub folder: PathBuf,
    /// The helmdeck program, which sets the limits of commands. It must pass all arguments after
    /// [`STAGE`](crate::STAGE) to [`stage`](crate::stage()).
    pub program: PathBuf,
    /// Whether preserved sessions outlive this process: yes for a single call, no for a server.
    pub outlive: bool,
    /// Name of this server among its replicas, which session ids begin with; `None` = there are no
    /// others.
    ///
    /// 1 to 40 of `a-z`, `0-9` and `-`.
    pub replica: Option<String>,
}

/// Information about a session, for its owner and operators.
#[derive(Debug, Clone, Serialize)]
pub struct SessionInfo {
    /// Its id.
    pub id: String,
    /// The tenant of its owner.
    pub tenant: String,
    /// The user of its owner.
    pub user: String,
    /// The pack that requested the session.
    pub pack: String,
    /// When it was made.
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub created_at: Timestamp,
    /// When it ends.
    #[serde(with = "helmdeck_core::clock::rfc3339")]
    pub expires_at: Timestamp,
    /// Whether it outlives the call that made it.
    pub preserved: bool,
}

impl From<Record> for SessionInfo {
    fn from(record: Record) -> Self {
        let Record {
            id,
            tenant,
            user,
            pack,
            created_at,
            expires_at,
            preserved,
            memory: _,
        } = record;
        Self {
            id,
            tenant,
            user,
            pack,
            created_at,
            expires_at,
            preserved,
        }
    }
}

/// The sessions of an engine, with access checks.
#[derive(Clone)]
pub struct Sessions {
    runtime: Arc<dyn SessionRuntime>,
    clock: Arc<dyn Clock>,
    replica: Option<Arc<str>>,
}

helmdeck_core::redacted_debug!(Sessions);

impl Sessions {
    /// Creates a manager of sessions on this machine. Touches nothing before the first session.
    pub fn local(
        place: SessionPlace,
        config: SessionConfig,
        clock: Arc<dyn Clock>,
        registry: &mut Registry,
    ) -> Self {
        let SessionPlace {
            folder,
            program,
            outlive,
            replica,
        } = place;
        let metrics = SessionMetrics::register(registry);
        let replica: Option<Arc<str>> = replica.map(Arc::from);
        let named = replica.clone();
        let clock_of_runtime = Arc::clone(&clock);
        let parts = RuntimeDependencies {
            folder,
            program,
            outlive,
            replica: named,
            config,
            clock: clock_of_runtime,
            metrics,
        };
        Self {
            runtime: LocalRuntime::new(parts),
            clock,
            replica,
        }
    }

    /// Makes a session for a pack that asks for one.
    ///
    /// # Errors
    /// `session_unavailable` if none can be made here; `internal` if its folder cannot be made.
    pub async fn create(
        &self,
        spec: &SessionSpec,
        identity: &Identity,
        pack: &PackName,
    ) -> Result<Used> {
        let wish = Wish {
            tenant: identity.tenant().to_owned(),
            user: identity.user().to_owned(),
            pack: pack.to_string(),
            expires_at: self.clock.now().saturating_add(spec.timeout),
            memory: spec.memory_bytes,
        };
        let found = self.runtime.create(wish).await?;
        Ok(Used {
            runtime: Arc::clone(&self.runtime),
            found,
            ends: true,
            kept: false,
        })
    }

    /// Returns a session of this caller.
    ///
    /// # Errors
    /// `not_found`, with the same message whether it has ended, never was, or belongs to another
    /// caller; `session_unavailable` if it is on another replica, which the error names.
    pub async fn of(&self, identity: &Identity, id: &str) -> Result<Used> {
        let none = || self.not_found(id);
        // All callers without a token share one identity, but they must not share sessions.
        if identity.is_anonymous() {
            return Err(not_found());
        }
        let found = self
            .runtime
            .get(id)
            .await?
            .filter(|found| owns(identity, &found.record))
            .ok_or_else(none)?;
        Ok(Used {
            runtime: Arc::clone(&self.runtime),
            found,
            ends: false,
            kept: true,
        })
    }

    /// Returns the sessions of a caller, oldest first; without a caller, those of all callers.
    pub async fn list(&self, identity: Option<&Identity>) -> Result<Vec<SessionInfo>> {
        let mut records = self.runtime.list().await?;
        records.retain(|record| identity.is_none_or(|identity| owns(identity, record)));
        Ok(records.into_iter().map(SessionInfo::from).collect())
    }

    /// Ends a session with everything that runs in it.
    ///
    /// # Errors
    /// As [`Sessions::of`].
    pub async fn end(&self, identity: Option<&Identity>, id: &str) -> Result<()> {
        let none = || self.not_found(id);
        let records = self.runtime.list().await?;
        let owned = |record: &&Record| {
            record.id == id && identity.is_none_or(|identity| owns(identity, record))
        };
        records.iter().find(owned).ok_or_else(none)?;
        match self.runtime.terminate(id, Reason::Asked).await? {
            true => Ok(()),
            false => Err(none()),
        }
    }

    /// Returns the error for a session that is not here.
    fn not_found(&self, id: &str) -> Error {
        match (&self.replica, place::replica_of(id).flatten()) {
            (Some(ours), Some(theirs)) if **ours != *theirs => {
                let message = format!(
                    "the session is on the replica \"{theirs}\", and this is \"{ours}\"; ask that one"
                );
                Error::new(Code::SessionUnavailable, message).with_replica(theirs)
            }
            _ => not_found(),
        }
    }

    /// Removes sessions that have ended, and those of ended processes.
    pub async fn sweep(&self) {
        self.runtime.sweep().await;
    }

    /// Runs a command in a sandbox, and describes how commands are isolated.
    ///
    /// # Errors
    /// `session_unavailable` with what is missing and what to do.
    pub async fn probe(&self) -> Result<String> {
        self.runtime.probe().await
    }

    /// Ends every session of this process.
    pub async fn close(&self) {
        self.runtime.close().await;
    }
}

fn not_found() -> Error {
    Error::new(
        Code::NotFound,
        "session not found: it has ended or belongs to another caller",
    )
}

fn owns(identity: &Identity, record: &Record) -> bool {
    !identity.is_anonymous() && identity.tenant() == record.tenant && identity.user() == record.user
}

/// Guard of a session that a call uses. If the call made it, it ends when this is dropped.
pub struct Used {
    pub(crate) runtime: Arc<dyn SessionRuntime>,
    pub(crate) found: DetectedRuntime,
    /// Whether it ends with the call.
    pub(crate) ends: bool,
    /// Whether it exists after the call.
    pub(crate) kept: bool,
}

helmdeck_core::redacted_debug!(Used);

impl Used {
    /// Returns the handle on the session for a handler.
    #[must_use]
    pub fn handle(&self) -> Arc<dyn Session> {
        Arc::new(Handle {
            runtime: Arc::clone(&self.runtime),
            found: self.found.clone(),
        })
    }

    /// Returns its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.found.record.id
    }

    /// Returns whether it outlives the call.
    #[must_use]
    pub const fn kept(&self) -> bool {
        self.kept
    }

    /// Lets the session outlive the call, at least until this time.
    ///
    /// # Errors
    /// `internal` if its record cannot be written.
    pub async fn keep(&mut self, until: Timestamp) -> Result<()> {
        self.runtime.extend(&self.found.record.id, until).await?;
        (self.ends, self.kept) = (false, true);
        Ok(())
    }

    /// Ends the session if the call made it, and waits for that.
    pub async fn finish(&mut self) {
        if !self.ends {
            return;
        }
        if let Err(error) = self
            .runtime
            .terminate(&self.found.record.id, Reason::CallOver)
            .await
        {
            tracing::warn!(
                session = self.id(),
                cause = error.cause(),
                "{}",
                error.message()
            );
        }
        // Only now, so that a drop during the wait ends it too.
        self.ends = false;
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        if self.ends {
            self.runtime
                .terminate_later(&self.found.record.id, Reason::CallOver);
        }
    }
}

/// A session as handlers see it.
struct Handle {
    runtime: Arc<dyn SessionRuntime>,
    found: DetectedRuntime,
}

#[async_trait]
impl Session for Handle {
    fn id(&self) -> &str {
        &self.found.record.id
    }

    fn folder(&self) -> &Path {
        &self.found.folder
    }

    fn supplies(&self) -> &Path {
        &self.found.supplies
    }

    fn folder_inside(&self) -> &str {
        &self.found.folder_inside
    }

    fn supplies_inside(&self) -> &str {
        &self.found.supplies_inside
    }

    fn expires_at(&self) -> Timestamp {
        self.found.record.expires_at
    }

    async fn exec(&self, command: Exec) -> Result<Executed> {
        self.runtime.exec(&self.found.record.id, command).await
    }
}

#[cfg(test)]
mod tests {
    use helmdeck_core::SystemClock;

    use super::*;

    #[tokio::test]
    async fn session_of_another_replica_is_refused_by_name() {
        let data = tempfile::tempdir().unwrap();
        let place = |replica: Option<&str>| SessionPlace {
            folder: data.path().join("sessions"),
            program: "/nonexistent".into(),
            outlive: false,
            replica: replica.map(str::to_owned),
        };
        let sessions = |replica: Option<&str>| {
            let clock = Arc::new(SystemClock::default());
            Sessions::local(
                place(replica),
                SessionConfig::default(),
                clock,
                &mut Registry::default(),
            )
        };
        let (here, single) = (sessions(Some("deck-1")), sessions(None));
        let alice = Identity::new("acme", "alice").unwrap();
        let random = "0123456789abcdef".repeat(2);
        let elsewhere = format!("deck-2.{random}");
        for error in [
            here.of(&alice, &elsewhere).await.err().unwrap(),
            here.end(Some(&alice), &elsewhere).await.unwrap_err(),
        ] {
            assert_eq!(
                (error.code(), error.replica()),
                (Code::SessionUnavailable, Some("deck-2")),
                "{error}"
            );
            assert_eq!(error.problem()["replica"], "deck-2");
        }
        for id in [
            random.clone(),
            format!("deck-1.{random}"),
            "deck-2.".to_owned() + "/../" + &random,
        ] {
            assert_eq!(
                here.of(&alice, &id).await.err().unwrap().code(),
                Code::NotFound,
                "{id}"
            );
        }
        assert_eq!(
            single.of(&alice, &elsewhere).await.err().unwrap().code(),
            Code::NotFound
        );
        let nobody = Identity::anonymous();
        assert_eq!(
            here.of(&nobody, &elsewhere).await.err().unwrap().code(),
            Code::NotFound
        );
    }
}
