//! `helmdeck pack new`: creates a working pack from a template. Never overwrites a file.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use helmdeck_core::PackName;
use helmdeck_core::text::shell_quoted;
use serde_json::json;

use crate::args::PackKind;
use crate::exit::{Exit, Failure, Result};
use crate::wire::Setup;

/// A file to write: its path, its text and its mode.
type File = (PathBuf, String, u32);

/// Writes the files and says what to do next.
///
/// # Errors
/// A usage failure if a file exists already; nothing is written.
pub(crate) fn run(
    setup: &Setup,
    name: &PackName,
    kind: PackKind,
    dir: Option<&Path>,
) -> Result<()> {
    let folder = match (dir, kind) {
        (Some(dir), _) => setup.env.absolute(dir)?,
        (None, PackKind::Builtin) => {
            return Err(Failure::usage(
                "a built-in pack is part of the source; name its folder with --dir <source>/packs",
            ));
        }
        (None, PackKind::Command | PackKind::Mcp | PackKind::Http) => setup
            .settings
            .packs_dir
            .clone()
            .ok_or_else(|| Failure::usage("there is no packs folder; name one with --dir"))?,
    };
    // A folder that is not the configured one has to be named to be served.
    let served = setup.settings.packs_dir.as_deref() == Some(&folder);
    let variable = if served {
        String::new()
    } else {
        format!(
            "HELMDECK_PACKS_DIR={} ",
            shell_quoted(&folder.display().to_string())
        )
    };
    // Scripts beside each other would count as each other's files.
    let own = folder.join(name.as_str());
    let (files, next) = match kind {
        PackKind::Command => command(name, &own, &variable),
        PackKind::Mcp => mcp(name, &own),
        PackKind::Http => http(name, &own, &variable),
        PackKind::Builtin => builtin(name, &folder)?,
    };
    if let Some((path, ..)) = files.iter().find(|(path, ..)| path.exists()) {
        return Err(Failure::usage(format!(
            "{} already exists; nothing was written",
            path.display()
        )));
    }
    for (path, text, mode) in &files {
        write(path, text, *mode).map_err(|error| {
            Failure::new(
                Exit::Failed,
                format!("{} cannot be written: {error}", path.display()),
            )
        })?;
    }
    let paths: Vec<&PathBuf> = files.iter().map(|(path, ..)| path).collect();
    setup.output.either(&json!({"files": paths}), || {
        let written: String = paths
            .iter()
            .map(|path| format!("wrote {}\n", path.display()))
            .collect();
        format!("{written}{next}")
    })
}

fn write(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?
        .write_all(text.as_bytes())
}

fn command(name: &PackName, folder: &Path, variable: &str) -> (Vec<File>, String) {
    let script = format!("{}.sh", name.as_str().replace('.', "_"));
    let manifest = format!(
        r#"name = "{name}"
version = "v1"
description = "Answers with the input it was given"
# true: it changes nothing anywhere. Only such a pack can be cached.
read_only = true

[handler]
# The input comes on stdin as JSON, the output goes to stdout as JSON. docs/packs-command.md says
# how to explain an error.
command = ["./{script}"]
timeout = "10s"

# JSON Schema 2020-12.
[input]
type = "object"
required = ["text"]
additionalProperties = false

[input.properties]
text = {{ type = "string", description = "What to answer with" }}

[output]
type = "object"
required = ["input"]

# Uncomment to let an operator who set a memory key cache answers.
# [memory]
# cache = true
# ttl = "5m"

[[examples]]
description = "The least that it takes"
input = {{ text = "hello" }}
output = {{ type = "object", required = ["input"] }}
"#
    );
    let program = r#"#!/bin/sh
# Reads the input (JSON) from stdin and writes the output (JSON) to stdout.
set -eu
printf '{"input":'
cat
printf '}\n'
"#;
    let manifest_path = folder.join(format!("{name}.toml"));
    let next = format!(
        "check it:  helmdeck pack check --run {}\nrun it:    {variable}helmdeck run {name} text=hello",
        manifest_path.display()
    );
    (
        vec![
            (manifest_path, manifest, 0o644),
            (folder.join(script), program.to_owned(), 0o755),
        ],
        next,
    )
}

