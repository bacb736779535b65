//! Sessions of the protocol revisions before 2026-07-28: owners, limits and expiry.
//!
//! A session belongs to the caller that began it. For all other callers it does not exist, so its
//! id opens nothing.
//!
//! With a [`SealedSessions`] a session is in its id, and what is here is a copy: it is dropped at
//! will and made again from the id, by any replica. That it has ended is in the system database,
//! where every replica looks.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use helmdeck_core::{Caller, Clock, Code, Error, Identity, Result};
use helmdeck_system::System;
use rmcp::model::InitializeRequestParams;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{
    SessionManager, SessionState, SessionStore, SessionStoreError,
};

use super::McpConfig;
use super::running::Running;
use super::session_seal::{SealedSession, SessionSeal};
use crate::validity::{Standing, Validity};

/// Interval of the check for idle sessions and for sessions whose token ended.
const SWEEP: Duration = Duration::from_secs(10);
/// Interval of the look for sealed sessions that ended at another replica.
const LOOK: Duration = Duration::from_millis(500);

/// What makes sessions that all replicas continue.
#[derive(Debug, Clone)]
pub(crate) struct SealedSessions {
    pub(crate) seal: SessionSeal,
    /// Where it is recorded which of them have ended.
    pub(crate) system: System,
}

/// Every open session.
pub(crate) struct Sessions {
    /// rmcp's manager of the sessions.
    pub(crate) manager: Arc<LocalSessionManager>,
    config: McpConfig,
    clock: Arc<dyn Clock>,
    /// `None` = sessions belong to this process.
    sealed: Option<SealedSessions>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    by_id: HashMap<Arc<str>, Arc<Session>>,
    /// Number of sessions that are beginning.
    beginning: usize,
    sweeping: bool,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    id: Arc<str>,
    owner: Arc<Identity>,
    /// The owner's identity, narrowed to this conversation.
    identity: Arc<Identity>,
    /// What its id contains, if it is sealed.
    sealed: Option<SealedSession>,
    /// Running calls that bypass rmcp.
    pub(crate) running: Running,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    used_at: Duration,
    /// When a sealed session was last known not to have ended.
    looked_at: Duration,
    validity: Validity,
    streams: usize,
}

/// Reserved slot for a session that is beginning; dropping it frees the slot.
pub(crate) struct Reservation(Arc<Sessions>);

/// An open stream of a session. A session with an open stream is not idle.
#[derive(Debug)]
pub(crate) struct Listening(Arc<Session>);

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions")
            .field("open", &self.open().by_id.len())
            .finish_non_exhaustive()
    }
}

impl Sessions {
    pub(crate) fn new(
        config: McpConfig,
        clock: Arc<dyn Clock>,
        sealed: Option<SealedSessions>,
    ) -> Self {
        let mut manager = LocalSessionManager::default();
        // Calls that bypass rmcp keep a session alive too, so rmcp's own idle timer is off.
        manager.session_config.keep_alive = None;
        Self {
            manager: Arc::new(manager),
            config,
            clock,
            sealed,
            open: Mutex::default(),
        }
    }

    /// Returns what rmcp asks for sessions that it does not know; `None` unless ids are sealed.
    pub(crate) fn store(self: &Arc<Self>) -> Option<Arc<dyn SessionStore>> {
        self.sealed.as_ref()?;
        Some(Arc::new(Handshakes(Arc::downgrade(self))))
    }

    /// Returns a session of this caller and records its use.
    ///
    /// From now on the caller's current token counts. A sealed session that another replica began
    /// is continued here.
    ///
    /// # Errors
    /// As [`Self::room`]; `overloaded` if it is not known whether a session that began elsewhere
    /// has ended.
    pub(crate) async fn find(
        self: &Arc<Self>,
        id: &str,
        caller: &Caller,
        validity: &Validity,
    ) -> Result<Option<Arc<Session>>> {
        let Some(sealing) = &self.sealed else {
            return Ok(self.known(id, caller, validity));
        };
        let Some(sealed) = sealing.seal.open(&caller.identity, id) else {
            return Ok(None);
        };
        let known = self.known(&sealed.id, caller, validity);
        let asked = self.clock.monotonic();
        if let Some(session) = &known
            && asked.saturating_sub(session.state().looked_at) < LOOK
        {
            return Ok(known);
        }
        match (
            sealing
                .system
                .ended_sessions(vec![sealed.id.to_string()], self.clock.now())
                .await,
            known,
        ) {
            (Ok(ended), _) if !ended.is_empty() => {
                self.close(&sealed.id).await;
                return Ok(None);
            }
            (Ok(_), Some(session)) => {
                session.state().looked_at = asked;
                return Ok(Some(session));
            }
            (Ok(_), None) => {}
            // Its token is good, and it was open the last time: it goes on without the database.
            (Err(_), Some(session)) => return Ok(Some(session)),
            (Err(error), None) => {
                let message = "the record of MCP sessions is not available";
                return Err(Error::new(Code::Overloaded, message)
                    .with_source(error)
                    .with_retry_after(LOOK));
            }
        }
        let place = self.room(caller).await?;
        let id = Arc::clone(&sealed.id);
        self.insert(
            place,
            id,
            caller,
            validity.clone(),
            Some(sealed.clone()),
            asked,
        );
        Ok(self.known(&sealed.id, caller, validity))
    }

