//! Servers with data: the real program in each state, filled through its own interfaces.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::attacks;
use super::chromium::{Browser, Tab};
use super::corpus;
use super::files;
use super::places::State;
use super::project;
use crate::support::program::{Home, Run, Server};
use crate::support::{KEY, wait_for};

/// Says that it began, and waits until it is let go.
const HELD: &str =
    "#!/bin/sh\ncat >/dev/null\n: >began\nwhile [ ! -e go ]; do sleep 0.05; done\nprintf '{}'\n";
/// Setting of a server whose callers have tokens.
pub(super) const TOKENS: (&str, &str) = ("HELMDECK_AUTH__API_TOKENS", "true");

/// A server in a state.
pub(super) struct Scene {
    pub(super) home: Home,
    pub(super) server: Server,
    /// Folder of the project, if there is one.
    pub(super) project: Option<PathBuf>,
    /// What the paths of places name.
    values: BTreeMap<&'static str, String>,
    /// Token of the person who looks.
    token: Option<String>,
}

impl Scene {
    pub(super) fn start(state: State) -> Self {
        let home = Home::new();
        let texts = if state == State::Hostile {
            corpus::all()
        } else {
            "For tests".to_owned()
        };
        install(&home, "test.held", HELD, &texts);
        install(
            &home,
            "test.broken",
            "#!/bin/sh\ncat >/dev/null\ncat broken >&2\nexit 3\n",
            &texts,
        );
        std::fs::write(
            home.packs().join("broken"),
            if state == State::Hostile {
                &texts
            } else {
                "it broke"
            },
        )
        .unwrap();
        match state {
            State::Hostile => hostile_manifests(&home, &texts),
            State::Busy => std::fs::write(home.packs().join("refused.toml"), "name = 3\n").unwrap(),
            _ => {}
        }
        let token = (state == State::Forbidden).then(|| token(&home, "ann", "packs:run"));
        let full = matches!(state, State::Busy | State::Hostile);
        let root = full.then(|| {
            project::mcp_server(&home, &texts);
            project::credentials(
                &home,
                if state == State::Hostile {
                    "<b onclick=hit()>\"'"
                } else {
                    "ci"
                },
            );
            project::project(&home, &texts)
        });
        let server = match state {
            State::Busy | State::Hostile => {
                let root = root.as_deref().and_then(Path::to_str).unwrap_or_default();
                Server::start_with(
                    &home,
                    KEY,
                    &[("HELMDECK_FORGE__ROOT", root), project::VAULT_KEY],
                )
            }
            State::Forbidden => Server::start_with(&home, KEY, &[TOKENS]),
            State::Shut => {
                let mut command = home.command(KEY, crate::support::program::SERVE);
                command.env_remove("HELMDECK_MEMORY_KEY");
                Server::launch(command)
            }
            _ => Server::start(&home, KEY),
        };
        let mut scene = Self {
            home,
            server,
            project: root,
            values: BTreeMap::new(),
            token,
        };
        match state {
            State::Busy => scene.fill("German", "build-help", "How many bottles?\nSecond line"),
            State::Hostile => scene.fill(&texts, "<u>\"'&", &texts),
            State::Down => scene.damage(),
            State::Empty | State::Shut | State::Forbidden => {}
        }
        scene
    }

    /// A server that a test has filled itself.
    pub(super) fn of(home: Home, server: Server) -> Self {
        Self {
            home,
            server,
            project: None,
            values: BTreeMap::new(),
            token: None,
        }
    }

    /// A server that asks for tokens, and one of a person with every right.
    pub(super) fn with_tokens() -> Self {
        Self::with_tokens_at("localhost")
    }

    /// The same, which goes by another name too.
    pub(super) fn with_tokens_at(name: &str) -> Self {
        let home = Home::new();
        install(&home, "test.held", HELD, "For tests");
        let token = token(&home, "ann", "admin");
        let server = Server::start_with(
            &home,
            KEY,
            &[TOKENS, ("HELMDECK_SERVER__ALLOWED_HOSTS", name)],
        );
        Self {
            home,
            server,
            project: None,
            values: BTreeMap::new(),
            token: Some(token),
        }
    }

