//! The clones of the team, and a server that merges without the merge driver.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use helmdeck_core::{Clock as _, ManualClock, SystemClock};
use helmdeck_forge::environment::Ids;
use helmdeck_forge::issues::{Issue, Scope};
use helmdeck_forge::{Project, ProjectEnvironment, Time, Trust};
use helmdeck_trackers::sync::{Choice, Pull, Sync, resolve, status};
use serde_json::Value;

use super::Random;
use super::board::{Board, Card};
use super::history::{History, Told};
use crate::forge::fixture::{Ended, Fixture};

/// Merges without guesses of renames: git takes the file of one issue for the renamed one of
/// another.
const MERGE: [&str; 5] = ["merge", "--quiet", "--no-edit", "-X", "find-renames=100%"];
/// The check of the code: it has no file of this name.
const CHECK: &str = "test ! -e broken";
const ISSUES: &str = ".forge/linear/issues/";
const HISTORY: &str = ".forge/linear/history/";

/// Ids that are the same in every run with the same seed.
#[derive(Debug)]
struct SeededIds(AtomicU64);

impl Ids for SeededIds {
    fn uuid(&self, now: Time) -> uuid::Uuid {
        let mixed = Random(self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst)).next();
        let mut random = [0; 10];
        random[2..].copy_from_slice(&mixed.to_be_bytes());
        let millis = u64::try_from(now.0.as_millisecond()).unwrap();
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }
}

/// Somebody with a clone.
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) root: PathBuf,
    pub(super) clock: Arc<ManualClock>,
    ids: Arc<SeededIds>,
}

/// The team: people and an agent with a clone each, the server, the tracker.
pub(super) struct Team {
    pub(super) fixture: Fixture,
    pub(super) board: Board,
    pub(super) members: Vec<Member>,
    bare: PathBuf,
    server: PathBuf,
    branches: usize,
    /// How often the server merged, and how often it could not.
    pub(super) merged: (usize, usize),
}

