//! Harmless texts of the kinds that packs return: none may keep an answer out of the cache.

use super::*;

const HEX: &str = "0123456789abcdef";
const MIXED: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Words of prose, and names of services, as they stand in package lists and issues.
const WORDS: &[&str] = &[
    "the",
    "key",
    "token",
    "secret",
    "access",
    "password",
    "cache",
    "session",
    "of",
    "and",
    "was",
    "to",
    "is",
    "author",
    "author's",
    "fixed",
    "release",
    "basic",
    "bearer",
    "tokens",
    "keys",
    "public",
    "private",
    "internationalization",
    "synchronization",
    "authentication2",
    "serde_json",
    "tokio-util",
    "github",
    "gitlab",
    "twitter",
    "discord",
    "dropbox",
    "sentry",
    "datadog",
    "cloudflare",
    "algolia",
    "facebook",
    "linear",
    "okta",
    "jira",
    "confluence",
    "twitch",
    "travis",
    "mailgun",
    "heroku",
    "asana",
    "bitbucket",
    "netlify",
    "sonar",
    "snyk",
    "curl",
    "machine",
    "credential",
    "api",
    "id",
    "v1.0",
    "eventually",
    "usually",
    "social",
    "sources",
    "s.",
    "result",
    "samples",
];

struct Harmless(Numbers);