    /// Returns the token of the person.
    pub(super) fn token(&self) -> &str {
        self.token.as_deref().unwrap()
    }

    /// Returns the path of a place, with the values of this state.
    pub(super) fn path(&self, path: &str) -> String {
        let Some((start, (name, end))) = path
            .split_once('{')
            .and_then(|(a, b)| Some((a, b.split_once('}')?)))
        else {
            return path.to_owned();
        };
        let value = self
            .values
            .get(name)
            .unwrap_or_else(|| panic!("the state has no {name}"));
        format!("{start}{value}{end}")
    }

    /// Opens a tab of the person, signed in if that is needed.
    pub(super) fn visitor<'a>(&self, browser: &'a Browser) -> Tab<'a> {
        let tab = browser.tab();
        if let Some(token) = &self.token {
            self.sign_in(&tab, token);
        }
        tab
    }

    pub(super) fn sign_in(&self, tab: &Tab<'_>, token: &str) {
        assert_eq!(tab.open(&self.server.url("/ui/sign-in")), 200);
        tab.eval("document.querySelector('#token').focus()");
        tab.type_text(token);
        let status = tab.leads(|tab| tab.press("Enter"));
        assert_eq!(
            (status, tab.text("location.pathname").as_str()),
            (200, "/ui")
        );
    }

    /// Sends JSON to a route.
    #[track_caller]
    pub(super) fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.server.ask(&format!("POST {path}"), &body.to_string());
        assert!(
            answer.code < 300 || answer.code == 502,
            "{path}: {} {}",
            answer.code,
            answer.body
        );
        answer.json()
    }

    pub(super) fn get(&self, path: &str) -> Value {
        self.server.ask(&format!("GET {path}"), "").json()
    }

    /// Does a bit of everything.
    fn fill(&mut self, fact: &str, session: &str, text: &str) {
        wait_for("the tools of the MCP server", || {
            self.server
                .ask("GET /api/v1/packs", "")
                .body
                .contains("\"mcp.bottles.count\"")
        });
        for (number, repo) in ["a", "b", text].into_iter().enumerate() {
            self.post("/api/v1/packs/test.echo", &json!({ "repo": repo }));
            // Answers that are written together have one time, and the order of their keys.
            wait_for("the cache", || {
                self.count("/api/v1/memory/entries", "entries") == number + 1
            });
        }
        self.post("/api/v1/packs/test.echo", &json!({ "repo": "a" }));
        self.post("/api/v1/packs/test.broken", &json!({}));
        for (name, pack) in [
            ("succeeded", "test.echo"),
            ("failed", "test.broken"),
            ("running", "test.held"),
        ] {
            let job = self.post(
                &format!("/api/v1/packs/{pack}/jobs"),
                &json!({ "repo": text }),
            );
            self.values
                .insert(name, job["id"].as_str().unwrap().to_owned());
            self.reaches(name, name);
        }
        for (key, value, tags) in [
            ("answer.language", fact, json!(["a", "b"])),
            ("name", "Ann", json!([])),
        ] {
            self.post(
                "/api/v1/memory/store",
                &json!({ "key": key, "value": value, "tags": tags }),
            );
        }
        let done = self.store_by_form("name", "Ann");
        self.values.insert("done", done);
        let encoded: String = session.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for answer in ["Seven.", text] {
            let turn = json!({ "user_message": text, "assistant_response": answer });
            self.post(&format!("/api/v1/conversations/{encoded}/turns"), &turn);
        }
        self.values.insert("conversation", encoded);
        self.values.insert("credential", "deploy".to_owned());
        files::write(&self.home, "report.html", text);
        // The audit is written behind the answers.
        wait_for("the audit", || self.count("/api/v1/audit", "calls") >= 7);
    }

    /// Returns how many members a list of a route has.
    fn count(&self, path: &str, list: &str) -> usize {
        self.get(path)[list].as_array().unwrap().len()
    }

    /// Stores a fact by the form of its page. Returns the query of the page that this leads to.
    pub(super) fn store_by_form(&self, key: &str, value: &str) -> String {
        let page = self.server.ask("GET /ui/memory", "").body;
        let body = format!(
            "form_token={}&key={key}&value={value}",
            attacks::form_token(&page)
        );
        let (status, _, answer) = attacks::form(&self.server, "/ui/memory/store", "", &body);
        let location = answer
            .lines()
            .find_map(|line| line.strip_prefix("location: /ui/memory"));
        location
            .unwrap_or_else(|| panic!("{status}: {answer}"))
            .to_owned()
    }

    /// Waits until a job is in a state.
    pub(super) fn reaches(&self, job: &str, state: &str) {
        let path = format!("/api/v1/jobs/{}", self.values[job]);
        wait_for("the job", || self.get(&path)["state"] == state);
    }

    /// Writes garbage over the store until the server says so.
    fn damage(&self) {
        self.post("/api/v1/memory/store", &json!({ "key": "a", "value": "b" }));
        let store = self.home.store();
        let file = |suffix| store.with_file_name(format!("memory.db{suffix}"));
        wait_for("the damage to be seen", || {
            for suffix in ["", "-wal"] {
                std::fs::write(file(suffix), "garbage ".repeat(2048)).unwrap();
            }
            // The head of its index: else a write that is under way mends a part, and pages that
            // were read once do. It is mapped by the server, which must not lose any of it.
            let index = std::fs::OpenOptions::new()
                .write(true)
                .open(file("-shm"))
                .unwrap();
            index
                .write_all_at("garbage ".repeat(17).as_bytes(), 0)
                .unwrap();
            // The server reads for its readiness once a second at most.
            self.server.ask("GET /api/v1/memory/entries", "").code == 500
                && self
                    .server
                    .ask("GET /readyz", "")
                    .body
                    .contains("cannot be read")
        });
    }
}

