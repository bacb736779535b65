//! Exact numbers: counts and durations as databases take them, and non-integers that a 64-bit float
//! rounds to an integer.
//!
//! A schema's `type: integer` is exact, also for a number such as `1e-1000000000`.

use std::borrow::Cow;
use std::time::Duration;

/// Converts a count to the integer type of databases; a larger one becomes the largest.
#[must_use]
pub fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a number from the integer type of databases; a negative one becomes zero.
#[must_use]
pub fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Returns the microseconds of a duration; more than fit become the largest number.
#[must_use]
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Every float from here on is an integer.
const FIRST_INTEGER_ONLY: f64 = 4_503_599_627_370_496.0;

/// Returns a JSON text with each of those numbers replaced by a float close to it that is no
/// integer.
///
/// So a reader which goes through floats does not take it for an integer. `Cow::Borrowed` if there
/// is none. The text must be JSON.
#[must_use]
pub fn with_exact_integers(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_string(bytes, at),
            b'-' | b'0'..=b'9' => {
                let length = bytes[at..]
                    .iter()
                    .take_while(|byte| {
                        matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
                    })
                    .count();
                if let Some(other) = stand_in(&text[at..at + length]) {
                    out.push_str(&text[copied..at]);
                    out.push_str(&format!("{other:e}"));
                    copied = at + length;
                }
                at += length;
            }
            _ => at += 1,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn stand_in(number: &str) -> Option<f64> {
    if !number
        .bytes()
        .any(|byte| matches!(byte, b'.' | b'e' | b'E'))
        || is_integer(number)
    {
        return None;
    }
    let float: f64 = number.parse().ok()?;
    if !float.is_finite() || float.fract() != 0.0 {
        return None;
    }
    let least = if float.abs() < FIRST_INTEGER_ONLY {
        float.abs()
    } else {
        FIRST_INTEGER_ONLY
    };
    let near = if least == FIRST_INTEGER_ONLY {
        least.next_down()
    } else {
        least.next_up()
    };
    Some(if number.starts_with('-') { -near } else { near })
}

/// Returns whether a JSON number is an integer, exactly.
fn is_integer(number: &str) -> bool {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa
        .trim_start_matches('-')
        .split_once('.')
        .unwrap_or((mantissa.trim_start_matches('-'), ""));
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() && whole.bytes().all(|digit| digit == b'0') {
        return true;
    }
    // Digits behind the point (or, if below zero, zeros before it) are what the exponent has to
    // make up for.
    let zeros = if fraction.is_empty() {
        whole.len() - whole.trim_end_matches('0').len()
    } else {
        0
    };
    let needed =
        i128::try_from(fraction.len()).unwrap_or(i128::MAX) - i128::try_from(zeros).unwrap_or(0);
    match exponent.parse::<i128>() {
        Ok(exponent) => exponent >= needed,
        Err(_) => !exponent.starts_with('-'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_told_exactly() {
        for number in [
            "0",
            "-0.0",
            "0e-99",
            "1.0",
            "1e2",
            "1.50e1",
            "100e-2",
            "9007199254740993",
            "-12.000",
        ] {
            assert!(is_integer(number), "{number}");
        }
        let long = format!("0.{}1", "0".repeat(900_000));
        for number in [
            "1e-1000000000",
            "123e-2147483649",
            "1.5",
            "100e-3",
            "1.00000000000000000000001",
            long.as_str(),
        ] {
            assert!(!is_integer(number), "{}", &number[..number.len().min(30)]);
        }
    }

    #[test]
    fn rounded_numbers_are_no_integers_to_a_reader_of_floats() {
        let text = r#"{"a":1e-400,"b":[-1.00000000000000000000001,2.0,"1e-400"],"c":10000000000000000000.5}"#;
        let exact = with_exact_integers(text);
        let value: serde_json::Value = serde_json::from_str(&exact).unwrap();
        for number in [&value["a"], &value["b"][0], &value["c"]] {
            assert!(number.as_f64().unwrap().fract() != 0.0, "{number}");
        }
        assert_eq!(
            (value["b"][1].as_f64(), value["b"][2].as_str()),
            (Some(2.0), Some("1e-400"))
        );
        assert!(matches!(
            with_exact_integers(r#"{"a":[1,2.5,1e3,"x\"1e-400"]}"#),
            Cow::Borrowed(_)
        ));
    }
}
