//! The shared secret of JSON Web Tokens, read from the environment only.
//!
//! No message contains the secret.

use helmdeck_core::Secret;
use helmdeck_server_config::MIN_SECRET_BYTES;

use crate::env::ProcessEnvironment;
use crate::exit::{Failure, Result};
use crate::secret_file::{self, Readers};

/// The variable with the secret.
pub(crate) const SECRET: &str = "HELMDECK_JWT_SECRET";
/// The variable with the path of a file that holds the secret.
pub(crate) const SECRET_FILE: &str = "HELMDECK_JWT_SECRET_FILE";

/// The variable with the secret of the pages' client at the identity provider.
pub(crate) const CLIENT_SECRET: &str = "HELMDECK_CLIENT_SECRET";
/// The variable with the path of a file that holds that secret.
pub(crate) const CLIENT_SECRET_FILE: &str = "HELMDECK_CLIENT_SECRET_FILE";

/// Reads the secret, `None` if there is none. White space around it does not belong to it.
///
/// # Errors
/// A configuration failure that names the variable: the secret is too short, both variables are
/// set, or the file cannot be read.
pub(crate) fn shared_secret(env: &ProcessEnvironment) -> Result<Option<Secret>> {
    let found = secret_file::of_environment(env, SECRET, SECRET_FILE, Readers::Anybody)?;
    let Some((label, text)) = found else {
        return Ok(None);
    };
    let text = text.trim();
    if text.len() < MIN_SECRET_BYTES {
        return Err(Failure::config(format!(
            "{label}: the secret has {} bytes; give at least {MIN_SECRET_BYTES} random ones, for example those of \
             `openssl rand -base64 48`",
            text.len()
        )));
    }
    Ok(Some(Secret::new(text.to_owned())))
}

/// Reads the secret of the pages' client at the identity provider, `None` if the client has none.
///
/// # Errors
/// A configuration failure that names the variable.
pub(crate) fn client_secret(env: &ProcessEnvironment) -> Result<Option<Secret>> {
    let found =
        secret_file::of_environment(env, CLIENT_SECRET, CLIENT_SECRET_FILE, Readers::Anybody)?;
    Ok(found.map(|(_, text)| Secret::new(text.trim().to_owned())))
}

/// Says whether the operator set a secret, good or not.
pub(crate) fn is_set(env: &ProcessEnvironment) -> bool {
    [SECRET, SECRET_FILE]
        .iter()
        .any(|name| matches!(env.text(name), Ok(Some(_)) | Err(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(pairs: &[(&str, &str)]) -> Result<Option<Secret>> {
        shared_secret(&ProcessEnvironment::of(pairs))
    }

    #[test]
    fn a_secret_is_at_least_32_bytes_and_never_repeated() {
        assert!(secret(&[]).unwrap().is_none());
        let good = "canary".repeat(6);
        assert_eq!(
            secret(&[(SECRET, &format!(" {good}\n"))])
                .unwrap()
                .unwrap()
                .expose(),
            good
        );
        for bad in [
            "",
            "canary",
            &"canary".repeat(5),
            &format!("{}{}", "canary", " ".repeat(40)),
        ] {
            let failure = secret(&[(SECRET, bad)]).unwrap_err();
            assert_eq!(failure.exit() as u8, 78);
            assert!(
                failure.message().contains("at least 32") && !failure.text().contains("canary"),
                "{}",
                failure.text()
            );
        }
        assert!(
            secret(&[(SECRET, &good), (SECRET_FILE, "/k")])
                .unwrap_err()
                .message()
                .contains("both set")
        );
        assert!(
            secret(&[(SECRET_FILE, "")])
                .unwrap_err()
                .message()
                .contains("empty")
        );
        assert!(
            secret(&[(SECRET_FILE, "/no/such")])
                .unwrap_err()
                .message()
                .contains("/no/such")
        );
    }

    #[test]
    fn a_secret_file_is_read_up_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let text = path.to_str().unwrap();
        std::fs::write(&path, format!("{}\n", "s".repeat(32))).unwrap();
        assert_eq!(
            secret(&[(SECRET_FILE, text)]).unwrap().unwrap().expose(),
            "s".repeat(32)
        );
        std::fs::write(&path, "s".repeat(5000)).unwrap();
        assert!(
            secret(&[(SECRET_FILE, text)])
                .unwrap_err()
                .message()
                .contains("too long")
        );
    }
}
