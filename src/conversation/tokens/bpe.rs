//! The tokenizers of OpenAI's models.

use std::collections::HashSet;

use tiktoken_rs::{CoreBPE, cl100k_base_singleton, o200k_base_singleton};

use super::chars;

/// Number of bytes counted at once.
const PIECE: usize = 16 << 10;

/// A tokenizer's table, built when it is first used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Of GPT-4 and GPT-3.5.
    Cl100k,
    /// Of GPT-4o and later.
    O200k,
}

impl Table {
    pub(super) fn get(self) -> &'static CoreBPE {
        match self {
            Self::Cl100k => cl100k_base_singleton(),
            Self::O200k => o200k_base_singleton(),
        }
    }

    pub(super) fn count(self, text: &str) -> u64 {
        pieces(text).map(|piece| self.piece(piece)).sum()
    }

    pub(super) fn prefix(self, text: &str, max: u64) -> usize {
        let (mut whole, mut left) = (0, max);
        for piece in pieces(text) {
            let tokens = self.piece(piece);
            if tokens > left {
                return whole + self.fitting(piece, left);
            }
            whole += piece.len();
            left -= tokens;
        }
        whole
    }

    /// Returns how many bytes of a piece that takes more take at most `max` tokens.
    fn fitting(self, piece: &str, max: u64) -> usize {
        let (mut fits, mut over) = (0, piece.len());
        while max > 0 && over - fits > 1 {
            let middle = floor(piece, fits + (over - fits) / 2);
            if middle == fits {
                // One character reaches from `fits` beyond the middle: to `over`, or to somewhere
                // before it.
                let next = fits + piece[fits..].chars().next().map_or(1, char::len_utf8);
                if next >= over {
                    break;
                }
                if self.piece(&piece[..next]) <= max {
                    fits = next
                } else {
                    over = next
                }
            } else if self.piece(&piece[..middle]) <= max {
                fits = middle;
            } else {
                over = middle;
            }
        }
        fits
    }

    /// Counts a text that is not long. Names of special tokens are text like any other.
    fn piece(self, text: &str) -> u64 {
        // A pattern may give up on a text; the estimate does not.
        self.get()
            .count(text, &HashSet::new())
            .map_or_else(|_| chars::count(text), |count| count as u64)
    }
}

/// Cuts a text into pieces, at white space if some is near.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = rest.len();
        if end > PIECE {
            end = floor(rest, PIECE);
            let near = floor(rest, PIECE - 256);
            // White space goes with the word behind it, as in the tokenizers.
            end = rest[near..end]
                .rfind(char::is_whitespace)
                .map_or(end, |at| near + at);
        }
        let (piece, behind) = rest.split_at(end);
        rest = behind;
        Some(piece)
    })
}

/// Returns the last boundary between two characters that is not behind `at`.
fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
