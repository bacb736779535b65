//! The memory key file: made on request, and named in the configuration file as `[memory]
//! key_file`.

use std::path::{Path, PathBuf};

use helmdeck_memory::MemoryKey;
use toml_edit::{DocumentMut, Item, Table, value};

use crate::config::Loaded;
use crate::exit::{Exit, Failure, Result};
use crate::write_file;

/// File name of the key, beside the configuration file.
pub(crate) const NAME: &str = "memory.key";

/// The configuration that `helmdeck init` writes.
pub(crate) const CONFIGURATION: &str = "\
# Settings of helmdeck. Write only what differs from the defaults:
#   helmdeck config show --origin   prints every setting and where it comes from
#   helmdeck check                  checks this file

# [server]
# listen = \"127.0.0.1:7700\"

# A variable of the environment that holds a token; never the token itself.
# [credentials]
# github-token = \"env:GITHUB_TOKEN\"
";

/// What writing the files did.
#[derive(Debug, Default)]
pub(crate) struct WrittenFiles {
    /// The configuration file, if it was created.
    pub(crate) configuration: Option<PathBuf>,
    /// The key file and the key's id, if it was created.
    pub(crate) key: Option<(PathBuf, String)>,
}

/// Returns the path of the configuration file.
///
/// # Errors
/// A configuration failure without a configuration folder.
pub(crate) fn configuration(loaded: &Loaded) -> Result<&Path> {
    loaded
        .file
        .as_ref()
        .map(|found| found.path.as_path())
        .ok_or_else(|| {
            Failure::config(
                "there is no configuration folder: neither XDG_CONFIG_HOME nor HOME is set",
            )
            .with_hint("set HOME, or name a file with --config")
        })
}

/// Writes a missing configuration file, and with `key` a key file that it names.
///
/// An existing configuration keeps everything that is in it, and gets the one line.
///
/// # Errors
/// A failure if a file cannot be written, or if a key file exists that no setting names.
pub(crate) fn write(loaded: &Loaded, key: bool) -> Result<WrittenFiles> {
    let path = configuration(loaded)?;
    let mut written = WrittenFiles::default();
    let old = match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(cannot(path, &error)),
    };
    let mut text = old.clone().unwrap_or_else(|| CONFIGURATION.to_owned());
    if key {
        text = with_key_file(&text, path)?;
        let file = path.parent().unwrap_or(Path::new("/")).join(NAME);
        // The key comes first: a configuration that names a missing key stops every command.
        let id = create(&file, path)?;
        written.key = Some((file, id));
    }
    match old {
        None => {
            let made = write_file::create(path, text.as_bytes());
            undo(made, &written, path)?;
            written.configuration = Some(path.to_owned());
        }
        Some(old) if old != text => {
            undo(write_file::replace(path, text.as_bytes()), &written, path)?
        }
        Some(_) => {}
    }
    Ok(written)
}

/// Writes a new key to a file that does not exist, and returns the key's id.
///
/// # Errors
/// A failure if the file exists or cannot be written.
pub(crate) fn create(file: &Path, configuration: &Path) -> Result<String> {
    let made = MemoryKey::generate()?;
    let id = MemoryKey::parse("key", made.expose())?.id().to_string();
    let line = zeroize::Zeroizing::new(format!("{}\n", made.expose()));
    write_file::create(file, line.as_bytes()).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::new(
            Exit::Refused,
            format!(
                "the key file {} exists already; nothing was written",
                file.display()
            ),
        )
        .with_hint(format!(
            "to use it, write key_file = \"{NAME}\" below [memory] in {}",
            configuration.display()
        )),
        _ => cannot(file, &error),
    })?;
    Ok(id)
}

/// Removes the new key if the configuration that names it cannot be written: nothing was sealed
/// with it.
fn undo(made: std::io::Result<()>, written: &WrittenFiles, path: &Path) -> Result<()> {
    made.map_err(|error| {
        if let Some((file, _)) = &written.key {
            let _ = std::fs::remove_file(file);
        }
        cannot(path, &error)
    })
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("{} cannot be written: {error}", path.display()),
    )
    .with_hint("set XDG_CONFIG_HOME to a folder that can be written, or name a file with --config")
}

fn with_key_file(text: &str, path: &Path) -> Result<String> {
    let wrong = |message: String| Failure::config(format!("{}: {message}", path.display()));
    let mut document = text
        .parse::<DocumentMut>()
        .map_err(|error| wrong(error.message().replace('\n', ", ")))?;
    // A new table goes behind the comments that end the file.
    if document.get("memory").is_none() {
        let gap = if text.is_empty() || text.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        return Ok(format!("{text}{gap}\n[memory]\nkey_file = \"{NAME}\"\n"));
    }
    let memory = document
        .entry("memory")
        .or_insert_with(|| Item::Table(Table::new()));
    let memory = memory
        .as_table_like_mut()
        .ok_or_else(|| wrong("\"memory\" is not a table".to_owned()))?;
    memory.insert("key_file", value(NAME));
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_file_line_keeps_the_rest() {
        let path = Path::new("h.toml");
        let added = with_key_file(CONFIGURATION, path).unwrap();
        assert!(
            added.starts_with(CONFIGURATION)
                && added.ends_with("\n[memory]\nkey_file = \"memory.key\"\n"),
            "{added}"
        );
        let own = "# mine\n[memory] # here\nurl = \"memory:\"\n\n[log]\nlevel = \"info\" # loud\n";
        let added = with_key_file(own, path).unwrap();
        assert_eq!(added.replace("key_file = \"memory.key\"\n", ""), own);
        assert_eq!(added.lines().count(), own.lines().count() + 1);
        assert!(with_key_file("[memory", path).is_err());
    }
}