/// Makes a token of the command line.
pub(super) fn token(home: &Home, user: &str, scope: &str) -> String {
    let create = [
        "token", "create", "--tenant", "acme", "--user", user, "--scope", scope,
    ];
    let made = Run::of(home.command(KEY, &create).output().unwrap());
    assert_eq!(made.code, 0, "{}", made.stderr);
    made.stdout.trim().to_owned()
}

/// Adds a pack that is never cached.
fn install(home: &Home, name: &str, script: &str, description: &str) {
    home.install(name, script, "");
    let file = home.packs().join(format!("{name}.toml"));
    let manifest = std::fs::read_to_string(&file).unwrap();
    let manifest = manifest.split("[memory]").next().unwrap();
    let description = json!(description).to_string();
    std::fs::write(
        file,
        manifest.replace("\"For tests\"", &toml_text(&description)),
    )
    .unwrap();
}

/// Returns a JSON string as a TOML string: TOML forbids some characters that JSON has as they are.
fn toml_text(json: &str) -> String {
    json.chars()
        .map(|character| match character {
            plain if plain.is_ascii() && !plain.is_ascii_control() => plain.to_string(),
            other => format!("\\U{:08x}", u32::from(other)),
        })
        .collect()
}

/// Adds a manifest whose every text attacks, and one that is refused and says so with its name.
fn hostile_manifests(home: &Home, texts: &str) {
    let text = toml_text(&json!(texts).to_string());
    home.install("test.schema", "#!/bin/sh\ncat\n", "");
    let manifest = format!(
        "name = \"test.schema\"\nversion = \"v1\"\ntitle = \"<b onclick=hit()>Title\"\ndescription = {text}\n\
         read_only = true\n[handler]\ncommand = [\"./test.schema.sh\"]\n[input]\ntype = \"object\"\n\
         [input.properties.\"<img src=x onerror=hit()>\"]\ntype = \"string\"\ndescription = {text}\ndefault = {text}\n\
         [input.properties.choice]\nenum = [{text}, \"</select><script>hit()</script>\"]\n\
         [[examples]]\ndescription = {text}\ninput = {{ choice = {text} }}\noutput = {{}}\n"
    );
    std::fs::write(home.packs().join("test.schema.toml"), manifest).unwrap();
    std::fs::write(
        home.packs().join("<img src=x onerror=hit()>.toml"),
        format!("name = {text}\n"),
    )
    .unwrap();
}
