//! A week of two people and an agent: three clones, CI, a server that merges without us, and a
//! tracker.
//!
//! Everything that somebody was told is done must be there at the end, or was replaced by something
//! later. The steps are random; the seed of a failure is in its message.

mod board;
mod history;
mod play;
mod team;

use std::collections::BTreeSet;
use std::time::Duration;

use helmdeck_forge::features::Features;
use helmdeck_forge::health::{self, Code, Colour};
use helmdeck_forge::issues::{Issue, Scope};
use helmdeck_forge::knowledge::Knowledge;
use helmdeck_testkit::github_issues::GitHubIssues;
use helmdeck_testkit::linear::Linear;
use helmdeck_trackers::sync::status;

use self::board::Board;
use self::history::{Deeds, History, Told, token};
use self::play::AGENT;
use self::team::Team;

/// Number of steps of a week; `HELMDECK_TEST_WEEK_STEPS` sets another one.
const STEPS: usize = 45;
/// After so many rounds, everything must be quiet.
const ROUNDS: usize = 12;

/// Random numbers from a seed (`SplitMix64`).
pub(super) struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }
}

/// Returns a number that a longer run sets.
#[expect(
    clippy::disallowed_methods,
    reason = "a longer run sets its length in the environment"
)]
fn set(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .and_then(|number| number.parse().ok())
}

fn steps() -> usize {
    set("HELMDECK_TEST_WEEK_STEPS")
        .and_then(|number| usize::try_from(number).ok())
        .unwrap_or(STEPS)
}

/// Prints what led to a failure.
struct Report<'a> {
    seed: u64,
    history: &'a std::cell::RefCell<History>,
}

#[allow(
    clippy::print_stderr,
    reason = "it is a part of the message of a failed test"
)]
impl Drop for Report<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let steps = self
                .history
                .try_borrow()
                .map(|history| history.steps.join("\n"))
                .unwrap_or_default();
            eprintln!(
                "{steps}\nthe seed is {}: HELMDECK_TEST_WEEK_SEED={0}",
                self.seed
            );
        }
    }
}

fn week(board: Board, seed: u64) {
    let seed = set("HELMDECK_TEST_WEEK_SEED").unwrap_or(seed);
    let history = std::cell::RefCell::default();
    let _report = Report {
        seed,
        history: &history,
    };
    let (mut random, mut team) = (Random(seed), Team::new(board, seed));
    let total = steps();
    for step in 0..total {
        let history = &mut *history.borrow_mut();
        team.advance(Duration::from_secs(600 + random.below(7_200) as u64));
        // Bob is on a train for two days.
        let offline = (total / 3..total * 3 / 5).contains(&step);
        let at = random.below(2);
        match random.below(20) {
            0..=9 => play::work(&team, at, history, &mut random),
            10..=12 => play::visit(&team, history, &mut random),
            _ if at == 1 && offline => {}
            13..=15 => {
                let disturbed = random.below(3) == 0;
                if disturbed {
                    team.board.disturb(&mut random);
                }
                let done = team.sync(at, history, &mut random);
                team.board.calm();
                history.expect(done.is_ok() || disturbed, || {
                    format!("a sync failed without a reason: {done:?}")
                });
                history.step(format!("{} synchronises: {done:?}", team.members[at].name));
            }
            16 | 17 => {
                team.exchange(at, history);
                history.step(format!("{} pulls and pushes", team.members[at].name));
            }
            18 => {
                team.pull_request(at, history);
                history.step(format!("{} makes a pull request", team.members[at].name));
            }
            _ => play::delegate(&mut team, history, &mut random),
        }
        if step == total / 2 || step == total * 3 / 4 {
            play::go_wrong(&mut team, history, &mut random);
        }
        for at in 0..team.members.len() {
            let paused = team.project(at).check_not_paused();
            history.expect(paused.is_ok(), || {
                format!("{} is paused: {paused:?}", team.members[at].name)
            });
        }
        if (step + 1) % (total / 3).max(1) == 0 {
            team.read_in_ci(history);
        }
    }
    let history = &mut *history.borrow_mut();
    history.step("the week is over".to_owned());
    come_to_rest(&mut team, history, &mut random);
    boards_are_equal(&team, history);
    nothing_is_lost(&team, history);
    team.read_in_ci(history);
    assert!(
        history.problems.is_empty(),
        "{}",
        history.problems.join("\n")
    );
}

/// Everybody synchronises until nothing changes any more.
fn come_to_rest(team: &mut Team, history: &mut History, random: &mut Random) {
    for _ in 0..ROUNDS {
        let mut is_quiet = true;
        for at in 0..team.members.len() {
            team.advance(Duration::from_secs(7_200));
            is_quiet &= team.sync(at, history, random) == Ok(false);
            is_quiet &= !team.exchange(at, history);
        }
        if is_quiet {
            return;
        }
    }
    let all: Vec<_> = (0..3)
        .map(|at| status(&team.project(at)).unwrap())
        .collect();
    history.expect(false, || format!("it does not come to rest: {all:#?}"));
}

