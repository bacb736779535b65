//! Watcher of the outbox: reads it at an interval, and at once when another replica sends a
//! wake-up.
//!
//! On a direct session one connection listens, reads and sends wake-ups, outside of any write. It
//! holds the advisory lock that shows that this process is alive. Behind a pooler the outbox is
//! read over the pool.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client};

use super::connect::{Dialer, PgConnection, within};
use super::db::Database;
use super::error::{Outcome, unavailable};
use super::outbox::{self, NewRows, Outbox};

/// How long until the next try to connect, at first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Shortest time between two wake-ups that a replica sends.
const SEND_EVERY: Duration = Duration::from_millis(20);

/// Shortest time between two reads, however many wake-ups arrive.
const READ_EVERY: Duration = Duration::from_millis(10);

/// How long the outbox may be unread before subscribers must assume that anything changed.
///
/// An answer in memory outlives a delete by at most a second, also if the database is lost right
/// after the delete.
const MAX_UNREAD: Duration = Duration::from_millis(700);

/// How often old rows are swept.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Wakes the other replicas up. The payload lets the sender skip its own.
const WAKE: &str = "SELECT pg_notify($1, $2)";

/// The watcher of one store.
pub(super) struct Watcher {
    /// What it reads.
    pub(super) outbox: Arc<Outbox>,
    /// Makes the session.
    pub(super) dialer: Dialer,
    /// Where it reads and sweeps without a session.
    pub(super) database: Database,
    /// How often it reads at least.
    pub(super) interval: Duration,
}

/// A direct session that listens.
pub(super) struct Session {
    client: Client,
    line: PgConnection,
    /// A wake-up arrived.
    is_woken: bool,
}

impl Watcher {
    /// Connects and listens; `None` behind a pooler.
    pub(super) async fn connect(&self) -> Outcome<Option<Session>> {
        if self.dialer.is_pooled() {
            return Ok(None);
        }
        let (client, line) = self.dialer.dial().await?;
        let mut session = Session {
            client,
            line,
            is_woken: false,
        };
        let greeting = format!(
            "LISTEN {}; SELECT pg_advisory_lock({})",
            self.outbox.channel, self.outbox.id
        );
        session.greet(&greeting, self.outbox.id).await?;
        Ok(Some(session))
    }

    /// Watches for ever.
    pub(super) async fn run(self, session: Option<Session>) {
        let staleness = Arc::clone(&self.outbox).report_unread(MAX_UNREAD.max(5 * self.interval));
        tokio::join!(self.watch(session), self.sweep(), staleness);
    }

    async fn watch(&self, mut session: Option<Session>) {
        let mut pause = AGAIN.0;
        loop {
            let began = Instant::now();
            let ended = match session.take() {
                Some(session) => self.listen(session).await,
                None if self.dialer.is_pooled() => self.poll().await,
                None => Ok(()),
            };
            pause = if began.elapsed() > AGAIN.1 {
                AGAIN.0
            } else {
                (2 * pause).min(AGAIN.1)
            };
            tokio::time::sleep(pause).await;
            let connected = self.connect().await.map(|connected| session = connected);
            if let Err(failure) = ended.and(connected) {
                tracing::debug!(error = %failure.error, "watching for what other replicas delete");
            }
        }
    }

    /// Reads and sends wake-ups over the pool until that fails.
    async fn poll(&self) -> Outcome<()> {
        let id = self.outbox.id.to_string();
        loop {
            let db = self.database.take().await?;
            let outcome = within(self.outbox.read(&db)).await;
            db.give_back(outcome).await?;
            let next_read = Instant::now() + self.interval;
            while Instant::now() < next_read
                && tokio::time::timeout_at(next_read, self.outbox.written.notified())
                    .await
                    .is_ok()
            {
                let db = self.database.take().await?;
                let outcome = within(db.query(WAKE, &[&self.outbox.channel, &id])).await;
                db.give_back(outcome).await?;
                tokio::time::sleep(SEND_EVERY).await;
            }
        }
    }

