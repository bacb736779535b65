//! History of the colours, and events about their changes.
//!
//! Nothing watches all the time: each measurement is recorded, and the recorded ring is enough to
//! continue from.

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Colour, Health};
use crate::error::Result;
use crate::events;
use crate::layout;
use crate::project::Project;
use crate::subjects::Subject;
use crate::time::Time;

/// How long colours must be stable before a change is announced.
const DEBOUNCE: SignedDuration = SignedDuration::from_secs(30);
/// Interval after which an entry is written even if nothing has changed.
const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// How long an entry is kept.
const KEPT: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Maximum number of entries that are kept.
const MOST: usize = 20_000;

/// The colours of all components.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Colours {
    /// The worst of the others that is not grey.
    pub overall: Colour,
    /// The long-term memory: what was learned.
    pub long_term: Colour,
    /// The short-term memory: work in progress.
    pub short_term: Colour,
    /// The features.
    pub features: Colour,
    /// The repository.
    pub git: Colour,
    /// The issues.
    pub linear: Colour,
}

/// A recorded measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HealthSample {
    /// When it was measured.
    pub at: Time,
    /// The colours.
    #[serde(flatten)]
    pub colours: Colours,
    /// Whether these colours equal the announced ones. The first measurement counts as announced.
    #[serde(default)]
    pub told: bool,
}

/// A change of colours that is announced as an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The colours announced before.
    pub from: Colours,
    /// The colours now.
    pub to: Colours,
    /// When they became so.
    pub since: Time,
}

/// Changes of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    /// The added entry.
    entry: Option<HealthSample>,
    /// The change to announce.
    change: Option<Change>,
    /// Number of oldest entries to drop.
    drop: usize,
}

/// Decides what to add to the ring, announce and drop.
///
/// Colours that have been stable for less than 30 s are kept but not announced, so flickering is
/// never announced. The first measurement is not a change.
fn step(ring: &[HealthSample], colours: Colours, now: Time) -> Step {
    let passed = |since: Time| now.0.duration_since(since.0);
    let last = ring.last();
    let changed = last.is_none_or(|last| last.colours != colours);
    let since = ring
        .iter()
        .rev()
        .take_while(|entry| entry.colours == colours)
        .last()
        .map_or(now, |entry| entry.at);
    let told = ring
        .iter()
        .rev()
        .find(|entry| entry.told)
        .map(|entry| entry.colours);
    let change = told
        .filter(|told| *told != colours && passed(since) >= DEBOUNCE)
        .map(|from| Change {
            from,
            to: colours,
            since,
        });
    let due = last.is_none_or(|last| passed(last.at) >= HOUR);
    let entry = (changed || due || change.is_some()).then(|| HealthSample {
        at: now,
        colours,
        told: change.is_some() || told.is_none_or(|told| told == colours),
    });
    let old = ring
        .iter()
        .take_while(|entry| passed(entry.at) > KEPT)
        .count();
    // Keep the last announced entry.
    let kept = ring
        .iter()
        .rposition(|entry| entry.told)
        .filter(|_| !entry.is_some_and(|entry| entry.told));
    let drop = old
        .max((ring.len() + 1).saturating_sub(MOST))
        .min(kept.unwrap_or(ring.len()));
    Step {
        entry,
        change,
        drop: if entry.is_some() { drop } else { 0 },
    }
}

/// Returns the recorded colours, oldest first. Unreadable lines are skipped.
///
/// # Errors
/// `Failed` if the file cannot be read.
pub fn history(project: &Project) -> Result<Vec<HealthSample>> {
    let bytes = project.files().read(layout::HEALTH)?.unwrap_or_default();
    Ok(parse(&bytes))
}

/// Records colours in the history, and announces a change that has been stable for 30 s.
///
/// Returns the announced change. Nothing is written if there is nothing new. Measuring alone never
/// records.
///
/// # Errors
/// `Locked`; `Failed` if the file cannot be read or written.
pub fn record(project: &Project, health: &Health) -> Result<Option<Change>> {
    let files = project.files();
    let guard = files.lock()?;
    let bytes = files.read(layout::HEALTH)?.unwrap_or_default();
    let ring = parse(&bytes);
    let Step {
        entry,
        change,
        drop,
    } = step(&ring, health.colours(), health.measured_at);
    if let Some(entry) = entry {
        if drop == 0 {
            files.append(layout::HEALTH, &line(&entry)?)?;
        } else {
            if bytes
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .count()
                > ring.len()
            {
                files.quarantine(layout::HEALTH, &bytes)?;
            }
            let lines = ring
                .iter()
                .skip(drop)
                .chain([&entry])
                .map(|entry| Ok(line(entry)? + "\n"));
            files.write(
                layout::HEALTH,
                lines.collect::<Result<String>>()?.as_bytes(),
            )?;
        }
    }
    std::mem::drop(guard);
    if let Some(change) = &change {
        events::emit(project, Subject::Health, change);
    }
    Ok(change)
}

