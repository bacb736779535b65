//! The environment layer: maps variables to settings, and reports unknown `HELMDECK_` variables.

use toml::Value;

use super::layers::{Key, Layers};
use super::origin::{Origin, Problem};
use crate::env::ProcessEnvironment;
use crate::secret_file::{self, Readers};
use helmdeck_core::suggest::did_you_mean;

/// The variables with the path of a file that holds a URL, which has a password for PostgreSQL: the
/// variable with the URL itself, that of the file, and the table of the setting `url`.
const URL_FILES: &[(&str, &str, &str)] = &[
    ("HELMDECK_MEMORY_URL", "HELMDECK_MEMORY_URL_FILE", "memory"),
    ("HELMDECK_SYSTEM_URL", "HELMDECK_SYSTEM_URL_FILE", "system"),
];

/// The variables with names of their own, and the settings that they set.
const FIXED: &[(&str, &[&str])] = &[
    ("HELMDECK_DATA_DIR", &["data_dir"]),
    ("HELMDECK_PACKS_DIR", &["packs_dir"]),
    ("HELMDECK_LOG", &["log", "level"]),
    ("HELMDECK_MEMORY_URL", &["memory", "url"]),
    ("HELMDECK_SYSTEM_URL", &["system", "url"]),
    ("HELMDECK_GITHUB_BASE_URL", &["github", "base_url"]),
    ("HELMDECK_EGRESS_ALLOW", &["egress", "allow"]),
];

/// The variables that are read elsewhere and set no setting.
const ELSEWHERE: &[&str] = &[
    // For the wrapper contrib/process_seam.py.
    "HELMDECK_BIN",
    "HELMDECK_CLIENT_SECRET",
    "HELMDECK_CLIENT_SECRET_FILE",
    "HELMDECK_CONFIG",
    "HELMDECK_FORGE_AGENT",
    "HELMDECK_FORGE_SESSION",
    "HELMDECK_JWT_SECRET",
    "HELMDECK_JWT_SECRET_FILE",
    "HELMDECK_MEMORY",
    "HELMDECK_MEMORY_KEY",
    "HELMDECK_MEMORY_KEY_FILE",
    "HELMDECK_MEMORY_KEY_PREVIOUS",
    "HELMDECK_MEMORY_URL_FILE",
    "HELMDECK_S3_ACCESS_KEY_ID",
    "HELMDECK_S3_SECRET_ACCESS_KEY",
    "HELMDECK_S3_SECRET_ACCESS_KEY_FILE",
    "HELMDECK_SYSTEM_URL_FILE",
    // For HTTP clients of a server: the documentation keeps their token here.
    "HELMDECK_TOKEN",
    "HELMDECK_VAULT_KEY",
    "HELMDECK_VAULT_KEY_FILE",
    "HELMDECK_VAULT_KEY_PREVIOUS",
];

/// Prefix of variables that test suites may set; the programs that they start ignore them.
const TESTS: &str = "HELMDECK_TEST_";

/// Adds the settings of the environment.
pub(crate) fn add(layers: &mut Layers, env: &ProcessEnvironment) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in env
        .ours()
        .filter(|name| !ELSEWHERE.contains(name) && !name.starts_with(TESTS))
    {
        if let Err(problem) = add_one(layers, env, name) {
            problems.push(problem);
        }
    }
    problems.extend(
        URL_FILES
            .iter()
            .filter_map(|files| add_url(layers, env, *files).err()),
    );
    problems
}

