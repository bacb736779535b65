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

/// Encodes 8 bytes as lower-case hex without an allocation.
///
/// # Examples
/// ```
/// assert_eq!(&helmdeck_core::hex_digits(0x00ab_u64.to_be_bytes()), b"00000000000000ab");
/// ```
#[must_use]
pub fn hex_digits(bytes: [u8; 8]) -> [u8; 16] {
    let mut text = [b'0'; 16];
    HEXLOWER.encode_mut(&bytes, &mut text);
    text
}
