//! The steps of the week: what people, the agent and the tracker's users do.

use std::collections::BTreeSet;

use helmdeck_forge::Result;
use helmdeck_forge::features::{Add as AddFeature, Features};
use helmdeck_forge::issues::{AddIssue, CloseIssue, Issue, IssueEdit, IssueFields, Scope};
use helmdeck_forge::knowledge::{Knowledge, Learning, What};
use helmdeck_forge::sessions::{End, Log, Sessions, Start};
use helmdeck_forge::{Category, Project};

use super::Random;
use super::board::{with_criterion, with_text};
use super::history::{History, Told};
use super::team::Team;

/// Which of the members is the agent.
pub(super) const AGENT: usize = 2;

fn pick<'a, T>(all: &'a [T], random: &mut Random) -> Option<&'a T> {
    (!all.is_empty()).then(|| &all[random.below(all.len())])
}

fn open_issues(project: &Project) -> Vec<Issue> {
    project
        .issues()
        .list(Scope::Open)
        .unwrap()
        .issues
        .into_iter()
        .map(|item| item.issue)
        .collect()
}

/// A person does one thing in her clone.
pub(super) fn work(team: &Team, at: usize, history: &mut History, random: &mut Random) {
    let project = team.project(at);
    let what = match random.below(12) {
        0..=2 => add(&project, history, random),
        3..=5 => change(&project, history, random),
        6 => comment(&project, history, random),
        7 => close(&project, history, random),
        8 => reopen(&project, history, random),
        9 => learn(&project, history, random),
        10 => plan(&project, history),
        _ => sit_down(&project, history, random),
    };
    let name = team.members[at].name;
    match what {
        Ok(what) => history.step(format!("{name}: {what}")),
        Err(error) => history.expect(false, || format!("{name}: {error}")),
    }
}

fn add(project: &Project, history: &mut History, random: &mut Random) -> Result<String> {
    let number = history.next();
    let title = format!("issue-{number} version {number}");
    let criteria: Vec<String> = (0..random.below(3))
        .map(|one| format!("criterion {number}.{one}"))
        .collect();
    let blockers: Vec<String> = open_issues(project)
        .into_iter()
        .map(|issue| issue.linear_id)
        .collect();
    let blocked_by: Vec<String> = pick(&blockers, random)
        .filter(|_| number.is_multiple_of(5))
        .cloned()
        .into_iter()
        .collect();
    let labels = [vec![], vec!["ui".to_owned()], vec!["desk".to_owned()]][random.below(3)].clone();
    let add = AddIssue {
        title: title.clone(),
        fields: IssueFields {
            criteria: Some(criteria.clone()),
            labels: Some(labels),
            blocked_by: Some(blocked_by),
            ..IssueFields::default()
        },
        ..AddIssue::default()
    };
    let added = project.issues().add(&add)?.issue;
    let deeds = history.of(&title);
    deeds.criteria.extend(criteria);
    deeds.replace(Told::Title, "", &title);
    Ok(format!("adds {} {title}", added.linear_id))
}

