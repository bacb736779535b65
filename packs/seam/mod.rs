//! The `seam.*` packs: read-only access to the operator's project memory and note vault.
//!
//! All access goes through the seam. No input is a path: a caller may not be the operator, whose
//! project is the only one shown.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use helmdeck_core::{Builtin, Code, Context, Error, Handler, Json, Need, Reply, Result};
use helmdeck_seam::{
    Candidate, PlanFiles, Plans, Recall, Seam, SeamConfig, StateError, StateFault, Warning,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::forge::NO_PROJECT;

/// Settings of the `seam.*` packs.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Settings of the seam, with the project's folder as working folder.
    ///
    /// `None` = every call answers `not_found` and says what to set.
    pub seam: Option<SeamConfig>,
}

impl Config {
    /// Returns the settings of a project without a vault.
    pub fn of_project(folder: impl Into<PathBuf>) -> Self {
        Self {
            seam: Some(SeamConfig::new(folder)),
        }
    }

    /// Returns the need of the family: a project or a vault.
    pub(crate) fn need(&self) -> Need {
        let seam = self.seam.clone().map(Seam::on_disk);
        Need::check(move || {
            let Some(seam) = &seam else {
                return Some(NO_PROJECT);
            };
            let found = seam.has_source(&helmdeck_seam::Context::default());
            (!found)
                .then_some("a project or a note vault: run `helmdeck forge init` in a repository, or set [seam] vault")
        })
    }
}

/// The manifests of this family have their schemas.
const SCHEMAS: &str = "";

/// Returns the packs of this family.
pub(crate) fn packs(config: &Config) -> Vec<Builtin> {
    let shared = config.seam.clone().map(Arc::new);
    let config = || shared.clone();
    vec![
        pack!(
            "seam",
            "recall_here",
            Verb {
                config: config(),
                work: recall_here
            }
        ),
        pack!(
            "seam",
            "offer_save_here",
            Verb {
                config: config(),
                work: offer_save_here
            }
        ),
        pack!(
            "seam",
            "state_path",
            Verb {
                config: config(),
                work: state_path
            }
        ),
        pack!(
            "seam",
            "plans",
            Verb {
                config: config(),
                work: plans
            }
        ),
    ]
}

/// A handler: parses its input and calls the seam on a blocking thread.
struct Verb<I, O> {
    config: Option<Arc<SeamConfig>>,
    work: fn(&Seam, I) -> Result<O>,
}

#[async_trait]
impl<I, O> Handler for Verb<I, O>
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + Send + 'static,
{
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        if context.identity.is_anonymous() {
            return Err(Error::new(
                Code::Unauthenticated,
                "the memory of a project is only for callers who are known",
            ));
        }
        let Some(config) = self.config.clone() else {
            return Err(
                Error::new(Code::NotFound, format!("the pack waits for {NO_PROJECT}"))
                    .for_operator(),
            );
        };
        let (input, work): (I, _) = (input.read()?, self.work);
        crate::blocking(move || work(&Seam::on_disk((*config).clone()), input)).await
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Here {
    phase: Option<String>,
    query: Option<String>,
    limit: Option<usize>,
}

fn recall_here(seam: &Seam, input: Here) -> Result<Recall> {
    let context = helmdeck_seam::Context {
        phase: input.phase,
        ..helmdeck_seam::Context::default()
    };
    Ok(seam.recall(&context, input.query.as_deref(), input.limit))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Offered {
    phase: Option<String>,
    candidate: Map<String, Value>,
}

#[derive(Serialize)]
struct Offers {
    candidates: Vec<Candidate>,
    warnings: Vec<Warning>,
}

fn offer_save_here(seam: &Seam, input: Offered) -> Result<Offers> {
    let context = helmdeck_seam::Context {
        phase: input.phase,
        ..helmdeck_seam::Context::default()
    };
    let offer = seam.offer(&context, &Value::Object(input.candidate));
    Ok(Offers {
        candidates: offer.candidates,
        warnings: offer.warnings,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfPlan {
    plan: Option<String>,
}

fn state_path(seam: &Seam, input: OfPlan) -> Result<PlanFiles> {
    let plan = input.plan.filter(|plan| !plan.is_empty());
    seam.state(&helmdeck_seam::Context {
        plan,
        ..helmdeck_seam::Context::default()
    })
    .map_err(|error| said(&error))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[expect(clippy::unnecessary_wraps, reason = "as the others")]
fn plans(seam: &Seam, _: Nothing) -> Result<Plans> {
    Ok(seam.plans(&helmdeck_seam::Context::default()))
}

/// Returns an error of the seam as a transport tells it: with its own code, and what to do.
fn said(error: &StateError) -> Error {
    let code = match error.fault {
        // A corrupt file of the user is in the way. That is no defect of this program, and the
        // caller can name a plan.
        StateFault::CorruptState => Code::Conflict,
        _ => Code::InvalidInput,
    };
    Error::new(code, format!("{}: {error}", error.fault.code()))
}
