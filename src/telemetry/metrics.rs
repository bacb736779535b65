//! Metrics as `ExportMetricsServiceRequest`, from the text that `/metrics` answers.
//!
//! Names are those of `/metrics` without `_total`, so that dashboards find the same names behind a
//! collector.

use std::time::SystemTime;

use crate::message::Message;
use crate::openmetrics::{Family, Sample, families};
use crate::spans::{nanos, scope, text_attribute};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u32 = 2;

/// Times of the points.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// When the process began to count.
    pub(crate) start: SystemTime,
    pub(crate) now: SystemTime,
}

/// Returns the request that exports everything in the text.
pub(crate) fn request(resource: &Message, text: &str, window: Window) -> Message {
    let metrics = families(text)
        .iter()
        .filter_map(|family| metric(family, window))
        .collect();
    let scope = Message::default()
        .message(1, "scope", scope())
        .messages(2, "metrics", metrics);
    let resource = Message::default()
        .message(1, "resource", resource.clone())
        .messages(2, "scopeMetrics", vec![scope]);
    Message::default().messages(1, "resourceMetrics", vec![resource])
}

/// Returns the `Metric` of a family, `None` if it has no samples.
fn metric(family: &Family, window: Window) -> Option<Message> {
    if family.samples.is_empty() {
        return None;
    }
    // The samples of an info have a suffix, which is part of the name elsewhere.
    let suffix = if family.kind == "info" { "_info" } else { "" };
    let metric = Message::default()
        .text(1, "name", format!("{}{suffix}", family.name))
        .text(2, "description", family.help.trim_end_matches('.'))
        .text(3, "unit", unit(&family.unit));
    Some(match family.kind.as_str() {
        "counter" => {
            let totals = family
                .samples
                .iter()
                .filter(|sample| sample.suffix == "_total");
            let sum = Message::default()
                .messages(
                    1,
                    "dataPoints",
                    totals.map(|sample| number(sample, window)).collect(),
                )
                .small(2, "aggregationTemporality", CUMULATIVE)
                .boolean(3, "isMonotonic", true);
            metric.message(7, "sum", sum)
        }
        "histogram" => {
            let points = histograms(&family.samples)
                .iter()
                .map(|points| histogram(points, window))
                .collect();
            let histogram = Message::default().messages(1, "dataPoints", points).small(
                2,
                "aggregationTemporality",
                CUMULATIVE,
            );
            metric.message(9, "histogram", histogram)
        }
        _ => {
            let points = family
                .samples
                .iter()
                .map(|sample| number(sample, window))
                .collect();
            metric.message(
                5,
                "gauge",
                Message::default().messages(1, "dataPoints", points),
            )
        }
    })
}

/// Returns a unit in the notation of UCUM, which OTLP uses.
fn unit(name: &str) -> &str {
    match name {
        "seconds" => "s",
        "bytes" => "By",
        other => other,
    }
}

/// Returns the `NumberDataPoint` of a sample.
fn number(sample: &Sample, window: Window) -> Message {
    Message::default()
        .fixed64(2, "startTimeUnixNano", nanos(window.start))
        .fixed64(3, "timeUnixNano", nanos(window.now))
        .double(4, "asDouble", sample.value)
        .messages(7, "attributes", attributes(&sample.labels))
}

fn attributes(labels: &[(String, String)]) -> Vec<Message> {
    labels
        .iter()
        .map(|(name, value)| text_attribute(name, value))
        .collect()
}

/// Samples of one histogram.
#[derive(Debug, Default)]
struct Points {
    labels: Vec<(String, String)>,
    count: f64,
    sum: f64,
    /// Bound and cumulative count, in order.
    buckets: Vec<(f64, f64)>,
}

/// Groups the samples of a family by their labels without `le`.
fn histograms(samples: &[Sample]) -> Vec<Points> {
    let mut all: Vec<Points> = Vec::new();
    for sample in samples {
        let (le, labels): (Vec<_>, Vec<_>) = sample
            .labels
            .iter()
            .cloned()
            .partition(|(name, _)| name == "le");
        let place = all
            .iter()
            .position(|points| points.labels == labels)
            .unwrap_or_else(|| {
                all.push(Points {
                    labels,
                    ..Points::default()
                });
                all.len() - 1
            });
        let points = &mut all[place];
        match (sample.suffix.as_str(), le.first()) {
            ("_count", _) => points.count = sample.value,
            ("_sum", _) => points.sum = sample.value,
            ("_bucket", Some((_, bound))) => {
                points
                    .buckets
                    .extend(bound.parse().ok().map(|bound: f64| (bound, sample.value)));
            }
            _ => {}
        }
    }
    all
}

/// Returns the `HistogramDataPoint`. The buckets of OTLP are not cumulative, and the last one has
/// no bound.
fn histogram(points: &Points, window: Window) -> Message {
    let mut before = 0.0;
    let counts = points.buckets.iter().map(|(_, cumulative)| {
        let own = whole(cumulative - before);
        before = *cumulative;
        own
    });
    let counts = counts.collect();
    let bounds = points
        .buckets
        .iter()
        .map(|(bound, _)| *bound)
        .filter(|bound| bound.is_finite())
        .collect();
    Message::default()
        .fixed64(2, "startTimeUnixNano", nanos(window.start))
        .fixed64(3, "timeUnixNano", nanos(window.now))
        .fixed64(4, "count", whole(points.count))
        .double(5, "sum", points.sum)
        .all_fixed64(6, "bucketCounts", counts)
        .doubles(7, "explicitBounds", bounds)
        .messages(9, "attributes", attributes(&points.labels))
}

/// Returns a count, which the text has as a number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count, which is whole and not negative"
)]
fn whole(count: f64) -> u64 {
    count.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use serde_json::json;

    use super::*;

    #[test]
    fn histograms_have_one_more_count_than_bounds() {
        let text = "# HELP t_seconds Time.\n# TYPE t_seconds histogram\n# UNIT t_seconds seconds\n\
                    t_seconds_sum{pack=\"a\"} 3.5\nt_seconds_count{pack=\"a\"} 3\n\
                    t_seconds_bucket{le=\"0.5\",pack=\"a\"} 1\nt_seconds_bucket{le=\"+Inf\",pack=\"a\"} 3\n# EOF\n";
        let window = Window {
            start: UNIX_EPOCH,
            now: UNIX_EPOCH + Duration::from_nanos(7),
        };
        let sent = request(&Message::default(), text, window).to_json();
        let metric = &sent["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0];
        assert_eq!(
            (&metric["name"], &metric["unit"]),
            (&json!("t_seconds"), &json!("s"))
        );
        let point = &metric["histogram"]["dataPoints"][0];
        assert_eq!((&point["count"], &point["sum"]), (&json!("3"), &json!(3.5)));
        assert_eq!(
            (&point["bucketCounts"], &point["explicitBounds"]),
            (&json!(["1", "2"]), &json!([0.5]))
        );
        assert_eq!(point["attributes"][0]["key"], "pack");
        assert_eq!(point["timeUnixNano"], "7");
    }
}