impl Harmless {
    fn hex(&mut self, length: usize) -> String {
        self.0.text(HEX, length)
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.0.below(WORDS.len())]
    }

    fn words(&mut self, count: usize) -> String {
        (0..count)
            .map(|_| self.word())
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn uuid(&mut self) -> String {
        [8, 4, 4, 4, 12].map(|length| self.hex(length)).join("-")
    }

    fn version(&mut self) -> String {
        format!(
            "{}.{}.{}",
            self.0.below(20),
            self.0.below(40),
            self.0.below(9)
        )
    }

    fn time(&mut self) -> String {
        format!(
            "2026-0{}-1{}T1{}:30:0{}Z",
            1 + self.0.below(9),
            self.0.below(9),
            self.0.below(9),
            self.0.below(9)
        )
    }

    /// An entry of a lock file of Cargo, npm, pnpm, Yarn, Go, Python or Nix.
    fn locked(&mut self) -> String {
        let (name, version) = (format!("{}-{}", self.word(), self.word()), self.version());
        let sha512 = self.0.text(BASE64, 86);
        match self.0.below(7) {
            0 => format!(
                "[[package]]\nname = \"{name}\"\nversion = \"{version}\"\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"{}\"\n",
                self.hex(64)
            ),
            1 => format!(
                "\"node_modules/{name}\": {{\n  \"version\": \"{version}\",\n  \"resolved\": \"https://registry.npmjs.org/{name}/-/{name}-{version}.tgz\",\n  \"integrity\": \"sha512-{sha512}==\",\n  \"dev\": true\n}},"
            ),
            2 => format!(
                "  /{name}@{version}:\n    resolution: {{integrity: sha512-{sha512}==}}\n    engines: {{node: '>=12'}}"
            ),
            3 => format!(
                "{name}@^{version}:\n  version \"{version}\"\n  resolved \"https://registry.yarnpkg.com/{name}/-/{name}-{version}.tgz#{}\"\n  integrity sha512-{sha512}==",
                self.hex(40)
            ),
            4 => format!(
                "github.com/{name}/{name} v{version} h1:{}=\n",
                self.0.text(BASE64, 43)
            ),
            5 => format!(
                "{name}=={version} \\\n    --hash=sha256:{} \\\n    --hash=sha256:{}\n",
                self.hex(64),
                self.hex(64)
            ),
            _ => format!(
                "\"{name}\": {{\"locked\": {{\"lastModified\": 1700000000, \"narHash\": \"sha256-{}=\", \"rev\": \"{}\"}}}}",
                self.0.text(BASE64, 43),
                self.hex(40)
            ),
        }
    }

    /// A part of an answer of an API.
    fn answer(&mut self) -> serde_json::Value {
        let (a, b) = (self.word(), self.word());
        match self.0.below(8) {
            0 => serde_json::json!({
                "sha": self.hex(40), "node_id": format!("C_{}", self.0.text(MIXED, 40)), "commit": {"message": self.words(9),
                "author": {"name": a, "email": "a@example.org", "date": self.time()}, "tree": {"sha": self.hex(40)}},
                "url": format!("https://api.github.com/repos/{a}/{b}/commits/{}", self.hex(40)), "verification":
                {"verified": false, "reason": "unsigned", "signature": null},
            }),
            1 => serde_json::json!({
                "id": self.uuid(), "session_id": self.uuid(), "etag": format!("W/\"{}\"", self.hex(40)), "version": self.version(),
                "nextPageToken": self.0.text(MIXED, 60), "next_cursor": self.0.text(MIXED, 40), "created_at": self.time(),
            }),
            2 => serde_json::json!({
                "login": a, "id": self.0.below(99_999_999), "avatar_url": format!("https://avatars.example.org/u/{}?v=4", self.0.below(9_999_999)),
                "gravatar_id": "", "twitter_username": b, "bio": self.words(8), "public_repos": 12,
            }),
            3 => serde_json::json!({
                format!("{a}_id"): self.uuid(), format!("{b}_commit"): self.hex(40), format!("{a}_sha256"): self.hex(64),
                format!("{b}.revision"): self.hex(40), "ok": true,
            }),
            4 => serde_json::json!({
                "image": format!("{a}/{b}:{}@sha256:{}", self.version(), self.hex(64)), "size": self.0.below(99_999_999),
                "digest": format!("sha256:{}", self.hex(64)), "layers": [self.hex(64), self.hex(64)],
            }),
            5 => serde_json::json!({
                "usage": {"prompt_tokens": self.0.below(9_999), "total_tokens": self.0.below(9_999)}, "max_tokens": 4096,
                "model": "m-4-large-20260101", "choices": [{"text": self.words(30), "finish_reason": "stop"}],
            }),
            6 => serde_json::json!({
                "type": "password_reset", "token_type": "bearer", "auth": "none", "access": "public", "key": a,
                "secret_name": format!("{a}-{b}-secret-2"), "api_key_id": self.uuid(), "keys": [a, b], "scope": "repo:read",
            }),
            _ => serde_json::json!({
                "trace_id": self.hex(32), "span_id": self.hex(16), "traceparent": format!("00-{}-{}-01", self.hex(32), self.hex(16)),
                "request_id": self.uuid(), "path": format!("/{a}/{b}/{}", self.uuid()), "ms": self.0.below(900),
            }),
        }
    }

    /// A commit as `git log` shows it.
    fn commit(&mut self) -> String {
        format!(
            "commit {}\nMerge: {} {}\nAuthor: {} <{}@example.org>\nDate:   Mon Nov 2 10:11:12 2026 +0100\n\n    {}: {} ({})\n\n    Signed-off-by: A <a@example.org>\n    Change-Id: I{}\n\n",
            self.hex(40),
            self.hex(7),
            self.hex(7),
            self.word(),
            self.word(),
            self.word(),
            self.words(7),
            self.hex(10),
            self.hex(40)
        )
    }

    fn image(&mut self) -> String {
        let size = 300 + self.0.below(3_000);
        let (kind, first) = [
            ("png", "iVBORw0KGgo"),
            ("jpeg", "/9j/4AAQSkZJRgABAQ"),
            ("gif", "R0lGODlh"),
            ("webp", "UklGR"),
        ][self.0.below(4)];
        let data = format!("{first}{}=", self.0.text(BASE64, size));
        match self.0.below(3) {
            0 => format!("<img src=\"data:image/{kind};base64,{data}\">"),
            1 => serde_json::json!({"content": data, "encoding": "base64", "sha": self.hex(40)})
                .to_string(),
            _ => data
                .as_bytes()
                .chunks(60)
                .map(|line| String::from_utf8_lossy(line))
                .collect::<Vec<_>>()
                .join("\n"),
        }
    }

    /// A piece of code.
    fn code(&mut self) -> String {
        let (a, b) = (self.word(), self.word());
        match self.0.below(8) {
            0 => format!(
                "let {a}_token = config.{b}_token.clone().unwrap_or_default(); // {}",
                self.words(5)
            ),
            1 => format!(
                "{a}Key: process.env.{}_API_KEY, password: props.password2Value,",
                b.to_uppercase()
            ),
            2 => format!(
                "export {}_TOKEN=\"${{{}_TOKEN:?missing}}\"",
                a.to_uppercase(),
                b.to_uppercase()
            ),
            3 => "!function(e,t){var n=e.token,r=s.createHash2(t);return{key:t.apiKey3,s:s.aB}}();"
                .repeat(1 + self.0.below(4)),
            4 => format!(
                "const {a}Id = \"{}\"; const rev = '{}';",
                self.uuid(),
                self.hex(40)
            ),
            5 => format!(
                "curl -sSf -H \"Accept: application/json\" https://{b}.example.org/v1/{}/{a}",
                self.uuid()
            ),
            6 => format!(
                "  {a}:\n    secretKeyRef:\n      name: {b}-credentials\n      key: {a}-password\n"
            ),
            _ => format!("| `{a}.token` | `{b}-token` | {} |\n", self.words(8)),
        }
    }

    /// A line of a log or of a checksum file.
    fn line(&mut self) -> String {
        let (a, b) = (self.word(), self.word());
        match self.0.below(6) {
            0 => format!("{}  {a}/{b}.rs\n", self.hex(64)),
            1 => format!(
                "{} INFO {a}: {} id={} trace={}\n",
                self.time(),
                self.words(6),
                self.uuid(),
                self.hex(32)
            ),
            2 => format!(
                "{}: digest: sha256:{} size: {}\n",
                self.version(),
                self.hex(64),
                self.0.below(9_999)
            ),
            3 => format!(
                "index {}..{} 100644\n--- a/{a}.rs\n+++ b/{b}.rs\n",
                self.hex(7),
                self.hex(7)
            ),
            4 => format!(
                "https://{a}.example.org/{b}?id={}&v={}#{}\n",
                self.uuid(),
                self.version(),
                self.hex(8)
            ),
            _ => format!(
                "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{} {a}@{b}\n",
                self.0.text(MIXED, 43)
            ),
        }
    }

    fn text(&mut self) -> String {
        let count = 1 + self.0.below(12);
        match self.0.below(8) {
            0 => (0..count).map(|_| self.locked()).collect(),
            1 => serde_json::Value::from((0..count).map(|_| self.answer()).collect::<Vec<_>>())
                .to_string(),
            2 => {
                serde_json::json!({ "text": (0..count).map(|_| self.answer()).collect::<Vec<_>>() })
                    .to_string()
            }
            3 => (0..count).map(|_| self.commit()).collect(),
            4 => self.image(),
            5 => (0..count)
                .map(|_| self.code())
                .collect::<Vec<_>>()
                .join("\n"),
            6 => (0..count).map(|_| self.line()).collect(),
            _ => (0..count)
                .map(|_| self.words(12) + [".\n", ", ", ": ", "; "][self.0.below(4)])
                .collect(),
        }
    }
}

