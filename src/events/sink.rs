//! Sink: publishes to other processes with one blocking call and a deadline.

use std::fmt;
use std::time::Duration;

/// Message for other processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Subject: tokens separated by dots, such as `sx9.forge.memory.session.start`.
    pub subject: String,
    /// Its id, by which a receiver recognises a duplicate.
    pub id: String,
    /// The payload.
    pub body: Vec<u8>,
}

/// Receipt of a stored message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Sequence number, from 1.
    pub sequence: u64,
    /// Whether the message was stored before; it is not stored twice.
    pub duplicate: bool,
}

/// Stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Sequence number, from 1.
    pub sequence: u64,
    /// The message.
    pub message: Message,
}

/// Errors of a sink. After [`SinkError::Elapsed`] the message may be stored or not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// A setting makes no sense, or is not allowed.
    #[error("{0}")]
    Settings(String),
    /// The server is unreachable.
    #[error("no event server: {0}")]
    Unreachable(String),
    /// It took too long.
    #[error("the event server did not answer within {} ms", .0.as_millis())]
    Elapsed(Duration),
    /// The server refused it.
    #[error("the event server refused: {0}")]
    Refused(String),
}

/// Sink: publishes messages to other processes, and reads them back.
pub trait Sink: fmt::Debug + Send + Sync {
    /// Hands a message on and waits until it is stored, but never longer than `within`. Blocking.
    ///
    /// # Errors
    /// [`SinkError`]. A message that failed may be handed on again, with the same id.
    fn publish(&self, message: &Message, within: Duration) -> Result<Receipt, SinkError>;

    /// Checks the options without any I/O to the server, which may still be unreachable.
    ///
    /// # Errors
    /// [`SinkError::Settings`].
    fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    /// Returns stored messages from a sequence number on (1 = all), oldest first, at most `most`.
    ///
    /// Fewer than `most` means the end. Blocks for at most `within`.
    ///
    /// # Errors
    /// [`SinkError`], including a read that exceeds the time; [`SinkError::Settings`] from a sink that cannot be read.
    fn stored(&self, from: u64, most: usize, within: Duration) -> Result<Vec<Stored>, SinkError> {
        let _ = (from, most, within);
        Err(SinkError::Settings(
            "what went out there cannot be read again".to_owned(),
        ))
    }
}