fn mcp(name: &PackName, folder: &Path) -> (Vec<File>, String) {
    let manifest = format!(
        r#"name = "{name}"
version = "v1"
description = "Reads a text file"
# true: it changes nothing anywhere. Only such a pack can be cached. You say so, not the server.
read_only = true

[handler]
# A server of [[mcp.servers]] in helmdeck.toml, and one of its tools: `helmdeck mcp list` names both.
mcp = {{ server = "files", tool = "read_text_file" }}
timeout = "30s"

# JSON Schema 2020-12. Leave [input] and [output] out to take the tool's own; tags need the [input] that they name.
[input]
type = "object"
required = ["path"]
additionalProperties = false

[input.properties]
path = {{ type = "string", description = "The file to read" }}

# With a memory key, the same question within `ttl` is answered without asking the server.
[memory]
cache = true
ttl = "5m"
tags = ["file:{{path}}"]
"#
    );
    let path = folder.join(format!("{name}.toml"));
    let next = format!(
        "add a server:  helmdeck mcp add files -- npx -y @modelcontextprotocol/server-filesystem <folder>\n\
         check it:      helmdeck pack check {}\nrun it:        helmdeck run {name} path=<file>",
        path.display()
    );
    (vec![(path, manifest, 0o644)], next)
}

fn http(name: &PackName, folder: &Path, variable: &str) -> (Vec<File>, String) {
    let manifest = format!(
        r#"name = "{name}"
version = "v1"
description = "Says what is known about a package on crates.io"
# true: it changes nothing anywhere. Only such a pack can be cached.
read_only = true
# Declare a credential here and name it in a header below; without it the request is anonymous.
# credentials = ["my-token"]

[handler]
timeout = "10s"

[handler.http]
method = "GET"
# Scheme and host are fixed; a value of the input stays in its place of path or query.
url = "https://crates.io/api/v1/crates/{{package}}"
query = {{ include = "{{include}}" }}
headers = {{ Accept = "application/json" }}
# headers = {{ Accept = "application/json", Authorization = "Bearer {{credential:my-token}}" }}

# JSON Schema 2020-12.
[input]
type = "object"
required = ["package"]
additionalProperties = false

[input.properties]
package = {{ type = "string", description = "The name of the package" }}
include = {{ type = "string", description = "Parts of the answer, separated by commas" }}

[output]
type = "object"
required = ["crate"]

# Uncomment to let an operator who set a memory key cache answers, and confirm them by their ETag later.
# [memory]
# cache = true
# ttl = "5m"
# revalidate = true

[[examples]]
description = "The least that it takes"
input = {{ package = "serde" }}
"#
    );
    let path = folder.join(format!("{name}.toml"));
    let next = format!(
        "check it:  helmdeck pack check {}\nrun it:    {variable}helmdeck run {name} package=serde",
        path.display()
    );
    (vec![(path, manifest, 0o644)], next)
}

