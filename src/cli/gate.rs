//! Gate 1: the memory key, and the vault's key.
//!
//! Without a key there is no memory, or no vault; a malformed key is an error at the start. No
//! message contains a key.

use std::path::Path;

use helmdeck_memory::KeyRing;

use crate::env::ProcessEnvironment;
use crate::exit::{Failure, Result};
use crate::secret_file::{self, Readers};

/// Variables of one keyring.
pub(crate) struct Names {
    /// The variable with the key.
    pub(crate) key: &'static str,
    /// The variable with the path of a file that holds the key.
    pub(crate) file: &'static str,
    /// The variable with earlier keys, separated by commas.
    pub(crate) previous: &'static str,
}

/// The variable with the memory key.
pub(crate) const KEY: &str = MEMORY.key;
/// The variable with the path of a file that holds it.
pub(crate) const KEY_FILE: &str = MEMORY.file;
/// The variable with previous keys.
pub(crate) const KEY_PREVIOUS: &str = MEMORY.previous;

/// The memory keys.
pub(crate) const MEMORY: Names = Names {
    key: "HELMDECK_MEMORY_KEY",
    file: "HELMDECK_MEMORY_KEY_FILE",
    previous: "HELMDECK_MEMORY_KEY_PREVIOUS",
};
/// The vault keys.
pub(crate) const VAULT: Names = Names {
    key: "HELMDECK_VAULT_KEY",
    file: "HELMDECK_VAULT_KEY_FILE",
    previous: "HELMDECK_VAULT_KEY_PREVIOUS",
};

/// The setting with the path of a file that holds the memory key.
pub(crate) const KEY_SETTING: &str = "memory.key_file";

/// Where the memory key comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeySource<'a> {
    /// A variable of the environment, which may name a file.
    Variable(&'static str),
    /// The file of the setting `memory.key_file`.
    Setting(&'a Path),
}

impl std::fmt::Display for KeySource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Variable(name) => f.write_str(name),
            Self::Setting(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Reads the memory key ring, `None` if gate 1 is shut.
///
/// The environment wins over `key_file`, the path of the setting `memory.key_file`; an empty path
/// is no file.
///
/// # Errors
/// A configuration failure that names variable or setting and the expected form: the key is empty
/// or malformed, both variables are set, the file cannot be read, or there are previous keys
/// without a current one.
pub(crate) fn key_ring(env: &ProcessEnvironment, key_file: &Path) -> Result<Option<KeyRing>> {
    ring(env, &MEMORY, key_file)
}

/// Returns where the memory key comes from, well-formed or not; `None` if gate 1 is shut.
pub(crate) fn source<'a>(env: &ProcessEnvironment, key_file: &'a Path) -> Option<KeySource<'a>> {
    let set = |name: &&str| matches!(env.text(name), Ok(Some(_)) | Err(_));
    let variable = [KEY, KEY_FILE]
        .into_iter()
        .find(set)
        .map(KeySource::Variable);
    variable.or_else(|| (!key_file.as_os_str().is_empty()).then_some(KeySource::Setting(key_file)))
}

/// Returns the key file that the setting names, if it is missing and no variable holds a key.
pub(crate) fn missing_file<'a>(env: &ProcessEnvironment, key_file: &'a Path) -> Option<&'a Path> {
    match source(env, key_file) {
        Some(KeySource::Setting(path)) if matches!(path.try_exists(), Ok(false)) => Some(path),
        _ => None,
    }
}

/// Reads the vault's ring, `None` if there is no vault.
///
/// # Errors
/// As [`key_ring`]; also if one of its keys is a memory key: memory and credentials must not share
/// a key.
pub(crate) fn vault_ring(
    env: &ProcessEnvironment,
    memory: Option<&KeyRing>,
) -> Result<Option<KeyRing>> {
    let Some(vault) = ring(env, &VAULT, Path::new(""))? else {
        return Ok(None);
    };
    let shared =
        memory.is_some_and(|memory| memory.ids().any(|id| vault.ids().any(|known| known == id)));
    if shared {
        return Err(Failure::config(format!(
            "{} holds a key that {} holds too; the vault needs a key of its own",
            VAULT.key, MEMORY.key
        ))
        .with_hint("`helmdeck key generate` makes another one"));
    }
    Ok(Some(vault))
}

