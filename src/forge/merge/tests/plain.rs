//! Merges by a git without our driver and without attributes, as on a server: additions never
//! conflict.

use super::*;
use crate::artifacts::{Artifacts, Filter, Kind, Put};
use crate::checkpoints::{Checkpoints, Create};
use crate::environment::{ProjectEnvironment, Trust};
use crate::features::{Add, Features};
use crate::git::fixture::Repository;
use crate::issues::{AddIssue, CloseIssue, IssueEdit, IssueFields, Scope};
use crate::knowledge::Knowledge;
use crate::layout::{CONFIG, FEATURES_ENTRIES, KNOWLEDGE_ENTRIES, SESSIONS, SKILLS};
use crate::project::Project;
use crate::sessions::{End, Log, Sessions, Start};
use crate::skills::Skills;

/// Number of pairs of branches; `HELMDECK_TEST_MERGE_PAIRS` sets another one.
const PAIRS: u64 = 25;
/// After so many pairs, a new project begins.
const RESTART: u64 = 10;
/// The issue that both sides comment on.
const SHARED: &str = "LOCAL-1";

/// Random numbers from a seed (`SplitMix64`).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "scripts ask for the full number of pairs"
)]
fn pairs() -> u64 {
    std::env::var("HELMDECK_TEST_MERGE_PAIRS")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(PAIRS)
}

fn project() -> Repository {
    let repository = Repository::new();
    for (name, value) in [("user.name", "Ann"), ("user.email", "ann@example.com")] {
        repository.run(&["config", name, value]);
    }
    repository.write(CONFIG, "[verify]\ncommands = [\"true\"]\n");
    for folder in [KNOWLEDGE_ENTRIES, FEATURES_ENTRIES] {
        repository.write(&format!("{folder}/.gitkeep"), "");
    }
    repository.write(".forge/.gitignore", include_str!("../../init/gitignore"));
    repository.commit("Begin");
    repository
}

/// Fixture: a project with an issue that both sides comment on.
fn with_shared_issue() -> Repository {
    let repository = project();
    let issue = AddIssue {
        title: "Shared".into(),
        ..AddIssue::default()
    };
    assert_eq!(
        open(&repository)
            .issues()
            .add(&issue)
            .unwrap()
            .issue
            .linear_id,
        SHARED
    );
    repository.commit("Plan");
    repository
}

fn open(repository: &Repository) -> Project {
    let environment = ProjectEnvironment {
        trust: Trust::Everything,
        ..ProjectEnvironment::default()
    };
    Project::open(repository.path(), environment)
        .unwrap()
        .unwrap()
}

/// Makes the repository another clone: it gives numbers of features of its own accord, and issues
/// in its own block.
fn become_another_clone(repository: &Repository, random: &mut Random) {
    let _ = std::fs::remove_dir_all(repository.path().join(".git/forge"));
    let _ = std::fs::remove_dir_all(repository.path().join(".forge/.local"));
    let base = 1_000 * (1 + random.below(9_999));
    repository.write(
        ".git/forge/issue-numbers.json",
        format!("{{\"base\": {base}, \"highest\": {base}}}"),
    );
}

/// Adds entries of every kind on a branch, and returns their texts. Both sides of a pair often add
/// equal ones.
fn grow(
    repository: &Repository,
    branch: &str,
    pair: u64,
    random: &mut Random,
    kinds: &mut BTreeSet<u64>,
) -> BTreeSet<String> {
    repository.run(&["switch", "--quiet", "-c", branch, "main"]);
    become_another_clone(repository, random);
    let project = open(repository);
    let mut texts = BTreeSet::new();
    for _ in 0..=random.below(4) {
        let number = random.below(6);
        let (text, own) = (
            format!("text {pair} {number}"),
            format!("{branch} {number}"),
        );
        let kind = random.below(11);
        let what = match kind {
            0 => What::Successful {
                context: text.clone(),
                approach: "a".into(),
            },
            1 => What::Failed {
                context: text.clone(),
                issue: "i".into(),
                resolution: "r".into(),
            },
            2 => What::Decision {
                context: text.clone(),
                decision: "d".into(),
                rationale: "r".into(),
            },
            3 => What::Invariant {
                text: text.clone(),
                check: None,
                severity: None,
            },
            _ => {
                let added = match kind {
                    // These need git for a while.
                    7 | 8 if number > 3 => None,
                    _ => Some(grow_otherwise(&project, kind, &text, &own)),
                };
                if let Some(added) = added {
                    kinds.insert(kind);
                    texts.insert(added);
                }
                continue;
            }
        };
        kinds.insert(kind);
        Knowledge::new(&project)
            .add(&Learning::new(what), None)
            .unwrap();
        texts.insert(text);
    }
    repository.commit(branch);
    texts
}

