//! `helmdeck pack check`: validates manifests, schemas and examples; runs the examples with
//! `--run`.
//!
//! Reading a manifest fills the request of every example of an http pack already; it is sent only
//! with `--run`.

use helmdeck_core::text::count;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use helmdeck_core::call::Directive;
use helmdeck_core::template::Template;
use helmdeck_core::{Call, Identity, Outcome, Schema};
use helmdeck_engine::{Engine, PackInfo, PackSource};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure, Result};
use crate::input;
use crate::progress::Progress;
use crate::wire::{MemoryUse, Setup};

/// What is checked: all packs, or those of one folder or file.
struct Scope {
    folder: Option<PathBuf>,
    file: Option<PathBuf>,
    builtins: bool,
}

/// One finding.
struct Finding {
    place: String,
    message: String,
}

/// Checks packs; `run` also runs the examples of command and http packs.
///
/// # Errors
/// Exit 1 if anything is wrong, after printing all of it; exit 3 if the path does not exist.
pub(crate) async fn run(setup: &Setup, path: Option<&Path>, run: bool) -> Result<()> {
    let scope = scope(setup, path)?;
    let engine = setup
        .engine_over(scope.folder.as_deref(), MemoryUse::None, false)
        .await?;
    if engine.needs_import() {
        let imported = engine.import_awaited(super::pack::IMPORT_LIMIT);
        Progress::of_call(setup.output, false)
            .beside(imported)
            .await;
    }
    let progress = Progress::of_call(setup.output, false);
    let (checked, findings, warnings) = progress.beside(check(setup, &engine, &scope, run)).await;
    for warning in &warnings {
        setup.output.note(warning);
    }
    setup.shut_down(&engine).await;
    if let (Some(file), true, true) = (&scope.file, checked.is_empty(), findings.is_empty()) {
        let message = format!(
            "{} is not a manifest; manifests end in .toml and are not hidden",
            file.display()
        );
        return Err(Failure::usage(message));
    }

    let problems: Vec<_> = findings
        .iter()
        .map(|f| json!({"place": f.place, "message": f.message}))
        .collect();
    let value = json!({"checked": checked, "problems": problems});
    setup.output.either(&value, || {
        let mut text: String = findings
            .iter()
            .map(|f| format!("{}: {}\n", f.place, f.message))
            .collect();
        text.push_str(&format!(
            "{} checked, {}\n",
            count(checked.len(), "pack"),
            count(findings.len(), "problem")
        ));
        text
    })?;
    if findings.is_empty() {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Failed))
    }
}

fn scope(setup: &Setup, path: Option<&Path>) -> Result<Scope> {
    let Some(path) = path else {
        return Ok(Scope {
            folder: setup.settings.packs_dir.clone(),
            file: None,
            builtins: true,
        });
    };
    let path = setup.env.absolute(path)?;
    if path.is_dir() {
        return Ok(Scope {
            folder: Some(path),
            file: None,
            builtins: false,
        });
    }
    if !path.is_file() {
        return Err(Failure::new(
            Exit::Absent,
            format!("{} does not exist", path.display()),
        ));
    }
    Ok(Scope {
        folder: path.parent().map(Path::to_owned),
        file: Some(path),
        builtins: false,
    })
}

