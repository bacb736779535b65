//! What a rollback keeps of the memory.
//!
//! What was learned stays, features return to their earlier status, and the reason of the rollback is
//! learned. These are pure functions over JSON; they keep all unknown members.

use crate::json::{Json, Members};
use crate::knowledge::{Failed, KnowledgeFile, Trace};
use crate::time::Time;

/// Files and folders that are carried over to the checkpoint's code.
pub(super) const CARRIED: [&str; 9] = [
    crate::layout::KNOWLEDGE,
    crate::layout::KNOWLEDGE_ENTRIES,
    crate::layout::ACTIVE,
    crate::layout::ISSUES,
    crate::layout::COMMENTS,
    crate::layout::HISTORY,
    crate::layout::ARTIFACTS,
    crate::layout::SESSIONS,
    crate::layout::CHECKPOINTS,
];

/// The lesson of a rollback, for later sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lesson {
    pub context: String,
    pub issue: String,
    pub resolution: String,
}

/// Returns the features as they were at the checkpoint.
///
/// A feature that changed since carries the time of the loss. A later feature keeps its definition,
/// because ids are never reused, and counts as not implemented.
pub(super) fn reset(now: &Json, then: &Json, at: Time) -> Json {
    let mut result = then.clone();
    let Some(all) = features_mut(&mut result) else { return now.clone() };
    let current = features(now);
    for feature in all.iter_mut() {
        let Some(id) = text(feature, "id").map(str::to_owned) else { continue };
        let was = current.iter().find(|other| text(other, "id") == Some(&id));
        let Some(was) = was else { continue };
        let changed = text(was, "status") != text(feature, "status");
        let passing = text(was, "status") == Some("passing") || text(feature, "status") == Some("passing");
        if changed && passing {
            set(feature, "regressed_at", Json::String(at.to_string()));
        }
    }
    let known: Vec<String> = all.iter().filter_map(|feature| text(feature, "id").map(str::to_owned)).collect();
    for later in current {
        if text(later, "id").is_some_and(|id| known.iter().any(|known| known == id)) {
            continue;
        }
        let mut later = later.clone();
        let status = text(&later, "status").unwrap_or_default().to_owned();
        if matches!(status.as_str(), "passing" | "failing" | "in_progress") {
            set(&mut later, "status", Json::String("not_implemented".to_owned()));
            if let Json::Object(members) = &mut later {
                for proof in ["verified_at", "verified_commit", "verified_code_tree", "evidence"] {
                    members.0.shift_remove(proof);
                }
            }
        }
        if status == "passing" {
            set(&mut later, "regressed_at", Json::String(at.to_string()));
        }
        all.push(later);
    }
    known_since(&mut result, now);
    result
}

/// Keeps all retired ids, because none may be reused, and every contract change.
fn known_since(result: &mut Json, now: &Json) {
    let there: Vec<String> = features(result).iter().filter_map(|one| text(one, "id").map(str::to_owned)).collect();
    for name in ["retired", "not_adopted", "amendments"] {
        let mut all = array(result, name).to_vec();
        for entry in array(now, name) {
            if !all.contains(entry) {
                all.push(entry.clone());
            }
        }
        // A feature that was removed since the checkpoint exists again.
        all.retain(|entry| !matches!(entry, Json::String(id) if name == "retired" && there.contains(id)));
        if let Json::Object(members) = result {
            if all.is_empty() {
                members.0.shift_remove(name);
            } else {
                members.0.insert(name.to_owned(), Json::Array(all));
            }
        }
    }
}

fn array<'a>(file: &'a Json, name: &str) -> &'a [Json] {
    match file {
        Json::Object(members) => match members.0.get(name) {
            Some(Json::Array(all)) => all,
            _ => &[],
        },
        _ => &[],
    }
}

/// Adds a lesson to the knowledge, unless it is known.
pub(super) fn learn(knowledge: &mut KnowledgeFile, lesson: &Lesson, at: Time) {
    let failed = &mut knowledge.patterns.failed;
    if failed.iter().any(|entry| entry.context == lesson.context && entry.issue == lesson.issue) {
        return;
    }
    failed.push(Failed {
        context: lesson.context.clone(),
        issue: lesson.issue.clone(),
        resolution: lesson.resolution.clone(),
        learned_at: at,
        trace: Trace::default(),
        other: Members::default(),
    });
}

