//! Notifications between replicas: a delete sends one, and other replicas receive it after the commit.
//!
//! The delete sends it inside its transaction. Each replica listens on a separate connection. After a loss of the
//! connection it reports that notifications may be missing.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use aes_gcm::aead::Generate;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio_postgres::{AsyncMessage, Client};

use super::connect::{Dialer, PgConnection};
use super::error::Outcome;
use super::flush::Notice;
use crate::entry::{Kind, Namespace, Reach};
use crate::error::{Result, StoreError};
use crate::ops::{Change, Delete};

/// The longest payload; PostgreSQL allows 7999 bytes.
const PAYLOAD_BYTES: usize = 7900;

/// Notifications that are kept for a slow subscriber. It learns when it missed some.
pub(super) const CHANGES: usize = 1024;

/// How long until the next try to listen, at first and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// How often the listening connection is checked.
const ASK_EVERY: Duration = Duration::from_secs(15);

/// Sender and channel of notifications.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    /// The channel that all replicas on the same tables share.
    pub(super) channel: String,
    /// Random id of this process: it skips its own notifications, and names its advisory lock.
    pub(super) id: i64,
}

/// Payload: the sender, and the deletes; none = too many to list.
#[derive(Debug, Serialize, Deserialize)]
struct Message {
    o: i64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    d: Vec<Deleted>,
}

/// A delete as it is sent.
#[derive(Debug, Serialize, Deserialize)]
enum Deleted {
    #[serde(rename = "k")]
    Key(Whose, Kind, String),
    #[serde(rename = "p")]
    Prefix(Option<Whose>, Option<Kind>, String),
    #[serde(rename = "t")]
    Tagged(Option<Whose>, Kind, String),
    /// Tenant and subject of a caller.
    #[serde(rename = "c")]
    TaggedFor(String, String, Kind, String),
}

/// Tenant, subject and session.
type Whose = (String, String, Option<String>);

impl Origin {
    /// Makes a random origin.
    ///
    /// # Errors
    /// `Unavailable` if the system cannot provide randomness.
    pub(super) fn new(channel: String) -> Result<Self> {
        let id = <[u8; 8]>::try_generate().map_err(StoreError::unavailable)?;
        Ok(Self { channel, id: i64::from_le_bytes(id) })
    }

    /// Writes the payload for deletes.
    pub(super) fn notice(&self, deletes: &[Delete]) -> Notice {
        let write = |d| serde_json::to_string(&Message { o: self.id, d }).unwrap_or_default();
        // A delete takes more than 16 bytes; many need not be tried.
        let all =
            if deletes.len() < PAYLOAD_BYTES / 16 { deletes.iter().map(Deleted::of).collect() } else { Vec::new() };
        let payload = write(all);
        let payload = if payload.len() > PAYLOAD_BYTES { write(Vec::new()) } else { payload };
        Notice { channel: self.channel.clone(), payload }
    }

    /// Reads the payload of another process.
    fn changes(&self, payload: &str) -> Vec<Change> {
        match serde_json::from_str::<Message>(payload) {
            Ok(message) if message.o == self.id => Vec::new(),
            Ok(message) if !message.d.is_empty() => {
                message.d.into_iter().map(|deleted| Change::Deleted(deleted.into_delete())).collect()
            }
            // Too many to list, or sent by another version.
            _ => vec![Change::Anything],
        }
    }
}

impl Deleted {
    fn of(delete: &Delete) -> Self {
        let whose = |namespace: &Namespace| {
            let session = namespace.session.as_deref().map(ToOwned::to_owned);
            (namespace.tenant.to_string(), namespace.subject.to_string(), session)
        };
        match delete {
            Delete::Key { namespace, kind, key } => Self::Key(whose(namespace), *kind, key.clone()),
            Delete::Prefix { namespace, kind, prefix } => {
                Self::Prefix(namespace.as_ref().map(whose), *kind, prefix.clone())
            }
            Delete::Tagged { whose: Reach::Everybody, kind, tag } => Self::Tagged(None, *kind, tag.clone()),
            Delete::Tagged { whose: Reach::One(namespace), kind, tag } => {
                Self::Tagged(Some(whose(namespace)), *kind, tag.clone())
            }
            Delete::Tagged { whose: Reach::Caller { tenant, subject }, kind, tag } => {
                Self::TaggedFor(tenant.to_string(), subject.to_string(), *kind, tag.clone())
            }
        }
    }

    fn into_delete(self) -> Delete {
        let namespace = |(tenant, subject, session): Whose| Namespace::new(&tenant, &subject, session.as_deref());
        match self {
            Self::Key(whose, kind, key) => Delete::Key { namespace: namespace(whose), kind, key },
            Self::Prefix(whose, kind, prefix) => Delete::Prefix { namespace: whose.map(namespace), kind, prefix },
            Self::Tagged(whose, kind, tag) => Delete::Tagged {
                whose: whose.map_or(Reach::Everybody, |whose| Reach::One(namespace(whose))),
                kind,
                tag,
            },
            Self::TaggedFor(tenant, subject, kind, tag) => {
                let whose = Reach::Caller { tenant: tenant.into(), subject: subject.into() };
                Delete::Tagged { whose, kind, tag }
            }
        }
    }
}

