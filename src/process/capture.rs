//! Bounded capture of a program's output.

/// Which part of an output is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capture {
    head: usize,
    tail: usize,
    /// Whether an output that does not fit is a failure.
    pub(crate) complete: bool,
}

impl Capture {
    /// Keeps the whole output. It is a failure if it has more than `limit` bytes.
    #[must_use]
    pub const fn all(limit: usize) -> Self {
        Self {
            head: limit,
            tail: 0,
            complete: true,
        }
    }

    /// Keeps the first bytes.
    #[must_use]
    pub const fn head(bytes: usize) -> Self {
        Self::ends(bytes, 0)
    }

    /// Keeps the last bytes.
    #[must_use]
    pub const fn tail(bytes: usize) -> Self {
        Self::ends(0, bytes)
    }

    /// Keeps the first bytes and the last ones.
    #[must_use]
    pub const fn ends(head: usize, tail: usize) -> Self {
        Self {
            head,
            tail,
            complete: false,
        }
    }

    /// The number of bytes that [`Capture::all`] allows.
    pub(crate) const fn limit(&self) -> usize {
        self.head
    }

    pub(crate) fn start(self) -> Buffer {
        Buffer {
            capture: self,
            head: Vec::new(),
            tail: Vec::new(),
            dropped: 0,
        }
    }
}

/// A captured output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// The first bytes.
    pub head: Vec<u8>,
    /// The number of bytes between the first and the last ones that were not kept.
    pub dropped: usize,
    /// The last bytes.
    pub tail: Vec<u8>,
}

impl Captured {
    /// Returns all kept bytes.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        if self.head.is_empty() {
            return self.tail;
        }
        self.head.append(&mut self.tail);
        self.head
    }

    /// Returns all kept bytes as text. Bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn into_text(self) -> String {
        match String::from_utf8(self.into_bytes()) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }
    }
}

/// An output that is being captured.
#[derive(Debug)]
pub(crate) struct Buffer {
    capture: Capture,
    head: Vec<u8>,
    tail: Vec<u8>,
    dropped: usize,
}

impl Buffer {
    /// Adds bytes. Returns false if a complete capture has become too large.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        let (head, rest) = bytes.split_at(bytes.len().min(self.capture.head - self.head.len()));
        self.head.extend_from_slice(head);
        if self.capture.complete {
            return rest.is_empty();
        }
        self.tail.extend_from_slice(rest);
        // Twice the size, so that a byte is moved once on average.
        if self.tail.len() > 2 * self.capture.tail {
            self.cut();
        }
        true
    }

    fn cut(&mut self) {
        let over = self.tail.len().saturating_sub(self.capture.tail);
        self.tail.drain(..over);
        self.dropped += over;
    }

    pub(crate) fn finish(mut self) -> Captured {
        self.cut();
        Captured {
            head: self.head,
            dropped: self.dropped,
            tail: self.tail,
        }
    }

    pub(crate) const fn capture(&self) -> Capture {
        self.capture
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(capture: Capture, chunks: &[&[u8]]) -> (bool, String, usize) {
        let mut buffer = capture.start();
        let fits = chunks.iter().all(|chunk| buffer.push(chunk));
        let captured = buffer.finish();
        let dropped = captured.dropped;
        (fits, captured.into_text(), dropped)
    }

    #[test]
    fn each_capture_keeps_its_part() {
        let chunks: &[&[u8]] = &[b"abc", b"defgh", b"", b"ij"];
        assert_eq!(
            captured(Capture::all(10), chunks),
            (true, "abcdefghij".to_owned(), 0)
        );
        assert!(!captured(Capture::all(9), chunks).0);
        assert_eq!(
            captured(Capture::head(4), chunks),
            (true, "abcd".to_owned(), 6)
        );
        assert_eq!(
            captured(Capture::tail(4), chunks),
            (true, "ghij".to_owned(), 6)
        );
        assert_eq!(
            captured(Capture::ends(2, 3), chunks),
            (true, "abhij".to_owned(), 5)
        );
        assert_eq!(
            captured(Capture::ends(8, 8), chunks),
            (true, "abcdefghij".to_owned(), 0)
        );
        assert_eq!(
            captured(Capture::head(0), chunks),
            (true, String::new(), 10)
        );
    }
}
