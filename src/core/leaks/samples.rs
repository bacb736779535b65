//! Texts for the leak scanner: credentials of common kinds, and text that only looks like one.
//!
//! All are put together at run time, so that no source holds anything that looks like a credential.
//! The tests of other crates get them with the feature `testing`.

/// Upper case letters and digits.
pub const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
/// Letters and digits.
pub const MIXED: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// Hexadecimal digits.
pub const HEX: &str = "0123456789abcdef";

/// Returns random text of an alphabet, the same each time.
#[must_use]
pub fn noise(alphabet: &str, length: usize) -> String {
    let letters: Vec<char> = alphabet.chars().collect();
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        letters
            .get(usize::try_from(state % letters.len() as u64).unwrap_or(0))
            .copied()
            .unwrap_or('a')
    };
    (0..length).map(|_| next()).collect()
}

/// Returns made-up credentials of common kinds, with the id of the rule that finds each.
#[must_use]
pub fn credentials() -> Vec<(&'static str, String)> {
    let with = |before: &str, length| format!("{before}{}", noise(MIXED, length));
    let dashes = "-".repeat(5);
    vec![
        ("aws-access-key", format!("AK{}{}", "IA", noise(UPPER, 16))),
        ("github-token", with(concat!("gh", "p_"), 36)),
        ("github-token", with(concat!("github_", "pat_"), 60)),
        ("gitlab-token", with(concat!("gl", "pat-"), 20)),
        ("gitlab-token", with(concat!("gl", "ptt-"), 40)),
        ("slack-token", with(concat!("xo", "xb-1234567890-"), 24)),
        (
            "slack-token",
            format!(
                "https://hooks.{}/services/T{}/B{}/{}",
                "slack.com",
                noise(UPPER, 8),
                noise(UPPER, 9),
                noise(MIXED, 24)
            ),
        ),
        ("model-key", with(concat!("s", "k-"), 48)),
        ("model-key", with(concat!("s", "k-ant-api03-"), 80)),
        ("model-key", with(concat!("s", "k-proj-"), 80)),
        ("google-key", with(concat!("AI", "za"), 35)),
        ("stripe-key", with(concat!("sk_", "live_"), 24)),
        ("stripe-key", with(concat!("sk_", "test_"), 24)),
        ("npm-token", with(concat!("np", "m_"), 36)),
        ("pypi-token", with(concat!("py", "pi-AgEIcHlwaS5vcmc"), 60)),
        ("linear-key", with(concat!("lin_", "api_"), 40)),
        ("hugging-face-token", with(concat!("h", "f_"), 34)),
        (
            "sendgrid-key",
            format!("{}.{}", with(concat!("S", "G."), 22), noise(MIXED, 43)),
        ),
        (
            "jwt",
            format!(
                "{}.{}.{}",
                with("eyJ", 20),
                with("eyJ", 40),
                noise(MIXED, 43)
            ),
        ),
        (
            "private-key",
            format!("{dashes}BEGIN RSA PRIVATE KEY{dashes}"),
        ),
        (
            "private-key",
            format!("{dashes}BEGIN OPENSSH PRIVATE KEY{dashes}"),
        ),
        ("private-key", format!("{dashes}BEGIN PRIVATE KEY{dashes}")),
        (
            "helmdeck-token",
            format!("h{}_{}_{}", "d", noise(HEX, 16), noise(HEX, 72)),
        ),
        (
            "helmdeck-key",
            format!("HELMDECK_MEMORY_{}={}", "KEY", noise(HEX, 64)),
        ),
        (
            "url-password",
            format!("postgres://app:{}@db.example.org/app", noise(MIXED, 9)),
        ),
        (
            "url-password",
            format!("https://someone:{}@github.com/a/b", "swordfish"),
        ),
        (
            "bearer-token",
            format!("Authorization: Bearer {}", noise(MIXED, 40)),
        ),
        (
            "assigned-password",
            format!("The {}: Blue42!Horse", "password"),
        ),
        (
            "assigned-secret",
            format!("api_key = \"{}\"", noise(HEX, 40)),
        ),
        (
            "assigned-secret",
            format!("AWS_SECRET_ACCESS_KEY={}", noise(MIXED, 40)),
        ),
        (
            "assigned-secret",
            format!("\"client_secret\": \"{}\"", noise(MIXED, 32)),
        ),
    ]
}

/// Returns text without any credential: hashes, ids, encoded data, code, and prose about secrets.
#[must_use]
pub fn lookalikes() -> Vec<String> {
    let base64 = format!("{MIXED}+/");
    let sha = noise(HEX, 64);
    let uuid = "01912d68-783e-7a03-8467-5661c1243ad4";
    vec![
        format!("commit {}", noise(HEX, 40)),
        format!("\"sha256\": \"{sha}\""),
        format!("\"token_sha256\": \"{sha}\", \"key_fingerprint\": \"{sha}\""),
        format!("integrity sha512-{}==", noise(MIXED, 86)),
        format!("\"session_token_id\": \"{uuid}\", \"id\": \"{uuid}\""),
        format!("triv:55s8mvcf9diit4jklel4a08px_06jdbyhg8amm4_{uuid}"),
        format!("token: triv:55s8mvcf9diit4jklel4a08px_06jdbyhg8amm4_{uuid}"),
        format!("data:image/png;base64,{}", noise(&base64, 40_000)),
        format!("\"content\": \"{}\", \"encoding\": \"base64\"", noise(&base64, 4_000)),
        format!("\"node_id\": \"{}\", \"etag\": \"W/\\\"{sha}\\\"\"", noise(MIXED, 32)),
        format!("\"nextPageToken\": \"{0}\", \"next_token\": \"{0}\", \"syncToken\": \"{0}\"", noise(MIXED, 40)),
        format!(
            "{{\"version\":3,\"sources\":[\"a.ts\"],\"mappings\":\"{}\"}}",
            "AAAA,SAASA,EAAUC,GACjB,OAAOA,EAAEC;".repeat(500)
        ),
        "!function(e,t){var n=e.token,r=e.getAuthToken2();return{token:n.authenticationToken2Value,key:t.apiKey3}}();"
            .into(),
        "{authToken:e.requestContext2.authorizationHeader4,secretKey:window.config.loadSecret2()}".into(),
        "Hash passwords: argon2id, never pbkdf2-sha256.".into(),
        "password: see the vault".into(),
        "pub vcs_password: Option<String>,".into(),
        "let token = std::env::var(\"GITHUB_TOKEN\")?;".into(),
        "api_key: process.env.OPENAI_API_KEY_V2".into(),
        "api_key = ${{ secrets.DEPLOY_KEY_2025_PRODUCTION }}".into(),
        "DATABASE_URL=postgres://user:password@localhost/db, postgres://u:${PASSWORD}@h/db, http://a:<pass>@b".into(),
        "password = \"YOUR_PASSWORD_123!\"".into(),
        "the task-sk-something-long-and-very-descriptive-name".into(),
        "Bearer tokens-are-checked-by-the-gateway-first".into(),
        "tokens: crates/sx9-harness/src/token_store/mod2.rs".into(),
        "https://example.org:8080/a@b ssh://git@github.com/a/b".into(),
        "max_tokens: 4096, budget_tokens = 1000000000000000000".into(),
        "a commit 0123456789abcdef0123456789abcdef01234567 and ghp_short".into(),
        "Basic research in Asia shows that keys, tokens and the secret of a bearer are words.".into(),
    ]
}
