//! Reading the stream again: from a place in it, or from where a named reader stopped.

use std::time::Duration;

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::Message as Delivered;
use async_nats::jetstream::consumer::pull::{Config, FetchBuilder};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer};
use futures_util::StreamExt as _;

use super::link::{Link, Nats};
use super::stream::refused;
use crate::sink::{Message, SinkError, Stored};

/// How long a reader without a name is kept by the server after it went away.
const FORGET: Duration = Duration::from_secs(30);
/// The largest number of messages that are read at once.
const MOST: usize = 10_000;

impl Nats {
    /// Returns messages of the stream from a sequence number on (1 = all), oldest first, at most
    /// `most`.
    ///
    /// Continue at the number after the last one.
    ///
    /// # Errors
    /// [`SinkError`], also if the stream cannot be read within the time.
    pub fn replay(
        &self,
        from: u64,
        most: usize,
        within: Duration,
    ) -> Result<Vec<Stored>, SinkError> {
        self.wait(within, move |mut link| async move {
            link.up().await?;
            let config = Config {
                deliver_policy: DeliverPolicy::ByStartSequence {
                    start_sequence: from.max(1),
                },
                ack_policy: AckPolicy::None,
                inactive_threshold: FORGET,
                ..Config::default()
            };
            let consumer = link
                .stream()
                .await?
                .create_consumer(config)
                .await
                .map_err(|error| refused(&error))?;
            let delivered = fetch(&consumer, most).await?;
            delivered.iter().map(stored).collect()
        })
    }

    /// Passes the unread messages of a named reader to `take`, oldest first, at most `most`.
    ///
    /// Stops when `take` refuses a message, and returns how many were taken. The others are
    /// delivered again. The server keeps the reader's position over restarts, but may lose the last
    /// part of it when it is killed: then messages are delivered twice.
    ///
    /// # Errors
    /// [`SinkError`]; messages taken before it may be delivered again.
    pub fn follow(
        &self,
        reader: &str,
        most: usize,
        within: Duration,
        mut take: impl FnMut(&Stored) -> bool,
    ) -> Result<usize, SinkError> {
        let name = reader.to_owned();
        let delivered = self.wait(within, move |mut link| async move {
            link.delivered(&name, most).await
        })?;
        let mut taken = Vec::new();
        let mut refused_one = false;
        let mut rest = Vec::new();
        for message in delivered {
            if !refused_one && take(&stored(&message)?) {
                taken.push(message);
            } else {
                refused_one = true;
                rest.push(message);
            }
        }
        self.wait(within, move |_| async move { answer(taken, rest).await })
    }
}

impl Link {
    async fn delivered(&mut self, reader: &str, most: usize) -> Result<Vec<Delivered>, SinkError> {
        self.up().await?;
        let config = Config {
            durable_name: Some(reader.to_owned()),
            deliver_policy: DeliverPolicy::All,
            ack_policy: AckPolicy::Explicit,
            ..Config::default()
        };
        let stream = self.stream().await?;
        let consumer = stream
            .get_or_create_consumer(reader, config)
            .await
            .map_err(|error| refused(&error))?;
        fetch(&consumer, most).await
    }
}

/// Takes the available messages without waiting.
async fn fetch(consumer: &PullConsumer, most: usize) -> Result<Vec<Delivered>, SinkError> {
    let batch: FetchBuilder<'_> = consumer.fetch().max_messages(most.min(MOST));
    let mut messages = batch.messages().await.map_err(|error| refused(&error))?;
    let mut all = Vec::new();
    while let Some(message) = messages.next().await {
        all.push(message.map_err(|error| refused(&error))?);
    }
    Ok(all)
}

/// Acknowledges the taken messages, and returns the others for redelivery.
async fn answer(taken: Vec<Delivered>, rest: Vec<Delivered>) -> Result<usize, SinkError> {
    for message in &taken {
        message
            .double_ack()
            .await
            .map_err(|error| refused(&error))?;
    }
    for message in &rest {
        let again = async_nats::jetstream::AckKind::Nak(None);
        message
            .ack_with(again)
            .await
            .map_err(|error| refused(&error))?;
    }
    Ok(taken.len())
}

fn stored(message: &Delivered) -> Result<Stored, SinkError> {
    let id = message
        .headers
        .as_ref()
        .and_then(|headers| headers.get(NATS_MESSAGE_ID));
    Ok(Stored {
        sequence: message
            .info()
            .map_err(|error| refused(&error))?
            .stream_sequence,
        message: Message {
            subject: message.subject.to_string(),
            id: id.map(ToString::to_string).unwrap_or_default(),
            body: message.payload.to_vec(),
        },
    })
}
