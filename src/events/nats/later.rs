//! A connection that is made when the first message goes out.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::{Nats, NatsOptions};
use crate::sink::{Message, Receipt, Sink, SinkError};

/// A connection to a NATS server that is made when the first message goes out: a program that only reads does without.
#[derive(Debug)]
pub struct Later {
    options: NatsOptions,
    link: OnceLock<Result<Nats, SinkError>>,
}

impl Later {
    /// Makes it. Nothing is done yet, so wrong options are an error of the first message.
    #[must_use]
    pub const fn new(options: NatsOptions) -> Self {
        Self { options, link: OnceLock::new() }
    }
}

impl Sink for Later {
    fn publish(&self, message: &Message, within: Duration) -> Result<Receipt, SinkError> {
        let began = Instant::now();
        match self.link.get_or_init(|| Nats::open(self.options.clone())) {
            Ok(link) => link.publish(message, within.saturating_sub(began.elapsed())),
            Err(error) => Err(error.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_opened_before_the_first_message_and_wrong_options_fail_it() {
        let later = Later::new(NatsOptions::new("http://127.0.0.1", "sx9.forge.memory.>"));
        assert!(later.link.get().is_none());
        let message = Message { subject: "sx9.forge.memory.focus".to_owned(), id: "1".to_owned(), body: Vec::new() };
        for _ in 0..2 {
            let refused = later.publish(&message, Duration::from_millis(250));
            assert!(matches!(refused, Err(SinkError::Settings(_))), "{refused:?}");
        }
    }
}