/// A connection that listens, and holds the advisory lock that shows that this process is alive.
pub(super) struct ChangeListener {
    client: Client,
    line: PgConnection,
}

/// Connects and listens.
pub(super) async fn connect(dialer: &Dialer, origin: &Origin) -> Outcome<ChangeListener> {
    let (client, line) = dialer.dial().await?;
    let mut listener = ChangeListener { client, line };
    let greeting = format!("{}; LISTEN {}; SELECT pg_advisory_lock({})", dialer.greeting(), origin.channel, origin.id);
    listener.ask(&greeting, &mut |_| {}).await?;
    Ok(listener)
}

impl ChangeListener {
    /// Runs SQL over the connection, and forwards notifications that arrive meanwhile.
    async fn ask(&mut self, sql: &str, heard: &mut (dyn FnMut(String) + Send)) -> Outcome<()> {
        let (client, line) = (&self.client, &mut self.line);
        super::connect::within(async {
            let mut answer = std::pin::pin!(client.batch_execute(sql));
            loop {
                tokio::select! {
                    done = &mut answer => return Outcome::Ok(done?),
                    message = next(line) => heard(message?),
                }
            }
        })
        .await
    }

    /// Forwards notifications until the connection is lost.
    async fn listen(&mut self, heard: &mut (dyn FnMut(String) + Send)) -> Outcome<()> {
        loop {
            match tokio::time::timeout(ASK_EVERY, next(&mut self.line)).await {
                Ok(message) => heard(message?),
                Err(_) => self.ask("SELECT 1", heard).await?,
            }
        }
    }
}

/// Waits for the next notification.
async fn next(line: &mut PgConnection) -> Outcome<String> {
    loop {
        match poll_fn(|context| line.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(notification))) => return Ok(notification.payload().to_owned()),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error.into()),
            None => return Err(super::error::unavailable("the connection that listens was closed".to_owned()).into()),
        }
    }
}

/// Listens for ever. After a loss it reconnects, and reports that notifications may be missing.
pub(super) async fn run(
    mut listener: ChangeListener,
    dialer: Dialer,
    origin: Arc<Origin>,
    changes: broadcast::Sender<Change>,
) {
    let mut hear = |payload: String| {
        for change in origin.changes(&payload) {
            // There may be no subscriber.
            let _ = changes.send(change);
        }
    };
    loop {
        let _ = listener.listen(&mut hear).await;
        // At once, so that no subscriber trusts its copy; and again after the reconnect.
        hear(String::new());
        let mut pause = AGAIN.0;
        listener = loop {
            match connect(&dialer, &origin).await {
                Ok(listener) => break listener,
                Err(failure) => tracing::debug!(error = %failure.error, "listening for what other replicas delete"),
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(AGAIN.1);
        };
        hear(String::new());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(id: i64) -> Origin {
        Origin { channel: "c".to_owned(), id }
    }

    #[test]
    fn payload_names_deletes_and_skips_the_sender() {
        let alice = Namespace::new("t", "al\0ice", Some(""));
        let deletes = [
            Delete::Key { namespace: alice.clone(), kind: Kind::Note, key: "k\"\0😀".into() },
            Delete::Prefix { namespace: None, kind: None, prefix: String::new() },
            Delete::Prefix { namespace: Some(alice), kind: Some(Kind::Cache), prefix: "p".into() },
            Delete::Tagged { whose: Reach::Everybody, kind: Kind::Cache, tag: "x".into() },
            Delete::Tagged { whose: Reach::One(Namespace::new("t", "", None)), kind: Kind::Fact, tag: "x".into() },
            Delete::Tagged {
                whose: Reach::Caller { tenant: "t".into(), subject: "al\0ice".into() },
                kind: Kind::Cache,
                tag: "x".into(),
            },
        ];
        let notice = origin(-7).notice(&deletes);
        assert!(!notice.payload.contains('\0'), "{}", notice.payload);
        assert_eq!(origin(-7).changes(&notice.payload), []);
        assert_eq!(origin(7).changes(&notice.payload), deletes.map(Change::Deleted));
    }

    #[test]
    fn too_much_to_say_or_nonsense_means_anything() {
        let one = |length| Delete::Prefix { namespace: None, kind: None, prefix: "p".repeat(length) };
        for deletes in [vec![one(9000)], vec![one(500); 20], vec![one(0); 100_000]] {
            let notice = origin(1).notice(&deletes);
            assert!(notice.payload.len() < 8000);
            assert_eq!(origin(2).changes(&notice.payload), [Change::Anything]);
            assert_eq!(origin(1).changes(&notice.payload), []);
        }
        assert_eq!(origin(2).changes(""), [Change::Anything]);
        assert_eq!(origin(2).changes("{\"o\":1,\"x\":2,\"d\":[{\"z\":1}]}"), [Change::Anything]);
    }
}