/// Adds what is not knowledge. `own` differs on the two sides.
fn grow_otherwise(project: &Project, kind: u64, text: &str, own: &str) -> String {
    match kind {
        4 => {
            let add = Add {
                name: text.to_owned(),
                tests: vec!["t".into()],
                ..Add::default()
            };
            Features::new(project).add(&add, None).unwrap();
            format!("feature {text}")
        }
        5 => {
            let add = AddIssue {
                title: own.to_owned(),
                fields: IssueFields {
                    criteria: Some(vec!["c".into()]),
                    ..IssueFields::default()
                },
                ..AddIssue::default()
            };
            let key = project.issues().add(&add).unwrap().issue.linear_id;
            if own.ends_with(['0', '1']) {
                project
                    .issues()
                    .done(
                        &key,
                        &CloseIssue {
                            anyway: Some("so".into()),
                            ..CloseIssue::default()
                        },
                        None,
                    )
                    .unwrap();
            }
            format!("issue {own}")
        }
        6 => {
            project.issues().comment(SHARED, own).unwrap();
            format!("comment {own}")
        }
        7 => {
            let sessions = Sessions::new(project);
            sessions
                .start(&Start {
                    no_probe: true,
                    ..Start::default()
                })
                .unwrap();
            sessions
                .log(&Log {
                    text: own.to_owned(),
                    next: None,
                })
                .unwrap();
            sessions
                .end(&End {
                    next: Some("n".into()),
                    ..End::default()
                })
                .unwrap();
            format!("progress {own}")
        }
        8 => {
            // A key of its own, as the issue of a branch has.
            let key = format!(
                "X-{}",
                1 + own
                    .bytes()
                    .fold(0_u32, |sum, byte| (sum * 31 + u32::from(byte)) % 99_991)
            );
            Checkpoints::new(project)
                .create(&Create {
                    key: Some(key.clone()),
                    ..Create::default()
                })
                .unwrap();
            format!("checkpoint {key}")
        }
        9 => {
            let name = format!("{}.md", own.replace(' ', "-"));
            Artifacts::new(project)
                .put(own.as_bytes(), &Put::new(Kind::Docs, &name))
                .unwrap();
            format!("artifact {name}")
        }
        _ => {
            let name = own.replace(' ', "-");
            let skill = format!("---\nname: {name}\ndescription: When it helps\n---\nDo it.\n");
            project
                .files()
                .create(&format!("{SKILLS}/{name}/SKILL.md"), skill.as_bytes())
                .unwrap();
            format!("skill {name}")
        }
    }
}

