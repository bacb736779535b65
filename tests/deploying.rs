//! Files to deploy several servers: HAProxy takes its configuration, Helm renders the chart,
//! Kubernetes would take it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::support::KEY;
use crate::support::balancer::haproxy;
use crate::support::program::Home;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the Python environment that `tests/run` installed; without it, installs the same.
#[expect(clippy::disallowed_methods, reason = "a test has no `Env`")]
fn python() -> PathBuf {
    let folder: PathBuf = std::env::var_os("HELMDECK_TEST_DEPLOY").map_or_else(
        || {
            let script = root().join("tests/support/deploy/install.sh");
            let output = Command::new(script)
                .stderr(Stdio::inherit())
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "the tools cannot be installed; see above"
            );
            let said = String::from_utf8(output.stdout).unwrap();
            said.trim()
                .strip_prefix("HELMDECK_TEST_DEPLOY=")
                .unwrap()
                .into()
        },
        PathBuf::from,
    );
    folder.join("bin/python")
}

/// Returns what `check.py` found: the manifests of the chart by case, the report of Helm's lint,
/// and the compose file.
fn found() -> &'static Value {
    static FOUND: OnceLock<Value> = OnceLock::new();
    FOUND.get_or_init(|| {
        let script = root().join("tests/support/deploy/check.py");
        let output = Command::new(python())
            .arg(script)
            .arg(root())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).unwrap()
    })
}

fn manifest<'a>(case: &str, kind: &str) -> &'a Value {
    let all = found()["manifests"][case].as_array().unwrap();
    all.iter()
        .find(|manifest| manifest["kind"] == kind)
        .unwrap_or_else(|| panic!("{case}: no {kind}"))
}

#[test]
fn haproxy_takes_its_configuration() {
    let mut command = haproxy();
    command
        .args(["-c", "-f"])
        .arg(root().join("contrib/compose/haproxy.cfg"))
        .env("LISTEN", "127.0.0.1:7700");
    for number in 1..=3 {
        command.env(format!("DECK_{number}"), format!("127.0.0.1:770{number}"));
    }
    let checked = command
        .output()
        .unwrap_or_else(|error| panic!("haproxy: {error}; install it (Debian: haproxy)"));
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stderr)
    );
    command.env_remove("DECK_3");
    assert!(
        !command.output().unwrap().status.success(),
        "a server without an address is refused"
    );
}

#[test]
fn chart_renders_and_kubernetes_would_take_it() {
    assert_eq!(
        found()["lint"]["errors"],
        serde_json::json!([]),
        "{}",
        found()["lint"]
    );
    for (case, replicas) in [("least", 3), ("most", 5), ("bare", 1)] {
        let set = &manifest(case, "StatefulSet")["spec"];
        assert_eq!(set["replicas"], replicas);
        let pod = &set["template"]["spec"];
        let server = &pod["containers"][0];
        let value = |name: &str| {
            let variables = server["env"].as_array().unwrap();
            variables
                .iter()
                .find(|variable| variable["name"] == name)
                .unwrap_or_else(|| panic!("{case}: no {name}"))
        };
        assert_eq!(
            value("HELMDECK_SERVER__REPLICA")["valueFrom"]["fieldRef"]["fieldPath"],
            "metadata.name"
        );
        assert_eq!(
            value("HELMDECK_MEMORY_KEY")["valueFrom"]["secretKeyRef"]["name"],
            "deck"
        );
        assert_eq!(server["readinessProbe"]["httpGet"]["path"], "/readyz");
        assert_eq!(manifest(case, "Service")["spec"]["sessionAffinity"], "None");
    }
    assert_eq!(
        manifest("most", "Ingress")["spec"]["rules"][0]["host"],
        "deck.example"
    );
}

#[test]
fn program_takes_the_settings_of_the_chart_and_compose() {
    let mut cases: Vec<(String, Vec<(String, String)>)> = Vec::new();
    for case in ["least", "most", "bare"] {
        let server = &manifest(case, "StatefulSet")["spec"]["template"]["spec"]["containers"][0];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let plain = server["env"].as_array().unwrap().iter();
        // What a Secret or the cluster gives has another source here.
        let plain = plain
            .filter_map(|variable| Some((text(&variable["name"])?, text(&variable["value"])?)));
        // Kubernetes fills in variables that stand before.
        let plain = plain
            .map(|(name, value)| (name, value.replace("$(HELMDECK_SERVER__REPLICA)", "deck-0")));
        cases.push((case.to_owned(), plain.collect()));
    }
    let services = found()["compose"]["services"].as_object().unwrap();
    for (name, service) in services
        .iter()
        .filter(|(name, _)| name.starts_with("deck-"))
    {
        let all = service["environment"].as_object().unwrap().iter();
        cases.push((
            name.clone(),
            all.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
                .collect(),
        ));
    }
    assert_eq!(cases.len(), 6);
    for (case, environment) in cases {
        let home = Home::new();
        let mut command = home.command(KEY, &["config", "show", "--json"]);
        command
            .envs(environment)
            .env("HELMDECK_S3_ACCESS_KEY_ID", "a")
            .env("HELMDECK_S3_SECRET_ACCESS_KEY", "b");
        let shown = command.output().unwrap();
        assert!(
            shown.status.success(),
            "{case}: {}",
            String::from_utf8_lossy(&shown.stderr)
        );
    }
}

#[test]
fn compose_names_only_what_it_has() {
    let compose = &found()["compose"];
    let has = |kind: &str, name: &str| compose[kind].as_object().unwrap().contains_key(name);
    let services = compose["services"].as_object().unwrap();
    for (name, service) in services {
        assert!(service["image"].is_string(), "{name}");
        for other in service["depends_on"].as_object().into_iter().flatten() {
            let other_service = &services[other.0];
            let healthy = other.1["condition"] == "service_healthy";
            assert!(
                !healthy || other_service["healthcheck"].is_object(),
                "{name} waits for {}",
                other.0
            );
        }
        for secret in service["secrets"].as_array().into_iter().flatten() {
            assert!(has("secrets", secret.as_str().unwrap()), "{name}: {secret}");
        }
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let (from, _) = volume.as_str().unwrap().split_once(':').unwrap();
            let exists = match from.starts_with('.') {
                true => root().join("contrib/compose").join(from).exists(),
                false => has("volumes", from),
            };
            assert!(exists, "{name}: {from}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let script = root().join("contrib/compose/secrets.sh");
    assert!(
        Command::new(script)
            .arg(folder.path())
            .output()
            .unwrap()
            .status
            .success()
    );
    for secret in compose["secrets"].as_object().unwrap().values() {
        let file = secret["file"]
            .as_str()
            .unwrap()
            .strip_prefix("secrets/")
            .unwrap();
        assert!(
            folder.path().join(file).exists(),
            "secrets.sh writes no {file}"
        );
    }
    assert!(folder.path().join("deck.env").exists());
}