impl Team {
    pub(super) fn new(board: Board, seed: u64) -> Self {
        let fixture = Fixture::light_in_memory(board.settings());
        let config = std::fs::read_to_string(fixture.root().join(".forge/config.toml")).unwrap();
        let config = config.replace("[\"true\"]", &format!("[{CHECK:?}]"));
        fixture.write(".forge/config.toml", &config);
        fixture.git(&["commit", "--quiet", "--all", "-m", "[session] Check"]);
        fixture.configure(&board.users_settings());
        let bare = fixture.beside("bare.git");
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        fixture.git(&["clone", "--quiet", "--bare", ".", &text(&bare)]);
        fixture.git(&["remote", "add", "origin", &text(&bare)]);
        let server = fixture.beside("server");
        let mut roots = vec![("Ann", fixture.root())];
        roots.extend(["Bob", "Agent"].map(|name| (name, fixture.beside(name))));
        for (_, folder) in roots[1..].iter().chain([&("server", server.clone())]) {
            fixture.git(&["clone", "--quiet", &text(&bare), &text(folder)]);
        }
        let now = SystemClock::default().now();
        let member = |(at, (name, root)): (usize, (&'static str, PathBuf))| {
            for (setting, value) in [("user.name", name), ("user.email", "team@example.com")] {
                fixture.git_in(&root, &["config", setting, value]);
            }
            fixture.forge_in(&root, &["init", "--merge-driver"]);
            fixture.forge_in(&root, &["trust", "--yes"]);
            let clock = Arc::new(ManualClock::default());
            clock.set(now);
            // The clocks of people differ.
            clock.advance(Duration::from_secs(at as u64 * 37));
            Member {
                name,
                root,
                clock,
                ids: Arc::new(SeededIds(AtomicU64::new(seed + at as u64))),
            }
        };
        let members = roots.into_iter().enumerate().map(member).collect();
        Self {
            fixture,
            board,
            members,
            bare,
            server,
            branches: 0,
            merged: (0, 0),
        }
    }

    /// Lets time pass.
    pub(super) fn advance(&self, time: Duration) {
        self.members
            .iter()
            .for_each(|member| member.clock.advance(time));
    }

    /// Opens the project of a member, as a program does at its start.
    pub(super) fn project(&self, at: usize) -> Project {
        let member = &self.members[at];
        let environment = ProjectEnvironment {
            clock: member.clock.clone(),
            ids: member.ids.clone(),
            agent: member.name.to_owned(),
            trust: Trust::Everything,
            ..ProjectEnvironment::default()
        };
        Project::open(&member.root, environment).unwrap().unwrap()
    }

    /// Runs the program in a clone.
    pub(super) fn run(&self, at: usize, arguments: &[&str]) -> Ended {
        self.run_at(&self.members[at].root, arguments)
    }

    /// Runs the program in a folder.
    pub(super) fn run_at(&self, folder: &Path, arguments: &[&str]) -> Ended {
        let mut command = self.fixture.command(folder, arguments);
        self.board.log_in(&mut command);
        let output = command.output().unwrap();
        Ended {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(super) fn git(&self, at: usize, arguments: &[&str]) -> String {
        self.fixture.git_in(&self.members[at].root, arguments)
    }

    /// Runs git, and says whether it succeeded.
    fn try_git(&self, folder: &Path, arguments: &[&str]) -> Result<String, String> {
        let output = self
            .fixture
            .prepare("git", folder, arguments)
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if output.status.success() {
            Ok(text(output.stdout))
        } else {
            Err(text(output.stdout) + &text(output.stderr))
        }
    }

    /// Synchronises with the tracker. Says whether anything changed, or why the tracker failed.
    pub(super) fn sync(
        &self,
        at: usize,
        log: &mut History,
        random: &mut Random,
    ) -> Result<bool, String> {
        let project = self.project(at);
        let client = self.board.client(project.config(), &self.members[at].clock);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let done = runtime.block_on(Sync::new(&project, &*client).sync(&Pull::default()));
        self.decide(&project, log, random);
        let (pulled, pushed) = done.map_err(|error| error.to_string())?;
        let changed =
            !pulled.added.is_empty() || !pulled.changed.is_empty() || !pulled.renamed.is_empty();
        let closed = !pulled.closed.is_empty() || !pulled.reopened.is_empty();
        Ok(changed
            || closed
            || pushed.conflicts > 0
            || !pushed.delivered.is_empty()
            || !pushed.failed.is_empty())
    }

    /// Decides the conflicts with the tracker, and notes what lost.
    pub(super) fn decide(&self, project: &Project, log: &mut History, random: &mut Random) {
        for conflict in status(project).unwrap().conflicts {
            let Ok(shown) = project.issues().show(&conflict.key) else {
                continue;
            };
            let values = serde_json::to_value(&conflict).unwrap();
            let value = |side: &str| values[side].as_str().unwrap_or_default().to_owned();
            let (ours, theirs) = (value("ours"), value("theirs"));
            let is_ours = random.below(2) == 0;
            let choice = if is_ours {
                Choice::Ours
            } else {
                Choice::Theirs
            };
            if resolve(project, &conflict.key, conflict.field, &choice).is_err() {
                // It is closed here: the next one to look at it decides.
                continue;
            }
            let (winner, loser) = if is_ours {
                (ours, theirs)
            } else {
                (theirs, ours)
            };
            let deeds = log.of(&shown.item.issue.title);
            match conflict.field.name() {
                "title" => deeds.replace(Told::Title, &loser, &winner),
                "description" => deeds.replace(Told::Text, &loser, &winner),
                "state" => deeds.state_is_open_to_question = true,
                _ => {}
            }
        }
    }

    /// Commits everything of a clone.
    pub(super) fn commit(&self, at: usize) {
        self.git(at, &["add", "--all"]);
        if !self.git(at, &["status", "--porcelain"]).is_empty() {
            self.git(at, &["commit", "--quiet", "-m", "[session] Memory"]);
        }
    }

    /// Commits, merges what the server has with the merge driver, and pushes. Says whether anything
    /// moved.
    pub(super) fn exchange(&self, at: usize, log: &mut History) -> bool {
        let root = &self.members[at].root;
        self.commit(at);
        self.git(at, &["fetch", "--quiet", "--tags", "origin"]);
        let before = self.git(at, &["rev-parse", "origin/main"]);
        if let Err(why) = self.try_git(root, &[&MERGE[..], &["origin/main"]].concat()) {
            self.settle(at, &why, log);
        }
        self.git(at, &["push", "--quiet", "origin", "HEAD:main"]);
        self.git(at, &["push", "--quiet", "--tags", "origin"]);
        before != self.git(at, &["rev-parse", "HEAD"])
    }

    /// Settles a merge with conflicts as a person does: both sides changed the same field of an
    /// issue, or one side removed what the other changed. Everything else must merge by itself.
    fn settle(&self, at: usize, why: &str, log: &mut History) {
        let root = self.members[at].root.clone();
        let unmerged = self.unmerged(&root);
        assert!(!unmerged.is_empty(), "{why}");
        let mut questioned: Vec<String> = Vec::new();
        for (path, stages) in unmerged {
            if let Some(name) = path
                .strip_prefix(HISTORY)
                .and_then(|name| name.strip_suffix(".md"))
            {
                // One side opened an issue again, of which the other changed the summary.
                let is_open = root.join(format!("{ISSUES}{name}.json")).exists();
                self.git(
                    at,
                    &if is_open {
                        vec!["rm", "--quiet", "--", &path]
                    } else {
                        vec!["add", "--", &path]
                    },
                );
                questioned.push(name.to_owned());
                continue;
            }
            if !path.starts_with(ISSUES) {
                log.expect(false, || {
                    format!("{} conflicts in {path}: {why}", self.members[at].name)
                });
                self.git(at, &["add", "--", &path]);
                continue;
            }
            let sides: Vec<Value> = stages
                .iter()
                .filter(|stage| **stage > 1)
                .map(|stage| {
                    serde_json::from_str(&self.git(at, &["show", &format!(":{stage}:{path}")]))
                        .unwrap()
                })
                .collect();
            if sides.is_empty() {
                self.git(at, &["rm", "--quiet", "--cached", "--", &path]);
                continue;
            }
            let Some(title) = sides
                .iter()
                .filter_map(|side| side["title"].as_str())
                .find(|title| !title.is_empty())
            else {
                self.git(at, &["add", "--", &path]);
                continue;
            };
            let deeds = log.of(title);
            deeds.state_is_open_to_question = true;
            if let [ours, theirs] = &sides[..] {
                // The driver kept ours where both differ.
                let text = std::fs::read_to_string(root.join(&path)).unwrap();
                let kept: Value = serde_json::from_str(&text).unwrap();
                for (told, name) in [(Told::Title, "title"), (Told::Text, "description")] {
                    let value = |side: &Value| side[name].as_str().unwrap_or_default().to_owned();
                    for side in [ours, theirs] {
                        deeds.replace(told, &value(side), &value(&kept));
                    }
                }
            } else {
                self.git(
                    at,
                    &[
                        "checkout",
                        if stages.contains(&2) {
                            "--ours"
                        } else {
                            "--theirs"
                        },
                        "--",
                        &path,
                    ],
                );
            }
            self.git(at, &["add", "--", &path]);
        }
        self.git(at, &["commit", "--quiet", "--no-edit"]);
        for key in questioned {
            if let Ok(shown) = self.project(at).issues().show(&key) {
                log.of(&shown.item.issue.title).state_is_open_to_question = true;
            }
        }
    }

    /// Returns the paths in conflict, each with the stages that git has.
    fn unmerged(&self, root: &Path) -> BTreeMap<String, BTreeSet<u8>> {
        let mut all: BTreeMap<String, BTreeSet<u8>> = BTreeMap::new();
        for line in self
            .try_git(root, &["ls-files", "--unmerged"])
            .unwrap()
            .lines()
        {
            let (head, path) = line.split_once('\t').unwrap();
            let stage = head.rsplit(' ').next().unwrap().parse().unwrap();
            all.entry(path.to_owned()).or_default().insert(stage);
        }
        all
    }

    /// Pushes a branch and lets the server merge it, as the button of a pull request does: without
    /// our driver. Every second one is squashed.
    ///
    /// Only an issue that both sides changed may conflict there; its author then merges in her
    /// clone.
    pub(super) fn pull_request(&mut self, at: usize, log: &mut History) {
        self.branches += 1;
        let branch = format!("request-{}", self.branches);
        self.commit(at);
        self.git(
            at,
            &["push", "--quiet", "origin", &format!("HEAD:{branch}")],
        );
        let server = self.server.clone();
        self.fixture
            .git_in(&server, &["fetch", "--quiet", "origin"]);
        self.fixture.git_in(
            &server,
            &["checkout", "--quiet", "-B", "main", "origin/main"],
        );
        let from = format!("origin/{branch}");
        let squash: &[&str] = if self.branches.is_multiple_of(2) {
            &["--squash"]
        } else {
            &[]
        };
        match self.try_git(&server, &[&MERGE[..], squash, &[from.as_str()]].concat()) {
            Ok(_) => {
                if !self
                    .fixture
                    .git_in(&server, &["diff", "--cached", "--name-only"])
                    .is_empty()
                {
                    self.fixture
                        .git_in(&server, &["commit", "--quiet", "-m", &branch]);
                }
                self.fixture
                    .git_in(&server, &["push", "--quiet", "origin", "main"]);
                self.merged.0 += 1;
            }
            Err(why) => {
                for path in self.unmerged(&server).keys() {
                    let is_issue = path.starts_with(ISSUES) || path.starts_with(HISTORY);
                    log.expect(is_issue, || {
                        format!("the server cannot merge {path}: {why}")
                    });
                }
                self.fixture
                    .git_in(&server, &["reset", "--quiet", "--hard"]);
                self.merged.1 += 1;
            }
        }
        self.exchange(at, log);
    }

    /// Reads the memory in a shallow checkout, as CI does.
    pub(super) fn read_in_ci(&mut self, log: &mut History) {
        self.branches += 1;
        let checkout = self.fixture.beside(&format!("ci-{}", self.branches));
        let (from, to) = (
            format!("file://{}", self.bare.display()),
            checkout.to_str().unwrap().to_owned(),
        );
        self.fixture
            .git(&["clone", "--quiet", "--depth", "1", &from, &to]);
        for arguments in [
            &["prime"][..],
            &["features", "list"],
            &["issue", "list"],
            &["checkpoint", "list"],
        ] {
            let ended = self.run_at(&checkout, arguments);
            log.expect(ended.code == 0, || {
                format!("CI: {arguments:?}: {}{}", ended.stdout, ended.stderr)
            });
        }
        let ended = self.run_at(&checkout, &["health", "--json"]);
        let health: Value = serde_json::from_str(&ended.stdout).unwrap();
        for part in ["long_term", "short_term", "features", "git", "linear"] {
            for reason in health["data"][part]["reasons"].as_array().unwrap() {
                // That few features work is true.
                let is_true = reason["severity"] != "error" || reason["code"] == "few_passing";
                log.expect(is_true && reason["code"] != "paused", || {
                    format!("CI: {reason}")
                });
            }
        }
        let changed = self.try_git(&checkout, &["status", "--porcelain"]).unwrap();
        log.expect(changed.is_empty(), || {
            format!("CI: reading changes {changed}")
        });
        std::fs::remove_dir_all(checkout).unwrap();
    }

    /// Returns the issues of a clone as cards, and those that no tracker has.
    pub(super) fn cards(&self, at: usize) -> (Vec<Card>, Vec<Issue>) {
        let all = self.project(at).issues().list(Scope::All).unwrap().issues;
        let (local, shared): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|item| item.issue.is_local());
        let hub = matches!(self.board, Board::Hub(_));
        let card = |issue: Issue| Card {
            over: issue.is_over(),
            priority: (!hub).then(|| issue.priority.unwrap_or(0)),
            labels: issue
                .labels
                .iter()
                .filter(|name| *name != "desk")
                .cloned()
                .collect(),
            criteria: issue
                .acceptance_criteria
                .iter()
                .map(|one| one.text().to_owned())
                .collect(),
            key: issue.linear_id,
            title: issue.title,
            text: issue.description.unwrap_or_default(),
        };
        let mut cards: Vec<Card> = shared.into_iter().map(|item| card(item.issue)).collect();
        cards.sort_by(|a, b| a.key.cmp(&b.key));
        (cards, local.into_iter().map(|item| item.issue).collect())
    }
}