    /// Reads and sends wake-ups over a session until it is lost.
    async fn listen(&self, mut session: Session) -> Outcome<()> {
        let mut sent_at: Option<Instant> = None;
        let mut is_due = false;
        loop {
            self.read(&mut session).await?;
            let read_at = Instant::now();
            // Until the next read is due: by the interval, or sooner by a wake-up.
            loop {
                let next_read = read_at
                    + if session.is_woken {
                        READ_EVERY
                    } else {
                        self.interval
                    };
                let next_send = sent_at.map_or(read_at, |at| at + SEND_EVERY);
                tokio::select! {
                    woken = session.next(self.outbox.id) => session.is_woken |= woken?,
                    () = self.outbox.written.notified(), if !is_due => is_due = true,
                    () = tokio::time::sleep_until(next_send), if is_due => {
                        self.wake(&mut session).await?;
                        (sent_at, is_due) = (Some(Instant::now()), false);
                    }
                    () = tokio::time::sleep_until(next_read) => break,
                }
            }
        }
    }

    async fn read(&self, session: &mut Session) -> Outcome<()> {
        session.is_woken = false;
        let (from, sent) = (self.outbox.cursor(), std::time::Instant::now());
        let (sql, params) = from.read();
        let id = self.outbox.id;
        let Session {
            client,
            line,
            is_woken,
        } = session;
        let found = within(move_while(
            line,
            is_woken,
            id,
            client.query_typed(sql, &params),
        ))
        .await?;
        self.outbox.accept(&from, NewRows::of(&found)?, sent);
        Ok(())
    }

    async fn wake(&self, session: &mut Session) -> Outcome<()> {
        let (channel, id) = (self.outbox.channel.as_str(), self.outbox.id.to_string());
        let params: [(&(dyn ToSql + Sync), Type); 2] = [(&channel, Type::TEXT), (&id, Type::TEXT)];
        let Session {
            client,
            line,
            is_woken,
        } = session;
        within(move_while(
            line,
            is_woken,
            self.outbox.id,
            client.execute_typed(WAKE, &params),
        ))
        .await?;
        Ok(())
    }

    /// Sweeps old rows for ever.
    async fn sweep(&self) {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            let swept = async {
                let db = self.database.take().await?;
                let outcome = within(outbox::sweep(&db)).await;
                db.give_back(outcome).await
            };
            if let Err(failure) = swept.await {
                tracing::debug!(error = %failure.error, "old rows of deletes could not be swept");
            }
        }
    }
}

impl Session {
    async fn greet(&mut self, sql: &str, id: i64) -> Outcome<()> {
        let Self {
            client,
            line,
            is_woken,
        } = self;
        within(move_while(line, is_woken, id, client.batch_execute(sql))).await
    }

    /// Waits for the next notification; `true` if another process sent it.
    async fn next(&mut self, id: i64) -> Outcome<bool> {
        next(&mut self.line, id).await
    }
}

/// Moves the bytes of a connection until an answer is there, and notes wake-ups that arrive
/// meanwhile.
async fn move_while<T>(
    line: &mut PgConnection,
    is_woken: &mut bool,
    id: i64,
    answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Outcome<T> {
    let mut answer = std::pin::pin!(answer);
    loop {
        tokio::select! {
            done = &mut answer => return Ok(done?),
            woken = next(line, id) => *is_woken |= woken?,
        }
    }
}

/// Waits for the next notification; `true` if another process sent it.
async fn next(line: &mut PgConnection, id: i64) -> Outcome<bool> {
    loop {
        match poll_fn(|context| line.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(sent))) => {
                return Ok(sent.payload().parse() != Ok(id));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error.into()),
            None => {
                return Err(
                    unavailable("the connection that listens was closed".to_owned()).into(),
                );
            }
        }
    }
}
