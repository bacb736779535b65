//! Gate 1: the operator's memory key, and the vault's key. No key means no memory, or no vault; a malformed key means no start.
//! Never says anything about their values.

use std::path::{Path, PathBuf};

use helmdeck_memory::KeyRing;
use zeroize::Zeroizing;

use crate::env::Environment;
use crate::exit::{Failure, Result};
use crate::secret_file::{self, Readers};

/// The variables of one ring of keys.
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
/// The variable with earlier ones.
pub(crate) const KEY_PREVIOUS: &str = MEMORY.previous;

/// The memory keys.
pub(crate) const MEMORY: Names =
    Names { key: "HELMDECK_MEMORY_KEY", file: "HELMDECK_MEMORY_KEY_FILE", previous: "HELMDECK_MEMORY_KEY_PREVIOUS" };
/// The vault's.
pub(crate) const VAULT: Names =
    Names { key: "HELMDECK_VAULT_KEY", file: "HELMDECK_VAULT_KEY_FILE", previous: "HELMDECK_VAULT_KEY_PREVIOUS" };

/// Reads the key ring, `None` if gate 1 is shut.
///
/// # Errors
/// A configuration failure that names the variable and the expected form: the key is empty or malformed, both variables are
/// set, the file cannot be read, or there are previous keys without a current one.
pub(crate) fn key_ring(env: &Environment) -> Result<Option<KeyRing>> {
    ring(env, &MEMORY)
}

/// Reads the vault's ring, `None` if there is no vault.
///
/// # Errors
/// As [`key_ring`]; also if one of its keys is a memory key: whoever may read memory must not read credentials.
pub(crate) fn vault_ring(env: &Environment, memory: Option<&KeyRing>) -> Result<Option<KeyRing>> {
    let Some(vault) = ring(env, &VAULT)? else { return Ok(None) };
    let shared = memory.is_some_and(|memory| memory.ids().any(|id| vault.ids().any(|known| known == id)));
    if shared {
        return Err(Failure::config(format!(
            "{} holds a key that {} holds too; the vault needs a key of its own",
            VAULT.key, MEMORY.key
        ))
        .with_hint("`helmdeck key generate` makes another one"));
    }
    Ok(Some(vault))
}

fn ring(env: &Environment, names: &Names) -> Result<Option<KeyRing>> {
    let Names { key, file, previous: earlier } = names;
    let previous = env.text(earlier)?;
    let (label, text) = match (env.text(key)?, env.text(file)?) {
        (Some(_), Some(_)) => {
            return Err(Failure::config(format!("{key} and {file} are both set; unset one of them")));
        }
        (Some(text), None) => (*key, Zeroizing::new(text.to_owned())),
        (None, Some("")) => return Err(Failure::config(format!("{file} is empty; name a file, or unset it"))),
        (None, Some(path)) => (*file, secret_file::read(file, &env.absolute(Path::new(path))?, Readers::OwnerOnly)?),
        (None, None) if previous.is_some() => {
            return Err(Failure::config(format!("{earlier} is set and {key} is not; previous keys only open")));
        }
        (None, None) => return Ok(None),
    };
    let ring = KeyRing::parse((label, &text), previous.map(|list| (*earlier, list)))
        .map_err(|error| Failure::config(error.to_string()))?;
    Ok(Some(ring))
}

/// Returns the files of secrets that others than their owner can read. A key file like that is refused ([`key_ring`]).
pub(crate) fn exposed_key_files(env: &Environment) -> impl Iterator<Item = PathBuf> {
    use std::os::unix::fs::PermissionsExt;

    [crate::auth::SECRET_FILE, crate::s3::SECRET_FILE].into_iter().filter_map(|name| {
        let path = env.absolute(&env.path(name)?).ok()?;
        let mode = std::fs::metadata(&path).ok()?.permissions().mode();
        (mode & 0o077 != 0).then_some(path)
    })
}

