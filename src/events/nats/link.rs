//! The connection, and how a blocking caller waits for its work.

use std::fmt;
use std::future::Future;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use async_nats::jetstream::{self, Context};
use async_nats::{ConnectOptions, Event};
use helmdeck_egress::Egress;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};

use super::options::NatsOptions;
use crate::sink::{Message, Receipt, Sink, SinkError, Stored};

/// How long one attempt to connect may take.
const CONNECT: Duration = Duration::from_secs(1);
/// How much longer each attempt waits than the one before, and the longest wait.
const STEP: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);
/// How much longer than its deadline a caller waits for the connection's own word that it has
/// passed.
const GRACE: Duration = Duration::from_millis(20);

/// A connection to a NATS server.
pub struct Nats {
    link: Link,
    handle: Handle,
    /// Ends the thread when dropped.
    _stop: oneshot::Sender<()>,
}

/// State that a call needs.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) jetstream: Context,
    pub(super) options: NatsOptions,
    state: watch::Receiver<LinkState>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LinkState {
    /// Connecting.
    Trying,
    Up,
    /// The last attempt failed, and the next one follows.
    Down(String),
}

impl Nats {
    /// Begins to connect, and does not wait: the server may become reachable later.
    ///
    /// # Errors
    /// [`SinkError::Settings`] if the options make no sense, the guard refuses the server, or the credentials cannot
    /// be read.
    pub fn open(options: NatsOptions, guard: &Egress) -> Result<Self, SinkError> {
        options.check(guard)?;
        let settings =
            |error: &dyn fmt::Display| SinkError::Settings(format!("the event server: {error}"));
        let (sender, state) = watch::channel(LinkState::Trying);
        let mut connect = ConnectOptions::new()
            .name("helmdeck")
            .retry_on_initial_connect()
            // Others that the server names are not those that were allowed.
            .ignore_discovered_servers()
            .connection_timeout(CONNECT)
            .reconnect_delay_callback(wait)
            .event_callback(move |event| {
                follow(&sender, &event);
                async {}
            });
        if let Some(credentials) = options.credentials()? {
            let refused = |_| SinkError::Settings("the file of credentials holds none".to_owned());
            connect = connect.credentials(&credentials).map_err(refused)?;
        }
        if let Some(path) = &options.certificates {
            connect = connect.add_root_certificates(path.clone());
        }
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| settings(&error))?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let (ready, connected) = mpsc::sync_channel(1);
        let url = options.url.clone();
        thread::Builder::new()
            .name("nats".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    // Returns at once: the attempts are made in the background.
                    let _ = ready.send(connect.connect(url).await.map(jetstream::new));
                    let _: Result<(), _> = stopped.await;
                });
                // A name that is being looked up would be waited for.
                runtime.shutdown_background();
            })
            .map_err(|error| settings(&error))?;
        let jetstream = connected
            .recv()
            .map_err(|error| settings(&error))?
            .map_err(|error| settings(&error))?;
        Ok(Self {
            link: Link {
                jetstream,
                options,
                state,
            },
            handle,
            _stop: stop,
        })
    }

    /// Runs work on the connection, and waits for it for at most `within`.
    pub(super) fn wait<T, F>(
        &self,
        within: Duration,
        work: impl FnOnce(Link) -> F,
    ) -> Result<T, SinkError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, SinkError>> + Send + 'static,
    {
        let (reply, answer) = mpsc::sync_channel(1);
        let work = work(self.link.clone());
        self.handle.spawn(async move {
            let done = tokio::time::timeout(within, work)
                .await
                .unwrap_or(Err(SinkError::Elapsed(within)));
            let _ = reply.send(done);
        });
        // The thread of the connection may be slow to answer: the caller continues anyway.
        answer
            .recv_timeout(within.saturating_add(GRACE))
            .unwrap_or(Err(SinkError::Elapsed(within)))
    }
}

impl Sink for Nats {
    fn publish(&self, message: &Message, within: Duration) -> Result<Receipt, SinkError> {
        let message = message.clone();
        self.wait(
            within,
            |mut link| async move { link.publish(message).await },
        )
    }

    fn stored(&self, from: u64, most: usize, within: Duration) -> Result<Vec<Stored>, SinkError> {
        self.replay(from, most, within)
    }
}

impl Link {
    /// Waits until the server is reachable, or known to be unreachable.
    pub(super) async fn up(&mut self) -> Result<(), SinkError> {
        let state = self
            .state
            .wait_for(|state| *state != LinkState::Trying)
            .await;
        match state.as_deref() {
            Ok(LinkState::Down(why)) => Err(SinkError::Unreachable(why.clone())),
            Ok(_) => Ok(()),
            Err(_) => Err(SinkError::Unreachable(
                "the connection is closed".to_owned(),
            )),
        }
    }
}

/// Says how long the next attempt waits. The first comes at once.
fn wait(attempt: usize) -> Duration {
    let before = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
    STEP.saturating_mul(before).min(LONGEST)
}

fn follow(sender: &watch::Sender<LinkState>, event: &Event) {
    sender.send_if_modified(|state| {
        *state = match event {
            Event::Connected => LinkState::Up,
            Event::Disconnected => LinkState::Trying,
            Event::Closed => LinkState::Down(event.to_string()),
            // While it stands, an error is one of a call, not of the connection.
            Event::ClientError(_) if *state != LinkState::Up => LinkState::Down(event.to_string()),
            _ => return false,
        };
        true
    });
}

helmdeck_core::redacted_debug!(Nats, this => stream = this.link.options.stream);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_come_at_once_and_then_less_and_less_often() {
        let waits: Vec<_> = [0, 1, 2, 3, 21, 22, usize::MAX]
            .map(|attempt| wait(attempt).as_millis())
            .into();
        assert_eq!(waits, [0, 0, 100, 200, 2000, 2000, 2000]);
    }

    #[test]
    fn server_state_follows_the_last_attempt() {
        let failed = || Event::ClientError(async_nats::ClientError::Other("refused".to_owned()));
        let (sender, state) = watch::channel(LinkState::Trying);
        let after = |event: Event| {
            follow(&sender, &event);
            state.borrow().clone()
        };
        assert!(matches!(after(failed()), LinkState::Down(why) if why.contains("refused")));
        assert_eq!(after(Event::Connected), LinkState::Up);
        assert_eq!(after(failed()), LinkState::Up, "that was something else");
        assert_eq!(after(Event::LameDuckMode), LinkState::Up);
        assert_eq!(after(Event::Disconnected), LinkState::Trying);
    }
}
