//! Sessions of the protocol revisions before 2026-07-28: owners, limits and expiry.
//!
//! A session belongs to the caller that began it. For all other callers it does not exist, so its id opens nothing.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use helmdeck_core::{Caller, Clock, Code, Error, Identity, Result};
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;

use super::config::McpConfig;
use super::running::Running;
use super::state::Validity;

/// Interval of the check for idle sessions and for sessions whose token ended.
const SWEEP: Duration = Duration::from_secs(10);

/// Every open session.
pub(crate) struct Sessions {
    /// rmcp's manager of the sessions.
    pub(crate) manager: Arc<LocalSessionManager>,
    config: McpConfig,
    clock: Arc<dyn Clock>,
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
    /// Running calls that bypass rmcp.
    pub(crate) running: Running,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    used_at: Duration,
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
        f.debug_struct("Sessions").field("open", &self.open().by_id.len()).finish_non_exhaustive()
    }
}

impl Sessions {
    pub(crate) fn new(config: McpConfig, clock: Arc<dyn Clock>) -> Self {
        let mut manager = LocalSessionManager::default();
        // Calls that bypass rmcp keep a session alive too, so rmcp's own idle timer is off.
        manager.session_config.keep_alive = None;
        Self { manager: Arc::new(manager), config, clock, open: Mutex::default() }
    }

    /// Returns a session of this caller and records its use.
    ///
    /// From now on the caller's current token counts.
    pub(crate) fn find(&self, id: &str, caller: &Caller, validity: &Validity) -> Option<Arc<Session>> {
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
    /// Callers without a token are one caller of many people, who must not close each other's sessions.
    ///
    /// # Errors
    /// `overloaded` if there are too many of all callers, or of those without a token.
    pub(crate) async fn room(self: &Arc<Self>, caller: &Caller) -> Result<Reservation> {
        self.sweep().await;
        let oldest = {
            let mut open = self.open();
            let own: Vec<&Arc<Session>> =
                open.by_id.values().filter(|session| same(&session.owner, &caller.identity)).collect();
            let full = own.len() >= self.config.sessions_per_caller;
            let shared = caller.identity.is_anonymous();
            let oldest = own.into_iter().filter(|_| full && !shared).min_by_key(|session| session.state().used_at);
            let oldest = oldest.map(|session| Arc::clone(&session.id));
            let too_many = oldest.is_none() && open.by_id.len() + open.beginning >= self.config.sessions_max;
            if too_many || (full && shared) {
                return Err(Error::new(Code::Overloaded, "too many MCP sessions; close one, or come back later")
                    .with_retry_after(SWEEP));
            }
            open.beginning += 1;
            oldest
        };
        let place = Reservation(Arc::clone(self));
        if let Some(oldest) = oldest {
            tracing::debug!("a caller has too many sessions; the one that was idle longest is closed");
            self.close(&oldest).await;
        }
        Ok(place)
    }

    /// Binds a session that began to its caller.
    pub(crate) fn bind(self: &Arc<Self>, place: Reservation, id: &str, caller: &Caller, validity: Validity) {
        let id: Arc<str> = id.into();
        let identity = match caller.identity.session() {
            Some(_) => Arc::clone(&caller.identity),
            // The id is short and plain, so it is always a valid part of an identity.
            None => {
                (*caller.identity).clone().with_session(&id).map_or_else(|_| Arc::clone(&caller.identity), Arc::new)
            }
        };
        let session = Session {
            id: Arc::clone(&id),
            owner: Arc::clone(&caller.identity),
            identity,
            running: Running::default(),
            state: Mutex::new(State { used_at: self.clock.monotonic(), validity, streams: 0 }),
        };
        let mut open = self.open();
        open.by_id.insert(id, Arc::new(session));
        let starts = !std::mem::replace(&mut open.sweeping, true);
        drop(open);
        drop(place);
        if starts {
            tokio::spawn(sweep_regularly(Arc::downgrade(self)));
        }
    }

    /// Ends a session: cancels its calls and ends its streams.
    pub(crate) async fn close(&self, id: &str) {
        let session = self.open().by_id.remove(id);
        if let Some(session) = session {
            session.running.cancel_all();
            // Fails only if rmcp has already ended it.
            let _ = self.manager.close_session(&session.id).await;
        }
    }

    /// Closes sessions that are idle for too long or whose caller lost access.
    ///
    /// Returns whether any session is left.
    async fn sweep(&self) -> bool {
        let now = self.clock.monotonic();
        let sessions: Vec<Arc<Session>> = self.open().by_id.values().cloned().collect();
        for session in &sessions {
            if session.is_idle(now, self.config.session_idle) || !session.holds().await {
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

async fn sweep_regularly(sessions: Weak<Sessions>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        match sessions.upgrade() {
            Some(sessions) if sessions.sweep().await => {}
            _ => return,
        }
    }
}

impl Session {
    /// Returns the id of the session.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the current caller in this session, unless its token or its request names another session.
    pub(crate) fn caller(&self, caller: &Caller) -> Caller {
        if caller.identity.session().is_some() {
            return caller.clone();
        }
        Caller { identity: Arc::clone(&self.identity), permissions: Arc::clone(&caller.permissions) }
    }

    /// Records an open stream.
    pub(crate) fn listen(self: &Arc<Self>) -> Listening {
        self.state().streams += 1;
        Listening(Arc::clone(self))
    }

    /// Says whether the caller may still listen, by its latest token.
    pub(crate) async fn holds(&self) -> bool {
        let validity = self.state().validity.clone();
        validity.holds().await
    }

    fn is_idle(&self, now: Duration, idle: Duration) -> bool {
        let state = self.state();
        state.streams == 0 && now.saturating_sub(state.used_at) >= idle && self.running.is_idle()
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
