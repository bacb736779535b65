//! Canonical JSON: one spelling for equal documents, for cache keys.
//!
//! The rules are those of [RFC 8785](https://www.rfc-editor.org/rfc/rfc8785) (no white space,
//! members sorted by UTF-16 code units, shortest escapes) with one deliberate deviation: numbers
//! are exact normalised decimals of any size. RFC 8785 goes through a 64-bit float, where
//! 9007199254740992 and 9007199254740993 become one; two different inputs would share one key. A
//! number that a float can hold exactly is written as RFC 8785 writes it.

use serde_json::value::RawValue;

/// Limit of nesting. The reader in [`crate::json`] has the same limit.
pub const MAX_DEPTH: usize = 128;

/// How many digits an integer may have and be written without an exponent: as ECMAScript does, ...
const MAX_PLAIN_IN_KEY: i64 = 21;
/// ... or as many as the largest number that is accepted.
const MAX_PLAIN_FOR_HANDLER: i64 = 310;

/// Error of a text without a canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// The text is not JSON.
    #[error("not JSON")]
    Malformed,
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// An object has the same key twice.
    #[error("an object has the same key twice")]
    DuplicateKey,
    /// The exponent of a number has more than 18 digits.
    #[error("a number has an exponent of more than 18 digits")]
    Exponent,
}

/// Returns the canonical form of a JSON text.
///
/// Cost: linear in the text for every level of nesting.
///
/// # Errors
/// [`CanonicalError`], for example for an object with the same key twice.
pub fn canonical(text: &str) -> Result<Vec<u8>, CanonicalError> {
    let mut out = Vec::with_capacity(text.len());
    write_value(text, &mut out, 0, MAX_PLAIN_IN_KEY)?;
    Ok(out)
}

/// Returns the canonical form of a JSON text for a handler.
///
/// As [`canonical`], but every integer is in plain digits: many readers take a number with an
/// exponent for a float and lose digits.
///
/// # Errors
/// As [`canonical`].
pub fn canonical_for_handler(text: &str) -> Result<Vec<u8>, CanonicalError> {
    let mut out = Vec::with_capacity(text.len());
    write_value(text, &mut out, 0, MAX_PLAIN_FOR_HANDLER)?;
    Ok(out)
}

fn write_value(
    text: &str,
    out: &mut Vec<u8>,
    depth: usize,
    plain: i64,
) -> Result<(), CanonicalError> {
    if depth > MAX_DEPTH {
        return Err(CanonicalError::TooDeep);
    }
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    match text.as_bytes().first() {
        Some(b'{') => write_object(text, out, depth, plain),
        Some(b'[') => write_array(text, out, depth, plain),
        Some(b'"') => {
            let string: String =
                serde_json::from_str(text).map_err(|_| CanonicalError::Malformed)?;
            write_string(&string, out)
        }
        Some(b'-' | b'0'..=b'9') => {
            serde_json::from_str::<&RawValue>(text).map_err(|_| CanonicalError::Malformed)?;
            write_number(text, out, plain)
        }
        _ if matches!(text, "null" | "true" | "false") => {
            out.extend_from_slice(text.as_bytes());
            Ok(())
        }
        _ => Err(CanonicalError::Malformed),
    }
}

fn write_object(
    text: &str,
    out: &mut Vec<u8>,
    depth: usize,
    plain: i64,
) -> Result<(), CanonicalError> {
    let mut members = crate::json::members(text).ok_or(CanonicalError::Malformed)?;
    members.sort_by(|(a, _), (b, _)| utf16_order(a, b));
    if members.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(CanonicalError::DuplicateKey);
    }
    out.push(b'{');
    for (index, (key, value)) in members.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(key, out)?;
        out.push(b':');
        write_value(value.get(), out, depth + 1, plain)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_array(
    text: &str,
    out: &mut Vec<u8>,
    depth: usize,
    plain: i64,
) -> Result<(), CanonicalError> {
    let items: Vec<&RawValue> =
        serde_json::from_str(text).map_err(|_| CanonicalError::Malformed)?;
    out.push(b'[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_value(item.get(), out, depth + 1, plain)?;
    }
    out.push(b']');
    Ok(())
}

/// Order of members: by UTF-16 code units (RFC 8785 section 3.2.3).
///
/// It differs from UTF-8 order beyond U+FFFF.
fn utf16_order(a: &str, b: &str) -> std::cmp::Ordering {
    a.encode_utf16().cmp(b.encode_utf16())
}

/// Writes a string with the escapes of RFC 8785 section 3.2.2.2.
///
/// `serde_json` writes exactly these: `\b \t \n \f \r \" \\` and `\u00xx` in lower case.
fn write_string(string: &str, out: &mut Vec<u8>) -> Result<(), CanonicalError> {
    serde_json::to_writer(out, string).map_err(|_| CanonicalError::Malformed)
}

