//! `[seam]` by itself. Processes ask the seam often, and its answer must not wait for all the other settings, nor fail with them.

use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use toml::{Table, Value};

use super::file;
use super::parts::SeamSettings;
use crate::env::Environment;

/// The variables, and the settings that they set.
const VARIABLES: [(&str, &str); 2] = [("HELMDECK_SEAM__VAULT", "vault"), ("HELMDECK_SEAM__QUERY", "query")];

impl SeamSettings {
    /// Reads them from the file and the environment. What is wrong is told beside them: then each has its default, since memory that cannot
    /// be read counts as absent.
    pub(crate) fn alone(file: Option<&Path>, env: &Environment) -> (Self, Option<String>) {
        Self::try_alone(file, env).map_or_else(|problem| (Self::default(), Some(problem)), |settings| (settings, None))
    }

    fn try_alone(file: Option<&Path>, env: &Environment) -> Result<Self, String> {
        let found = file::find(file, env).map_err(|failure| failure.message().to_owned())?;
        let (mut table, place) = match &found {
            Some(found) => {
                let text = file::read_plain(found).map_err(|problem| problem.to_string())?.unwrap_or_default();
                let place = found.path.display().to_string();
                let mut all: Table = text
                    .parse()
                    .map_err(|error: toml::de::Error| format!("{place}: {}", error.message().replace('\n', ", ")))?;
                match all.remove("seam") {
                    Some(Value::Table(table)) => (table, place),
                    Some(_) => return Err(format!("{place}: seam must be a table")),
                    None => (Table::new(), place),
                }
            }
            None => (Table::new(), "the configuration".to_owned()),
        };
        // As other paths of the file: from the folder in which that lies. Those of the environment begin in the working folder.
        let folder = found.as_ref().and_then(|found| found.path.parent()).filter(|_| table.contains_key("vault"));
        let folder = folder.filter(|_| env.text(VARIABLES[0].0).ok().flatten().is_none()).map(Path::to_owned);
        for (variable, key) in VARIABLES {
            if let Some(text) = env.text(variable).map_err(|failure| failure.message().to_owned())? {
                table.insert(key.to_owned(), text.into());
            }
        }
        let settings = Self::deserialize(Value::Table(table));
        let mut settings =
            settings.map_err(|error| format!("{place}: [seam]: {}", error.message().replace('\n', ", ")))?;
        if let Some(folder) = folder {
            settings.vault = placed(&settings.vault, &folder);
        }
        Ok(settings)
    }
}

/// Puts a path that was written by hand below a folder, unless it is a whole one, blank, or begins in the home folder (`~`).
pub(crate) fn placed(path: &Path, folder: &Path) -> PathBuf {
    let path = path.to_str().map_or(path, |path| Path::new(path.trim()));
    if path.as_os_str().is_empty() || path.starts_with("~") { path.to_owned() } else { folder.join(path) }
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
            SeamSettings::alone(Some(&file), &Environment::of(pairs))
        };
        let (settings, problem) = read("[server]\nlisten = 5\n[seam]\nvault = \"/v\"\nquery = \"filter\"\n", &[]);
        assert_eq!((settings.vault, settings.query, problem), ("/v".into(), QueryUse::Filter, None));
        let (settings, _) = read("[seam]\nvault = \"/v\"\n", &[("HELMDECK_SEAM__VAULT", "/w")]);
        assert_eq!(settings.vault, Path::new("/w"));
        let below = home.path().join("notes");
        for (text, variable, vault) in [
            ("notes", None, below.as_path()),
            (" notes ", None, &below),
            ("~/notes", None, Path::new("~/notes")),
            (" ", None, Path::new("")),
            ("notes", Some("other"), Path::new("other")),
        ] {
            let pairs: Vec<_> = variable.map(|path| ("HELMDECK_SEAM__VAULT", path)).into_iter().collect();
            assert_eq!(read(&format!("[seam]\nvault = \"{text}\"\n"), &pairs).0.vault, vault, "{text:?}");
        }
        for text in ["[seam\n", "seam = 5", "[seam]\nvaultt = \"\"\n", "[seam]\nquery = \"x\"\n"] {
            let (settings, problem) = read(text, &[]);
            assert_eq!(settings.query, QueryUse::Reserved);
            assert!(problem.unwrap().contains("helmdeck.toml"), "{text}");
        }
    }
}
