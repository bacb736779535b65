//! XAES-256-GCM ([C2SP](https://c2sp.org/XAES-256-GCM)): AES-256-GCM with a nonce of 192 bits.
//!
//! Each message has its own AES-256-GCM key: the first half of the nonce derives it (NIST SP
//! 800-108r1, CMAC in counter mode, two AES blocks), the second half is the nonce of AES-256-GCM.
//! So random nonces are safe for 2^80 messages under one key (a repeated nonce has a chance of
//! 2^-32 then), where AES-256-GCM alone ends at 2^32.

use aes_gcm::aead::Generate;
use aes_gcm::aes::cipher::BlockCipherEncrypt;
use aes_gcm::aes::{Aes256, Block};
use aes_gcm::{AeadInOut, Aes256Gcm, Error, KeyInit, Nonce};
use zeroize::Zeroizing;

use crate::error::{Result, StoreError};
use crate::key::KEY_BYTES;

/// Length of a nonce in bytes.
pub(crate) const NONCE_BYTES: usize = 24;
/// Length of the half of a nonce that AES-256-GCM takes.
const HALF: usize = 12;

/// The cipher under one key.
pub(crate) struct Xaes256Gcm {
    cipher: Aes256,
    /// The first subkey of CMAC (NIST SP 800-38B, section 6.1).
    subkey: Zeroizing<[u8; 16]>,
}

impl Xaes256Gcm {
    pub(crate) fn new(key: &[u8; KEY_BYTES]) -> Self {
        let cipher = Aes256::new(&(*key).into());
        let mut block = Block::default();
        cipher.encrypt_block(&mut block);
        let doubled = u128::from_be_bytes(block.into());
        // Without a branch on a secret.
        let doubled = (doubled << 1) ^ ((doubled >> 127) * 0x87);
        Self {
            cipher,
            subkey: Zeroizing::new(doubled.to_be_bytes()),
        }
    }