/// Writes a number as an exact decimal in the layout of ECMAScript's `Number::toString`.
///
/// Plain digits while the point lies within 21 digits (for an integer, `plain`), `d.ddde±x` beyond.
fn write_number(text: &str, out: &mut Vec<u8>, plain: i64) -> Result<(), CanonicalError> {
    let (negative, text) = text
        .strip_prefix('-')
        .map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));

    let all: String = [whole, fraction].concat();
    let digits = all.trim_start_matches('0').trim_end_matches('0');
    if digits.is_empty() {
        out.push(b'0');
        return Ok(());
    }
    if exponent
        .trim_start_matches(['+', '-'])
        .trim_start_matches('0')
        .len()
        > 18
    {
        return Err(CanonicalError::Exponent);
    }
    let exponent: i64 = exponent.parse().map_err(|_| CanonicalError::Exponent)?;
    let leading_zeros = all.len() - all.trim_start_matches('0').len();
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    // The value is 0.DIGITS times ten to the power of `point`.
    let point = length(whole) - i64::try_from(leading_zeros).unwrap_or(i64::MAX) + exponent;
    let count = length(digits);

    if negative {
        out.push(b'-');
    }
    let zeros = |n: i64| std::iter::repeat_n(b'0', usize::try_from(n).unwrap_or(0));
    if count <= point && point <= plain {
        out.extend_from_slice(digits.as_bytes());
        out.extend(zeros(point - count));
    } else if 0 < point && point <= 21 {
        let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0));
        out.extend_from_slice(whole.as_bytes());
        out.push(b'.');
        out.extend_from_slice(fraction.as_bytes());
    } else if -6 < point && point <= 0 {
        out.extend_from_slice(b"0.");
        out.extend(zeros(-point));
        out.extend_from_slice(digits.as_bytes());
    } else {
        let (first, rest) = digits.split_at(1);
        out.extend_from_slice(first.as_bytes());
        if !rest.is_empty() {
            out.push(b'.');
            out.extend_from_slice(rest.as_bytes());
        }
        out.extend_from_slice(format!("e{:+}", point - 1).as_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn form(text: &str) -> String {
        String::from_utf8(canonical(text).unwrap()).unwrap()
    }

    #[test]
    fn numbers_are_exact_and_laid_out_as_ecmascript_does() {
        // Expected values are from RFC 8785 appendix B and ECMA-262, or hand-written where a float
        // would round.
        for (text, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("0.000e5", "0"),
            ("1.0", "1"),
            ("1e2", "100"),
            ("100", "100"),
            ("1E-2", "0.01"),
            ("-0.0010", "-0.001"),
            ("0.0000001", "1e-7"),
            ("0.000001", "0.000001"),
            ("1e21", "1e+21"),
            ("1e20", "100000000000000000000"),
            (
                "123456789012345678901234567890",
                "1.2345678901234567890123456789e+29",
            ),
            ("9007199254740992", "9007199254740992"),
            ("9007199254740993", "9007199254740993"),
            ("4.50", "4.5"),
            ("2e-3", "0.002"),
            ("1e400", "1e+400"),
        ] {
            assert_eq!(form(text), expected, "{text}");
        }
        assert_eq!(
            canonical("1e9999999999999999999"),
            Err(CanonicalError::Exponent)
        );
    }

    #[test]
    fn handlers_get_integers_in_plain_digits() {
        let form = |text: &str| String::from_utf8(canonical_for_handler(text).unwrap()).unwrap();
        for (text, expected) in [
            (r#"{"b":1.0,"a":-0.0}"#, r#"{"a":0,"b":1}"#),
            ("1234567890123456789.0", "1234567890123456789"),
            (
                "123456789012345678901234567890",
                "123456789012345678901234567890",
            ),
            ("1.5e30", "1500000000000000000000000000000"),
            ("1e-7", "1e-7"),
            (
                "123456789012345678901234567890.5",
                "1.234567890123456789012345678905e+29",
            ),
        ] {
            assert_eq!(form(text), expected, "{text}");
            assert_eq!(
                canonical(&form(text)),
                canonical(text),
                "the same value: {text}"
            );
        }
        assert_eq!(form("1e308").len(), 309);
    }

    #[test]
    fn the_example_of_rfc_8785_section_3_2_3_sorts_as_printed_there() {
        let text = r#"{"\u20ac": "Euro Sign","\r": "Carriage Return","\ufb33": "Hebrew Letter Dalet With Dagesh","1": "One","\ud83d\ude00": "Emoji: Grinning Face","\u0080": "Control","\u00f6": "Latin Small Letter O With Diaeresis"}"#;
        let order = [
            "Carriage Return",
            "One",
            "Control",
            "Latin",
            "Euro",
            "Emoji",
            "Hebrew",
        ];
        let form = form(text);
        let places: Vec<_> = order.iter().map(|name| form.find(name).unwrap()).collect();
        assert!(places.is_sorted(), "{form}");
    }

    #[test]
    fn the_example_of_rfc_8785_section_3_2_2_has_the_printed_form() {
        let text = r#"{ "numbers": [333333333.3333333, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false] }"#;
        let expected = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
        assert_eq!(form(text), expected);
    }

    #[test]
    fn what_has_no_single_meaning_is_refused() {
        assert_eq!(
            canonical(r#"{"a":1,"\u0061":2}"#),
            Err(CanonicalError::DuplicateKey)
        );
        assert_eq!(canonical("nope"), Err(CanonicalError::Malformed));
        assert_eq!(canonical("[1,]"), Err(CanonicalError::Malformed));
        assert_eq!(
            canonical(&format!("{}1{}", "[".repeat(200), "]".repeat(200))),
            Err(CanonicalError::TooDeep)
        );
    }

    proptest! {
        #[test]
        fn the_form_is_a_fixed_point_and_keeps_the_value(number in any::<f64>().prop_filter("finite", |f| f.is_finite())) {
            let text = serde_json::to_string(&number).unwrap();
            let once = form(&text);
            prop_assert_eq!(&form(&once), &once);
            prop_assert_eq!(serde_json::from_str::<f64>(&once).unwrap(), if number == 0.0 { 0.0 } else { number });
        }

        #[test]
        fn integers_keep_every_digit(number in any::<i64>()) {
            prop_assert_eq!(form(&number.to_string()).parse::<i128>().ok(), Some(i128::from(number)));
            prop_assert_eq!(form(&format!("{number}.000")), number.to_string());
        }
    }
}
