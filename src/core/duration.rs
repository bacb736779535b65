//! Parsers for durations and sizes in manifests and configuration: `90s`, `1h30m`, `7d`, `64KiB`,
//! `2g`.

use std::time::Duration;

/// Parses a duration: one or more `<integer><unit>`.
///
/// The units are `us`, `ms`, `s`, `m`, `h` and `d` (24 hours).
///
/// # Errors
/// A message that names the text and the accepted form.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || {
        format!(
            "\"{text}\" is not a duration; write for example \"500ms\", \"30s\", \"5m\", \"1h30m\" or \"7d\""
        )
    };
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(bad());
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let count: u64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let end = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let micros_per_unit: u64 = match &rest[..end] {
            "us" => 1,
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" => 60_000_000,
            "h" => 3_600_000_000,
            "d" => 86_400_000_000,
            _ => return Err(bad()),
        };
        let part = count.checked_mul(micros_per_unit).ok_or_else(bad)?;
        total = total
            .checked_add(Duration::from_micros(part))
            .ok_or_else(bad)?;
        rest = &rest[end..];
    }
    Ok(total)
}

/// Writes a duration in the form that [`parse_duration`] reads, largest units first (`1h30m`).
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let mut micros = duration.as_micros();
    if micros == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, size) in [
        ("d", 86_400_000_000),
        ("h", 3_600_000_000),
        ("m", 60_000_000),
        ("s", 1_000_000),
        ("ms", 1_000),
        ("us", 1),
    ] {
        let count = micros / size;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
            micros %= size;
        }
    }
    text
}

/// Parses a size in bytes: an integer with an optional unit.
///
/// The units are `B`, `KiB`, `MiB`, `GiB`, or the short `k`, `m`, `g` (all powers of 1024, upper or
/// lower case).
///
/// # Errors
/// A message that names the text and the accepted form.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let bad = || {
        format!(
            "\"{text}\" is not a size; write for example \"4096\", \"64KiB\", \"1MiB\" or \"2g\""
        )
    };
    let trimmed = text.trim();
    let digits = trimmed
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(trimmed.len());
    let count: u64 = trimmed[..digits].parse().map_err(|_| bad())?;
    let factor: u64 = match trimmed[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => return Err(bad()),
    };
    count.checked_mul(factor).ok_or_else(bad)
}

/// Durations as text in configuration: `#[serde(with = "helmdeck_core::duration::text")]`.
pub mod text {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the form of [`super::format_duration`].
    ///
    /// # Errors
    /// The error of the serializer.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::format_duration(*duration))
    }

    /// Reads the form of [`super::parse_duration`].
    ///
    /// # Errors
    /// The message of [`super::parse_duration`].
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        super::parse_duration(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Sizes as text in configuration: `#[serde(with = "helmdeck_core::duration::size")]`.
pub mod size {
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes the number of bytes, with the largest unit that divides it.
    ///
    /// # Errors
    /// The error of the serializer.
    pub fn serialize<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        let (count, unit) = match *bytes {
            0 => (0, ""),
            n if n % (1 << 30) == 0 => (n >> 30, "GiB"),
            n if n % (1 << 20) == 0 => (n >> 20, "MiB"),
            n if n % (1 << 10) == 0 => (n >> 10, "KiB"),
            n => (n, ""),
        };
        serializer.serialize_str(&format!("{count}{unit}"))
    }

    /// Reads the form of [`super::parse_size`].
    ///
    /// # Errors
    /// The message of [`super::parse_size`].
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        super::parse_size(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_and_print_back() {
        for (text, seconds) in [
            ("30s", 30),
            ("5m", 300),
            ("1h30m", 5400),
            ("7d", 604_800),
            ("0s", 0),
        ] {
            let duration = parse_duration(text).unwrap();
            assert_eq!(duration, Duration::from_secs(seconds));
            assert_eq!(format_duration(duration), text);
        }
        assert_eq!(parse_duration("250ms").unwrap(), Duration::from_millis(250));
    }

    #[test]
    fn nonsense_durations_are_refused() {
        for text in [
            "",
            "5",
            "m",
            "5 m",
            "-5m",
            "1.5h",
            "5y",
            "99999999999999999999s",
            "999999999999999999d",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_size("1MiB").unwrap(), 1_048_576);
        assert_eq!(parse_size("2g").unwrap(), 2_147_483_648);
        assert_eq!(parse_size("17").unwrap(), 17);
        assert!(parse_size("1MB!").is_err());
        assert!(parse_size("99999999999GiB").is_err());
    }
}
