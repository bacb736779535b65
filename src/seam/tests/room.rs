//! Tests of how a budget is filled, and how much is read for it.
//!
//! A source that is too large costs only itself, and next to nothing.

use serde_json::json;

use super::fixture::{Fixture, SLUG};
use crate::Recall;

impl Fixture {
    /// Recalls within a budget, and returns what was read of notes: how many times, and how many
    /// bytes.
    fn recall_within(&self, limit: usize) -> (Recall, usize, usize) {
        let before = self.look.reads().len();
        let recall = self.seam().recall(&self.context(), None, Some(limit));
        let reads = self.look.reads().split_off(before);
        let notes = || {
            reads
                .iter()
                .filter(|(path, _)| path.starts_with(self.path("vault")))
        };
        (
            recall,
            notes().count(),
            notes().map(|(_, bytes)| bytes).sum(),
        )
    }
}

/// The bytes that may be read of notes for a budget, whatever notes there are: to fill it once with
/// the widest letters, to read as much again at the end in vain, eight times its characters in vain
/// before that, and a constant: the begins of 256 notes, 36 KiB in vain.
const fn most_read(limit: usize) -> usize {
    (3 + 3 + 8) * 4 * limit + 256 * 1_024 + (36 << 10)
}

#[test]
fn any_number_of_large_notes_costs_only_themselves() {
    for folder in ["always", "decisions"] {
        let fixture = Fixture::with_vault();
        let write = |name: &str, text: &str| match folder {
            "always" => fixture.always(name, text),
            _ => fixture.note(&format!("decisions/{name}.md"), text),
        };
        for n in 100..140 {
            write(&format!("a-{n}"), &"x".repeat(100_000));
            write(&format!("b-{n}"), &"x".repeat(30_000));
            write(
                &format!("c-{n}"),
                &format!("---\nkind: x\n---\n{}", "y ".repeat(9_500)),
            );
            write(&format!("d-{n}"), "SMALL");
        }
        for n in 0..20 {
            fixture.note(&format!("known-issues/e-{n}.md"), "x".repeat(200_000));
        }
        fixture.note("known-issues/f.md", "ISSUE");
        let (recall, files, bytes) = fixture.recall_within(6_000);
        assert_eq!(
            recall.text.matches("SMALL").count(),
            40,
            "{folder}: {}",
            recall.text
        );
        // One of those that fit alone is there, though many that do not come before it.
        assert!(recall.text.contains("y y"), "{folder}");
        assert!(recall.text.contains("ISSUE"), "{folder}");
        assert_eq!(recall.entries + recall.omitted_count, 181, "{folder}");
        assert!(
            bytes < 5 * 24_000 + 160 * 1_024,
            "{folder}: {bytes} bytes of {files} files"
        );
    }
}

#[test]
fn no_more_is_read_than_the_budget_needs() {
    let fixture = Fixture::with_vault();
    for n in 0..5_000 {
        fixture.note(
            &format!("decisions/d-{n:04}.md"),
            format!("---\nkind: decision\n---\n\n{}\n", "word ".repeat(80)),
        );
    }
    let (recall, files, bytes) = fixture.recall_within(6_000);
    assert!(recall.entries > 50 && recall.omitted_count + recall.entries == 5_000);
    assert!(
        files < recall.entries + 40,
        "{files} files for {} notes",
        recall.entries
    );
    assert!(bytes < 2 * 4 * 6_000, "{bytes} bytes");
    assert!(
        recall.text.contains("and 49"),
        "the others are counted: {}",
        recall.text.lines().last().unwrap()
    );
    // The whole answer is not much more than the budget, either.
    assert_eq!(recall.omitted.len(), 20);
    let answer = json!(recall).to_string();
    assert!(answer.len() < 4 * 6_000 + 6_000, "{} bytes", answer.len());
    let (small, ..) = fixture.recall_within(100);
    assert!(json!(small).to_string().len() < 1_500);
}

