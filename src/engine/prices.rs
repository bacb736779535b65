//! Prices of what packs do, for what the cache saves.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Price in millionths of a USD. In settings it is a number of USD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price(u64);

impl Price {
    const MILLIONTHS: f64 = 1e6;
}

impl Serialize for Price {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64 / Self::MILLIONTHS)
    }
}

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let usd = f64::deserialize(deserializer)?;
        if !(0.0..=1e6).contains(&usd) {
            return Err(serde::de::Error::custom(format!(
                "{usd} is no price; it is a number of USD from 0 to 1000000"
            )));
        }
        Ok(Self((usd * Self::MILLIONTHS).round() as u64))
    }
}

/// Prices, by name: of a run of a pack, or of a request of an upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Prices(BTreeMap<String, Price>);

impl Prices {
    /// Returns what saved runs and requests of a pack would have cost, in USD; `None` without a
    /// price.
    pub(crate) fn saved_usd(
        &self,
        pack: &str,
        upstream: Option<&str>,
        runs: u64,
        requests: u64,
    ) -> Option<f64> {
        let cost = |name: &str, count: u64| Some(self.0.get(name)?.0.saturating_mul(count));
        let parts = [
            cost(pack, runs),
            upstream.and_then(|upstream| cost(upstream, requests)),
        ];
        let total = parts.into_iter().flatten().reduce(u64::saturating_add)?;
        Some(total as f64 / Price::MILLIONTHS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_requests_have_prices() {
        let prices: Prices =
            serde_json::from_str(r#"{"a.b": 0.002, "api.example.com": 1}"#).unwrap();
        for (pack, upstream, usd) in [
            ("a.b", None, Some(0.02)),
            ("a.b", Some("api.example.com"), Some(3.02)),
            ("a.c", Some("api.example.com"), Some(3.0)),
            ("a.c", Some("other.example.com"), None),
            ("a.c", None, None),
        ] {
            assert_eq!(
                prices.saved_usd(pack, upstream, 10, 3),
                usd,
                "{pack} {upstream:?}"
            );
        }
        for wrong in [r#"{"a": -1}"#, r#"{"a": 1e9}"#, r#"{"a": "1"}"#] {
            assert!(serde_json::from_str::<Prices>(wrong).is_err(), "{wrong}");
        }
    }
}