/// Returns every text of the memory. The ids of features are unique.
fn texts(repository: &Repository) -> BTreeSet<String> {
    let project = open(repository);
    let knowledge = Knowledge::new(&project).read().unwrap();
    let features = Features::new(&project).read().unwrap().features;
    let ids: BTreeSet<_> = features.iter().map(|feature| &feature.id).collect();
    assert_eq!(ids.len(), features.len());
    let mut all: BTreeSet<String> = features
        .iter()
        .map(|feature| format!("feature {}", feature.name))
        .collect();
    all.extend(
        knowledge
            .entries()
            .filter_map(|entry| Some(entry.texts().first()?.1.to_owned())),
    );
    let mut keys = BTreeSet::new();
    for item in project
        .issues()
        .list(Scope::All)
        .unwrap()
        .issues
        .into_iter()
        .map(|item| item.issue)
    {
        if item.linear_id == SHARED {
            all.extend(
                item.comments
                    .iter()
                    .map(|comment| format!("comment {}", comment.text)),
            );
        } else {
            assert!(
                keys.insert(item.linear_id),
                "{} has the number of another one",
                item.title
            );
            all.insert(format!("issue {}", item.title));
        }
    }
    for folder in project.files().list(SESSIONS).unwrap() {
        let path = format!("{SESSIONS}/{}/progress.txt", folder.name);
        let text = project.files().read(&path).unwrap().unwrap_or_default();
        let entries = String::from_utf8(text).unwrap();
        all.extend(
            entries
                .lines()
                .filter_map(|line| Some(format!("progress {}", line.split_once("] ")?.1))),
        );
    }
    let sides =
        |text: &str| text.starts_with("progress ours-") || text.starts_with("progress theirs-");
    all.retain(|text| !text.starts_with("progress ") || sides(text));
    let checkpoints = Checkpoints::new(&project).list().unwrap();
    all.extend(
        checkpoints
            .into_iter()
            .filter(|one| one.manifest.is_some())
            .map(|one| {
                let key = one.name.rsplit_once("-v").map(|(key, _)| key.to_owned());
                format!("checkpoint {}", key.unwrap_or(one.name))
            }),
    );
    let artifacts = Artifacts::new(&project).list(&Filter::default()).unwrap();
    all.extend(
        artifacts
            .artifacts
            .into_iter()
            .filter(|one| one.kind == Kind::Docs)
            .map(|one| format!("artifact {}", one.name)),
    );
    all.extend(
        Skills::new(&project)
            .list()
            .unwrap()
            .into_iter()
            .map(|skill| format!("skill {}", skill.name)),
    );
    all
}

#[test]
fn random_additions_merge_without_our_driver() {
    let mut random = Random(7);
    let mut repository = with_shared_issue();
    let (mut expected, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for pair in 0..pairs() {
        if pair % RESTART == 0 {
            (repository, expected) = (with_shared_issue(), BTreeSet::new());
        }
        let (ours, theirs) = (format!("ours-{pair}"), format!("theirs-{pair}"));
        expected.extend(grow(&repository, &theirs, pair, &mut random, &mut kinds));
        expected.extend(grow(&repository, &ours, pair, &mut random, &mut kinds));
        // It must succeed, and no file may be left in conflict.
        repository.run(&["merge", "--quiet", "--no-edit", &theirs]);
        assert_eq!(texts(&repository), expected, "pair {pair}");
        repository.run(&["branch", "--quiet", "--force", "main"]);
    }
    assert_eq!(kinds.len(), 11, "every kind was added: {kinds:?}");
}

#[test]
fn each_entry_is_a_file_that_says_what_it_is_about() {
    let repository = project();
    let project = open(&repository);
    let what = What::Successful {
        context: "Halving".into(),
        approach: "Divide".into(),
    };
    Knowledge::new(&project)
        .add(&Learning::new(what.clone()), None)
        .unwrap();
    Features::new(&project)
        .add(
            &Add {
                name: "Halve a number".into(),
                ..Add::default()
            },
            None,
        )
        .unwrap();
    let names = |folder: &str| -> Vec<String> {
        let all = project
            .files()
            .list(folder)
            .unwrap()
            .into_iter()
            .map(|entry| entry.name);
        all.filter(|name| !name.starts_with('.')).collect()
    };
    let feature = names(FEATURES_ENTRIES).remove(0);
    assert!(
        feature.starts_with("FORGE-001-halve-a-number-"),
        "{feature}"
    );
    let [learned] = &names(KNOWLEDGE_ENTRIES)[..] else {
        panic!()
    };
    assert!(
        learned.starts_with("halving-divide-") && learned.len() == "halving-divide-abcd.json".len(),
        "{learned}"
    );
    // Learning it again changes its file only.
    assert!(
        !Knowledge::new(&project)
            .add(&Learning::new(what), None)
            .unwrap()
            .new
    );
    assert_eq!(names(KNOWLEDGE_ENTRIES), [learned.as_str()]);
    // A removed feature leaves its number.
    Features::new(&project)
        .remove("FORGE-001", None, None)
        .unwrap();
    assert_eq!(names(FEATURES_ENTRIES), [feature]);
    assert_eq!(
        Features::new(&project).read().unwrap().retired,
        ["FORGE-001"]
    );
    // A lost folder is not begun anew.
    std::fs::remove_dir_all(repository.path().join(KNOWLEDGE_ENTRIES)).unwrap();
    let lost = Knowledge::new(&project)
        .confirm("abcdef", None)
        .unwrap_err();
    assert!(lost.message.ends_with(crate::files::LOST), "{lost}");
}

fn switch(repository: &Repository, branch: &str) -> Project {
    repository.run(&["switch", "--quiet", "-C", branch, "main"]);
    open(repository)
}

/// Fixture: a project with an issue.
fn with_issue() -> Repository {
    let repository = project();
    let add = AddIssue {
        title: "Old".to_owned(),
        fields: IssueFields {
            criteria: Some(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]),
            ..IssueFields::default()
        },
        ..AddIssue::default()
    };
    let project = open(&repository);
    project.issues().add(&add).unwrap();
    project
        .issues()
        .add(&AddIssue {
            title: "Other".to_owned(),
            ..AddIssue::default()
        })
        .unwrap();
    repository.commit("Plan");
    repository
}