fn line(entry: &HealthSample) -> Result<String> {
    serde_json::to_string(entry).map_err(|error| {
        crate::Error::new(
            crate::Category::Failed,
            "E_JSON",
            format!("the health as JSON: {error}"),
        )
    })
}

fn parse(bytes: &[u8]) -> Vec<HealthSample> {
    bytes
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Time {
        Time(jiff::Timestamp::from_second(1_000_000_000 + second).unwrap())
    }

    fn all(colour: Colour) -> Colours {
        Colours {
            overall: colour,
            long_term: colour,
            short_term: colour,
            features: colour,
            git: colour,
            linear: colour,
        }
    }

    const G: Colour = Colour::Green;
    const R: Colour = Colour::Red;

    /// Replays measurements; returns the seconds at which entries were written and changes
    /// announced.
    fn play(measured: &[(i64, Colour)]) -> (Vec<i64>, Vec<(i64, Colour, i64)>) {
        let (mut ring, mut written, mut told) = (Vec::new(), Vec::new(), Vec::new());
        for (second, colour) in measured {
            let done = step(&ring, all(*colour), at(*second));
            ring.drain(..done.drop);
            if let Some(entry) = done.entry {
                written.push(*second);
                ring.push(entry);
            }
            if let Some(change) = done.change {
                assert_ne!(change.from, change.to);
                let since = change.since.0.as_second() - at(0).0.as_second();
                told.push((*second, change.to.overall, since));
            }
        }
        (written, told)
    }

    #[test]
    fn a_change_is_told_once_it_has_stood_for_thirty_seconds() {
        let (written, told) = play(&[(0, G), (10, R), (39, R), (40, R), (41, R), (90, R)]);
        assert_eq!((written, told), (vec![0, 10, 40], vec![(40, R, 10)]));
        let (_, told) = play(&[(0, G), (100, G), (200, R)]);
        assert_eq!(told, [], "seen only now");
    }

    #[test]
    fn what_flickers_is_kept_and_not_told() {
        let (written, told) = play(&[
            (0, G),
            (10, R),
            (20, G),
            (30, R),
            (50, R),
            (55, G),
            (500, G),
        ]);
        assert_eq!((written, told), (vec![0, 10, 20, 30, 55], vec![]));
    }

    #[test]
    fn an_entry_is_written_every_hour() {
        let (written, _) = play(&[(0, G), (3599, G), (3600, G), (7199, G), (7200, G)]);
        assert_eq!(written, [0, 3600, 7200]);
    }

    #[test]
    fn old_entries_go_and_what_others_know_of_stays() {
        let day = 24 * 60 * 60;
        let entry = |second, colour, told| HealthSample {
            at: at(second),
            colours: all(colour),
            told,
        };
        let ring = [entry(0, G, true), entry(day, R, false)];
        let done = step(&ring, all(R), at(100 * day));
        assert_eq!(
            (done.drop, done.change.map(|change| change.from)),
            (2, Some(all(G))),
            "told now, so both may go"
        );
        let done = step(&ring, all(Colour::Yellow), at(100 * day));
        assert_eq!(
            (done.drop, done.change),
            (0, None),
            "green is what others know of"
        );
        let ring = [
            entry(0, R, false),
            entry(1, G, true),
            entry(90 * day, G, true),
        ];
        assert_eq!(
            step(&ring, all(G), at(90 * day)).drop,
            0,
            "nothing is written"
        );
        assert_eq!(
            step(&ring, all(R), at(90 * day)).drop,
            0,
            "90 days are not more than 90 days"
        );
        assert_eq!(step(&ring, all(R), at(90 * day + 1)).drop, 1);
        let many: Vec<HealthSample> = (0..20_000)
            .map(|n| entry(n, if n % 2 == 0 { G } else { R }, true))
            .collect();
        assert_eq!(step(&many, all(G), at(20_000)).drop, 1);
    }

    #[test]
    fn a_clock_that_is_set_back_breaks_nothing() {
        let (written, told) = play(&[(1000, G), (500, R), (510, R), (531, R)]);
        assert_eq!((written, told), (vec![1000, 500, 531], vec![(531, R, 500)]));
    }

    #[test]
    fn a_line_is_read_again_and_a_torn_one_left_out() {
        let entry = HealthSample {
            at: at(0),
            colours: all(G),
            told: true,
        };
        let text = format!("{}\n{{\"at\":\"20", line(&entry).unwrap());
        assert_eq!(parse(text.as_bytes()), [entry]);
    }
}