async fn check(
    setup: &Setup,
    engine: &Engine,
    scope: &Scope,
    run: bool,
) -> (Vec<String>, Vec<Finding>, Vec<String>) {
    let ours = |file: &str| {
        scope
            .file
            .as_deref()
            .is_none_or(|only| Path::new(file) == only)
    };
    let mut findings: Vec<Finding> = engine
        .refused()
        .into_iter()
        .chain(super::pack::late(engine))
        .filter(|error| ours(&error.file))
        .map(|error| Finding {
            place: error.line.map_or_else(
                || error.file.clone(),
                |line| format!("{}:{line}", error.file),
            ),
            message: error.message,
        })
        .collect();
    let (mut checked, mut warnings) = (Vec::new(), Vec::new());
    for latest in engine.all_packs() {
        for version in &latest.versions {
            let Ok(pack) = engine.pack(latest.name.as_str(), Some(*version)) else {
                continue;
            };
            let wanted = match pack.source {
                PackSource::Builtin => scope.builtins,
                PackSource::Folder => ours(&pack.file),
                // The user did not write these.
                PackSource::Mcp => false,
            };
            if !wanted {
                continue;
            }
            checked.push(format!("{}@{}", pack.name, pack.version));
            warnings.extend(unfilled(&pack));
            let run = run && matches!(pack.handler, "command" | "http");
            findings.extend(examples(setup, engine, &pack, run, &mut warnings).await);
        }
    }
    (checked, findings, warnings)
}

/// Returns a warning for each tag in `invalidates` that a valid input may leave without a value.
fn unfilled(pack: &PackInfo) -> Vec<String> {
    let properties = pack.input["properties"].as_object();
    let required: Vec<&str> = pack.input["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let always = properties.into_iter().flatten().filter(|(name, schema)| {
        required.contains(&name.as_str()) || schema.get("default").is_some()
    });
    let least = Value::Object(
        always
            .map(|(name, _)| (name.clone(), Value::from("x")))
            .collect(),
    );
    let unfilled = |tag: &&String| {
        Template::parse(tag)
            .is_ok_and(|tag| tag.roots().all(|root| !root.is_empty()) && tag.fill(&least).is_none())
    };
    let warn = |tag: &String| {
        format!(
            "{}: warning: invalidates \"{tag}\" needs an optional input; a call without it purges every answer of the tag's family. \
             Make the input required, or write {{name|fallback}}.",
            pack.file
        )
    };
    pack.invalidates.iter().filter(unfilled).map(warn).collect()
}

/// Returns a warning if the upstream does not let an answer be stored.
fn refused(pack: &PackInfo, example: usize, outcome: &Outcome) -> Option<String> {
    let why = pack
        .cache
        .as_ref()?
        .refused_by_upstream(&outcome.remark.caching)?;
    Some(format!(
        "{} example {example}: warning: the answer would not be stored, because of what its upstream says ({why}); \
         respect = \"none\" in [memory] overrides it",
        pack.file
    ))
}

async fn examples(
    setup: &Setup,
    engine: &Engine,
    pack: &PackInfo,
    run: bool,
    warnings: &mut Vec<String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, example) in pack.examples.iter().enumerate() {
        let mut fail = |message: String| {
            findings.push(Finding {
                place: format!("{} example {}", pack.file, index + 1),
                message,
            });
        };
        let expected = match example.output.clone().map(Schema::compile).transpose() {
            Ok(expected) => expected,
            Err(message) => {
                fail(format!("output: {message}"));
                continue;
            }
        };
        if !run {
            continue;
        }
        let text = example.input.to_string();
        let text = match input::absolute_paths(&pack.input, &text, &setup.env) {
            Ok(absolute) => absolute.unwrap_or(text),
            Err(failure) => {
                fail(failure.message().to_owned());
                continue;
            }
        };
        let mut call = Call::new(pack.name.clone(), text, Arc::new(Identity::local()));
        call.version = Some(pack.version);
        call.directive = Directive::Bypass;
        call.administrator = true;
        match engine.call(call).await {
            Err(error) => fail(format!("the run failed: {error}")),
            Ok(outcome) => {
                warnings.extend(refused(pack, index + 1, &outcome));
                if let Some(Err(violations)) =
                    expected.map(|schema| schema.validate(&outcome.output.to_value()))
                {
                    let first = violations
                        .first()
                        .map(|v| format!("at \"{}\": {}", v.pointer, v.detail));
                    fail(format!(
                        "the output is not the expected one: {}",
                        first.unwrap_or_default()
                    ));
                }
            }
        }
    }
    findings
}