#[test]
fn ten_thousand_harmless_texts_raise_at_most_five_alarms() {
    let mut harmless = Harmless(Numbers(0x1234_5678_9ABC_DEF1));
    let mut alarms = Vec::new();
    for _ in 0..10_000 {
        let text = harmless.text();
        // As a pack returns it: every second one as a member of an answer.
        let text = if harmless.0.below(2) == 0 {
            serde_json::json!({ "output": text }).to_string()
        } else {
            text
        };
        if let Some(finding) = scan(&text).first() {
            let line = text
                .lines()
                .nth(finding.line as usize - 1)
                .unwrap_or_default();
            let shown: String = line
                .chars()
                .skip((finding.column as usize).saturating_sub(60))
                .take(160)
                .collect();
            alarms.push(format!("{}: {shown}", finding.rule));
        }
    }
    assert!(
        alarms.len() <= 5,
        "{} alarms, as\n{}",
        alarms.len(),
        alarms[..alarms.len().min(40)].join("\n")
    );
}

#[test]
fn what_environments_and_caches_hold_raises_no_alarm() {
    for text in [
        "PWD=/home/runner/work/Repo1/Repo1Main",
        "pwd: /Users/Anna/Projects2024/app",
        "OLDPWD=~/Src/App1",
        "cache-key-d41d8cd98f00b204e9800998ecf8427e",
        "public-api-01912d68-783e-7a03-8467-5661c1243ad4",
        "postgres://postgres:postgres@localhost/db",
        "amqp://guest:guest@127.0.0.1:5672",
    ] {
        assert_eq!(first_leak(text.as_bytes()), None, "{text}");
    }
    for text in [
        concat!("db_pwd", "=/aB3dEf9+kLmN"),
        concat!("postgres://postgres:", "postgres@db.example.org/x"),
        concat!("key", "-d41d8cd98f00b204e9800998ecf8427e"),
    ] {
        assert!(has_leak(text.as_bytes()), "{text}");
    }
}

#[test]
fn lock_files_and_documents_of_this_repository_raise_no_alarm() {
    for text in [
        include_str!("../../../../Cargo.lock"),
        include_str!("../../../../ARCHITECTURE.md"),
        include_str!("../../../../config/helmdeck.toml"),
        include_str!("../../../../docs/vault.md"),
        include_str!("../../../../docs/auth.md"),
    ] {
        assert_eq!(scan(text), [], "{}", &text[..80]);
    }
}
