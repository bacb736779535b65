//! `[seam]`, read separately: an error in another section neither delays nor fails `helmdeck seam`.

use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use toml::{Table, Value};

use super::file;
use super::parts::SeamSettings;
use crate::env::ProcessEnvironment;
use helmdeck_core::suggest::did_you_mean;

/// The variables, and the settings that they set.
const VARIABLES: [(&str, &str); 2] = [
    ("HELMDECK_SEAM__VAULT", "vault"),
    ("HELMDECK_SEAM__QUERY", "query"),
];

/// Prefix of the variables.
const PREFIX: &str = "HELMDECK_SEAM__";

impl SeamSettings {
    /// Reads the settings from the file and the environment, with any problem.
    ///
    /// An invalid setting alone gets its default, since memory that cannot be read counts as
    /// absent.
    pub(crate) fn alone(file: Option<&Path>, env: &ProcessEnvironment) -> (Self, Option<String>) {
        let mut problems = Vec::new();
        let (table, place) = of_file(file, env).unwrap_or_else(|problem| {
            problems.push(problem);
            Default::default()
        });
        let mut settings = Self::default();
        for (key, value) in table {
            if let Err(why) = settings.set(&key, value) {
                problems.push(format!("{}: [seam]: {why}", place.display()));
            }
        }
        // As other paths of the file: relative to the file's folder. Paths in variables are
        // relative to the working folder.
        if let Some(folder) = place.parent() {
            settings.vault = placed(&settings.vault, folder);
        }
        for (variable, key) in VARIABLES {
            let set = match env.text(variable) {
                Ok(Some(text)) => settings.set(key, text.into()),
                Ok(None) => Ok(()),
                Err(failure) => Err(failure.message().to_owned()),
            };
            problems.extend(set.err().map(|why| format!("{variable}: {why}")));
        }
        for name in env.ours().filter(|name| name.starts_with(PREFIX)) {
            if VARIABLES.iter().all(|(known, _)| *known != name) {
                let known = VARIABLES.into_iter().map(|(known, _)| known);
                problems.push(format!(
                    "{name}: unknown variable{}",
                    did_you_mean(name, known)
                ));
            }
        }
        let more = problems.len().saturating_sub(1);
        let first = problems.into_iter().next();
        (
            settings,
            first.map(|first| {
                if more == 0 {
                    first
                } else {
                    format!("{first} (and {more} more)")
                }
            }),
        )
    }

    fn set(&mut self, key: &str, value: Value) -> Result<(), String> {
        let one = Value::Table(Table::from_iter([(key.to_owned(), value)]));
        let Self { vault, query } =
            Self::deserialize(one).map_err(|error| error.message().replace('\n', ", "))?;
        match key {
            "vault" => self.vault = vault,
            _ => self.query = query,
        }
        Ok(())
    }
}

/// Returns `[seam]` of the file, and the file's path; empty if there is none.
fn of_file(file: Option<&Path>, env: &ProcessEnvironment) -> Result<(Table, PathBuf), String> {
    let found = file::find(file, env).map_err(|failure| failure.message().to_owned())?;
    let Some(found) = found else {
        return Ok(Default::default());
    };
    let text = file::read_plain(&found)
        .map_err(|problem| problem.to_string())?
        .unwrap_or_default();
    let place = found.path.display();
    let mut all: Table = text.parse().map_err(|error: toml::de::Error| {
        format!("{place}: {}", error.message().replace('\n', ", "))
    })?;
    match all.remove("seam") {
        Some(Value::Table(table)) => Ok((table, found.path)),
        Some(_) => Err(format!("{place}: seam must be a table")),
        None => Ok(Default::default()),
    }
}

/// Resolves a path below a folder, unless it is absolute, blank, or begins with `~`.
pub(crate) fn placed(path: &Path, folder: &Path) -> PathBuf {
    let path = path.to_str().map_or(path, |path| Path::new(path.trim()));
    if path.as_os_str().is_empty() || path.starts_with("~") {
        path.to_owned()
    } else {
        folder.join(path)
    }
}

#[cfg(test)]
mod tests {
    use helmdeck_seam::QueryUse;

    use super::*;

    #[test]
    fn what_is_wrong_is_told_and_hides_nothing_but_itself() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("helmdeck.toml");
        let read = |text: &str, pairs: &[(&str, &str)]| {
            std::fs::write(&file, text).unwrap();
            SeamSettings::alone(Some(&file), &ProcessEnvironment::of(pairs))
        };
        let (settings, problem) = read(
            "[server]\nlisten = 5\n[seam]\nvault = \"/v\"\nquery = \"filter\"\n",
            &[],
        );
        assert_eq!(
            (settings.vault, settings.query, problem),
            ("/v".into(), QueryUse::Filter, None)
        );
        let (settings, _) = read(
            "[seam]\nvault = \"/v\"\n",
            &[("HELMDECK_SEAM__VAULT", "/w")],
        );
        assert_eq!(settings.vault, Path::new("/w"));
        let below = home.path().join("notes");
        for (text, variable, vault) in [
            ("notes", None, below.as_path()),
            (" notes ", None, &below),
            ("~/notes", None, Path::new("~/notes")),
            (" ", None, Path::new("")),
            ("notes", Some("other"), Path::new("other")),
        ] {
            let pairs: Vec<_> = variable
                .map(|path| ("HELMDECK_SEAM__VAULT", path))
                .into_iter()
                .collect();
            assert_eq!(
                read(&format!("[seam]\nvault = \"{text}\"\n"), &pairs)
                    .0
                    .vault,
                vault,
                "{text:?}"
            );
        }
        for (text, variable) in [
            (
                "[seam]\nvault = \"/v\"\nquery = \"fliter\"\nroot = 5\n",
                "filter",
            ),
            ("[seam]\nvault = \"/v\"\n", "fliter"),
        ] {
            let (settings, problem) = read(text, &[("HELMDECK_SEAM__QUERY", variable)]);
            assert_eq!(settings.vault, Path::new("/v"), "what is sound stays");
            assert!(problem.unwrap().contains("fliter"), "{text}");
        }
        let (_, problem) = read("", &[("HELMDECK_SEAM__QUERY", "fliter")]);
        assert!(
            problem.unwrap().starts_with("HELMDECK_SEAM__QUERY: "),
            "not the file"
        );
        let (settings, problem) = read("", &[("HELMDECK_SEAM__VUALT", "/v")]);
        assert_eq!(settings.vault, Path::new(""));
        assert_eq!(
            problem.unwrap(),
            "HELMDECK_SEAM__VUALT: unknown variable; did you mean \"HELMDECK_SEAM__VAULT\"?"
        );
        for text in [
            "[seam\n",
            "seam = 5",
            "[seam]\nvaultt = \"\"\n",
            "[seam]\nquery = \"x\"\n",
        ] {
            let (settings, problem) = read(text, &[]);
            assert_eq!(settings.query, QueryUse::Reserved);
            assert!(problem.unwrap().contains("helmdeck.toml"), "{text}");
        }
    }
}
