//! Hexadecimal text.

use data_encoding::HEXLOWER;

/// Encodes bytes as lower-case hex.
///
/// # Examples
/// ```
/// assert_eq!(helmdeck_core::hex(&[0, 0xab]), "00ab");
/// ```
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}
