//! Leak scan of streams that are too large for memory.

use std::io::{self, Read};

use super::{Finding, scan};

/// Bytes that are scanned together.
const PIECE: u64 = 4 << 20;
/// Bytes that are scanned again with the next piece, so that a credential on the border is found.
const AGAIN: usize = 64 << 10;

/// What a reader gives, piece by piece.
#[derive(Debug)]
pub struct Pieces<R> {
    from: R,
    piece: u64,
    again: usize,
    kept: Vec<u8>,
    lines: u32,
}

impl<R: Read> Pieces<R> {
    /// Begins to read.
    pub const fn new(from: R) -> Self {
        Self {
            from,
            piece: PIECE,
            again: AGAIN,
            kept: Vec::new(),
            lines: 0,
        }
    }

    /// Returns the possible credentials in the next piece; `None` at the end.
    ///
    /// A finding may be returned twice.
    pub fn next_piece(&mut self) -> io::Result<Option<Vec<Finding>>> {
        if self
            .from
            .by_ref()
            .take(self.piece)
            .read_to_end(&mut self.kept)?
            == 0
        {
            return Ok(None);
        }
        let mut found = scan(&String::from_utf8_lossy(&self.kept));
        for finding in &mut found {
            finding.line = finding.line.saturating_add(self.lines);
        }
        let cut = self.kept.len().saturating_sub(self.again);
        let lines = self.kept[..cut]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        self.lines = self
            .lines
            .saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        let is_word = |byte: Option<&u8>| {
            byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        };
        let within = cut > 0 && is_word(self.kept.get(cut - 1));
        self.kept.drain(..cut);
        // The middle of a word is not the begin of one.
        if let Some(first) = self
            .kept
            .first_mut()
            .filter(|first| within && is_word(Some(first)))
        {
            *first = b'_';
        }
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &[u8]) -> Vec<Finding> {
        let mut pieces = Pieces {
            from: text,
            piece: 100,
            again: 50,
            kept: Vec::new(),
            lines: 0,
        };
        let mut all = Vec::new();
        while let Some(found) = pieces.next_piece().unwrap() {
            all.extend(found);
        }
        all
    }

    #[test]
    fn a_credential_is_found_wherever_it_is_cut() {
        let token = format!("{}{}", concat!("gh", "p_"), "aB3x".repeat(9));
        for before in 0..250 {
            for filler in ["\n", " ", "\0", "é"] {
                let text = format!(
                    "{}\n{token}\nrest {}",
                    filler.repeat(before),
                    ". ".repeat(120)
                );
                let found = found(text.as_bytes());
                let line = 2 + u32::try_from(if filler == "\n" { before } else { 0 }).unwrap();
                assert!(!found.is_empty(), "{before} {filler:?}");
                assert!(
                    found
                        .iter()
                        .all(|one| one.rule == "github-token" && one.line == line),
                    "{before}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn the_middle_of_a_word_is_no_credential() {
        let token = format!("{}{}", "AKIA", "Q3EGZ7PLMX5RT2WV");
        for before in 1..250 {
            let text = format!("{}{token} {}", "x".repeat(before), ". ".repeat(120));
            assert_eq!(found(text.as_bytes()), [], "{before}");
        }
    }
}