fn ring(env: &ProcessEnvironment, names: &Names, key_file: &Path) -> Result<Option<KeyRing>> {
    let Names {
        key,
        file,
        previous: earlier,
    } = names;
    let previous = env.text(earlier)?;
    let of_environment = secret_file::of_environment(env, key, file, Readers::OwnerOnly)?;
    let found = match of_environment.map(|(label, text)| (label.to_owned(), text)) {
        None if !key_file.as_os_str().is_empty() => Some((
            format!("{KEY_SETTING}: {}", key_file.display()),
            of_setting(key_file)?,
        )),
        found => found,
    };
    let Some((label, text)) = found else {
        return match previous {
            Some(_) => Err(Failure::config(format!(
                "{earlier} is set and {key} is not; previous keys only open"
            ))),
            None => Ok(None),
        };
    };
    let ring = KeyRing::parse((&label, &text), previous.map(|list| (*earlier, list)))
        .map_err(|error| Failure::config(error.to_string()))?;
    Ok(Some(ring))
}

/// Reads the file that the settings name. A missing file is an error: a typo must not turn memory
/// off.
fn of_setting(key_file: &Path) -> Result<zeroize::Zeroizing<String>> {
    secret_file::read(KEY_SETTING, key_file, Readers::OwnerOnly).map_err(|failure| match key_file.try_exists() {
        Ok(false) => failure.with_hint(
            "put the key file back; if the key is lost, `helmdeck memory reset` empties the store, and `helmdeck key init` \
             makes a new key",
        ),
        _ => failure,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(digit: &str) -> String {
        digit.repeat(64)
    }

    fn ring(pairs: &[(&str, &str)]) -> Result<Option<KeyRing>> {
        key_ring(&ProcessEnvironment::of(pairs), Path::new(""))
    }

    #[test]
    fn no_key_means_no_memory() {
        assert!(ring(&[]).unwrap().is_none());
        assert_eq!(source(&ProcessEnvironment::of(&[]), Path::new("")), None);
    }

    #[test]
    fn a_malformed_key_means_no_start_and_is_not_repeated() {
        let short = key("c")[..63].to_owned();
        for value in [
            "",
            "canary",
            short.as_str(),
            &format!("{}g", &key("a")[..63]),
        ] {
            let failure = ring(&[(KEY, value)]).unwrap_err();
            assert_eq!(failure.exit() as u8, 78, "{value}");
            assert!(
                failure.message().contains(KEY) && failure.message().contains("64 hex"),
                "{}",
                failure.message()
            );
            assert!(
                value.is_empty() || !failure.text().contains(value),
                "{}",
                failure.text()
            );
        }
        let failure = ring(&[(KEY, &key("a")), (KEY_PREVIOUS, "canary")]).unwrap_err();
        assert!(failure.message().contains(KEY_PREVIOUS) && !failure.text().contains("canary"));
    }

    #[test]
    fn the_vault_has_a_key_of_its_own() {
        let vault = |pairs: &[(&str, &str)]| {
            let env = ProcessEnvironment::of(pairs);
            vault_ring(&env, key_ring(&env, Path::new("")).unwrap().as_ref())
        };
        let (a, b) = (key("a"), key("b"));
        assert!(vault(&[(KEY, &a)]).unwrap().is_none());
        assert!(vault(&[(KEY, &a), (VAULT.key, &b)]).unwrap().is_some());
        for pairs in [
            &[(KEY, a.as_str()), (VAULT.key, &key("A"))][..],
            &[(KEY, &a), (KEY_PREVIOUS, &b), (VAULT.key, &b)],
            &[(KEY, &a), (VAULT.key, &b), (VAULT.previous, &a)],
        ] {
            let failure = vault(pairs).unwrap_err();
            assert_eq!(failure.exit() as u8, 78);
            assert!(
                failure.message().contains("of its own")
                    && !failure.text().to_lowercase().contains(&a)
            );
        }
        let failure = vault(&[(VAULT.key, "canary")]).unwrap_err();
        assert!(failure.message().contains(VAULT.key) && !failure.text().contains("canary"));
    }

    #[test]
    fn both_variables_or_only_previous_keys_are_refused() {
        assert!(
            ring(&[(KEY, &key("a")), (KEY_FILE, "/k")])
                .unwrap_err()
                .message()
                .contains("both set")
        );
        assert!(
            ring(&[(KEY_PREVIOUS, &key("a"))])
                .unwrap_err()
                .message()
                .contains("only open")
        );
        assert!(
            ring(&[(KEY_FILE, "")])
                .unwrap_err()
                .message()
                .contains("empty")
        );
    }

    #[test]
    fn environment_wins_over_key_file_setting() {
        use std::os::unix::fs::PermissionsExt;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory.key");
        let none = ProcessEnvironment::of(&[]);
        let missing = key_ring(&none, &path).unwrap_err();
        assert_eq!(missing.exit() as u8, 78);
        assert!(
            missing.message().contains(KEY_SETTING)
                && missing.text().contains("put the key file back")
        );
        std::fs::write(&path, key("a")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let of_file = key_ring(&none, &path).unwrap().unwrap();
        let other = key("b");
        let both = ProcessEnvironment::of(&[(KEY, &other)]);
        let of_variable = key_ring(&both, &path).unwrap().unwrap();
        assert_eq!(
            of_variable.current_id(),
            ring(&[(KEY, &other)]).unwrap().unwrap().current_id()
        );
        assert_ne!(of_variable.current_id(), of_file.current_id());
        assert_eq!(source(&both, &path), Some(KeySource::Variable(KEY)));
        assert_eq!(source(&none, &path), Some(KeySource::Setting(&path)));
    }

    #[test]
    fn a_key_file_is_trimmed_and_refused_if_others_can_read_it() {
        use std::os::unix::fs::PermissionsExt;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, format!("{}\n", key("a"))).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let env = ProcessEnvironment::of(&[(KEY_FILE, path.to_str().unwrap())]);
        let of_file = key_ring(&env, Path::new("")).unwrap().unwrap();
        let of_text = ring(&[
            (KEY, &key("a")),
            (KEY_PREVIOUS, &format!("{},{}", key("b"), key("c"))),
        ])
        .unwrap()
        .unwrap();
        assert_eq!(of_file.current_id(), of_text.current_id());
        assert_eq!(of_text.ids().count(), 3);

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let failure = key_ring(&env, Path::new("")).unwrap_err();
        assert_eq!(failure.exit() as u8, 78);
        assert!(
            failure.text().contains("chmod 600") && failure.message().contains(KEY_FILE),
            "{}",
            failure.text()
        );
        let vault = ProcessEnvironment::of(&[(VAULT.file, path.to_str().unwrap())]);
        assert!(
            vault_ring(&vault, None)
                .unwrap_err()
                .text()
                .contains("chmod 600")
        );
        let secret = ProcessEnvironment::of(&[(crate::auth::SECRET_FILE, path.to_str().unwrap())]);
        assert_eq!(
            secret_file::exposed(&secret, &[crate::auth::SECRET_FILE]).collect::<Vec<_>>(),
            std::slice::from_ref(&path)
        );
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(
            secret_file::exposed(&secret, &[crate::auth::SECRET_FILE]).count(),
            0
        );

        std::fs::write(&path, " ".repeat(5000)).unwrap();
        assert!(
            key_ring(&env, Path::new(""))
                .unwrap_err()
                .message()
                .contains("too long")
        );
        assert!(
            ring(&[(KEY_FILE, "/no/such")])
                .unwrap_err()
                .message()
                .contains("/no/such")
        );
    }
}