/// One edit of each member that people change, in the order in which the members stand in the file.
fn edits() -> Vec<IssueEdit> {
    let some = |text: &str| Some(text.to_owned());
    let check = |criterion: &str| IssueEdit {
        checked: vec![criterion.to_owned()],
        evidence: some("seen"),
        ..IssueEdit::default()
    };
    vec![
        IssueEdit {
            title: some("New"),
            ..IssueEdit::default()
        },
        IssueEdit {
            fields: IssueFields {
                description: some("About"),
                ..IssueFields::default()
            },
            ..IssueEdit::default()
        },
        IssueEdit {
            fields: IssueFields {
                kind: some("bug"),
                ..IssueFields::default()
            },
            ..IssueEdit::default()
        },
        IssueEdit {
            fields: IssueFields {
                parent: some("LOCAL-2"),
                ..IssueFields::default()
            },
            ..IssueEdit::default()
        },
        IssueEdit {
            fields: IssueFields {
                persona: some("Axiom"),
                ..IssueFields::default()
            },
            ..IssueEdit::default()
        },
        check("1"),
        check("2"),
        check("3"),
        IssueEdit {
            state: some("In Progress"),
            ..IssueEdit::default()
        },
        IssueEdit {
            fields: IssueFields {
                priority: Some(1),
                ..IssueFields::default()
            },
            ..IssueEdit::default()
        },
        IssueEdit {
            fields: IssueFields {
                labels: Some(vec!["web".to_owned()]),
                ..IssueFields::default()
            },
            ..IssueEdit::default()
        },
        IssueEdit {
            fields: IssueFields {
                assignee: some("Ann"),
                ..IssueFields::default()
            },
            ..IssueEdit::default()
        },
        IssueEdit {
            fields: IssueFields {
                blocked_by: Some(vec!["LOCAL-2".to_owned()]),
                ..IssueFields::default()
            },
            ..IssueEdit::default()
        },
    ]
}