fn change(project: &Project, history: &mut History, random: &mut Random) -> Result<String> {
    let issues = open_issues(project);
    let Some(issue) = pick(&issues, random) else {
        return Ok("finds no issue".to_owned());
    };
    let (key, number) = (&issue.linear_id, history.next());
    let set = |edit: &IssueEdit| project.issues().set(key, edit, None).map(drop);
    let what = match random.below(6) {
        0 => {
            let word = issue.title.split(' ').next().unwrap().to_owned();
            let title = format!("{word} version {number}");
            set(&IssueEdit {
                title: Some(title.clone()),
                ..IssueEdit::default()
            })?;
            history
                .of(&issue.title)
                .replace(Told::Title, &issue.title, &title);
            title
        }
        1 => {
            let text = format!("Text {number}.");
            set(&IssueEdit {
                fields: IssueFields {
                    description: Some(text.clone()),
                    ..IssueFields::default()
                },
                ..IssueEdit::default()
            })?;
            let before = issue.description.clone().unwrap_or_default();
            history.of(&issue.title).replace(Told::Text, &before, &text);
            text
        }
        2 => {
            set(&IssueEdit {
                fields: IssueFields {
                    priority: Some(u8::try_from(random.below(5)).unwrap()),
                    ..IssueFields::default()
                },
                ..IssueEdit::default()
            })?;
            "priority".to_owned()
        }
        3 => {
            let state = ["Open", "In Progress"][random.below(2)];
            set(&IssueEdit {
                state: Some(state.to_owned()),
                ..IssueEdit::default()
            })?;
            history.of(&issue.title).state_is_open_to_question = true;
            state.to_owned()
        }
        4 => {
            let text = format!("criterion {number}");
            let mut all: Vec<String> = issue
                .acceptance_criteria
                .iter()
                .map(|one| one.text().to_owned())
                .collect();
            all.push(text.clone());
            set(&IssueEdit {
                fields: IssueFields {
                    criteria: Some(all),
                    ..IssueFields::default()
                },
                ..IssueEdit::default()
            })?;
            history.of(&issue.title).criteria.insert(text.clone());
            text
        }
        _ => match issue.acceptance_criteria.first() {
            Some(first) => {
                set(&IssueEdit {
                    checked: vec![first.text().to_owned()],
                    ..IssueEdit::default()
                })?;
                "a criterion holds".to_owned()
            }
            None => {
                let mut labels = issue.labels.clone();
                labels.push("ui".to_owned());
                set(&IssueEdit {
                    fields: IssueFields {
                        labels: Some(labels),
                        ..IssueFields::default()
                    },
                    ..IssueEdit::default()
                })?;
                "the label ui".to_owned()
            }
        },
    };
    Ok(format!("changes {key}: {what}"))
}

fn comment(project: &Project, history: &mut History, random: &mut Random) -> Result<String> {
    let issues = open_issues(project);
    let Some(issue) = pick(&issues, random) else {
        return Ok("finds no issue".to_owned());
    };
    let text = format!("Comment {}.", history.next());
    project.issues().comment(&issue.linear_id, &text)?;
    history.of(&issue.title).comments.insert(text.clone());
    Ok(format!("comments {}: {text}", issue.linear_id))
}

fn close(project: &Project, history: &mut History, random: &mut Random) -> Result<String> {
    let issues = open_issues(project);
    let Some(issue) = pick(&issues, random) else {
        return Ok("finds no issue".to_owned());
    };
    let done = CloseIssue {
        anyway: Some("It is good enough".to_owned()),
        ..CloseIssue::default()
    };
    project.issues().done(&issue.linear_id, &done, None)?;
    history.of(&issue.title).closed = true;
    Ok(format!("closes {}", issue.linear_id))
}

fn reopen(project: &Project, history: &mut History, random: &mut Random) -> Result<String> {
    let all = project.issues().list(Scope::Done)?.issues;
    let Some(item) = pick(&all, random) else {
        return Ok("finds nothing closed".to_owned());
    };
    project.issues().reopen(&item.issue.linear_id, None)?;
    history.of(&item.issue.title).state_is_open_to_question = true;
    Ok(format!("opens {} again", item.issue.linear_id))
}

fn learn(project: &Project, history: &mut History, random: &mut Random) -> Result<String> {
    let context = format!("When {}", history.next());
    let what = match random.below(3) {
        0 => What::Successful {
            context: context.clone(),
            approach: "Do it".into(),
        },
        1 => What::Failed {
            context: context.clone(),
            issue: "It broke".into(),
            resolution: "Mend it".into(),
        },
        _ => What::Decision {
            context: context.clone(),
            decision: "So".into(),
            rationale: "Because".into(),
        },
    };
    Knowledge::new(project).add(&Learning::new(what), None)?;
    history.learned.insert(context.clone());
    Ok(format!("learns {context}"))
}