    /// Returns the cipher for all nonces with this first half.
    fn derive(&self, half: [u8; HALF]) -> Aes256Gcm {
        let mut blocks = [1_u8, 2].map(|counter| {
            let mut message = [0, counter, b'X', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            message[4..].copy_from_slice(&half);
            let mut block = Block::default();
            for (out, (byte, key)) in block.iter_mut().zip(message.iter().zip(self.subkey.iter())) {
                *out = byte ^ key;
            }
            block
        });
        self.cipher.encrypt_blocks(&mut blocks);
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        for (part, block) in key.chunks_exact_mut(16).zip(&blocks) {
            part.copy_from_slice(block);
        }
        Aes256Gcm::new(&(*key).into())
    }

    /// Encrypts in place under a random nonce, and appends the tag.
    ///
    /// # Errors
    /// `Unavailable` if the system cannot provide randomness.
    pub(crate) fn seal(&self, aad: &[u8], value: &mut Vec<u8>) -> Result<[u8; NONCE_BYTES]> {
        let nonce = <[u8; NONCE_BYTES]>::try_generate().map_err(StoreError::unavailable)?;
        // Only a value beyond 64 GiB fails; the limit on values is far below.
        self.seal_with(&nonce, aad, value)
            .map_err(|_| StoreError::Corrupt("a value was too long to be sealed".to_owned()))?;
        Ok(nonce)
    }

    fn seal_with(
        &self,
        nonce: &[u8; NONCE_BYTES],
        aad: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let (half, rest) = halves(nonce);
        self.derive(half)
            .encrypt_in_place(&Nonce::from(rest), aad, value)
    }

    /// Decrypts in place, and removes the tag.
    ///
    /// # Errors
    /// If key, nonce, associated data or value differ from those of the seal.
    pub(crate) fn open(
        &self,
        nonce: &[u8; NONCE_BYTES],
        aad: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let (half, rest) = halves(nonce);
        self.derive(half)
            .decrypt_in_place(&Nonce::from(rest), aad, value)
    }
}

fn halves(nonce: &[u8; NONCE_BYTES]) -> ([u8; HALF], [u8; HALF]) {
    (
        std::array::from_fn(|at| nonce[at]),
        std::array::from_fn(|at| nonce[HALF + at]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::hex;

    fn sealed(key: u8, aad: &[u8]) -> String {
        let mut value = b"XAES-256-GCM".to_vec();
        Xaes256Gcm::new(&[key; 32])
            .seal_with(b"ABCDEFGHIJKLMNOPQRSTUVWX", aad, &mut value)
            .unwrap();
        hex(&value)
    }

    /// The vectors of the specification: one for each value of the first bit that the subkey
    /// depends on.
    #[test]
    fn vectors_of_the_specification_match() {
        assert_eq!(
            sealed(1, b""),
            "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"
        );
        let second = "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d";
        assert_eq!(sealed(3, b"c2sp.org/XAES-256-GCM"), second);
    }

    /// The accumulated vector: keys, nonces, values and associated data from one SHAKE128 stream,
    /// 10,000 times, and SHAKE128 over all results.
    #[test]
    fn accumulated_vector_of_the_specification_matches() {
        let (mut source, mut all) = (Shake128::default(), Shake128::default());
        for _ in 0..10_000 {
            let key: [u8; 32] = source.squeeze(32).try_into().unwrap();
            let nonce: [u8; 24] = source.squeeze(24).try_into().unwrap();
            let length = source.squeeze(1)[0];
            let plain = source.squeeze(length.into());
            let length = source.squeeze(1)[0];
            let aad = source.squeeze(length.into());
            let (cipher, mut value) = (Xaes256Gcm::new(&key), plain.clone());
            cipher.seal_with(&nonce, &aad, &mut value).unwrap();
            all.absorb(&value);
            cipher.open(&nonce, &aad, &mut value).unwrap();
            assert_eq!(value, plain);
        }
        let expected = "e6b9edf2df6cec60c8cbd864e2211b597fb69a529160cd040d56c0c210081939";
        assert_eq!(hex(&all.squeeze(32)), expected);
    }

    #[test]
    fn any_flipped_bit_does_not_open() {
        let cipher = Xaes256Gcm::new(&[7; 32]);
        let mut value = b"value".to_vec();
        let nonce = cipher.seal(b"aad", &mut value).unwrap();
        for bit in 0..NONCE_BYTES * 8 {
            let mut other = nonce;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(
                cipher.open(&other, b"aad", &mut value.clone()).is_err(),
                "bit {bit} of the nonce"
            );
        }
        for bit in 0..value.len() * 8 {
            let mut other = value.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(
                cipher.open(&nonce, b"aad", &mut other).is_err(),
                "bit {bit} of the value"
            );
        }
        assert!(cipher.open(&nonce, b"aae", &mut value.clone()).is_err());
        assert!(
            Xaes256Gcm::new(&[8; 32])
                .open(&nonce, b"aad", &mut value.clone())
                .is_err()
        );
        cipher.open(&nonce, b"aad", &mut value).unwrap();
        assert_eq!(value, b"value");
    }

    /// SHAKE128 ([FIPS 202](https://doi.org/10.6028/NIST.FIPS.202)): absorb, then squeeze.
    #[derive(Default)]
    struct Shake128 {
        state: [u64; 25],
        at: usize,
        squeezing: bool,
    }

    impl Shake128 {
        const RATE: usize = 168;

        fn flip(&mut self, at: usize, byte: u8) {
            self.state[at / 8] ^= u64::from(byte) << (8 * (at % 8));
        }

        fn absorb(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.flip(self.at, *byte);
                self.at += 1;
                if self.at == Self::RATE {
                    keccak(&mut self.state);
                    self.at = 0;
                }
            }
        }

        fn squeeze(&mut self, count: usize) -> Vec<u8> {
            if !self.squeezing {
                self.flip(self.at, 0x1f);
                self.flip(Self::RATE - 1, 0x80);
                (self.at, self.squeezing) = (Self::RATE, true);
            }
            (0..count)
                .map(|_| {
                    if self.at == Self::RATE {
                        keccak(&mut self.state);
                        self.at = 0;
                    }
                    self.at += 1;
                    self.state[(self.at - 1) / 8].to_le_bytes()[(self.at - 1) % 8]
                })
                .collect()
        }
    }

    /// Keccak-f[1600].
    fn keccak(a: &mut [u64; 25]) {
        let mut register = 1_u8;
        for _ in 0..24 {
            let columns: Vec<u64> = (0..5)
                .map(|x| (0..5).fold(0, |sum, y| sum ^ a[x + 5 * y]))
                .collect();
            for x in 0..5 {
                let with = columns[(x + 4) % 5] ^ columns[(x + 1) % 5].rotate_left(1);
                (0..5).for_each(|y| a[x + 5 * y] ^= with);
            }
            let (mut x, mut y, mut moved) = (1, 0, a[1]);
            for step in 1..=24_u32 {
                (x, y) = (y, (2 * x + 3 * y) % 5);
                moved = std::mem::replace(
                    &mut a[x + 5 * y],
                    moved.rotate_left(step * (step + 1) / 2 % 64),
                );
            }
            for y in 0..5 {
                let row: Vec<u64> = (0..5).map(|x| a[x + 5 * y]).collect();
                (0..5).for_each(|x| a[x + 5 * y] = row[x] ^ (!row[(x + 1) % 5] & row[(x + 2) % 5]));
            }
            for power in 0..7 {
                if register & 1 == 1 {
                    a[0] ^= 1 << ((1_u32 << power) - 1);
                }
                register = if register & 0x80 == 0 {
                    register << 1
                } else {
                    register << 1 ^ 0x71
                };
            }
        }
    }
}
