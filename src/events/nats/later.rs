//! Lazy connection: it opens with the first message.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use helmdeck_egress::Egress;
use parking_lot::Mutex;

use super::{Nats, NatsOptions};
use crate::sink::{Message, Receipt, Sink, SinkError, Stored};

/// Lazy connection to a NATS server: it opens with the first message.
///
/// A program that only reads opens none.
#[derive(Debug)]
pub struct Later {
    options: NatsOptions,
    guard: Egress,
    link: OnceLock<Nats>,
}

impl Later {
    /// Returns an unopened connection.
    ///
    /// With wrong options every message fails; a repaired credentials file works from the next
    /// message on.
    #[must_use]
    pub const fn new(options: NatsOptions, guard: Egress) -> Self {
        Self {
            options,
            guard,
            link: OnceLock::new(),
        }
    }
}

impl Later {
    fn link(&self) -> Result<&Nats, SinkError> {
        if let Some(link) = self.link.get() {
            return Ok(link);
        }
        let opened = Nats::open(self.options.clone(), &self.guard)?;
        // Another thread may have been faster: one connection is enough.
        Ok(self.link.get_or_init(|| opened))
    }
}

impl Sink for Later {
    fn publish(&self, message: &Message, within: Duration) -> Result<Receipt, SinkError> {
        let began = Instant::now();
        self.link()?
            .publish(message, within.saturating_sub(began.elapsed()))
    }

    fn check(&self) -> Result<(), SinkError> {
        self.options.check(&self.guard)?;
        self.options.credentials()?;
        self.options.check_certificates()
    }

    fn stored(&self, from: u64, most: usize, within: Duration) -> Result<Vec<Stored>, SinkError> {
        let began = Instant::now();
        self.link()?
            .stored(from, most, within.saturating_sub(began.elapsed()))
    }
}

/// The one connection of a process, as long as the options stay the same.
#[derive(Debug, Default)]
pub struct Shared(Mutex<Option<Arc<Later>>>);

impl Shared {
    /// Returns the connection with these options. A new one is not opened yet, and asks the guard
    /// when it opens.
    #[must_use]
    pub fn link(&self, options: NatsOptions, guard: Egress) -> Arc<Later> {
        let mut kept = self.0.lock();
        if let Some(link) = kept.as_ref().filter(|link| link.options == options) {
            return Arc::clone(link);
        }
        let link = Arc::new(Later::new(options, guard));
        *kept = Some(Arc::clone(&link));
        link
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Egress {
        Egress::new(helmdeck_egress::Config::default())
            .naming(&"nats://127.0.0.1:1".parse().unwrap())
    }

    #[test]
    fn wrong_options_fail_the_first_message() {
        let later = Later::new(
            NatsOptions::new("http://127.0.0.1", "sx9.forge.memory.>"),
            guard(),
        );
        assert!(later.link.get().is_none());
        let message = Message {
            subject: "sx9.forge.memory.focus".to_owned(),
            id: "1".to_owned(),
            body: Vec::new(),
        };
        for _ in 0..2 {
            let refused = later.publish(&message, Duration::from_millis(250));
            assert!(
                matches!(refused, Err(SinkError::Settings(_))),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn check_refuses_wrong_options_offline() {
        let usual = NatsOptions::new("nats://127.0.0.1:1", "sx9.forge.memory.>");
        let absent = Some(std::path::PathBuf::from("/nonexistent/file"));
        for (options, words) in [
            (
                NatsOptions {
                    url: "http://127.0.0.1".to_owned(),
                    ..usual.clone()
                },
                "nats://",
            ),
            (
                NatsOptions {
                    url: "nats://127.0.0.1:2".to_owned(),
                    ..usual.clone()
                },
                "127.0.0.1",
            ),
            (
                NatsOptions {
                    credentials: absent.clone(),
                    ..usual.clone()
                },
                "credentials",
            ),
            (
                NatsOptions {
                    certificates: absent,
                    ..usual.clone()
                },
                "certificates",
            ),
        ] {
            let wrong = Later::new(options, guard()).check();
            assert!(
                matches!(&wrong, Err(SinkError::Settings(why)) if why.contains(words)),
                "{wrong:?}"
            );
        }
        let later = Later::new(usual, guard());
        assert_eq!(later.check(), Ok(()), "no server runs, and none was asked");
        assert!(later.link.get().is_none());
    }

    #[test]
    fn same_options_share_a_connection() {
        let (shared, options) = (
            Shared::default(),
            NatsOptions::new("nats://127.0.0.1:1", "sx9.forge.memory.>"),
        );
        let first = shared.link(options.clone(), guard());
        assert!(Arc::ptr_eq(&first, &shared.link(options.clone(), guard())));
        let other = shared.link(
            NatsOptions {
                stream: "OTHER".to_owned(),
                ..options
            },
            guard(),
        );
        assert!(!Arc::ptr_eq(&first, &other));
    }
}
