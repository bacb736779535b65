//! Position in the deletes of a store: what one replica has done, so that another can catch up with
//! it.

use std::fmt;
use std::str::FromStr;

use helmdeck_core::hex;

use crate::entry::Namespace;
use crate::keyring::KeyRing;

/// Limit of the text of a position, in bytes.
const MAX_BYTES: usize = 512;
/// Limit of the transactions of a position.
const MAX_TRANSACTIONS: usize = 16;
/// Version of the text.
const VERSION: &str = "p3";
/// Purpose of the key of the MACs.
const PURPOSE: &str = "delete position";
/// Size of a MAC in bytes.
const MAC_BYTES: usize = 16;

/// Run of a database server, from its start to its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ServerRun {
    /// Identifier of the system, which a standby shares with its primary; any 64 bits.
    pub(crate) system: i64,
    /// Timeline: a standby that is promoted begins a new one.
    pub(crate) timeline: i64,
    /// When the server started, in Unix microseconds by its own clock.
    pub(crate) started: i64,
}

/// Position in the deletes of a store.
///
/// It names the last transactions that deleted. A reader has caught up when it has seen all of
/// them: each began after the commit of what is not named. Its text is opaque to callers, and ends
/// with a MAC under the memory key: nobody else makes one that no server has reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletePosition {
    /// Which database server it was: another one may count other transactions.
    pub(crate) server: ServerRun,
    /// The transactions.
    pub(crate) transactions: Vec<i64>,
    /// MAC of the rest.
    mac: [u8; MAC_BYTES],
}

impl DeletePosition {
    /// Makes a position; `None` if there are too many transactions to name.
    pub(crate) fn new(server: ServerRun, transactions: Vec<i64>) -> Option<Self> {
        (transactions.len() <= MAX_TRANSACTIONS).then_some(Self {
            server,
            transactions,
            mac: [0; MAC_BYTES],
        })
    }

    /// Returns the position with its MAC.
    pub(crate) fn signed(mut self, ring: &KeyRing) -> Self {
        self.mac = self.mac_of(ring);
        self
    }

    /// Returns whether a server with a key of the ring made it.
    pub(crate) fn is_genuine(&self, ring: &KeyRing) -> bool {
        let same = |mac: [u8; 32]| {
            mac.iter()
                .zip(self.mac)
                .fold(0, |differs, (a, b)| differs | (a ^ b))
                == 0
        };
        ring.macs(
            &Namespace::new("", "", None),
            PURPOSE,
            &[self.named().as_bytes()],
        )
        .any(same)
    }

    fn mac_of(&self, ring: &KeyRing) -> [u8; MAC_BYTES] {
        let mac = ring.mac(
            &Namespace::new("", "", None),
            PURPOSE,
            &[self.named().as_bytes()],
        );
        std::array::from_fn(|index| mac[index])
    }

    /// Returns the text without the MAC.
    fn named(&self) -> String {
        let transactions: String = self
            .transactions
            .iter()
            .map(|transaction| format!("-{transaction}"))
            .collect();
        let ServerRun {
            system,
            timeline,
            started,
        } = self.server;
        format!(
            "{VERSION}-{}-{timeline}-{started}{transactions}",
            system.cast_unsigned()
        )
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
    #[error("no server made it; send the value of Helmdeck-Position as it is")]
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
        let version = parts.next().unwrap_or_default();
        if version != VERSION {
            // One of another version cannot be read. Its MAC is not that of an empty position, so
            // it is not genuine.
            let is_other = version
                .strip_prefix('p')
                .is_some_and(|number| !number.is_empty() && digits(number).is_some());
            let unread = Self {
                server: ServerRun::default(),
                transactions: Vec::new(),
                mac,
            };
            return is_other.then_some(unread).ok_or(BadPosition::Malformed);
        }
        let number = |part| {
            digits(part)
                .and_then(|part| part.parse::<i64>().ok())
                .ok_or(BadPosition::Malformed)
        };
        let mut next = || parts.next().unwrap_or_default();
        let system = digits(next())
            .and_then(|system| system.parse::<u64>().ok())
            .ok_or(BadPosition::Malformed)?;
        let (timeline, started) = (number(next())?, number(next())?);
        let server = ServerRun {
            system: system.cast_signed(),
            timeline,
            started,
        };
        let transactions = parts
            .map(number)
            .collect::<Result<Vec<i64>, BadPosition>>()?;
        let position = Self::new(server, transactions).ok_or(BadPosition::Malformed)?;
        Ok(Self { mac, ..position })
    }
}

