//! The stream: created if missing, and published to.

use std::fmt;
use std::time::Duration;

use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType, Stream};

use super::link::Link;
use super::options::NatsOptions;
use crate::sink::{Message, Receipt, SinkError};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Link {
    /// Publishes a message and waits until the stream has it. Sent twice, it is there once.
    pub(super) async fn publish(&mut self, message: Message) -> Result<Receipt, SinkError> {
        self.up().await?;
        let mut made = false;
        loop {
            let publish = PublishMessage::build()
                .payload(message.body.clone().into())
                .message_id(&message.id);
            let sent = match self
                .jetstream
                .send_publish(message.subject.clone(), publish)
                .await
            {
                Ok(acknowledged) => acknowledged.await,
                Err(error) => Err(error),
            };
            match sent {
                Ok(stored) => {
                    return Ok(Receipt {
                        sequence: stored.sequence,
                        duplicate: stored.duplicate,
                    });
                }
                // A new server, one that lost its files, or one whose stream was made for other
                // subjects.
                Err(error) if error.kind() == PublishErrorKind::StreamNotFound && !made => {
                    self.widened(self.stream().await?).await?;
                    made = true;
                }
                Err(error) => return Err(refused(&error)),
            }
        }
    }

    /// Returns the stream, and creates it if missing. An existing stream is left unchanged.
    pub(super) async fn stream(&self) -> Result<Stream, SinkError> {
        self.jetstream
            .get_or_create_stream(config(&self.options))
            .await
            .map_err(|error| refused(&error))
    }
}

impl Link {
    /// Adds our subjects to a stream that was made for others. Its other settings stay.
    async fn widened(&self, stream: Stream) -> Result<(), SinkError> {
        let mut config = stream.cached_info().config.clone();
        if widen(&mut config.subjects, &self.options.subjects) {
            self.jetstream
                .update_stream(config)
                .await
                .map_err(|error| refused(&error))?;
        }
        Ok(())
    }
}

/// Adds subjects that are not among those of a stream yet. Says whether there were any.
fn widen(subjects: &mut Vec<String>, ours: &[String]) -> bool {
    let mut any = false;
    for subject in ours {
        if !subjects.iter().any(|one| covers(one, subject)) {
            // A server takes no two that overlap.
            subjects.retain(|one| !covers(subject, one));
            subjects.push(subject.clone());
            any = true;
        }
    }
    any
}

/// Returns whether a wider subject matches every match of a subject.
///
/// `*` is any one token of a subject, `>` is all remaining tokens.
fn covers(wide: &str, narrow: &str) -> bool {
    let (mut wide, mut narrow) = (wide.split('.'), narrow.split('.'));
    loop {
        match (wide.next(), narrow.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(word)) if word != ">" => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

pub(super) fn refused(error: &dyn fmt::Display) -> SinkError {
    SinkError::Refused(error.to_string())
}

fn config(options: &NatsOptions) -> Config {
    Config {
        name: options.stream.clone(),
        subjects: options.subjects.clone(),
        storage: StorageType::File,
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::Old,
        max_age: 30 * DAY,
        max_bytes: 64 * 1024 * 1024,
        duplicate_window: Duration::from_secs(120),
        num_replicas: 1,
        ..Config::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_subjects_widen_a_stream() {
        let words = |subjects: &[&str]| {
            subjects
                .iter()
                .map(|one| (*one).to_owned())
                .collect::<Vec<_>>()
        };
        for (there, ours, after) in [
            (
                vec!["sx9.forge.memory.>"],
                "sx9.forge.memory.>",
                vec!["sx9.forge.memory.>"],
            ),
            (vec!["sx9.>"], "sx9.forge.memory.>", vec!["sx9.>"]),
            (
                vec!["*.forge.memory.>"],
                "sx9.forge.memory.>",
                vec!["*.forge.memory.>"],
            ),
            (
                vec!["sx9.forge.memory.>"],
                "acme.forge.memory.>",
                vec!["sx9.forge.memory.>", "acme.forge.memory.>"],
            ),
            (
                vec!["sx9.forge.memory.focus", "b.x"],
                "sx9.forge.memory.>",
                vec!["b.x", "sx9.forge.memory.>"],
            ),
            (
                vec!["sx9.forge.memory.*"],
                "sx9.forge.memory.>",
                vec!["sx9.forge.memory.>"],
            ),
            (
                vec!["sx9.forge.memor"],
                "sx9.forge.memory.>",
                vec!["sx9.forge.memor", "sx9.forge.memory.>"],
            ),
        ] {
            let mut subjects = words(&there);
            assert_eq!(
                widen(&mut subjects, &words(&[ours])),
                subjects != words(&there)
            );
            assert_eq!(subjects, words(&after));
        }
    }
}
