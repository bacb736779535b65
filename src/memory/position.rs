//! Position in the deletes of a store: what one replica has done, so that another can catch up with it.

use std::fmt;
use std::str::FromStr;

/// Limit of the text of a position, in bytes.
const MAX_BYTES: usize = 400;
/// Limit of the transactions of a position.
const MAX_TRANSACTIONS: usize = 16;
/// Version of the text.
const VERSION: &str = "p1";

/// Position in the deletes of a store.
///
/// It names the last transactions that deleted. A reader has caught up when it has seen all of them: each began after
/// the commit of what is not named. Its text is opaque to callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletePosition {
    /// When the database server started, in Unix microseconds: another server may count other transactions.
    pub(crate) server: i64,
    /// The transactions.
    pub(crate) transactions: Vec<i64>,
}

impl DeletePosition {
    /// Makes a position; `None` if there are too many transactions to name.
    pub(crate) fn new(server: i64, transactions: Vec<i64>) -> Option<Self> {
        (transactions.len() <= MAX_TRANSACTIONS).then_some(Self { server, transactions })
    }
}

impl fmt::Display for DeletePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION}-{}", self.server)?;
        self.transactions.iter().try_for_each(|transaction| write!(f, "-{transaction}"))
    }
}

/// Error of a text that is no position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPosition {
    /// It is too long.
    #[error("it is longer than {MAX_BYTES} bytes")]
    TooLong,
    /// No server made it.
    #[error("no server of this version made it; send the value of Helmdeck-Position as it is")]
    Malformed,
}

impl FromStr for DeletePosition {
    type Err = BadPosition;

    fn from_str(text: &str) -> Result<Self, BadPosition> {
        if text.len() > MAX_BYTES {
            return Err(BadPosition::TooLong);
        }
        let mut parts = text.split('-');
        if parts.next() != Some(VERSION) {
            return Err(BadPosition::Malformed);
        }
        let number = |part: &str| {
            // `parse` would accept a sign.
            let digits = part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse::<i64>().ok().filter(|_| digits).ok_or(BadPosition::Malformed)
        };
        let server = number(parts.next().unwrap_or_default())?;
        let transactions = parts.map(number).collect::<Result<Vec<i64>, BadPosition>>()?;
        Self::new(server, transactions).ok_or(BadPosition::Malformed)
    }
}

/// Result of catching up with a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaughtUp {
    /// The store has no positions: there is nothing to catch up with.
    NoPositions,
    /// Subscribers get this mark ([`crate::Change::Mark`]) after all deletes up to the position.
    Mark(u64),
    /// The deletes up to the position could not be read.
    Behind,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_position_reads_back() {
        for transactions in [vec![], vec![7], vec![i64::MAX; MAX_TRANSACTIONS]] {
            let position = DeletePosition::new(1_700_000_000_000_000, transactions).unwrap();
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        assert_eq!(DeletePosition::new(1, vec![1; MAX_TRANSACTIONS + 1]), None);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "p1", "p1-", "p1-x", "p2-1-1", "p1-1--1", "p1-+1", "p1-1-", "p1-9223372036854775808", "p1-1-1 "]
        {
            assert_eq!(text.parse::<DeletePosition>(), Err(BadPosition::Malformed), "{text}");
        }
        assert_eq!(format!("p1-1{}", "-1".repeat(17)).parse::<DeletePosition>(), Err(BadPosition::Malformed));
        assert_eq!("p1-1".repeat(200).parse::<DeletePosition>(), Err(BadPosition::TooLong));
    }
}
