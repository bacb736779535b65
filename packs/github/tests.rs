//! Tests of the handlers against a scripted server and recorded exchanges with the real GitHub.
//!
//! They go through the handlers' schemas.

mod limits;
mod manifests;
mod pages;
mod recorded;
mod server;
mod writes;

#[path = "../../tests/support/github.rs"]
#[expect(unreachable_pub, reason = "shared with the tests of the whole program")]
mod stand_in;

use std::sync::Arc;
use std::time::{Duration, Instant};

use helmdeck_core::context::{CallSecrets, Stale};
use helmdeck_core::secrets::Grant;
use helmdeck_core::{
    Builtin, Clock, Code, Context, Error, Identity, Json, Manifest, PackName, Reply, Result, RunId,
    Secret, Timestamp, Version,
};
use helmdeck_egress::Egress;
use helmdeck_testkit::ManualClock;
use serde_json::Value;
use url::Url;

use super::Config;

/// 2026-11-21T00:00:00Z.
const NOW_SECONDS: i64 = 1_795_219_200;
const NOW: Timestamp = Timestamp(NOW_SECONDS * 1_000_000);

struct OneSecret(Grant, Secret);

impl CallSecrets for OneSecret {
    fn grants(&self) -> &[Grant] {
        std::slice::from_ref(&self.0)
    }

    fn get(&self, name: &str) -> Result<Option<Secret>> {
        if name == self.0.name {
            Ok(Some(self.1.clone()))
        } else {
            Err(Error::new(Code::Forbidden, "not declared"))
        }
    }

    fn revealed(&self) -> Vec<Secret> {
        vec![self.1.clone()]
    }
}

/// The family, pointed at a server of a test.
struct Packs(Vec<Builtin>);

impl Packs {
    fn at(url: &str) -> Self {
        let mut config = Config::new(Url::parse(url).unwrap());
        config.retry_wait = Duration::from_millis(1);
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(NOW));
        Self(super::packs(
            &config,
            &Egress::new(helmdeck_egress::Config::default()),
            &clock,
        ))
    }

    /// Runs a pack as the pipeline would: defaults filled in, input and output checked.
    async fn run(&self, pack: &str, input: Value, with: With<'_>) -> Result<Reply> {
        let (builtin, manifest) = self
            .0
            .iter()
            .map(|builtin| (builtin, manifest(builtin)))
            .find(|(_, manifest)| manifest.name.as_str() == pack)
            .unwrap();
        let filled = manifest
            .input
            .fill(&input.to_string())
            .unwrap()
            .into_owned();
        manifest
            .input
            .validate(&serde_json::from_str(&filled).unwrap())
            .map_err(|violations| {
                Error::new(Code::InvalidInput, "input").with_violations(violations)
            })?;
        let reply = builtin
            .handler
            .run(with.context(&manifest), Json::parse(filled).unwrap())
            .await?;
        if let Some(output) = &reply.output {
            manifest
                .output
                .validate(&output.to_value())
                .unwrap_or_else(|v| panic!("{pack}: {v:?}"));
        }
        Ok(reply)
    }
}

/// What a call is made with.
#[derive(Default)]
struct With<'a> {
    token: Option<&'a str>,
    stale: Option<&'a Reply>,
    time: Option<Duration>,
}

impl<'a> With<'a> {
    fn token(token: &'a str) -> Self {
        Self {
            token: Some(token),
            ..Self::default()
        }
    }

    fn stale(self, reply: &'a Reply) -> Self {
        Self {
            stale: Some(reply),
            ..self
        }
    }

    fn context(self, manifest: &Manifest) -> Context {
        let secret = |token: &str| {
            let grant = Grant {
                name: "github-token".into(),
                version: 1,
            };
            Arc::new(OneSecret(grant, Secret::new(token.to_owned()))) as Arc<dyn CallSecrets>
        };
        let (pack, version) = (
            PackName::new(manifest.name.as_str()).unwrap(),
            Version::new(1).unwrap(),
        );
        let context = Context::new(pack, version, Arc::new(Identity::local()), RunId::next(NOW));
        Context {
            deadline: self.time.map(|time| Instant::now() + time),
            stale: self.stale.map(|reply| Stale {
                output: reply.output.clone().unwrap(),
                validator: reply.validator.clone().unwrap(),
            }),
            secrets: self.token.map(secret),
            ..context
        }
    }
}

fn manifest(builtin: &Builtin) -> Manifest {
    Manifest::check_builtin(builtin.file, builtin.manifest, builtin.schemas).unwrap()
}

fn output(reply: &Reply) -> Value {
    reply.output.as_ref().unwrap().to_value()
}