/// The clones and the tracker show the same issues, each once.
fn boards_are_equal(team: &Team, history: &mut History) {
    history.equal(&team.board.violations(), &Vec::new(), || {
        "requests that the tracker does not know".to_owned()
    });
    let mut theirs = team.board.cards();
    theirs.sort_by(|a, b| a.key.cmp(&b.key));
    let tokens: BTreeSet<&str> = theirs.iter().map(|card| token(&card.title)).collect();
    history.expect(tokens.len() == theirs.len(), || {
        format!("an issue is there twice: {theirs:#?}")
    });
    for (at, member) in team.members.iter().enumerate() {
        let name = member.name;
        let (cards, local) = team.cards(at);
        for card in &theirs {
            let found = cards.iter().find(|one| one.key == card.key);
            // An issue that was closed in the tracker before anybody saw it here stays there.
            if found.is_some() || !card.over {
                history.equal(&found, &Some(card), || format!("{name}: {}", card.key));
            }
        }
        for card in cards
            .iter()
            .filter(|card| !theirs.iter().any(|one| one.key == card.key))
        {
            history.expect(false, || format!("{name}: the tracker lacks {card:?}"));
        }
        for issue in local {
            let (key, is_there) = (&issue.linear_id, tokens.contains(token(&issue.title)));
            history.expect(issue.is_over() && !is_there, || {
                format!("{name}: {key} is local, and there: {is_there}")
            });
        }
        let status = status(&team.project(at)).unwrap();
        let left = (
            status.conflicts.len(),
            status.failed.len(),
            status.local.len(),
        );
        history.equal(&left, &(0, 0, 0), || format!("{name}: {status:#?}"));
    }
}

/// Everything that was acknowledged is there, or was replaced later.
fn nothing_is_lost(team: &Team, history: &mut History) {
    for (at, member) in team.members.iter().enumerate() {
        let (name, project) = (member.name, team.project(at));
        let code = team.git(at, &["ls-files", "--", ":(glob)*.txt", "broken"]);
        let code: BTreeSet<String> = code.lines().map(str::to_owned).collect();
        history.equal(&code, &history.code.clone(), || {
            format!("{name}: what the code has")
        });
        let knowledge = Knowledge::new(&project).read().unwrap();
        let learned: BTreeSet<String> = knowledge
            .entries()
            .filter_map(|entry| Some(entry.texts().first()?.1.to_owned()))
            .collect();
        history.equal(&learned, &history.learned.clone(), || {
            format!("{name}: learnings")
        });
        let features = Features::new(&project).read().unwrap().features;
        let names: BTreeSet<String> = features
            .iter()
            .map(|feature| feature.name.clone())
            .collect();
        history.equal(&names, &history.features.clone(), || {
            format!("{name}: features")
        });
        let ids: BTreeSet<&String> = features.iter().map(|feature| &feature.id).collect();
        history.expect(ids.len() == features.len(), || {
            format!("{name}: two features have one id")
        });
        let issues = project.issues().list(Scope::All).unwrap().issues;
        let all = std::mem::take(&mut history.issues);
        for (word, deeds) in &all {
            let mine: Vec<_> = issues
                .iter()
                .filter(|item| token(&item.issue.title) == word)
                .collect();
            if let [item] = mine[..] {
                let issue = project
                    .issues()
                    .show(&item.issue.linear_id)
                    .unwrap()
                    .item
                    .issue;
                issue_is_whole(team, name, &issue, deeds, history);
            } else {
                // Somebody added it in the tracker and closed it there before a clone saw it.
                let card = team
                    .board
                    .cards()
                    .into_iter()
                    .find(|card| token(&card.title) == word);
                let fine = mine.is_empty() && card.is_some_and(|card| card.over);
                history.expect(fine, || {
                    format!("{name}: {word} is there {} times", mine.len())
                });
            }
        }
        history.issues = all;
        let health = health::measure(&project);
        for (part, colour, reasons) in health.components() {
            // That few features work is true.
            let is_true = reasons.iter().any(|reason| reason.code == Code::FewPassing);
            history.expect(colour != Colour::Red || is_true, || {
                format!("{name}: {part}: {reasons:#?}")
            });
        }
        history.expect(at != AGENT || team.run(at, &["prime"]).code == 0, || {
            "prime".to_owned()
        });
    }
}

/// An issue has everything that anybody did to it.
fn issue_is_whole(team: &Team, name: &str, issue: &Issue, deeds: &Deeds, history: &mut History) {
    let key = &issue.linear_id;
    let text = issue.description.clone().unwrap_or_default();
    for (told, now) in [(Told::Title, &issue.title), (Told::Text, &text)] {
        history.equal(&deeds.lost(told, now), &Vec::new(), || {
            format!("{name}: {key}: lost values of {told:?}: {now}")
        });
    }
    let criteria: BTreeSet<String> = issue
        .acceptance_criteria
        .iter()
        .map(|one| one.text().to_owned())
        .collect();
    history.equal(&criteria, &deeds.criteria, || {
        format!("{name}: {key}: criteria")
    });
    let texts: Vec<&str> = issue
        .comments
        .iter()
        .map(|comment| comment.text.as_str())
        .collect();
    let delivered = team.board.comments();
    for comment in &deeds.comments {
        let count = texts
            .iter()
            .filter(|text| text.starts_with(comment.as_str()))
            .count();
        history.expect(count == 1, || {
            format!("{name}: {key}: {comment} {count} times in {texts:?}")
        });
        let there = delivered
            .iter()
            .filter(|text| text.starts_with(comment.as_str()))
            .count();
        let wanted = usize::from(!issue.is_local());
        history.expect(there == wanted, || {
            format!("{key}: {comment} {there} times in the tracker")
        });
    }
    if deeds.closed && !deeds.state_is_open_to_question {
        history.expect(issue.is_over(), || format!("{name}: {key} was closed"));
    }
}

#[test]
fn a_week_with_linear_loses_nothing() {
    week(Board::Linear(Linear::start()), 4);
}

#[test]
fn a_week_with_github_loses_nothing() {
    week(Board::Hub(GitHubIssues::start()), 3);
}
