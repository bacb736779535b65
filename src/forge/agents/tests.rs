//! Setup of agents in a real project, and their hooks in real sessions.

use super::*;
use crate::environment::ProjectEnvironment;
use crate::focus::{Focused, SetFocus};
use crate::git::fixture::Repository;
use crate::init::{self, Init};
use crate::sessions::{Log, Sessions, Start};

fn project() -> (Repository, Project) {
    let repository = Repository::new();
    for (name, value) in [("user.name", "Ann"), ("user.email", "ann@example.com")] {
        repository.run(&["config", name, value]);
    }
    let (project, _) = init::init(
        repository.path(),
        ProjectEnvironment::default(),
        &Init::default(),
    )
    .unwrap();
    repository.write("src/main.rs", "fn main() {}\n");
    repository.commit("Begin");
    (repository, project)
}

fn status(repository: &Repository) -> String {
    repository.run(&["status", "--porcelain", "--untracked-files=all"])
}

#[test]
fn setup_is_removed_without_a_trace() {
    for agent in Agent::ALL {
        let (repository, project) = project();
        let planned = plan(&project, agent, false).unwrap();
        assert_eq!(status(&repository), "", "a plan writes nothing");
        let done = apply(&project, agent, false).unwrap();
        assert_eq!((done.changed.len(), &done), (2, &planned));
        assert!(
            apply(&project, agent, false).unwrap().changed.is_empty(),
            "{agent:?}: a repeat changes nothing"
        );
        apply(&project, agent, true).unwrap();
        assert_eq!(status(&repository), "", "{agent:?}");
        assert!(apply(&project, agent, true).unwrap().changed.is_empty());
    }
}

#[test]
fn files_of_people_are_as_before_after_removal() {
    let (repository, project) = project();
    repository.write("CLAUDE.md", "# Rules\n\nBe kind.");
    repository.write(".claude/settings.json", "{\n    \"model\": \"opus\"\n}");
    repository.commit("Mine");
    apply(&project, Agent::Claude, false).unwrap();
    assert!(
        std::fs::read_to_string(repository.path().join("CLAUDE.md"))
            .unwrap()
            .starts_with("# Rules\n\nBe kind.")
    );
    apply(&project, Agent::Claude, true).unwrap();
    assert_eq!(status(&repository), "");
}

#[test]
fn shared_instructions_stay_for_the_other_agent() {
    let (repository, project) = project();
    for agent in [Agent::Codex, Agent::Cursor] {
        apply(&project, agent, false).unwrap();
    }
    apply(&project, Agent::Codex, true).unwrap();
    assert!(repository.path().join("AGENTS.md").exists());
    apply(&project, Agent::Cursor, true).unwrap();
    assert_eq!(status(&repository), "");
}

#[test]
fn links_are_followed_only_inside_the_project() {
    let (repository, project) = project();
    repository.write("AGENTS.md", "# Rules\n");
    std::os::unix::fs::symlink("AGENTS.md", repository.path().join("CLAUDE.md")).unwrap();
    apply(&project, Agent::Claude, false).unwrap();
    assert!(
        repository
            .path()
            .join("CLAUDE.md")
            .symlink_metadata()
            .unwrap()
            .is_symlink()
    );
    assert!(
        std::fs::read_to_string(repository.path().join("AGENTS.md"))
            .unwrap()
            .contains("forge start")
    );
    std::os::unix::fs::symlink("/etc/hostname", repository.path().join("GEMINI.md")).unwrap();
    assert_eq!(
        apply(&project, Agent::Gemini, false).unwrap_err().category,
        Category::Refused
    );
}

fn answer(project: &Project, agent: Agent, event: Event, input: &str) -> serde_json::Value {
    serde_json::from_str(&run(project, agent, event, &HookInput::parse(input.as_bytes())).unwrap())
        .unwrap()
}

#[test]
fn starts_get_the_briefing_in_their_format() {
    let (_repository, project) = project();
    Sessions::new(&project).start(&Start::default()).unwrap();
    let claude = answer(
        &project,
        Agent::Claude,
        Event::Start,
        "{\"source\": \"startup\"}",
    );
    let context = claude["hookSpecificOutput"]["additionalContext"]
        .as_str()
        .unwrap();
    assert!(context.contains("branch: \"main\""), "{context}");
    let cursor = answer(&project, Agent::Cursor, Event::Start, "not json");
    assert_eq!(cursor["additional_context"].as_str(), Some(context));
}

#[test]
fn stops_end_the_session_and_keep_its_next_step() {
    let (repository, project) = project();
    let sessions = Sessions::new(&project);
    assert_eq!(
        answer(
            &project,
            Agent::Claude,
            Event::Compact,
            "{\"trigger\": \"auto\"}"
        ),
        json(),
        "no session, no entry"
    );
    let session = sessions.start(&Start::default()).unwrap().session;
    answer(
        &project,
        Agent::Claude,
        Event::Compact,
        "{\"trigger\": \"auto\"}",
    );
    sessions
        .log(&Log {
            text: "Half of it".into(),
            next: Some("The other half".into()),
        })
        .unwrap();
    repository.write("src/new.rs", "// new\n");
    assert_eq!(
        answer(
            &project,
            Agent::Claude,
            Event::Stop,
            "{\"reason\": \"clear\"}"
        ),
        json()
    );
    assert!(sessions.current().unwrap().is_none());
    let folder = repository
        .path()
        .join(crate::layout::SESSIONS)
        .join(session.folder());
    let progress = std::fs::read_to_string(folder.join("progress.txt")).unwrap();
    assert!(
        progress.contains("compacted its context (auto)")
            && progress.ends_with("NEXT: The other half\n"),
        "{progress}"
    );
}

#[test]
fn turns_of_codex_end_only_finished_sessions() {
    let (_repository, project) = project();
    let sessions = Sessions::new(&project);
    sessions.start(&Start::default()).unwrap();
    let set = |phase: &str| SetFocus {
        task: Some("It".into()),
        phase: Some(phase.into()),
        ..SetFocus::default()
    };
    for (phase, active) in [("BUILD", true), ("DONE", false)] {
        Focused::new(&project).set(&set(phase)).unwrap();
        answer(&project, Agent::Codex, Event::Stop, "{}");
        assert_eq!(sessions.current().unwrap().is_some(), active, "{phase}");
    }
}

fn json() -> serde_json::Value {
    serde_json::json!({})
}
