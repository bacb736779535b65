//! Statistics on the overview: what calls did in the last hour, day or week.

use std::collections::BTreeMap;

use askama::Template;
use helmdeck_core::{Caller, Timestamp};

use crate::Ui;
use crate::chart::{self, Bar};
use crate::json::answer;
use crate::rest::{Failure, segment};
use crate::shown::{self, Time};

answer! {
    /// What was counted of calls: of all, of a pack, or in a slot of time.
    #[derive(Debug)]
    pub(super) struct Numbers {
        /// The pack; empty for several.
        pub(super) pack: String = default,
        /// Start of the slot.
        start: Option<Time>,
        pub(super) calls: u64,
        pub(super) errors: u64,
        cache: BTreeMap<String, u64>,
        saved_calls: u64,
        saved_ms: u64,
        saved_upstream_calls: u64,
        /// What it would have cost, if there are prices.
        saved_usd: Option<f64>,
        p50_us: Option<u64>,
        p99_us: Option<u64>,
    }
}

impl Numbers {
    fn answered(&self, status: &str) -> u64 {
        self.cache.get(status).copied().unwrap_or_default()
    }

    /// Returns the share of answers that needed no run, in tenths of a percent; `None` without any.
    fn hit_permille(&self) -> Option<u64> {
        let all: u64 = self
            .cache
            .iter()
            .filter(|(status, _)| *status != "bypass")
            .map(|(_, count)| count)
            .sum();
        let hits = all.saturating_sub(self.answered("miss"));
        hits.saturating_mul(1_000).checked_div(all)
    }

    /// Returns the start of the slot, to the second.
    fn started(&self) -> String {
        self.start.map(Time::exact).unwrap_or_default()
    }

    fn hits_shown(&self) -> String {
        self.hit_permille().map_or_else(
            || "–".to_owned(),
            |share| format!("{}.{} %", share / 10, share % 10),
        )
    }

    fn duration_shown(micros: Option<u64>) -> String {
        micros.map_or_else(|| "–".to_owned(), shown::micros)
    }

    fn saved_usd_shown(&self) -> String {
        self.saved_usd
            .map(|usd| format!(", {usd:.2} USD"))
            .unwrap_or_default()
    }

    fn p50(&self) -> String {
        Self::duration_shown(self.p50_us)
    }

    fn p99(&self) -> String {
        Self::duration_shown(self.p99_us)
    }
}

answer! {
    /// Statistics of a window.
    #[derive(Debug)]
    pub(super) struct Statistics {
        window: String,
        pub(super) total: Numbers,
        pub(super) packs: Vec<Numbers>,
        slots: Vec<Numbers>,
    }
}

/// The statistics as a part of a page.
#[derive(Template)]
#[template(path = "statistics.html")]
pub(super) struct StatisticsPart {
    pub(super) all: Statistics,
    pack: String,
    now: Timestamp,
}

impl StatisticsPart {
    /// Names of the windows and what a reader calls them.
    const WINDOWS: [(&'static str, &'static str); 3] = [
        ("hour", "Last hour"),
        ("day", "Last day"),
        ("week", "Last week"),
    ];

    /// Reads the statistics of a window that a page names, of all packs or of one.
    pub(super) async fn read(
        ui: &Ui,
        caller: &Caller,
        window: &str,
        pack: &str,
    ) -> Result<Self, Failure> {
        let window = if Self::WINDOWS.iter().any(|(name, _)| *name == window) {
            window
        } else {
            "hour"
        };
        let mut route = format!("/api/v1/stats?window={window}");
        if !pack.is_empty() {
            route = format!("{route}&pack={}", segment(pack));
        }
        Ok(Self {
            all: ui.rest.get(caller, &route).await?,
            pack: pack.to_owned(),
            now: ui.clock.now(),
        })
    }

    /// Returns what a slot is called.
    fn by(&self) -> &'static str {
        match self.all.window.as_str() {
            "day" => "quarter of an hour",
            "week" => "hour",
            _ => "minute",
        }
    }

    /// Returns the slots that have calls, newest first.
    fn busy(&self) -> impl Iterator<Item = &Numbers> {
        self.all.slots.iter().rev().filter(|slot| slot.calls > 0)
    }

    fn begin(&self) -> Option<Time> {
        self.all.slots.first()?.start
    }

    fn most(&self) -> u64 {
        self.all
            .slots
            .iter()
            .map(|slot| slot.calls)
            .max()
            .unwrap_or_default()
    }

    fn slowest(&self) -> String {
        shown::micros(
            self.all
                .slots
                .iter()
                .filter_map(|slot| slot.p99_us)
                .max()
                .unwrap_or_default(),
        )
    }

    /// Draws the calls; failed ones stand out.
    fn calls_chart(&self) -> String {
        let bar = |slot: &Numbers| Bar {
            title: format!(
                "{}: {} calls, {} failed",
                slot.started(),
                slot.calls,
                slot.errors
            ),
            value: slot.calls,
            marked: slot.errors,
        };
        let title = format!(
            "Calls by {}: {}, {} failed",
            self.by(),
            self.all.total.calls,
            self.all.total.errors
        );
        chart::bars(
            "calls",
            &title,
            &self.all.slots.iter().map(bar).collect::<Vec<_>>(),
        )
    }

    /// Draws how long calls took: 99 of 100 as the bar, half of them marked.
    fn durations_chart(&self) -> String {
        let bar = |slot: &Numbers| Bar {
            title: format!(
                "{}: half within {}, 99 % within {}",
                slot.started(),
                slot.p50(),
                slot.p99()
            ),
            value: slot.p99_us.unwrap_or_default(),
            marked: slot.p50_us.unwrap_or_default(),
        };
        let title = format!("How long calls took by {}: p99, and p50 marked", self.by());
        chart::bars(
            "durations",
            &title,
            &self.all.slots.iter().map(bar).collect::<Vec<_>>(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Read;

    fn numbers(cache: &[(&str, u64)]) -> Numbers {
        let cache: serde_json::Map<_, _> = cache
            .iter()
            .map(|(status, count)| ((*status).to_owned(), (*count).into()))
            .collect();
        Numbers::read(&serde_json::json!({
            "calls": 10, "errors": 0, "cache": cache, "saved_calls": 0, "saved_ms": 0, "saved_upstream_calls": 0,
            "p50_us": null, "p99_us": 12,
        }))
        .unwrap()
    }

    #[test]
    fn hit_ratio_counts_what_needed_no_run() {
        assert_eq!(
            numbers(&[
                ("hit", 6),
                ("coalesced", 1),
                ("stale", 1),
                ("miss", 2),
                ("bypass", 9)
            ])
            .hit_permille(),
            Some(800)
        );
        assert_eq!(numbers(&[("bypass", 9)]).hits_shown(), "–");
        assert_eq!(
            (numbers(&[]).p50(), numbers(&[]).p99()),
            ("–".to_owned(), "12 µs".to_owned())
        );
    }
}