fn plan(project: &Project, history: &mut History) -> Result<String> {
    let name = format!("Feature {}", history.next());
    let add = AddFeature {
        name: name.clone(),
        tests: vec!["sums".to_owned()],
        ..AddFeature::default()
    };
    let id = Features::new(project).add(&add, None)?.feature.id;
    history.features.insert(name.clone());
    Ok(format!("plans {id} {name}"))
}

/// A session with an entry and a learning.
fn sit_down(project: &Project, history: &mut History, random: &mut Random) -> Result<String> {
    let sessions = Sessions::new(project);
    let started = sessions.start(&Start {
        no_probe: true,
        ..Start::default()
    })?;
    history.expect(started.paused.is_none(), || {
        format!("paused: {:?}", started.paused)
    });
    let context = format!("When {}", history.next());
    sessions.learn(Learning::new(What::Successful {
        context: context.clone(),
        approach: "Sit down".into(),
    }))?;
    history.learned.insert(context);
    sessions.log(&Log {
        text: "Thought about it".to_owned(),
        next: None,
    })?;
    let issues = open_issues(project);
    if let Some(issue) = pick(&issues, random) {
        match project.issues().start(
            &issue.linear_id,
            &helmdeck_forge::issues::Start {
                no_branch: true,
                ..Default::default()
            },
        ) {
            Ok(_) => history.of(&issue.title).state_is_open_to_question = true,
            // Somebody else is at it.
            Err(error) => {
                history.expect(
                    matches!(error.category, Category::Locked | Category::Refused),
                    || error.to_string(),
                );
            }
        }
    }
    sessions.end(&End {
        next: Some("Go on".to_owned()),
        ..End::default()
    })?;
    Ok(format!("has the session {}", started.session.id))
}

/// Somebody changes an issue in the tracker itself.
pub(super) fn visit(team: &Team, history: &mut History, random: &mut Random) {
    let cards = team.board.cards();
    let number = history.next();
    let Some(card) = pick(&cards, random).filter(|_| random.below(5) > 0) else {
        let title = format!("issue-{number} version {number}");
        team.board.add(&title);
        history.of(&title).replace(Told::Title, "", &title);
        return history.step(format!("the tracker has {title}"));
    };
    let key = card.key.as_str();
    let deeds = history.of(&card.title);
    let what = match random.below(5) {
        0 => {
            let title = format!("{} version {number}", card.title.split(' ').next().unwrap());
            team.board.set_title(key, &title);
            deeds.replace(Told::Title, &card.title, &title);
            title
        }
        1 => {
            let text = format!("Text {number}.");
            team.board.set_description(key, |old| with_text(old, &text));
            deeds.replace(Told::Text, &card.text, &text);
            text
        }
        2 => {
            let text = format!("criterion {number}");
            team.board
                .set_description(key, |old| with_criterion(old, &text));
            deeds.criteria.insert(text.clone());
            text
        }
        3 => {
            team.board.set_state(key, random);
            deeds.state_is_open_to_question = true;
            "state".to_owned()
        }
        _ => {
            team.board.toggle_label(key);
            "label".to_owned()
        }
    };
    history.step(format!("the tracker changes {key}: {what}"));
}

