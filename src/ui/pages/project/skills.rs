//! Skills, with a form that tests their triggers.

use askama::Template;
use axum::Router;
use axum::response::Response;

use super::{API, Part, Tab, Top, answered, frame};
use crate::Ui;
use crate::frame::{Frame, page};
use serde_json::Value;

use crate::json::{self, Read, Unreadable, answer};
use crate::request::{Visit, page_at};
use crate::rest::segment;

/// Number of skills on a page.
const LIMIT: usize = 100;

pub(super) fn routes() -> Router<Ui> {
    Router::new()
        .route("/ui/project/skills", page_at(|visit| Box::pin(list(visit))))
        .route(
            "/ui/project/skills/{name}",
            page_at(|visit| Box::pin(show(visit))),
        )
}

answer! {
    /// A skill.
    #[derive(Debug)]
    struct Skill {
        name: String,
        description: String,
        version: Option<String>,
        triggers: Triggers,
        errors: Vec<Problem> = default,
        warnings: Vec<Problem> = default,
    }
}

impl Skill {
    fn path(&self) -> String {
        format!("/ui/project/skills/{}", segment(&self.name))
    }
}

answer! {
    /// When a skill fires.
    #[derive(Debug)]
    struct Triggers {
        keywords: Vec<String> = default,
        file_patterns: Vec<String> = default,
        linear_labels: Vec<String> = default,
    }
}

#[derive(Debug)]
struct Problem {
    message: String,
}

impl Read for Problem {
    fn read(value: &Value) -> Result<Self, Unreadable> {
        let members = json::object(value)?;
        let name = ["message", "detail", "text"]
            .into_iter()
            .find(|name| members.contains_key(*name));
        Ok(Self {
            message: json::member_or_default(members, name.unwrap_or("message"))?,
        })
    }
}

answer! {
    #[derive(Debug)]
    struct Matches {
        matches: Vec<Match>,
    }

    /// A skill that has points.
    #[derive(Debug)]
    struct Match {
        skill: String,
        score: u64,
        fires: bool,
        reasons: Vec<Reason>,
    }

    #[derive(Debug)]
    struct Reason {
        kind: String,
        trigger: String,
        file: Option<String>,
        points: u64,
    }
}

#[derive(Template)]
#[template(path = "project/skills.html")]
struct SkillsPage {
    frame: Frame,
    top: Top,
    task: String,
    files: String,
    labels: String,
    /// What the test found; none if nothing was tested.
    tested: Option<Vec<Match>>,
    skills: Vec<Skill>,
    total: u64,
    next: Option<String>,
}

crate::frame::framed!(SkillsPage);

async fn list(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let state = super::super::State::of(&query);
    let answer = async {
        let list: Part<Skill> = ui
            .rest
            .get(
                &caller,
                &format!("{API}/skills?limit={LIMIT}{}", state.query(&["after"])),
            )
            .await?;
        let asked = state.query(&["task", "files", "labels"]);
        let tested = if asked.is_empty() {
            None
        } else {
            let route = format!("{API}/skill-matches?{}", asked.trim_start_matches('&'));
            let found: Matches = ui.rest.get(&caller, &route).await?;
            Some(found.matches)
        };
        Ok(page(&SkillsPage {
            frame: frame("Skills", &ui, &caller),
            top: Top::new(Tab::Skills, &state, &ui, &caller),
            task: state.get("task").to_owned(),
            files: state.get("files").to_owned(),
            labels: state.get("labels").to_owned(),
            tested,
            skills: list.items,
            total: list.total,
            next: list.next,
        }))
    };
    answered(&ui, &caller, Tab::Skills, answer.await)
}

answer! {
    #[derive(Debug)]
    struct Shown {
        skill: Skill,
        instructions: String,
        order: Vec<String>,
        files: Vec<String>,
    }
}

#[derive(Template)]
#[template(path = "project/skill.html")]
struct SkillPage {
    frame: Frame,
    top: Top,
    shown: Shown,
}

crate::frame::framed!(SkillPage);

async fn show(
    Visit {
        ui,
        caller,
        path,
        query,
        ..
    }: Visit,
) -> Response {
    let state = super::super::State::of(&query);
    let answer = async {
        let route = format!(
            "{API}/skills/{}",
            segment(super::super::path_value(&path, "name"))
        );
        let shown: Shown = ui.rest.get(&caller, &route).await?;
        let frame = frame(&format!("Skill {}", shown.skill.name), &ui, &caller);
        Ok(page(&SkillPage {
            frame,
            top: Top::new(Tab::Skills, &state, &ui, &caller),
            shown,
        }))
    };
    answered(&ui, &caller, Tab::Skills, answer.await)
}