    /// Closes sealed sessions that ended at another replica.
    async fn look_for_ended(&self) {
        let Some(sealing) = &self.sealed else { return };
        let asked = self.clock.monotonic();
        let ids: Vec<String> = self
            .open()
            .by_id
            .keys()
            .map(|id| (**id).to_owned())
            .collect();
        if ids.is_empty() {
            return;
        }
        let Ok(ended) = sealing
            .system
            .ended_sessions(ids.clone(), self.clock.now())
            .await
        else {
            return;
        };
        for id in &ended {
            self.close(id).await;
        }
        let open = self.open();
        for session in ids.iter().filter_map(|id| open.by_id.get(&**id)) {
            session.state().looked_at = asked;
        }
    }

    fn known(&self, id: &str, caller: &Caller, validity: &Validity) -> Option<Arc<Session>> {
        let session = self.open().by_id.get(id).map(Arc::clone)?;
        if !same(&session.owner, &caller.identity) {
            return None;
        }
        let mut state = session.state();
        state.used_at = self.clock.monotonic();
        state.validity = validity.clone();
        drop(state);
        Some(session)
    }

    /// Reserves a slot for one more session of this caller.
    ///
    /// Callers without a token are one caller of many people, who must not close each other's
    /// sessions. The copy of a sealed session makes room for any other unless something runs in it.
    ///
    /// # Errors
    /// `overloaded` if there are too many of all callers, or of those without a token; if sessions
    /// are sealed, if too many are at work.
    pub(crate) async fn room(self: &Arc<Self>, caller: &Caller) -> Result<Reservation> {
        self.sweep().await;
        let oldest = {
            let mut open = self.open();
            let owned = |session: &&Arc<Session>| same(&session.owner, &caller.identity);
            let full = open.by_id.values().filter(owned).count() >= self.config.sessions_per_caller;
            let all_full = open.by_id.len() + open.beginning >= self.config.sessions_max;
            let may_close = |session: &&Arc<Session>| match &self.sealed {
                Some(_) => session.is_at_rest() && (owned(session) || !full),
                None => full && owned(session) && !caller.identity.is_anonymous(),
            };
            let oldest = open
                .by_id
                .values()
                .filter(may_close)
                .min_by_key(|session| session.state().used_at);
            let oldest = oldest
                .filter(|_| full || all_full)
                .map(|session| Arc::clone(&session.id));
            if oldest.is_none() && (full || all_full) {
                return Err(Error::new(
                    Code::Overloaded,
                    "too many MCP sessions; close one, or come back later",
                )
                .with_retry_after(SWEEP));
            }
            open.beginning += 1;
            oldest
        };
        let place = Reservation(Arc::clone(self));
        if let Some(oldest) = oldest {
            tracing::debug!(
                "a caller has too many sessions; the one that was idle longest is closed"
            );
            self.close(&oldest).await;
        }
        Ok(place)
    }

    /// Binds a session that began to its caller, and returns its id for the client.
    ///
    /// # Errors
    /// `internal` if the id cannot be sealed.
    pub(crate) fn bind(
        self: &Arc<Self>,
        place: Reservation,
        id: &str,
        caller: &Caller,
        validity: Validity,
        handshake: InitializeRequestParams,
    ) -> Result<String> {
        let sealed = self.sealed.as_ref().map(|SealedSessions { seal, .. }| {
            let sealed = seal.begin(id, handshake);
            seal.seal(&caller.identity, &sealed)
                .map(|shown| (sealed, shown))
        });
        let failed = |error| {
            Error::new(Code::Internal, "the session id cannot be sealed").with_source(error)
        };
        let (sealed, shown) = sealed.transpose().map_err(failed)?.unzip();
        self.insert(
            place,
            id.into(),
            caller,
            validity,
            sealed,
            self.clock.monotonic(),
        );
        Ok(shown.unwrap_or_else(|| id.to_owned()))
    }

    fn insert(
        self: &Arc<Self>,
        place: Reservation,
        id: Arc<str>,
        caller: &Caller,
        validity: Validity,
        sealed: Option<SealedSession>,
        looked_at: Duration,
    ) {
        let identity = match caller.identity.session() {
            Some(_) => Arc::clone(&caller.identity),
            // The id is short and plain, so it is always a valid part of an identity.
            None => (*caller.identity)
                .clone()
                .with_session(&id)
                .map_or_else(|_| Arc::clone(&caller.identity), Arc::new),
        };
        let session = Session {
            id: Arc::clone(&id),
            owner: Arc::clone(&caller.identity),
            identity,
            sealed,
            running: Running::default(),
            state: Mutex::new(State {
                used_at: self.clock.monotonic(),
                looked_at,
                validity,
                streams: 0,
            }),
        };
        let mut open = self.open();
        // Two requests may continue one sealed session at once; they share it.
        open.by_id.entry(id).or_insert_with(|| Arc::new(session));
        let starts = !std::mem::replace(&mut open.sweeping, true);
        drop(open);
        drop(place);
        if starts {
            tokio::spawn(sweep_regularly(Arc::downgrade(self)));
        }
    }