/// The agent does a piece of work with the real program: from an issue or a feature to its end.
pub(super) fn delegate(team: &mut Team, history: &mut History, random: &mut Random) {
    let number = history.next();
    let run = |team: &Team, arguments: &[&str]| {
        let ended = team.run(AGENT, arguments);
        assert_eq!(
            ended.code, 0,
            "{arguments:?}: {}{}",
            ended.stdout, ended.stderr
        );
        ended.stdout
    };
    let title = format!("issue-{number} version {number}");
    let with_feature = random.below(2) == 0;
    team.exchange(AGENT, history);
    let target = if with_feature {
        let added = team.fixture.forge_in(
            &team.members[AGENT].root,
            &["features", "add", &title, "--test", "sums"],
        );
        history.features.insert(title.clone());
        added["feature"]["id"].as_str().unwrap().to_owned()
    } else {
        title.clone()
    };
    team.commit(AGENT);
    let started = run(team, &["start", &target]);
    let deeds = history.of(&title);
    deeds.replace(Told::Title, "", &title);
    deeds.closed = true;
    let file = format!("work-{number}.txt");
    std::fs::write(team.members[AGENT].root.join(&file), "done\n").unwrap();
    history.code.insert(file);
    if with_feature {
        run(team, &["verify"]);
    }
    let what = format!("Do the work {number}");
    let in_parts = random.below(2) == 0;
    if in_parts {
        run(team, &["commit", &what]);
    }
    run(team, &["remember", &format!("When {number}: it works")]);
    history.learned.insert(format!("When {number}"));
    let last = if in_parts {
        vec!["done"]
    } else {
        vec!["done", &what]
    };
    run(team, &last);
    let left = team.git(AGENT, &["status", "--porcelain"]);
    history.expect(left.is_empty(), || format!("the end left {left}"));
    let branch = team.git(AGENT, &["branch", "--show-current"]);
    team.git(AGENT, &["switch", "--quiet", "main"]);
    team.git(AGENT, &["merge", "--quiet", "--no-edit", &branch]);
    let sync = team.run(AGENT, &["tracker", "sync"]);
    assert!(
        [0, 1].contains(&sync.code),
        "{}{}",
        sync.stdout,
        sync.stderr
    );
    team.decide(&team.project(AGENT), history, random);
    history.step(format!(
        "Agent: does {title}: {}",
        started.lines().nth(1).unwrap_or_default()
    ));
}

/// The agent breaks the code in one large commit, which the others may get, and takes it back.
pub(super) fn go_wrong(team: &mut Team, history: &mut History, random: &mut Random) {
    let number = history.next();
    let run = |team: &Team, arguments: &[&str]| {
        let ended = team.run(AGENT, arguments);
        assert_eq!(
            ended.code, 0,
            "{arguments:?}: {}{}",
            ended.stdout, ended.stderr
        );
    };
    let contexts = |team: &Team| -> BTreeSet<String> {
        let knowledge = Knowledge::new(&team.project(AGENT)).read().unwrap();
        knowledge
            .entries()
            .filter_map(|entry| Some(entry.texts().first()?.1.to_owned()))
            .collect()
    };
    team.exchange(AGENT, history);
    run(
        team,
        &[
            "checkpoint",
            "create",
            "--key",
            &format!("WEEK-{number}"),
            "-m",
            "It works",
        ],
    );
    team.exchange(AGENT, history);
    let good = team.git(AGENT, &["rev-parse", "HEAD"]);
    let root = team.members[AGENT].root.clone();
    for file in 0..12 {
        std::fs::write(root.join(format!("wrong-{number}-{file}.txt")), "wrong\n").unwrap();
    }
    std::fs::write(root.join("broken"), "").unwrap();
    team.commit(AGENT);
    match random.below(3) {
        0 => drop(team.exchange(AGENT, history)),
        1 => team.pull_request(AGENT, history),
        _ => {}
    }
    let known = contexts(team);
    run(team, &["recover", "apply"]);
    let code = team.git(
        AGENT,
        &["diff", "--name-only", &good, "HEAD", "--", ".", ":!.forge"],
    );
    history.expect(code.is_empty(), || format!("the way back left {code}"));
    // The reason of the way back is learned.
    history
        .learned
        .extend(contexts(team).difference(&known).cloned());
    team.exchange(AGENT, history);
    history.step(format!(
        "Agent: breaks the code and takes it back, {number}"
    ));
}
