//! Tests of `docs/forge.md`.
//!
//! The commands in it work, and its names and figures are those of the code.

use helmdeck_forge::config::Config;
use helmdeck_forge::error::Category;
use helmdeck_forge::health::{Code, Colour};
use helmdeck_forge::recovery::{Class, Limits, REGRESSIONS, Unknown};
use helmdeck_forge::subjects::Subject;
use serde_json::Value;

use super::fixture::{Fixture, SUMS};

const PAGE: &str = include_str!("../../docs/forge.md");
const TRACKERS: &str = include_str!("../../docs/trackers.md");

/// Returns the text of the page's code blocks of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    blocks_of(PAGE, language)
}

fn blocks_of(page: &'static str, language: &str) -> Vec<&'static str> {
    let parts = page.split("\n```").skip(1).step_by(2);
    parts
        .filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n'))
        .collect()
}

/// Returns the rows of the tables whose first cell has a name or figure. The settings of trackers
/// are on their page.
fn rows() -> Vec<Vec<&'static str>> {
    let rows = PAGE
        .lines()
        .chain(TRACKERS.lines())
        .filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect()
}

/// Says whether a row explains a word, in its first cell.
fn explained(word: &str) -> bool {
    rows()
        .iter()
        .any(|row| row[0].contains(&format!("`{word}`")))
}

#[test]
fn a_day_is_as_written() {
    let fixture = Fixture::without_memory();
    fixture.write("src/lib.rs", &format!("{SUMS}/// Halves.\npub fn halve(a: i64) -> i64 {{\n    a / 2\n}}\n\n#[cfg(test)]\nmod halving {{\n    #[test]\n    fn of_eight() {{\n        assert_eq!(super::halve(8), 4);\n    }}\n}}\n"));
    let mut ran = 0;
    for line in blocks("sh").into_iter().flat_map(str::lines) {
        let run = fixture
            .prepare("sh", &fixture.root(), &["-e", "-c", line])
            .output()
            .unwrap();
        assert!(
            run.status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&run.stderr)
        );
        if line.starts_with("helmdeck forge prime") {
            assert!(
                String::from_utf8_lossy(&run.stdout).contains("session"),
                "{line}"
            );
        }
        ran += 1;
    }
    assert!(ran > 15, "{ran}");
    assert_eq!(fixture.git(&["tag", "--list"]), "checkpoint/SUM-1-v1");
    let log = fixture.git(&["log", "--format=%s"]);
    assert!(log.starts_with("[SUM-1] Halve a number\n"), "{log}");
}

#[test]
fn every_command_that_is_named_exists() {
    let fixture = Fixture::without_memory();
    let text = PAGE.replace('\n', " ");
    let named: Vec<&str> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|span| span.starts_with("helmdeck forge "))
        .collect();
    assert!(named.len() > 10, "{named:?}");
    for span in named {
        let words: Vec<&str> = span
            .split_whitespace()
            .skip(2)
            .take_while(|word| *word != "--")
            .collect();
        let ended = fixture.run(&[words.as_slice(), &["--help"]].concat());
        assert_eq!(ended.code, 0, "{span}: {}", ended.stderr);
    }
}

