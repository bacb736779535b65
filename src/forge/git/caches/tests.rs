use super::super::fixture::{Repository, run_at};
use super::*;
use crate::git::Commits;
use crate::project::Project;

fn text(repository: &Repository, path: &str) -> String {
    std::fs::read_to_string(repository.path().join(path)).unwrap()
}

const MESSAGE: &str = "[SX9-123] Do\tit\n\n## What\n- x\n\nForge-Linear: SX9-123\nForge-Session: 2025-12-24-session-001\n";

#[test]
fn the_last_commits_are_kept_newest_last() {
    let repository = Repository::new();
    let project = repository.project();
    let first = repository.commit("first");
    let second = repository.commit(MESSAGE);
    Commits::new(&project).refresh().unwrap();
    let git = project.git().unwrap();
    let time = |oid: &Oid| Time::from(git.commit(oid.as_str()).unwrap().unwrap().time);
    let tree = |oid: &Oid| git.code_tree(oid).unwrap()[..12].to_owned();
    assert_eq!(
        text(&repository, layout::COMMITS),
        format!(
            "{}\t{}\t-\t-\t{}\tfirst\n{}\t{}\tSX9-123\t2025-12-24-session-001\t{}\t[SX9-123] Do it\n",
            time(&first),
            first.short(),
            tree(&first),
            time(&second),
            second.short(),
            tree(&second)
        )
    );
    assert!(time(&first).to_string().ends_with('Z'));
}

#[test]
fn a_cache_is_used_only_at_the_head_it_was_made_at() {
    let repository = Repository::new();
    let project = repository.project();
    assert_eq!(Commits::new(&project).recent().unwrap(), []);
    repository.commit("first");
    Commits::new(&project).refresh().unwrap();
    let made = text(&repository, layout::COMMITS);
    // At the same HEAD the cache is used unchanged, which shows that git was not asked.
    repository.write(layout::COMMITS, made.replace("\tfirst\n", "\tedited\n"));
    assert_eq!(
        Commits::new(&project).recent().unwrap()[0].subject,
        "edited"
    );
    repository.commit("second");
    let subjects = |project: &Project| -> Vec<String> {
        Commits::new(project)
            .recent()
            .unwrap()
            .into_iter()
            .map(|line| line.subject)
            .collect()
    };
    assert_eq!(subjects(&project), ["first", "second"]);
    for damage in ["", "nonsense\n", "\0\0\0"] {
        repository.write(layout::COMMITS, damage);
        assert_eq!(subjects(&project), ["first", "second"]);
    }
}

#[test]
fn two_hundred_commits_are_kept() {
    let repository = Repository::new();
    let project = repository.project();
    // The fastest way to create many commits.
    let stream: String = (1..=205)
        .map(|n| {
            format!(
                "commit refs/heads/main\ncommitter A <a@b> {} +0000\ndata <<E\nc{n}\nE\n\n",
                1_700_000_000 + n
            )
        })
        .collect();
    let git = project.git().unwrap();
    git.succeed(&["fast-import", "--quiet"], &Run::writing().stdin(stream))
        .unwrap();
    Commits::new(&project).refresh().unwrap();
    let log = text(&repository, layout::COMMITS);
    let subjects: Vec<_> = log
        .lines()
        .map(|line| line.rsplit('\t').next().unwrap())
        .collect();
    assert_eq!(
        (subjects.len(), subjects[0], subjects[199]),
        (200, "c6", "c205")
    );
    assert!(log.starts_with("2023-11-14T22:13:26Z\t"), "{}", &log[..40]);
}

#[test]
fn branches_are_measured_against_their_upstream_or_the_base() {
    let origin = Repository::new();
    origin.write(".forge/x", "");
    origin.commit("first");
    let folder = tempfile::tempdir().unwrap();
    let clone = folder.path().join("clone");
    run_at(
        folder.path(),
        &["clone", "--quiet", origin.path().to_str().unwrap(), "clone"],
    );
    origin.commit("theirs");
    let run = |args: &[&str]| run_at(&clone, args);
    run(&["commit", "--quiet", "--allow-empty", "-m", "ours 1"]);
    run(&["commit", "--quiet", "--allow-empty", "-m", "ours 2"]);
    run(&["fetch", "--quiet"]);
    run(&["branch", "--no-track", "old", "origin/main~1"]);
    run(&[
        "switch",
        "--quiet",
        "--no-track",
        "-c",
        "feature/SX9-123-nats",
        "origin/main",
    ]);
    run(&["commit", "--quiet", "--allow-empty", "-m", MESSAGE]);
    let project = Project::open(&clone, crate::ProjectEnvironment::default())
        .unwrap()
        .unwrap();
    Commits::new(&project).refresh().unwrap();
    let text = std::fs::read_to_string(clone.join(layout::BRANCHES)).unwrap();
    let read: Branches = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (read.base.as_deref(), read.head),
        (
            Some("origin/main"),
            project.git().unwrap().head().unwrap().map(String::from)
        )
    );
    let short: Vec<_> = read
        .branches
        .iter()
        .map(|branch| {
            (
                branch.name.as_str(),
                branch.ahead.unwrap(),
                branch.behind.unwrap(),
                branch.merged,
            )
        })
        .collect();
    assert_eq!(
        short,
        [
            ("feature/SX9-123-nats", 1, 0, false),
            ("main", 2, 1, false),
            ("old", 0, 1, true)
        ]
    );
    let feature = &read.branches[0];
    assert_eq!(
        (feature.key.as_deref(), feature.session.as_deref()),
        (Some("SX9-123"), Some("2025-12-24-session-001"))
    );
    assert_eq!(
        (
            feature.upstream.as_deref(),
            read.branches[1].upstream.as_deref()
        ),
        (None, Some("origin/main"))
    );
    assert_eq!(
        feature.worktree.as_deref(),
        clone.canonicalize().unwrap().to_str()
    );
    let members: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("      \""))
        .take(10)
        .collect();
    let names: Vec<_> = members
        .iter()
        .map(|line| line.trim().split('"').nth(1).unwrap())
        .collect();
    let wanted = "name sha upstream ahead behind last_commit_at key session worktree merged";
    assert_eq!(names.join(" "), wanted);
    // A git that cannot count all branches at once gives the same numbers one by one.
    let git = project.git().unwrap();
    let base = git.base(None).unwrap().map(|(_, oid)| oid);
    for (branch, state) in git.branches().unwrap().iter().zip(&read.branches) {
        let counted = measure(git, base.as_ref(), branch).unwrap();
        assert_eq!(counted, state.ahead.zip(state.behind), "{}", branch.name);
    }
}

#[test]
fn a_repository_without_commits_has_empty_caches() {
    let repository = Repository::new();
    let project = repository.project();
    Commits::new(&project).refresh().unwrap();
    assert_eq!(text(&repository, layout::COMMITS), "");
    let read: Branches = serde_json::from_str(&text(&repository, layout::BRANCHES)).unwrap();
    assert_eq!((read.head, read.base, read.branches.len()), (None, None, 0));
}
