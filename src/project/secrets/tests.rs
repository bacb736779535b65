use super::*;

/// Disordered text of an alphabet, the same each time: nothing that looks like a credential stands in this file.
fn noise(alphabet: &str, length: usize) -> String {
    let letters: Vec<char> = alphabet.chars().collect();
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        letters[usize::try_from(state % letters.len() as u64).unwrap()]
    };
    (0..length).map(|_| next()).collect()
}

const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const MIXED: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const HEX: &str = "0123456789abcdef";

/// Credentials of every rule that are none, put together here: nothing that looks like one stands in this file.
pub(crate) fn credentials() -> Vec<(&'static str, String)> {
    let with = |before: &str, length| format!("{before}{}", noise(MIXED, length));
    let dashes = "-".repeat(5);
    vec![
        ("aws-access-key", format!("AK{}{}", "IA", noise(UPPER, 16))),
        ("github-token", with(concat!("gh", "p_"), 36)),
        ("github-token", with(concat!("github_", "pat_"), 60)),
        ("gitlab-token", with(concat!("gl", "pat-"), 20)),
        ("slack-token", with(concat!("xo", "xb-1234567890-"), 24)),
        ("model-key", with(concat!("s", "k-"), 48)),
        ("model-key", with(concat!("s", "k-ant-api03-"), 80)),
        ("model-key", with(concat!("s", "k-proj-"), 80)),
        ("google-key", with(concat!("AI", "za"), 35)),
        ("stripe-key", with(concat!("sk_", "live_"), 24)),
        ("npm-token", with(concat!("np", "m_"), 36)),
        ("pypi-token", with(concat!("py", "pi-AgEIcHlwaS5vcmc"), 60)),
        ("linear-key", with(concat!("lin_", "api_"), 40)),
        ("hugging-face-token", with(concat!("h", "f_"), 34)),
        ("sendgrid-key", format!("{}.{}", with(concat!("S", "G."), 22), noise(MIXED, 43))),
        ("jwt", format!("{}.{}.{}", with("eyJ", 20), with("eyJ", 40), noise(MIXED, 43))),
        ("private-key", format!("{dashes}BEGIN RSA PRIVATE KEY{dashes}")),
        ("private-key", format!("{dashes}BEGIN OPENSSH PRIVATE KEY{dashes}")),
        ("url-password", format!("postgres://app:{}@db.example.org/app", noise(MIXED, 9))),
        ("url-password", format!("https://someone:{}@github.com/a/b", "swordfish")),
        ("bearer-token", format!("Authorization: Bearer {}", noise(MIXED, 40))),
        ("assigned-password", format!("The {}: Blue42!Horse", "password")),
        ("assigned-secret", format!("api_key = \"{}\"", noise(HEX, 40))),
        ("assigned-secret", format!("AWS_SECRET_ACCESS_KEY={}", noise(MIXED, 40))),
        ("assigned-secret", format!("\"client_secret\": \"{}\"", noise(MIXED, 32))),
    ]
}

#[test]
fn credentials_are_found_wherever_they_stand_and_never_shown() {
    for (rule, credential) in credentials() {
        let quoted = serde_json::json!({ "text": format!("first\n{credential}\nlast") }).to_string();
        for text in [credential.clone(), format!("see {credential} there"), format!("a\n  {credential}\nb"), quoted] {
            let found = scan(&text);
            assert!(found.iter().any(|finding| finding.rule == rule), "{rule} not in {text}: {found:?}");
            let error = refuse("a.json", &found[0], found.len());
            assert_eq!((error.category.exit_code(), error.code), (7, "E_SECRET"));
            let said = serde_json::to_string(&error).unwrap();
            for piece in credential.split_whitespace().filter(|piece| piece.len() > 15) {
                assert!(!said.contains(piece), "{said}");
            }
        }
    }
}

#[test]
fn a_finding_says_where() {
    let found = scan(&format!("a\né {}\n", credentials()[1].1));
    assert_eq!(found, [Finding { rule: "github-token", line: 2, column: 3 }]);
}

#[test]
fn every_rule_has_a_pattern_and_an_id_of_its_own() {
    assert!(RULES.iter().all(|rule| Regex::new(rule.pattern).is_ok()));
    let ids: std::collections::BTreeSet<_> = rules().map(|(id, _)| id).collect();
    assert_eq!(ids.len(), RULES.len());
    let tried: std::collections::BTreeSet<_> = credentials().into_iter().map(|(id, _)| id).collect();
    assert_eq!(tried, ids, "each is tried");
}

#[test]
fn hashes_ids_images_and_talk_about_secrets_pass() {
    let sha = noise(HEX, 64);
    let image = format!("data:image/png;base64,{}", noise(&format!("{MIXED}+/"), 40_000));
    let fine = [
        format!("commit {}", noise(HEX, 40)),
        format!("\"sha256\": \"{sha}\""),
        format!("integrity sha512-{}==", noise(MIXED, 86)),
        "\"session_token_id\": \"01912d68-783e-7a03-8467-5661c1243ad4\"".into(),
        "triv:55s8mvcf9diit4jklel4a08px_06jdbyhg8amm4_01912d68-783e-7a03-8467-5661c1243ad4".into(),
        "token: triv:55s8mvcf9diit4jklel4a08px_06jdbyhg8amm4_01912d68-783e-7a03-8467-5661c1243ad4".into(),
        image,
        "Hash passwords: argon2id, never pbkdf2-sha256.".into(),
        "password: see the vault".into(),
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
        include_str!("../../../README.md").into(),
    ];
    for text in fine {
        let found = scan(&text);
        assert!(found.is_empty(), "{found:?} in {}", &text[..text.len().min(200)]);
    }
}