#[test]
fn edits_of_different_members_merge_without_our_driver() {
    let repository = with_issue();
    let edits = edits();
    let apply = |branch: &str, edit: &IssueEdit| {
        let project = switch(&repository, branch);
        let issue = project.issues().set("LOCAL-1", edit, None).unwrap().issue;
        project.issues().comment("LOCAL-1", branch).unwrap();
        repository.commit(branch);
        serde_json::to_value(issue).unwrap()
    };
    let old = serde_json::to_value(
        open(&repository)
            .issues()
            .show("LOCAL-1")
            .unwrap()
            .item
            .issue,
    )
    .unwrap();
    for (at, theirs) in edits.iter().enumerate() {
        // Neighbours in the file are the hardest to merge.
        let ours = &edits[(at + 1) % edits.len()];
        let (theirs, ours) = (apply("theirs", theirs), apply("ours", ours));
        repository.run(&["merge", "--quiet", "--no-edit", "theirs"]);
        let merged = open(&repository)
            .issues()
            .show("LOCAL-1")
            .unwrap()
            .item
            .issue;
        assert_eq!(merged.comments.len(), 2);
        let merged = serde_json::to_value(merged).unwrap();
        for (member, new) in theirs
            .as_object()
            .unwrap()
            .iter()
            .chain(ours.as_object().unwrap())
        {
            if new.is_object() || member == "acceptance_criteria" || old.get(member) == Some(new) {
                continue;
            }
            assert_eq!(merged.get(member), Some(new), "{at}: {member}");
        }
        let done = |issue: &serde_json::Value| {
            issue["acceptance_criteria"]
                .to_string()
                .matches("true")
                .count()
        };
        let agents = |issue: &serde_json::Value| {
            issue["agent_state"]
                .as_object()
                .map_or(0, serde_json::Map::len)
        };
        assert_eq!(done(&merged), done(&theirs) + done(&ours), "{at}");
        assert_eq!(agents(&merged), agents(&theirs) + agents(&ours), "{at}");
    }
}

#[test]
fn closed_issue_takes_edits_of_other_branches() {
    let repository = with_issue();
    let project = switch(&repository, "theirs");
    project
        .issues()
        .set(
            "LOCAL-1",
            &IssueEdit {
                fields: IssueFields {
                    priority: Some(1),
                    ..IssueFields::default()
                },
                ..IssueEdit::default()
            },
            None,
        )
        .unwrap();
    project.issues().comment("LOCAL-1", "Late.").unwrap();
    repository.commit("theirs");
    let project = switch(&repository, "ours");
    project
        .issues()
        .done(
            "LOCAL-1",
            &CloseIssue {
                anyway: Some("enough".to_owned()),
                ..CloseIssue::default()
            },
            None,
        )
        .unwrap();
    // To git, this file resembles that of the closed issue.
    let key = project
        .issues()
        .add(&AddIssue {
            title: "Old".to_owned(),
            ..AddIssue::default()
        })
        .unwrap();
    repository.commit("ours");
    repository.run(&["merge", "--quiet", "--no-edit", "theirs"]);
    let project = open(&repository);
    assert_eq!(
        project
            .issues()
            .show(&key.issue.linear_id)
            .unwrap()
            .item
            .issue
            .priority,
        None
    );
    let closed = project.issues().show("LOCAL-1").unwrap().item;
    assert!(
        closed.over
            && project
                .issues()
                .read()
                .unwrap()
                .issues
                .iter()
                .all(|issue| issue.linear_id != "LOCAL-1")
    );
    assert_eq!(
        (closed.issue.priority, closed.issue.comments.len()),
        (Some(1), 1)
    );
}

#[test]
fn reports_of_both_branches_merge() {
    let repository = project();
    let put = |project: &Project, number: i64| {
        let at = project
            .environment()
            .now()
            .0
            .saturating_add(jiff::SignedDuration::from_secs(number))
            .unwrap();
        let text = format!(
            "{{\n  \"features\": {{\"FORGE-001\": {{\"executed\": 1}}}},\n  \"output\": \"{}\",\n  \"code_tree\": null,\n  \
             \"at\": \"{at}\"\n}}\n",
            "same ".repeat(40)
        );
        let put = Put::new(Kind::Reports, crate::artifacts::VERIFICATION);
        Artifacts::new(project).put(text.as_bytes(), &put).unwrap();
    };
    put(&open(&repository), 0);
    repository.commit("Verify");
    for (number, branch) in [(1, "theirs"), (2, "ours")] {
        let project = switch(&repository, branch);
        put(&project, number);
        assert_eq!(
            crate::features::remove_superseded_reports(&project).unwrap(),
            [""; 0],
            "the other branch has it"
        );
        repository.commit(branch);
    }
    repository.run(&["merge", "--quiet", "--no-edit", "theirs"]);
    let artifacts = open(&repository);
    let listed = Artifacts::new(&artifacts)
        .list(&crate::artifacts::Filter::default())
        .unwrap();
    assert_eq!(listed.total, 3);
    for entry in &listed.artifacts {
        Artifacts::new(&artifacts).bytes(entry).unwrap();
    }
}
