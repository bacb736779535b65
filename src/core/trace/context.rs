//! W3C trace context: the headers `traceparent` and `tracestate`
//! (<https://www.w3.org/TR/trace-context/>).

use std::fmt;

use crate::random::random_u64;

/// Length of a `traceparent` of version 00.
const LENGTH: usize = 55;
/// Flag of a trace that is recorded.
const SAMPLED: u8 = 1;
/// Limit of a `tracestate`, in bytes (section 3.3.1.5 asks for at least 512).
const MAX_STATE_BYTES: usize = 512;

/// Id of a trace. Never zero.
pub type TraceId = u128;

/// Position in a trace: the trace, and the span that is the parent of the next ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The span. Never zero.
    pub span_id: u64,
    /// Whether the trace is recorded.
    pub sampled: bool,
}

impl TraceContext {
    /// Reads a `traceparent`, `None` if it is malformed.
    ///
    /// Higher versions than 00 are read as far as 00 defines them (section 4.3).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let known = bytes.len() == LENGTH || (bytes.len() > LENGTH && bytes[LENGTH] == b'-');
        if !known || [2, 35, 52].into_iter().any(|dash| bytes[dash] != b'-') {
            return None;
        }
        let version = hex(bytes, 0, 2)?;
        let (trace_id, span_id) = (hex(bytes, 3, 35)?, u64::try_from(hex(bytes, 36, 52)?).ok()?);
        let flags = u8::try_from(hex(bytes, 53, 55)?).ok()?;
        let valid = version != 0xff
            && (version != 0 || bytes.len() == LENGTH)
            && trace_id != 0
            && span_id != 0;
        valid.then_some(Self {
            trace_id,
            span_id,
            sampled: flags & SAMPLED != 0,
        })
    }

    /// Returns a position in a new trace.
    #[must_use]
    pub fn start(sampled: bool) -> Self {
        let trace_id = (u128::from(random_u64()) << 64) | u128::from(random_u64());
        Self {
            trace_id: trace_id.max(1),
            span_id: random_u64().max(1),
            sampled,
        }
    }

    /// Returns the position of a new span in the same trace.
    #[must_use]
    pub fn child(self) -> Self {
        Self {
            span_id: random_u64().max(1),
            ..self
        }
    }
}

/// Writes the `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "00-{:032x}-{:016x}-{:02x}",
            self.trace_id,
            self.span_id,
            u8::from(self.sampled)
        )
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns a `tracestate` that can be passed on: visible ASCII, spaces and tabs, at most 512 bytes.
pub(super) fn state(text: &str) -> Option<&str> {
    let plain = |byte: u8| matches!(byte, b'\t' | b' '..=b'~');
    let text = text.trim_matches([' ', '\t']);
    (!text.is_empty() && text.len() <= MAX_STATE_BYTES && text.bytes().all(plain)).then_some(text)
}

/// Reads lower-case hexadecimal digits; upper-case ones are malformed (section 3.2.2).
fn hex(bytes: &[u8], from: usize, to: usize) -> Option<u128> {
    bytes[from..to].iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some((number << 4) | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn traceparent_is_read_and_written_alike() {
        let context = TraceContext::parse(GIVEN).unwrap();
        assert_eq!(context.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(context.span_id, 0x00f0_67aa_0ba9_02b7);
        assert!(context.sampled);
        assert_eq!(context.to_string(), GIVEN);
        let child = context.child();
        assert_eq!(child.trace_id, context.trace_id);
        assert_ne!(child.span_id, context.span_id);
    }

    #[test]
    fn later_versions_are_read_as_far_as_known() {
        for later in [
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
            &format!("cc{}-what", &GIVEN[2..]),
        ] {
            assert_eq!(
                TraceContext::parse(later).unwrap().trace_id,
                TraceContext::parse(GIVEN).unwrap().trace_id
            );
        }
    }

    #[test]
    fn malformed_traceparents_are_none() {
        let long = format!("{GIVEN}-x");
        for wrong in [
            "",
            "00",
            &long,
            &format!("01{}x", &GIVEN[2..]),
            &GIVEN.to_uppercase(),
            &GIVEN.replace("4bf9", "4bg9"),
            &format!("ff{}", &GIVEN[2..]),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-é",
        ] {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn states_are_bounded_and_plain() {
        assert_eq!(state(" rojo=1,congo=2 "), Some("rojo=1,congo=2"));
        for wrong in ["", " ", "a=\n", "a=é", &"x".repeat(513)] {
            assert_eq!(state(wrong), None, "{wrong:?}");
        }
    }
}
