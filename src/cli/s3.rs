//! Credentials of the S3-compatible artifact store, read from the environment only.
//!
//! No message contains the secret.

use helmdeck_core::Secret;
use helmdeck_engine::{Builder, S3Credentials, S3Location};

use crate::config::Settings;
use crate::env::ProcessEnvironment;
use crate::exit::{Failure, Result};
use crate::secret_file::{self, Readers};

/// The variable with the id of the access key.
pub(crate) const KEY_ID: &str = "HELMDECK_S3_ACCESS_KEY_ID";
/// The variable with its secret.
pub(crate) const SECRET: &str = "HELMDECK_S3_SECRET_ACCESS_KEY";
/// The variable with the path of a file that holds the secret.
pub(crate) const SECRET_FILE: &str = "HELMDECK_S3_SECRET_ACCESS_KEY_FILE";

/// Amazon's own names, which are taken where ours are not set.
const AMAZON: [&str; 3] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
];

/// Reads the credentials.
///
/// # Errors
/// A configuration failure that names the variable: there are none, one half is missing, or the
/// file cannot be read.
pub(crate) fn credentials(env: &ProcessEnvironment) -> Result<S3Credentials> {
    if [KEY_ID, SECRET, SECRET_FILE]
        .iter()
        .all(|name| matches!(env.text(name), Ok(None)))
    {
        return amazon(env);
    }
    let found = secret_file::of_environment(env, SECRET, SECRET_FILE, Readers::Anybody)?;
    let (_, secret) =
        found.ok_or_else(|| Failure::config(format!("{KEY_ID} is set and {SECRET} is not")))?;
    let key_id = env
        .text(KEY_ID)?
        .map(str::trim)
        .filter(|text| !text.is_empty());
    let key_id = key_id
        .ok_or_else(|| Failure::config(format!("{KEY_ID} is not set, and the secret is")))?
        .to_owned();
    Ok(S3Credentials {
        key_id,
        secret: filled(SECRET, &secret)?,
        token: None,
    })
}

fn amazon(env: &ProcessEnvironment) -> Result<S3Credentials> {
    let [key_id, secret, token] = AMAZON;
    let (Some(id), Some(text)) = (env.text(key_id)?, env.text(secret)?) else {
        return Err(Failure::config(format!(
            "artifacts.url names a bucket, and neither {KEY_ID} and {SECRET} nor {key_id} and {secret} are set"
        )));
    };
    let token = env
        .text(token)?
        .filter(|token| !token.is_empty())
        .map(|token| Secret::new(token.to_owned()));
    if id.trim().is_empty() {
        return Err(Failure::config(format!("{key_id} is empty")));
    }
    Ok(S3Credentials {
        key_id: id.trim().to_owned(),
        secret: filled(secret, text)?,
        token,
    })
}

/// White space around a secret does not belong to it.
fn filled(name: &str, text: &str) -> Result<Secret> {
    match text.trim() {
        "" => Err(Failure::config(format!("{name} is empty"))),
        text => Ok(Secret::new(text.to_owned())),
    }
}

/// Sets where an engine keeps artifacts: in the configured bucket, else in the data folder, if any.
///
/// # Errors
/// A configuration failure if there is a bucket and no credentials for it.
pub(crate) fn artifacts(
    settings: &Settings,
    env: &ProcessEnvironment,
    builder: Builder,
) -> Result<Builder> {
    let url = &settings.engine.artifacts.url;
    if !url.is_empty() {
        let location = S3Location::parse(url)
            .map_err(|why| Failure::config(format!("artifacts.url: {why}")))?;
        return Ok(builder.artifacts_in(location, credentials(env)?));
    }
    Ok(match settings.data_dir() {
        Ok(data) => builder.artifacts(data.join("artifacts")),
        Err(_) => builder,
    })
}

/// Returns where artifacts are kept, for people.
pub(crate) fn shown_artifacts(settings: &Settings) -> String {
    match S3Location::parse(&settings.engine.artifacts.url) {
        Ok(location) => location.shown(),
        Err(_) => settings.data_dir().map_or_else(
            |_| "nowhere: there is no data folder".to_owned(),
            |data| data.join("artifacts").display().to_string(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<S3Credentials> {
        credentials(&ProcessEnvironment::of(pairs))
    }

    #[test]
    fn ours_win_over_amazons_and_neither_is_mixed_with_the_other() {
        let [id, secret, token] = AMAZON;
        let amazon = [(id, "A"), (secret, "B"), (token, "C")];
        let found = read(&amazon).unwrap();
        assert_eq!(
            (
                &*found.key_id,
                found.secret.expose(),
                found.token.unwrap().expose()
            ),
            ("A", "B", "C")
        );
        let both = [&amazon[..], &[(KEY_ID, "X"), (SECRET, "Y\n")]].concat();
        let found = read(&both).unwrap();
        assert_eq!((&*found.key_id, found.secret.expose()), ("X", "Y"));
        assert!(found.token.is_none());
    }

    #[test]
    fn half_of_it_is_refused_and_never_repeated() {
        let [id, secret, _] = AMAZON;
        for pairs in [
            &[][..],
            &[(KEY_ID, "canary")],
            &[(SECRET, "canary")],
            &[(KEY_ID, ""), (SECRET, "canary")],
            &[(KEY_ID, "canary"), (SECRET, " ")],
            &[(KEY_ID, "canary"), (id, "x"), (secret, "canary")],
            &[(KEY_ID, "x"), (SECRET, "canary"), (SECRET_FILE, "/f")],
            &[(KEY_ID, "x"), (SECRET_FILE, "")],
            &[(KEY_ID, "x"), (SECRET_FILE, "/no/such")],
            &[(id, "canary")],
            &[(id, ""), (secret, "canary")],
        ] {
            let failure = read(pairs).unwrap_err();
            assert_eq!(failure.exit() as u8, 78, "{pairs:?}");
            assert!(!failure.text().contains("canary"), "{}", failure.text());
        }
    }

    #[test]
    fn a_secret_file_is_read_up_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "s3cr3t\n").unwrap();
        let file = [(KEY_ID, "x"), (SECRET_FILE, path.to_str().unwrap())];
        assert_eq!(read(&file).unwrap().secret.expose(), "s3cr3t");
        std::fs::write(&path, "s".repeat(5000)).unwrap();
        assert!(read(&file).unwrap_err().message().contains("too long"));
    }
}