    /// Records for all replicas that a session has ended, because its client asked for it.
    ///
    /// # Errors
    /// `overloaded` if that cannot be recorded.
    pub(crate) async fn end(&self, session: &Session) -> Result<()> {
        if let (Some(sealing), Some(sealed)) = (&self.sealed, &session.sealed) {
            let ended = sealing.system.end_session(&sealed.id, sealed.ends_at).await;
            ended.map_err(|error| {
                let message = "the end of the session could not be recorded; end it again";
                Error::new(Code::Overloaded, message)
                    .with_source(error)
                    .with_retry_after(LOOK)
            })?;
        }
        Ok(())
    }

    /// Closes a session here: cancels its calls and ends its streams.
    pub(crate) async fn close(&self, id: &str) {
        let session = self.open().by_id.remove(id);
        if let Some(session) = session {
            session.running.cancel_all();
        }
        // Fails only if rmcp has already ended it.
        let _ = self.manager.close_session(&id.into()).await;
    }

    /// Closes sessions that are idle for too long or whose caller lost access.
    ///
    /// Returns whether any session is left.
    async fn sweep(&self) -> bool {
        let now = self.clock.monotonic();
        let sessions: Vec<Arc<Session>> = self.open().by_id.values().cloned().collect();
        for session in &sessions {
            if session.is_idle(now, self.config.session_idle)
                || session.standing().await != Standing::Good
            {
                self.close(&session.id).await;
            }
        }
        let mut open = self.open();
        open.sweeping &= !open.by_id.is_empty();
        open.sweeping
    }

    /// Returns how many sessions are open and how many are beginning.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        let open = self.open();
        (open.by_id.len(), open.beginning)
    }

    fn open(&self) -> parking_lot::MutexGuard<'_, Open> {
        self.open.lock()
    }
}

/// Handshakes of the sealed sessions, for rmcp, which makes its side of a session from them.
struct Handshakes(Weak<Sessions>);

#[async_trait]
impl SessionStore for Handshakes {
    async fn load(&self, id: &str) -> std::result::Result<Option<SessionState>, SessionStoreError> {
        let session = self
            .0
            .upgrade()
            .and_then(|sessions| sessions.open().by_id.get(id).cloned());
        let sealed = session.and_then(|session| session.sealed.clone());
        Ok(sealed.map(|sealed| SessionState::new(sealed.handshake)))
    }

    async fn store(&self, _: &str, _: &SessionState) -> std::result::Result<(), SessionStoreError> {
        Ok(())
    }

    async fn delete(&self, _: &str) -> std::result::Result<(), SessionStoreError> {
        Ok(())
    }
}

async fn sweep_regularly(sessions: Weak<Sessions>) {
    let mut since = Duration::ZERO;
    loop {
        let Some(is_sealed) = sessions.upgrade().map(|sessions| sessions.sealed.is_some()) else {
            return;
        };
        let pause = if is_sealed { LOOK } else { SWEEP };
        tokio::time::sleep(pause).await;
        let Some(sessions) = sessions.upgrade() else {
            return;
        };
        sessions.look_for_ended().await;
        since += pause;
        if since >= SWEEP {
            since = Duration::ZERO;
            if !sessions.sweep().await {
                return;
            }
        }
    }
}

impl Session {
    /// Returns the id of the session.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the current caller in this session, unless its token or its request names another
    /// session.
    pub(crate) fn caller(&self, caller: &Caller) -> Caller {
        if caller.identity.session().is_some() {
            return caller.clone();
        }
        Caller {
            identity: Arc::clone(&self.identity),
            ..caller.clone()
        }
    }

    /// Records an open stream.
    pub(crate) fn listen(self: &Arc<Self>) -> Listening {
        self.state().streams += 1;
        Listening(Arc::clone(self))
    }

    /// Returns the standing of the caller's latest token.
    pub(crate) async fn standing(&self) -> Standing {
        let validity = self.state().validity.clone();
        validity.standing().await
    }

    fn is_idle(&self, now: Duration, idle: Duration) -> bool {
        self.is_at_rest() && now.saturating_sub(self.state().used_at) >= idle
    }

    /// Says whether no stream is open and no call runs.
    fn is_at_rest(&self) -> bool {
        self.state().streams == 0 && self.running.is_idle()
    }

    fn state(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.state().streams -= 1;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.0.open().beginning -= 1;
    }
}

fn same(a: &Identity, b: &Identity) -> bool {
    a.tenant() == b.tenant() && a.user() == b.user() && a.is_anonymous() == b.is_anonymous()
}