#[test]
fn every_setting_stands_there_with_its_default() {
    let defaults = toml::Table::try_from(Config::default()).unwrap();
    let optional = [
        "verify.count_regex",
        "verify.junit",
        "git.base",
        "events.use",
        "linear.me",
        "linear.team",
        "github.repository",
        "tracker.use",
        "github.in_progress",
        "github.prefix",
    ];
    let mut known: Vec<String> = optional.map(str::to_owned).to_vec();
    for (table, settings) in &defaults {
        for (name, value) in settings.as_table().unwrap() {
            let name = format!("{table}.{name}");
            let cells = rows()
                .into_iter()
                .find(|row| row[0].contains(&format!("`{name}`")));
            let cells = cells.unwrap_or_else(|| panic!("no row for {name}"));
            if name != "recovery.protected" {
                assert!(
                    cells[1].contains(&format!("`{value}`")),
                    "{name} is {value}, not {}",
                    cells[1]
                );
            }
            known.push(name);
        }
    }
    let section = |page: &'static str| {
        let (_, section) = page.split_once("\n## Settings\n").unwrap();
        section.split("\n## ").next().unwrap()
    };
    for row in section(PAGE)
        .lines()
        .chain(section(TRACKERS).lines())
        .filter(|line| line.starts_with("| `"))
    {
        for name in row[1..]
            .split('|')
            .next()
            .unwrap()
            .split('`')
            .skip(1)
            .step_by(2)
        {
            assert!(
                known.iter().any(|known| known == name),
                "{name} is no setting"
            );
        }
    }
    for name in optional {
        assert!(explained(name), "{name}");
        let (table, name) = name.split_once('.').unwrap();
        let text = format!("[{table}]\n{name} = \"x\"\n");
        assert!(
            Config::unknown(&text).is_empty() && Config::parse(&text).is_ok(),
            "{name}"
        );
    }
    let blocks = blocks("toml")
        .into_iter()
        .chain(blocks_of(TRACKERS, "toml"));
    // Others are for the user's own settings.
    for block in blocks.filter(|block| !block.starts_with("[forge.")) {
        assert!(
            Config::parse(block).is_ok() && Config::unknown(block).is_empty(),
            "{block}"
        );
    }
}

#[test]
fn every_exit_code_reason_and_subject_is_explained() {
    for category in Category::ALL {
        let word = serde_json::to_value(category).unwrap();
        let row = format!(
            "| {} | `{}` |",
            category.exit_code(),
            word.as_str().unwrap()
        );
        assert!(PAGE.contains(&row), "{row}");
    }
    let seen = [Colour::Yellow, Colour::Red]
        .map(|colour| colour.exit_code().to_string())
        .join(", ");
    assert!(
        PAGE.contains(&format!("| {seen} | | `health --exit-code`")),
        "{seen}"
    );
    for code in Code::ALL {
        assert!(explained(code.as_str()), "{}", code.as_str());
    }
    let schema = schemars::schema_for!(Unknown).to_value();
    let reasons: Vec<&Value> = schema["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["properties"]["code"]["const"])
        .collect();
    assert!(reasons.len() >= 16, "{reasons:?}");
    for reason in reasons {
        assert!(explained(reason.as_str().unwrap()), "{reason}");
    }
    for subject in Subject::ALL {
        assert!(explained(subject.as_str()), "{subject}");
    }
}

#[test]
fn every_pack_of_the_family_is_named() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("packs/forge");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "toml") {
            let name = format!("forge.{}", path.file_stem().unwrap().to_str().unwrap());
            assert!(explained(&name), "no row names {name}");
            count += 1;
        }
    }
    assert!(count >= 20, "{count}");
}

#[test]
fn the_figures_are_those_of_the_code() {
    let limits = Limits::default();
    for class in [Class::InSync, Class::Minor, Class::Major, Class::Unknown] {
        assert!(PAGE.contains(&format!("| `{class}` |")), "{class}");
    }
    for words in [
        format!(
            "at most {} files, {} lines and {} commits",
            limits.files, limits.lines, limits.commits
        ),
        format!("| {REGRESSIONS} or more, or all of at least 2 |"),
        format!("{} ms at most", helmdeck_forge::events::CAP.as_millis()),
        format!(
            "An event is at most {} KiB",
            helmdeck_forge::events::MOST_BYTES >> 10
        ),
        format!(
            "works once, for {} minutes",
            helmdeck_forge::recovery::TOKEN_SECONDS / 60
        ),
        format!("when no command of it ran for {}", "an hour"),
    ] {
        assert!(
            PAGE.replace('\n', " ").contains(&words),
            "the page does not say {words:?}"
        );
    }
    assert_eq!(helmdeck_forge::sessions::LEASE.as_secs(), 3_600);
    assert_eq!(helmdeck_forge::events::MOST_WAITING, 10_000);
}
