//! Redacts secrets from a stream of bytes, also where a secret spans two pieces.
//!
//! The end of the bytes is held back, up to the length of the longest secret in its longest usual
//! spelling. The rest is cut at a position that is not within a secret.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use helmdeck_core::context::{ByteStream, CallSecrets};
use helmdeck_core::{Code, Error, Result};

use super::forms::{Needle, needles};

/// Longest spelling of one byte of a secret, in bytes.
///
/// `\\\\u0022` is JSON inside of JSON, and one more level fits.
const SPELLING: usize = 16;
/// Limit of bytes held back where secrets are so close together that no cut is possible.
///
/// No useful file looks like that.
const MAX_HELD: usize = 1 << 20;
/// Pieces are joined up to this size before they are searched.
///
/// A larger size saves work, since held back bytes are searched again.
const WORTH: usize = 64 << 10;

/// Redacts the secrets of a stream that were revealed before each piece.
pub fn stream(source: ByteStream, secrets: Arc<dyn CallSecrets>) -> ByteStream {
    let flow = Flow {
        secrets,
        known: 0,
        needles: Vec::new(),
        hold: 0,
        pending: BytesMut::new(),
    };
    Box::pin(stream::try_unfold(Some((source, flow)), async |state| {
        let Some((mut source, mut flow)) = state else {
            return Ok(None);
        };
        loop {
            match source.next().await {
                Some(piece) => {
                    let ready = flow.add(&piece?)?;
                    if !ready.is_empty() {
                        return Ok(Some((ready, Some((source, flow)))));
                    }
                }
                None => return Ok(Some((flow.rest(), None))),
            }
        }
    }))
}

struct Flow {
    secrets: Arc<dyn CallSecrets>,
    /// Number of secrets that the needles cover.
    known: usize,
    needles: Vec<Needle>,
    hold: usize,
    pending: BytesMut,
}

impl Flow {
    fn add(&mut self, piece: &[u8]) -> Result<Bytes> {
        self.learn();
        self.pending.extend_from_slice(piece);
        if self.needles.is_empty() {
            return Ok(self.pending.split().freeze());
        }
        if self.pending.len() < self.hold + WORTH {
            return Ok(Bytes::new());
        }
        let cut = self.cut();
        if cut == 0 && self.pending.len() > MAX_HELD {
            return Err(Error::new(
                Code::ArtifactFailed,
                "the file holds secrets so close together that it cannot be cleaned",
            ));
        }
        let ready = self.pending.split_to(cut).freeze();
        Ok(self.clean(ready))
    }

    fn rest(&mut self) -> Bytes {
        self.learn();
        let ready = self.pending.split().freeze();
        self.clean(ready)
    }

    fn learn(&mut self) {
        let revealed = self.secrets.revealed();
        if revealed.len() != self.known {
            self.known = revealed.len();
            self.needles = needles(&revealed);
            self.hold = self.needles.iter().map(Needle::len).max().unwrap_or(0) * SPELLING;
        }
    }

    fn clean(&self, bytes: Bytes) -> Bytes {
        match super::without(&bytes, &self.needles) {
            std::borrow::Cow::Borrowed(_) => bytes,
            std::borrow::Cow::Owned(clean) => clean.into(),
        }
    }

    /// Returns where to cut: before the bytes that are held back, and not within a secret.
    fn cut(&self) -> usize {
        let mut cut = self.pending.len() - self.hold;
        loop {
            let earlier = self.before_secrets(cut);
            if earlier == cut {
                return cut;
            }
            cut = earlier;
        }
    }

    /// Returns the cut, or the start of a secret that spans it.
    ///
    /// Such a secret begins and ends within `hold` of the cut.
    fn before_secrets(&self, mut cut: usize) -> usize {
        let from = cut.saturating_sub(self.hold);
        let window = &self.pending[from..self.pending.len().min(cut + self.hold)];
        let mut found: Vec<(usize, usize)> = Vec::new();
        for needle in &self.needles {
            let mut at = 0;
            while let Some((start, end)) = needle.find(window, at) {
                found.push((from + start, from + end));
                at = end.max(at + 1);
            }
        }
        found.sort_unstable_by_key(|(start, _)| std::cmp::Reverse(*start));
        for (start, end) in found {
            if start < cut && cut < end {
                cut = start;
            }
        }
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use helmdeck_core::Secret;
    use helmdeck_core::secrets::Grant;

    struct StaticSecrets(Vec<&'static str>);

    impl CallSecrets for StaticSecrets {
        fn grants(&self) -> &[Grant] {
            &[]
        }
        fn get(&self, _: &str) -> Result<Option<Secret>> {
            Ok(None)
        }
        fn revealed(&self) -> Vec<Secret> {
            self.0
                .iter()
                .map(|text| Secret::new((*text).to_owned()))
                .collect()
        }
    }

    fn cleaned(secrets: &[&'static str], text: &[u8], size: usize) -> Vec<u8> {
        let mut flow = Flow {
            secrets: Arc::new(StaticSecrets(secrets.to_vec())),
            known: 0,
            needles: Vec::new(),
            hold: 0,
            pending: BytesMut::new(),
        };
        let mut out = Vec::new();
        for piece in text.chunks(size) {
            out.extend_from_slice(&flow.add(piece).unwrap());
        }
        out.extend_from_slice(&flow.rest());
        out
    }

    #[test]
    fn a_secret_goes_wherever_the_pieces_are_cut() {
        let secrets = ["p\"ss w\u{f6}rd", "s3cr3t-t0ken"];
        // In plain, in a URL, in JSON, in base64 inside of something longer; and in all places of a
        // long file.
        let spelled = "p\"ss w\u{f6}rd p%22ss%20w%C3%B6rd p\\\"ss w\\u00f6rd dXNlcjpzM2NyM3QtdDBrZW4= s3cr3t-t0ken";
        let line = format!("{}{spelled}\n", "x".repeat(777));
        let text = line.repeat(150);
        let known: Vec<Secret> = secrets
            .iter()
            .map(|text| Secret::new((*text).to_owned()))
            .collect();
        let whole = super::super::bytes(text.as_bytes(), &known).into_owned();
        for size in [1, 7, 4096, 65_537, text.len()] {
            assert!(
                cleaned(&secrets, text.as_bytes(), size) == whole,
                "pieces of {size}"
            );
        }
        assert!(
            !String::from_utf8_lossy(&whole).contains("s3cr3t")
                && whole.windows(8).any(|found| found == b"[secret]")
        );
    }

    #[test]
    fn without_secrets_nothing_is_held_back() {
        let mut flow = Flow {
            secrets: Arc::new(StaticSecrets(Vec::new())),
            known: 0,
            needles: Vec::new(),
            hold: 0,
            pending: BytesMut::new(),
        };
        assert_eq!(flow.add(b"abc").unwrap(), "abc");
    }

    #[test]
    fn overlapping_secrets_end_the_stream_without_leak() {
        let mut flow = Flow {
            secrets: Arc::new(StaticSecrets(vec!["abcdefabc", "defabcdef"])),
            known: 0,
            needles: Vec::new(),
            hold: 0,
            pending: BytesMut::new(),
        };
        let piece = b"abcdef".repeat(20_000);
        let mut clean = Vec::new();
        for _ in 0..40 {
            match flow.add(&piece) {
                Ok(ready) => clean.extend_from_slice(&ready),
                Err(error) => {
                    assert_eq!(error.code(), Code::ArtifactFailed);
                    break;
                }
            }
        }
        assert!(!clean.windows(9).any(|found| found == b"abcdefabc"));
    }
}