fn builtin(name: &PackName, folder: &Path) -> Result<(Vec<File>, String)> {
    let Some((family, verb)) = name
        .as_str()
        .split_once('.')
        .filter(|(_, verb)| !verb.contains('.'))
    else {
        return Err(Failure::usage(
            "the name of a built-in pack has two parts: family.verb",
        ));
    };
    let manifest = format!(
        r#"name = "{name}"
version = "v1"
title = "Repeat a text"
description = "Answers with the text it was given"
read_only = true
open_world = false

[handler]
builtin = "{name}"
timeout = "10s"

[input]
type = "object"
required = ["text"]
additionalProperties = false

[input.properties]
text = {{ type = "string", description = "What to answer with" }}

[output]
type = "object"
required = ["text"]
additionalProperties = false

[output.properties]
text = {{ type = "string", description = "The same text" }}

[[examples]]
description = "The least that it takes"
input = {{ text = "hello" }}
"#
    );
    let code = format!(
        r#"//! `{name}`: answers with the text it was given.

use async_trait::async_trait;
use helmdeck_core::{{Context, Handler, Json, Reply, Result}};
use serde::{{Deserialize, Serialize}};

/// The handler.
#[derive(Debug)]
pub(super) struct {type_name};

#[derive(Deserialize)]
struct Input {{
    text: String,
}}

#[derive(Serialize)]
struct Output {{
    text: String,
}}

#[async_trait]
impl Handler for {type_name} {{
    async fn run(&self, _: Context, input: Json) -> Result<Reply> {{
        let input: Input = input.read()?;
        Reply::value(&Output {{ text: input.text }})
    }}
}}
"#,
        type_name = type_name(verb)
    );
    let folder = folder.join(family);
    let next = format!(
        "add to {}:\n  mod {verb};\n  pack!(\"{family}\", \"{verb}\", {verb}::{})",
        folder.join("mod.rs").display(),
        type_name(verb)
    );
    let files = vec![
        (folder.join(format!("{verb}.toml")), manifest, 0o644),
        (folder.join(format!("{verb}.rs")), code, 0o644),
    ];
    Ok((files, next))
}

fn type_name(verb: &str) -> String {
    let words = verb.split('_').filter(|word| !word.is_empty());
    let name: String = words
        .map(|word| word[..1].to_ascii_uppercase() + &word[1..])
        .collect();
    // A type cannot begin with a digit; a pack's verb can.
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        format!("Pack{name}")
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use helmdeck_core::Manifest;

    use super::*;

    fn files(kind: PackKind, name: &str) -> Vec<File> {
        let name = PackName::new(name).unwrap();
        match kind {
            PackKind::Command => command(&name, Path::new("/p"), "").0,
            PackKind::Mcp => mcp(&name, Path::new("/p")).0,
            PackKind::Http => http(&name, Path::new("/p"), "").0,
            PackKind::Builtin => builtin(&name, Path::new("/p")).unwrap().0,
        }
    }

    #[test]
    fn all_skeletons_are_sound_manifests() {
        for kind in [PackKind::Command, PackKind::Http, PackKind::Builtin] {
            let (path, text, _) = &files(kind, "team.look_up")[0];
            let manifest = Manifest::parse(&path.display().to_string(), text, &|_| {
                Err("no files".into())
            })
            .unwrap();
            assert_eq!(manifest.name.as_str(), "team.look_up");
            assert_eq!(manifest.examples.len(), 1);
        }
    }

    #[test]
    fn the_skeleton_of_a_tool_is_a_cached_pack() {
        let text = &files(PackKind::Mcp, "team.read")[0].1;
        let manifest = Manifest::parse("m.toml", text, &|_| Err("no files".into())).unwrap();
        assert_eq!(
            (
                manifest.handler.kind(),
                manifest.cache().unwrap().tags.len()
            ),
            ("mcp", 1)
        );
    }

    #[test]
    fn names_of_files_and_types_follow_the_pack() {
        let paths: Vec<String> = files(PackKind::Command, "a.b.c")
            .iter()
            .map(|(path, ..)| path.display().to_string())
            .collect();
        assert_eq!(paths, ["/p/a.b.c.toml", "/p/a_b_c.sh"]);
        assert!(
            files(PackKind::Builtin, "a.look_up")[1]
                .1
                .contains("struct LookUp;")
        );
        assert!(builtin(&PackName::new("a.b.c").unwrap(), Path::new("/p")).is_err());
        assert_eq!(type_name("2fa"), "Pack2fa");
    }
}