#[test]
fn reads_stop_at_the_budget_whatever_notes_there_are() {
    /// A note of some kind: what fits, what does not, what looks as if it would, and what is of no
    /// use.
    fn note(kind: usize, n: usize) -> Vec<u8> {
        match kind % 11 {
            0 => b"---\nstatus: superseded\n---\nGone.".to_vec(),
            1 => format!("---\nstatus: expired\n---\n{}", "gone ".repeat(200)).into_bytes(),
            2 => "word ".repeat(1_500 + n % 50).into_bytes(),
            3 => "記憶".repeat(900 + n % 50).into_bytes(),
            4 => format!("---\nkind: x\nmore: {}\n---\nSmall.", "y".repeat(9_000)).into_bytes(),
            5 => vec![0xff; 3_000 + n % 50],
            6 => "x".repeat(26_000 - n % 50).into_bytes(),
            7 => "и".repeat(11_000 + n % 50).into_bytes(),
            8 => b"---\n---\n \n".to_vec(),
            9 => "#\n".repeat(2_700 + n % 50).into_bytes(),
            _ => format!("---\nkind: x\n---\n{}", "word ".repeat(80)).into_bytes(),
        }
    }
    let all = |kind: fn(usize) -> usize, decisions: usize| {
        let fixture = Fixture::with_vault();
        for n in 0..decisions {
            fixture.note(&format!("decisions/d-{n:04}.md"), note(kind(n), n));
        }
        for n in 0..256 {
            fixture.always(&format!("rule-{n:03}"), note(kind(n + 3), n));
        }
        fixture.always("zz", "---\npriority: high\n---\nHIGH");
        for limit in [30, 60, 250, 6_000] {
            let (recall, files, bytes) = fixture.recall_within(limit);
            assert!(
                bytes <= most_read(limit),
                "limit {limit}: {bytes} bytes of {files} files"
            );
            assert!(
                limit > 30 || bytes == 0,
                "there is room for nothing, and {bytes} bytes are read"
            );
            assert!(recall.omitted_count > 0);
        }
    };
    // 256 notes and 5,000 of all kinds, and of each kind alone.
    all(|n| n * 7 + n / 10, 5_000);
    all(|_| 0, 600);
    all(|_| 1, 600);
    all(|_| 3, 300);
    all(|_| 4, 300);
    all(|_| 5, 300);
    all(|_| 6, 100);
    all(|_| 7, 100);
    all(|_| 9, 300);
}

#[test]
fn what_holds_no_longer_is_passed_over_and_priority_needs_only_a_begin() {
    let fixture = Fixture::with_vault();
    for n in 0..200 {
        fixture.always(
            &format!("a-{n:03}"),
            format!("---\nstatus: superseded\n---\n{}", "gone ".repeat(2_000)),
        );
        fixture.note(
            &format!("decisions/a-{n:03}.md"),
            "---\nstatus: superseded\n---\nGone.",
        );
    }
    fixture.always(
        "b",
        format!("---\npriority: high\n---\nHIGH {}", "word ".repeat(400)),
    );
    fixture.note("decisions/b.md", "DECIDED");
    let (recall, _, bytes) = fixture.recall_within(6_000);
    assert!(
        recall.text.contains("HIGH") && recall.text.contains("DECIDED"),
        "{}",
        recall.text
    );
    assert_eq!(
        (recall.entries, recall.omitted_count),
        (2, 0),
        "what is known to be gone is not named"
    );
    assert!(bytes < 256 * 1_024, "{bytes} bytes");
}

#[test]
fn a_note_that_leads_nowhere_or_is_no_file_is_told_and_not_read() {
    let fixture = Fixture::with_vault();
    fixture.note("decisions/one.md", "DECIDED");
    fixture.link("nowhere", &format!("vault/projects/{SLUG}/decisions/a.md"));
    fixture.link("..", &format!("vault/projects/{SLUG}/decisions/b.md"));
    let (recall, files, _) = fixture.recall_within(6_000);
    assert!(recall.text.contains("DECIDED") && files == 1, "{recall:?}");
    assert!(
        recall.warnings[0]
            .message
            .ends_with("a.md: it is a link that leads nowhere (and 1 more notes)"),
        "{recall:?}"
    );
}