/// Says whether the operator set a memory key, well-formed or not.
pub(crate) fn is_set(env: &Environment) -> bool {
    [KEY, KEY_FILE].iter().any(|name| matches!(env.text(name), Ok(Some(_)) | Err(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(digit: &str) -> String {
        digit.repeat(64)
    }

    fn ring(pairs: &[(&str, &str)]) -> Result<Option<KeyRing>> {
        key_ring(&Environment::of(pairs))
    }

    #[test]
    fn no_key_means_no_memory() {
        assert!(ring(&[]).unwrap().is_none());
        assert!(!is_set(&Environment::of(&[])));
    }

    #[test]
    fn a_malformed_key_means_no_start_and_is_not_repeated() {
        let short = key("c")[..63].to_owned();
        for value in ["", "canary", short.as_str(), &format!("{}g", &key("a")[..63])] {
            let failure = ring(&[(KEY, value)]).unwrap_err();
            assert_eq!(failure.exit() as u8, 78, "{value}");
            assert!(failure.message().contains(KEY) && failure.message().contains("64 hex"), "{}", failure.message());
            assert!(value.is_empty() || !failure.text().contains(value), "{}", failure.text());
        }
        let failure = ring(&[(KEY, &key("a")), (KEY_PREVIOUS, "canary")]).unwrap_err();
        assert!(failure.message().contains(KEY_PREVIOUS) && !failure.text().contains("canary"));
    }

    #[test]
    fn the_vault_has_a_key_of_its_own() {
        let vault = |pairs: &[(&str, &str)]| {
            let env = Environment::of(pairs);
            vault_ring(&env, key_ring(&env).unwrap().as_ref())
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
            assert!(failure.message().contains("of its own") && !failure.text().to_lowercase().contains(&a));
        }
        let failure = vault(&[(VAULT.key, "canary")]).unwrap_err();
        assert!(failure.message().contains(VAULT.key) && !failure.text().contains("canary"));
    }

    #[test]
    fn both_variables_or_only_previous_keys_are_refused() {
        assert!(ring(&[(KEY, &key("a")), (KEY_FILE, "/k")]).unwrap_err().message().contains("both set"));
        assert!(ring(&[(KEY_PREVIOUS, &key("a"))]).unwrap_err().message().contains("only open"));
        assert!(ring(&[(KEY_FILE, "")]).unwrap_err().message().contains("empty"));
    }

    #[test]
    fn a_key_file_is_trimmed_and_refused_if_others_can_read_it() {
        use std::os::unix::fs::PermissionsExt;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, format!("{}\n", key("a"))).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let env = Environment::of(&[(KEY_FILE, path.to_str().unwrap())]);
        let of_file = key_ring(&env).unwrap().unwrap();
        let of_text =
            ring(&[(KEY, &key("a")), (KEY_PREVIOUS, &format!("{},{}", key("b"), key("c")))]).unwrap().unwrap();
        assert_eq!(of_file.current_id(), of_text.current_id());
        assert_eq!(of_text.ids().count(), 3);

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let failure = key_ring(&env).unwrap_err();
        assert_eq!(failure.exit() as u8, 78);
        assert!(failure.text().contains("chmod 600") && failure.message().contains(KEY_FILE), "{}", failure.text());
        let vault = Environment::of(&[(VAULT.file, path.to_str().unwrap())]);
        assert!(vault_ring(&vault, None).unwrap_err().text().contains("chmod 600"));
        let secret = Environment::of(&[(crate::auth::SECRET_FILE, path.to_str().unwrap())]);
        assert_eq!(exposed_key_files(&secret).collect::<Vec<_>>(), std::slice::from_ref(&path));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(exposed_key_files(&secret).count(), 0);

        std::fs::write(&path, " ".repeat(5000)).unwrap();
        assert!(key_ring(&env).unwrap_err().message().contains("too long"));
        assert!(ring(&[(KEY_FILE, "/no/such")]).unwrap_err().message().contains("/no/such"));
    }
}
