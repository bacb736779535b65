//! Position in the deletes of a store: what one replica has done, so that another can catch up with it.

use std::fmt;
use std::str::FromStr;

use helmdeck_core::hex;

use crate::entry::Namespace;
use crate::keyring::KeyRing;

/// Limit of the text of a position, in bytes.
const MAX_BYTES: usize = 400;
/// Limit of the transactions of a position.
const MAX_TRANSACTIONS: usize = 16;
/// Version of the text.
const VERSION: &str = "p2";
/// Purpose of the key of the MACs.
const PURPOSE: &str = "delete position";
/// Size of a MAC in bytes.
const MAC_BYTES: usize = 16;

/// Position in the deletes of a store.
///
/// It names the last transactions that deleted. A reader has caught up when it has seen all of them: each began after
/// the commit of what is not named. Its text is opaque to callers, and ends with a MAC under the memory key: nobody else makes one
/// that no server has reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletePosition {
    /// Which database server it was, and of two which came later: another one may count other transactions.
    pub(crate) server: i64,
    /// The transactions.
    pub(crate) transactions: Vec<i64>,
    /// MAC of the rest.
    mac: [u8; MAC_BYTES],
}

impl DeletePosition {
    /// Makes a position; `None` if there are too many transactions to name.
    pub(crate) fn new(server: i64, transactions: Vec<i64>) -> Option<Self> {
        (transactions.len() <= MAX_TRANSACTIONS).then_some(Self { server, transactions, mac: [0; MAC_BYTES] })
    }

    /// Returns the position with its MAC.
    pub(crate) fn signed(mut self, ring: &KeyRing) -> Self {
        self.mac = self.mac_of(ring);
        self
    }

    /// Returns whether a server with a key of the ring made it.
    pub(crate) fn is_genuine(&self, ring: &KeyRing) -> bool {
        let same = |mac: [u8; 32]| mac.iter().zip(self.mac).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0;
        ring.macs(&Namespace::new("", "", None), PURPOSE, &[self.named().as_bytes()]).any(same)
    }

    fn mac_of(&self, ring: &KeyRing) -> [u8; MAC_BYTES] {
        let mac = ring.mac(&Namespace::new("", "", None), PURPOSE, &[self.named().as_bytes()]);
        std::array::from_fn(|index| mac[index])
    }

    /// Returns the text without the MAC.
    fn named(&self) -> String {
        let transactions: String = self.transactions.iter().map(|transaction| format!("-{transaction}")).collect();
        format!("{VERSION}-{}{transactions}", self.server)
    }
}

impl fmt::Display for DeletePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.named(), hex(&self.mac))
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
        let (text, mac) = text.rsplit_once('-').ok_or(BadPosition::Malformed)?;
        let mac = unhex(mac).ok_or(BadPosition::Malformed)?;
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
        let position = Self::new(server, transactions).ok_or(BadPosition::Malformed)?;
        Ok(Self { mac, ..position })
    }
}

fn unhex(text: &str) -> Option<[u8; MAC_BYTES]> {
    let is_plain = text.len() == 2 * MAC_BYTES && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let number = u128::from_str_radix(text, 16).ok().filter(|_| is_plain)?;
    Some(number.to_be_bytes())
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
    }

    #[test]
    fn only_the_key_of_the_servers_makes_a_position() {
        let ring = |digit: &str| KeyRing::parse(("key", &digit.repeat(64)), None).unwrap();
        let position = DeletePosition::new(5, vec![7, 8]).unwrap();
        assert!(!position.is_genuine(&ring("a")), "it is not signed");
        let signed = position.signed(&ring("a"));
        assert!(signed.is_genuine(&ring("a")) && !signed.is_genuine(&ring("b")));
        let text = signed.to_string();
        for at in 0..text.len() {
            let mut altered = text.clone().into_bytes();
            altered[at] = if altered[at] == b'1' { b'2' } else { b'1' };
            let altered = String::from_utf8(altered).unwrap().parse::<DeletePosition>();
            assert!(altered.is_err() || !altered.unwrap().is_genuine(&ring("a")), "byte {at}");
        }
        assert_eq!(DeletePosition::new(1, vec![1; MAX_TRANSACTIONS + 1]), None);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "p2", "p2-", "p2-x", "p1-1-1", "p2-1--1", "p2-+1", "p2-1-", "p2-9223372036854775808", "p2-1-1 "]
        {
            assert_eq!(text.parse::<DeletePosition>(), Err(BadPosition::Malformed), "{text}");
            let with_mac = format!("{text}-{}", "0".repeat(32));
            assert_eq!(with_mac.parse::<DeletePosition>(), Err(BadPosition::Malformed), "{with_mac}");
        }
        for mac in ["0".repeat(31), "0".repeat(33), "A".repeat(32), format!("+{}", "0".repeat(31))] {
            assert_eq!(format!("p2-1-{mac}").parse::<DeletePosition>(), Err(BadPosition::Malformed), "{mac}");
        }
        let many = format!("p2-1{}-{}", "-1".repeat(17), "0".repeat(32));
        assert_eq!(many.parse::<DeletePosition>(), Err(BadPosition::Malformed));
        assert_eq!("p1-1".repeat(200).parse::<DeletePosition>(), Err(BadPosition::TooLong));
    }
}