/// Returns a text without a sign, which `parse` would accept.
fn digits(text: &str) -> Option<&str> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some(text)
}

fn unhex(text: &str) -> Option<[u8; MAC_BYTES]> {
    let is_plain = text.len() == 2 * MAC_BYTES
        && text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
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
            let server = ServerRun {
                system: -5,
                timeline: 3,
                started: 1_700_000_000_000_000,
            };
            let position = DeletePosition::new(server, transactions).unwrap();
            let text = position.to_string();
            assert!(
                text.starts_with("p3-18446744073709551611-3-1700000000000000-")
                    && text.len() <= MAX_BYTES,
                "{text}"
            );
            assert_eq!(text.parse(), Ok(position));
        }
    }

    #[test]
    fn only_the_key_of_the_servers_makes_a_position() {
        let ring = |digit: &str| KeyRing::parse(("key", &digit.repeat(64)), None).unwrap();
        let position = DeletePosition::new(ServerRun::default(), vec![7, 8]).unwrap();
        assert!(!position.is_genuine(&ring("a")), "it is not signed");
        let signed = position.signed(&ring("a"));
        assert!(signed.is_genuine(&ring("a")) && !signed.is_genuine(&ring("b")));
        let text = signed.to_string();
        for at in 0..text.len() {
            let mut altered = text.clone().into_bytes();
            altered[at] = if altered[at] == b'1' { b'2' } else { b'1' };
            let altered = String::from_utf8(altered)
                .unwrap()
                .parse::<DeletePosition>();
            assert!(
                altered.is_err() || !altered.unwrap().is_genuine(&ring("a")),
                "byte {at}"
            );
        }
        assert_eq!(
            DeletePosition::new(ServerRun::default(), vec![1; MAX_TRANSACTIONS + 1]),
            None
        );
    }

    #[test]
    fn position_of_another_version_is_read_and_not_genuine() {
        let ring = KeyRing::parse(("key", &"a".repeat(64)), None).unwrap();
        let other = "p2-5-7-00112233445566778899aabbccddeeff"
            .parse::<DeletePosition>()
            .unwrap();
        assert!(!other.is_genuine(&ring));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "p3",
            "p3-",
            "p3-1-1",
            "p3-x-1-1",
            "p3-1-x-1",
            "p3-1-1-x",
            "q2-1-1-1-1",
            "p-1-1-1-1",
            "p3-1-1-1--1",
            "p3-1-1-+1",
            "p3-+1-1-1",
            "p3-1-1-1-",
            "p3-18446744073709551616-1-1",
            "p3-1-1-9223372036854775808",
            "p3-1-1-1-1 ",
        ] {
            assert_eq!(
                text.parse::<DeletePosition>(),
                Err(BadPosition::Malformed),
                "{text}"
            );
            let with_mac = format!("{text}-{}", "0".repeat(32));
            assert_eq!(
                with_mac.parse::<DeletePosition>(),
                Err(BadPosition::Malformed),
                "{with_mac}"
            );
        }
        for mac in [
            "0".repeat(31),
            "0".repeat(33),
            "A".repeat(32),
            format!("+{}", "0".repeat(31)),
        ] {
            assert_eq!(
                format!("p3-1-1-1-{mac}").parse::<DeletePosition>(),
                Err(BadPosition::Malformed),
                "{mac}"
            );
        }
        let many = format!("p3-1-1-1{}-{}", "-1".repeat(17), "0".repeat(32));
        assert_eq!(many.parse::<DeletePosition>(), Err(BadPosition::Malformed));
        assert_eq!(
            "p1-1".repeat(200).parse::<DeletePosition>(),
            Err(BadPosition::TooLong)
        );
    }
}
