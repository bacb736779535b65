//! Schemas of the project routes, made of the types that they answer with.

use helmdeck_forge::artifacts::{Got, ProjectArtifact};
use helmdeck_forge::checkpoints::Checkpoint;
use helmdeck_forge::features::Changed as FeatureChanged;
use helmdeck_forge::focus::Shown as ShownFocus;
use helmdeck_forge::health::{Health, HealthSample};
use helmdeck_forge::knowledge::{Confirmed, Superseded};
use helmdeck_forge::progress::Log;
use helmdeck_forge::recovery::Acknowledged;
use helmdeck_forge::sessions::Session;
use helmdeck_forge::skills::{Match, Shown as ShownSkill, Skill};
use helmdeck_forge::view::{Diff, KnowledgeView, ListPage, ProgressView, SeenCommit, TreeFile};
use helmdeck_forge_documents::tracking::{Conflict, Operation};
use helmdeck_trackers::sync::Status;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::change::{Condition, FeatureStatus, Replacement, Resolution};
use super::features::FeatureList;
use super::recovery::{Acknowledgement, RecoveryView};
use super::sessions::EventTail;

/// Returns the schema of what is answered.
fn of<T: JsonSchema>() -> Value {
    made::<T>(SchemaSettings::draft2020_12().for_serialize())
}

/// Returns the schema of what is sent.
fn sent<T: JsonSchema>() -> Value {
    made::<T>(SchemaSettings::draft2020_12())
}

fn made<T: JsonSchema>(settings: SchemaSettings) -> Value {
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("$schema");
    }
    schema
}

/// Returns the schema of an object with these members, whose other schemas are definitions of their
/// own.
fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    let mut definitions = serde_json::Map::new();
    let mut properties = serde_json::Map::new();
    for (name, mut schema) in members {
        if let Some(Value::Object(own)) = schema
            .as_object_mut()
            .and_then(|schema| schema.remove("$defs"))
        {
            definitions.extend(own);
        }
        properties.insert(name.to_owned(), schema);
    }
    json!({ "type": "object", "properties": properties, "$defs": definitions })
}

/// Returns the schema of an object with a list of these items.
fn list_of(name: &str, mut schema: Value) -> Value {
    let definitions = schema
        .as_object_mut()
        .and_then(|schema| schema.remove("$defs"))
        .unwrap_or_else(|| json!({}));
    let list = json!({ "type": "array", "items": schema });
    json!({ "type": "object", "properties": { name: list }, "$defs": definitions })
}

/// Returns the schemas by the names that the document gives them.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("ProjectHealth", of::<Health>()),
        ("ProjectColours", of::<ListPage<HealthSample>>()),
        ("ProjectTree", of::<ListPage<TreeFile>>()),
        ("ProjectFeatures", of::<FeatureList>()),
        ("ProjectFocus", of::<Option<ShownFocus>>()),
        ("ProjectKnowledge", of::<KnowledgeView>()),
        ("ProjectSessions", list_of("sessions", of::<Session>())),
        ("ProjectProgress", of::<ProgressView>()),
        ("ProjectLog", of::<Log>()),
        ("ProjectEvents", of::<EventTail>()),
        ("ProjectCommits", of::<ListPage<SeenCommit>>()),
        ("ProjectCheckpoints", of::<ListPage<Checkpoint>>()),
        ("ProjectCheckpoint", of::<Checkpoint>()),
        ("ProjectDiff", of::<Diff>()),
        ("ProjectRecovery", of::<RecoveryView>()),
        ("ProjectPauseToken", token()),
        ("ProjectAcknowledgement", sent::<Acknowledgement>()),
        ("ProjectAcknowledged", of::<Acknowledged>()),
        ("ProjectSkills", of::<ListPage<Skill>>()),
        ("ProjectSkill", of::<ShownSkill>()),
        ("ProjectSkillMatches", list_of("matches", of::<Match>())),
        ("ProjectArtifacts", of::<ListPage<ProjectArtifact>>()),
        ("ProjectArtifact", of::<Got>()),
        (
            "ProjectTracker",
            object([
                ("mode", json!({ "type": "string" })),
                ("kind", json!({ "type": "string" })),
                ("sync", of::<Status>()),
            ]),
        ),
        ("ProjectOutbox", list_of("waiting", of::<Operation>())),
        ("ProjectFeatureStatus", sent::<FeatureStatus>()),
        ("ProjectFeatureChanged", of::<FeatureChanged>()),
        ("ProjectCondition", sent::<Condition>()),
        ("ProjectConfirmed", of::<Confirmed>()),
        ("ProjectReplacement", sent::<Replacement>()),
        ("ProjectSuperseded", of::<Superseded>()),
        ("ProjectResolution", sent::<Resolution>()),
        ("ProjectConflict", of::<Conflict>()),
    ]
}

fn token() -> Value {
    json!({
        "type": "object",
        "properties": {
            "token": { "description": "Ends the pause once", "type": "string" },
            "seconds": { "description": "For how long it works", "type": "integer", "minimum": 0 },
        },
        "required": ["token", "seconds"],
    })
}
