//! Length-prefixed framing: turns several fields into one byte string that no other fields can
//! spell.
//!
//! Every key, every MAC and every seal is made over such a string, so the layout must never change
//! within a format version.

/// A byte string under construction.
#[derive(Debug)]
pub struct Framed(Vec<u8>);

impl Framed {
    /// Starts with a domain: what the string is for.
    pub fn new(domain: &str) -> Self {
        Self(Vec::with_capacity(512)).text(domain)
    }

    /// Adds a field of any length.
    pub fn bytes(mut self, field: &[u8]) -> Self {
        self.0
            .extend_from_slice(&(field.len() as u64).to_be_bytes());
        self.0.extend_from_slice(field);
        self
    }

    /// Adds a text.
    pub fn text(self, field: &str) -> Self {
        self.bytes(field.as_bytes())
    }

    /// Adds a number, 8 bytes, big endian.
    pub fn number(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    /// Adds a text that may be absent; absent and empty differ.
    pub fn optional(self, field: Option<&str>) -> Self {
        match field {
            Some(text) => self.number(1).text(text),
            None => self.number(0),
        }
    }

    /// Returns the finished string.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_concatenations_frame_differently() {
        let framed = |parts: &[&str]| {
            parts
                .iter()
                .fold(Framed::new("d"), |f, p| f.text(p))
                .as_slice()
                .to_vec()
        };
        assert_ne!(framed(&["a:b", "c"]), framed(&["a", "b:c"]));
        assert_ne!(framed(&["ab"]), framed(&["a", "b"]));
        assert_ne!(
            Framed::new("d").optional(None).as_slice(),
            Framed::new("d").optional(Some("")).as_slice()
        );
    }

    #[test]
    fn the_layout_is_a_length_and_then_the_field() {
        assert_eq!(
            Framed::new("a").text("bc").as_slice(),
            b"\0\0\0\0\0\0\0\x01a\0\0\0\0\0\0\0\x02bc"
        );
    }
}
