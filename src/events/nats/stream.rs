//! The stream: made when it is missing, and published to.

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
            let publish = PublishMessage::build().payload(message.body.clone().into()).message_id(&message.id);
            let sent = match self.jetstream.send_publish(message.subject.clone(), publish).await {
                Ok(acknowledged) => acknowledged.await,
                Err(error) => Err(error),
            };
            match sent {
                Ok(stored) => return Ok(Receipt { sequence: stored.sequence, duplicate: stored.duplicate }),
                // A new server, or one that lost its files.
                Err(error) if error.kind() == PublishErrorKind::StreamNotFound && !made => {
                    self.stream().await?;
                    made = true;
                }
                Err(error) => return Err(refused(&error)),
            }
        }
    }

    /// Returns the stream, made if it is missing. One that is there stays as it is.
    pub(super) async fn stream(&self) -> Result<Stream, SinkError> {
        self.jetstream.get_or_create_stream(config(&self.options)).await.map_err(|error| refused(&error))
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