/// Reads a URL from a file, as container engines pass secrets.
fn add_url(
    layers: &mut Layers,
    env: &ProcessEnvironment,
    (variable, of_file, table): (&str, &'static str, &str),
) -> Result<(), Problem> {
    if matches!(env.text(of_file), Ok(None)) {
        return Ok(());
    }
    let url = secret_file::of_environment(env, variable, of_file, Readers::Anybody);
    let url = url.map_err(|failure| {
        let message = failure.message();
        let told = message
            .strip_prefix(of_file)
            .and_then(|rest| rest.strip_prefix(": "));
        Problem::new(of_file, told.unwrap_or(message))
    })?;
    let Some((_, url)) = url else { return Ok(()) };
    let key = [table, "url"].map(str::to_owned).to_vec();
    layers.set(
        key,
        Value::String(url.trim().to_owned()),
        Origin::Env(of_file.to_owned()),
    )
}

fn add_one(layers: &mut Layers, env: &ProcessEnvironment, name: &str) -> Result<(), Problem> {
    let Some(key) = key_of(layers, name) else {
        let derived: Vec<String> = layers.iter().map(|(key, _)| name_of(key)).collect();
        let known = FIXED
            .iter()
            .map(|(name, _)| *name)
            .chain(ELSEWHERE.iter().copied());
        let hint = did_you_mean(name, known.chain(derived.iter().map(String::as_str)));
        return Err(Problem::new(name, format!("unknown variable{hint}")));
    };
    let text = match env.text(name) {
        Ok(text) => text.unwrap_or_default(),
        Err(_) => return Err(Problem::new(name, "the value is not UTF-8 text")),
    };
    let path: Vec<&str> = key.iter().map(String::as_str).collect();
    let value = match layers.get(&path).map(|setting| &setting.value) {
        Some(Value::Integer(_)) => text.trim().parse().map(Value::Integer).ok(),
        Some(Value::Boolean(_)) => text.trim().parse().map(Value::Boolean).ok(),
        Some(Value::Float(_)) => text.trim().parse().map(Value::Float).ok(),
        Some(Value::Array(_)) => Some(list(text)),
        Some(_) => Some(Value::String(text.to_owned())),
        None if key.first().is_some_and(|table| table == "credentials") => {
            Some(Value::String(text.to_owned()))
        }
        None => Some(list(text)),
    };
    // Text where a number belongs is refused by its type, with the wording of every other layer.
    layers.set(
        key,
        value.unwrap_or_else(|| Value::String(text.to_owned())),
        Origin::Env(name.to_owned()),
    )
}

fn list(text: &str) -> Value {
    Value::Array(
        text.split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(Value::from)
            .collect(),
    )
}

/// Returns the setting that a variable sets.
fn key_of(layers: &Layers, name: &str) -> Option<Key> {
    if let Some((_, key)) = FIXED.iter().find(|(known, _)| *known == name) {
        return Some(key.iter().map(|part| (*part).to_owned()).collect());
    }
    if let Some((key, _)) = layers
        .iter()
        .find(|(key, _)| key.len() > 1 && name_of(key) == name)
    {
        return Some(key.clone());
    }
    // A name below a table whose keys the operator chooses; names there are written with `-`,
    // variables with `_`.
    layers.open_tables().find_map(|table| {
        let rest = name.strip_prefix(&name_of(table))?.strip_prefix("__")?;
        let mut key = table.clone();
        key.push(rest.to_ascii_lowercase().replace('_', "-"));
        (!rest.is_empty()).then_some(key)
    })
}

/// Returns the variable that sets a setting: `HELMDECK_SERVER__LISTEN`.
fn name_of(key: &[String]) -> String {
    format!(
        "HELMDECK_{}",
        key.join("__").to_ascii_uppercase().replace('-', "_")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> (Layers, Vec<String>) {
        let mut layers = Layers::defaults();
        let problems = add(&mut layers, &ProcessEnvironment::of(pairs));
        (layers, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn fixed_and_derived_names_set_settings() {
        let (layers, problems) = with(&[
            ("HELMDECK_LOG", "debug"),
            ("HELMDECK_EGRESS_ALLOW", "10.0.0.0/8, host"),
            ("HELMDECK_SERVER__MAX_REQUESTS", "7"),
            ("HELMDECK_CREDENTIALS__GITHUB_TOKEN", "env:GITHUB_TOKEN"),
            (
                "HELMDECK_CACHE__FORBID_DIRECTIVES__SHARED",
                "bypass,refresh",
            ),
            ("HELMDECK_MEMORY_KEY", "not a setting"),
            ("HELMDECK_BIN", "for a script"),
            ("HELMDECK_TOKEN", "for a client"),
            ("HELMDECK_TEST_ANYTHING", "1"),
            ("OTHER", "1"),
        ]);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(layers.text(&["log", "level"]), "debug");
        assert_eq!(
            layers
                .get(&["egress", "allow"])
                .unwrap()
                .value
                .as_array()
                .unwrap()
                .len(),
            2
        );
        assert_eq!(
            layers
                .get(&["server", "max_requests"])
                .unwrap()
                .value
                .as_integer(),
            Some(7)
        );
        assert_eq!(
            layers.text(&["credentials", "github-token"]),
            "env:GITHUB_TOKEN"
        );
        let forbidden = &layers
            .get(&["cache", "forbid_directives", "shared"])
            .unwrap()
            .value;
        assert_eq!(forbidden.as_array().unwrap().len(), 2);
    }

    #[test]
    fn memory_url_comes_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("url");
        std::fs::write(&file, "postgres://a:canary@h/d\n").unwrap();
        let file = file.to_str().unwrap();
        let (layers, problems) = with(&[("HELMDECK_MEMORY_URL_FILE", file)]);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(layers.text(&["memory", "url"]), "postgres://a:canary@h/d");
        let (_, problems) = with(&[
            ("HELMDECK_MEMORY_URL_FILE", file),
            ("HELMDECK_MEMORY_URL", "memory:"),
        ]);
        assert!(
            problems[0].contains("are both set") && !problems[0].contains("canary"),
            "{problems:?}"
        );
        let (_, problems) = with(&[("HELMDECK_MEMORY_URL_FILE", "/no/such/file")]);
        assert!(
            problems[0].starts_with("HELMDECK_MEMORY_URL_FILE: /no/such/file: "),
            "{problems:?}"
        );
    }

    #[test]
    fn unknown_and_mistyped_variables_are_named() {
        let (_, problems) = with(&[
            ("HELMDECK_MEMORY_KEYFILE", "canary"),
            ("HELMDECK_SERVER__LISEN", "x"),
            ("HELMDECK_SERVER__MAX_REQUESTS", "many"),
        ]);
        assert_eq!(
            problems,
            [
                "HELMDECK_MEMORY_KEYFILE: unknown variable; did you mean \"HELMDECK_MEMORY_KEY_FILE\"?",
                "HELMDECK_SERVER__LISEN: unknown variable; did you mean \"HELMDECK_SERVER__LISTEN\"?",
                "HELMDECK_SERVER__MAX_REQUESTS: server.max_requests must be a whole number",
            ]
        );
    }
}
