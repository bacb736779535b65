//! `forge.artifact_*`: project artifacts.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use helmdeck_forge::artifacts::{Artifacts, Filter, Kind, Listed, ProjectArtifact, Put, State, Stored, is_text};
use helmdeck_forge::error::Error;
use helmdeck_forge::triv::Reference;
use helmdeck_forge::{Project, Result};
use serde::{Deserialize, Serialize};

use super::place::{Done, Nothing};

/// Default number of artifacts in a list.
const LISTED: usize = 50;
/// Default length of an artifact in the answer, in bytes.
const RETURNED: u64 = 256 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct New {
    kind: Kind,
    name: String,
    text: Option<String>,
    base64: Option<String>,
    #[serde(default)]
    produced_from: Vec<String>,
    supersedes: Option<String>,
    linear: Option<String>,
    skill: Option<String>,
}

pub(super) fn put(project: &Project, input: New) -> Done<Stored> {
    let bytes = match (input.text, input.base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(base64)) => {
            BASE64_STANDARD.decode(base64).map_err(|_| Error::usage("\"base64\" is no base64 (RFC 4648, section 4)"))?
        }
        _ => return Err(Error::usage("give either \"text\" or \"base64\"")),
    };
    let reference = |text: &String| Reference::parse(text).map_err(Error::usage);
    Artifacts::new(project).put(
        &bytes,
        &Put {
            kind: input.kind,
            name: input.name,
            produced_from: input.produced_from.iter().map(reference).collect::<Result<_>>()?,
            supersedes: input.supersedes.as_ref().map(reference).transpose()?,
            session: None,
            linear: input.linear,
            skill: input.skill,
        },
    )
}

pub(super) fn snapshot(project: &Project, _: Nothing) -> Done<Stored> {
    Artifacts::new(project).snapshot()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    name: String,
    max_bytes: Option<u64>,
}

/// An artifact with its content.
#[derive(Serialize)]
pub(super) struct Whole {
    entry: ProjectArtifact,
    made: usize,
    state: State,
    /// Whether there is a content, and it is not here because it is too long.
    left_out: bool,
    #[serde(flatten)]
    content: Content,
}

/// The content of a file.
#[derive(Serialize)]
pub(super) struct Content {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl Content {
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        if !is_text(&bytes) {
            return Self { text: None, base64: Some(BASE64_STANDARD.encode(bytes)) };
        }
        Self { text: String::from_utf8(bytes).ok(), base64: None }
    }
}

pub(super) fn get(project: &Project, input: Wanted) -> Done<Whole> {
    let got = Artifacts::new(project).get(&input.name)?;
    let left_out = got.state == State::Ok && got.entry.bytes > input.max_bytes.unwrap_or(RETURNED);
    let content = if got.state == State::Ok && !left_out {
        Content::of(Artifacts::new(project).bytes(&got.entry)?)
    } else {
        Content { text: None, base64: None }
    };
    Ok(Whole { entry: got.entry, made: got.made, state: got.state, left_out, content })
}

pub(super) fn list(project: &Project, input: Filter) -> Done<Listed> {
    let limit = if input.limit == 0 { LISTED } else { input.limit };
    Artifacts::new(project).list(&Filter { limit, ..input })
}
