//! Captures the head and the tail of a command's output in bounded memory.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

use helmdeck_core::session::Captured;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Size of one read.
const CHUNK: usize = 64 << 10;

/// Head and tail of an output.
#[derive(Debug)]
struct HeadAndTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    /// Limit of each, in bytes.
    most: (usize, usize),
}

impl HeadAndTail {
    fn push(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(bytes.len() as u64);
        let room = self.most.0 - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(self.most.1)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.most.1);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    fn take(&mut self) -> Captured {
        let (mut head, tail) = (
            std::mem::take(&mut self.head),
            Vec::from(std::mem::take(&mut self.tail)),
        );
        let left_out = self.total - (head.len() + tail.len()) as u64;
        if left_out > 0 {
            return Captured {
                head,
                tail,
                left_out,
            };
        }
        head.extend_from_slice(&tail);
        Captured {
            head,
            tail: Vec::new(),
            left_out,
        }
    }
}

/// Output that is being read.
#[derive(Debug, Clone)]
pub(super) struct Output(Arc<Mutex<HeadAndTail>>);

impl Output {
    /// Makes a capture of at most `bytes`: half for the head, half for the tail.
    pub(super) fn new(bytes: usize) -> Self {
        let most = (bytes - bytes / 2, bytes / 2);
        Self(Arc::new(Mutex::new(HeadAndTail {
            head: Vec::new(),
            tail: VecDeque::new(),
            total: 0,
            most,
        })))
    }

    /// Reads a pipe to its end.
    pub(super) async fn read(&self, mut pipe: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; CHUNK];
        while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
            self.0.lock().push(&buffer[..count]);
        }
    }

    /// Takes the output captured so far.
    pub(super) fn take(&self) -> Captured {
        self.0.lock().take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(most: usize, pieces: &[&[u8]]) -> Captured {
        let output = Output::new(most);
        for piece in pieces {
            output.0.lock().push(piece);
        }
        output.take()
    }

    #[test]
    fn what_fits_is_kept_whole() {
        let all = Captured {
            head: b"abcdef".to_vec(),
            tail: Vec::new(),
            left_out: 0,
        };
        assert_eq!(kept(6, &[b"ab", b"cde", b"f"]), all);
        assert_eq!(kept(6, &[b"abcdef"]), all);
        assert_eq!(kept(0, &[]), Captured::default());
    }

    #[test]
    fn long_output_keeps_head_and_tail() {
        let cut = Captured {
            head: b"abc".to_vec(),
            tail: b"xyz".to_vec(),
            left_out: 3,
        };
        assert_eq!(kept(6, &[b"abc123xyz"]), cut);
        assert_eq!(kept(6, &[b"a", b"bc1", b"23x", b"y", b"z"]), cut);
        assert_eq!(kept(6, &[b"abc1", b"23", b"", b"xyz"]), cut);
        assert_eq!(
            kept(0, &[b"abc"]),
            Captured {
                head: Vec::new(),
                tail: Vec::new(),
                left_out: 3
            }
        );
    }
}