/// Returns a member that is a string.
pub(crate) fn text<'a>(value: &'a Json, name: &str) -> Option<&'a str> {
    match value {
        Json::Object(members) => match members.0.get(name) {
            Some(Json::String(text)) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn set(value: &mut Json, name: &str, to: Json) {
    if let Json::Object(members) = value {
        members.0.insert(name.to_owned(), to);
    }
}

/// Returns the features in a file.
pub(super) fn features(file: &Json) -> &[Json] {
    array(file, "features")
}

fn features_mut(file: &mut Json) -> Option<&mut Vec<Json>> {
    match file {
        Json::Object(members) => match members.0.get_mut("features") {
            Some(Json::Array(all)) => Some(all),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    fn at() -> Time {
        Time::parse("2025-12-24T12:00:00Z").unwrap()
    }

    #[test]
    fn features_go_back_to_the_checkpoint_and_say_when_they_were_lost() {
        let then = json(
            r#"{"schema_version":"1.0","features":[
                {"id":"A-001","name":"a","status":"passing","verified_at":"2025-12-24T10:00:00Z","evidence":"e"},
                {"id":"A-002","name":"b","status":"not_implemented"},
                {"id":"A-003","name":"c","status":"passing"},
                {"id":"A-004","name":"d","status":"failing"}]}"#,
        );
        let now = json(
            r#"{"schema_version":"1.0","features":[
                {"id":"A-005","name":"new","status":"passing","evidence":"x","verified_at":"2025-12-24T11:00:00Z"},
                {"id":"A-001","name":"a","status":"failing"},
                {"id":"A-002","name":"b","status":"passing","evidence":"y"},
                {"id":"A-003","name":"c","status":"passing"},
                {"id":"A-004","name":"d","status":"in_progress"},
                {"id":"A-006","name":"later","status":"deferred","reason":"no"}]}"#,
        );
        let expected = json(
            r#"{"schema_version":"1.0","features":[
                {"id":"A-001","name":"a","status":"passing","verified_at":"2025-12-24T10:00:00Z","evidence":"e","regressed_at":"2025-12-24T12:00:00Z"},
                {"id":"A-002","name":"b","status":"not_implemented","regressed_at":"2025-12-24T12:00:00Z"},
                {"id":"A-003","name":"c","status":"passing"},
                {"id":"A-004","name":"d","status":"failing"},
                {"id":"A-005","name":"new","status":"not_implemented","regressed_at":"2025-12-24T12:00:00Z"},
                {"id":"A-006","name":"later","status":"deferred","reason":"no"}]}"#,
        );
        assert_eq!(reset(&now, &then, at()), expected);
        let lost = |file: &Json| features(file).iter().filter(|feature| text(feature, "id").is_some()).count();
        assert_eq!(lost(&reset(&now, &then, at())), 6, "no id is ever lost");
    }

    #[test]
    fn what_was_removed_and_amended_since_is_not_forgotten() {
        let then = json(
            r#"{"schema_version":"1.0","features":[{"id":"A-001","name":"a","status":"failing"}],"retired":["A-007"],"amendments":[{"reason":"old"}]}"#,
        );
        let now = json(
            r#"{"schema_version":"1.0","features":[],"retired":["A-007","A-001","A-009"],"amendments":[{"reason":"old"},{"reason":"new"}]}"#,
        );
        let expected = json(
            r#"{"schema_version":"1.0","features":[{"id":"A-001","name":"a","status":"failing"}],"retired":["A-007","A-009"],"amendments":[{"reason":"old"},{"reason":"new"}]}"#,
        );
        assert_eq!(reset(&now, &then, at()), expected);
    }

    #[test]
    fn a_lesson_is_added_once_and_nothing_else_changes() {
        let lesson = Lesson { context: "c".to_owned(), issue: "i".to_owned(), resolution: "r".to_owned() };
        let before: KnowledgeFile =
            serde_json::from_str(include_str!("../../forge_documents/fixtures/knowledge.json")).unwrap();
        let mut once = before.clone();
        learn(&mut once, &lesson, at());
        assert_eq!(once.patterns.failed.len(), before.patterns.failed.len() + 1);
        let mut twice = once.clone();
        learn(&mut twice, &lesson, at());
        assert_eq!(twice, once);
        let added = once.patterns.failed.pop().unwrap();
        assert_eq!((added.context.as_str(), added.issue.as_str(), added.learned_at), ("c", "i", at()));
        assert_eq!(once, before);
    }
}
