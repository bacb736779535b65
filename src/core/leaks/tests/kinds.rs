//! Made-up values of known kinds of credentials, written down by kind: a prefix in pieces, so that
//! no source holds anything that looks like a credential, then random characters.

use super::*;

const LOWER: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const MIXED: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const WORD: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE32: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const HEX: &str = "0123456789abcdef";
const DIGITS: &str = "123456789";

/// A part of a value.
enum Part {
    /// Text as it stands, in pieces.
    Text(&'static [&'static str]),
    /// So many characters of an alphabet.
    Random(&'static str, usize),
    /// A UUID.
    Uuid,
}
use Part::{Random as R, Text as T, Uuid};

/// Each kind by its name.
const KINDS: &[(&str, &[Part])] = &[
    ("aws access key", &[T(&["AK", "IA"]), R(UPPER, 16)]),
    ("aws temporary key", &[T(&["AS", "IA"]), R(UPPER, 16)]),
    (
        "aws secret key",
        &[T(&["aws_secret_", "access_key = "]), R(BASE64, 40)],
    ),
    ("aws bedrock", &[T(&["AB", "SK"]), R(MIXED, 120)]),
    ("amazon mws", &[T(&["amzn.", "mws."]), Uuid]),
    ("alibaba", &[T(&["LT", "AI"]), R(MIXED, 20)]),
    ("github personal", &[T(&["gh", "p_"]), R(MIXED, 36)]),
    ("github oauth", &[T(&["gh", "o_"]), R(MIXED, 36)]),
    ("github user", &[T(&["gh", "u_"]), R(MIXED, 36)]),
    ("github server", &[T(&["gh", "s_"]), R(MIXED, 36)]),
    ("github refresh", &[T(&["gh", "r_"]), R(MIXED, 76)]),
    (
        "github fine-grained",
        &[
            T(&["github_", "pat_"]),
            R(MIXED, 22),
            T(&["_"]),
            R(MIXED, 59),
        ],
    ),
    ("gitlab personal", &[T(&["gl", "pat-"]), R(WORD, 20)]),
    ("gitlab trigger", &[T(&["gl", "ptt-"]), R(HEX, 40)]),
    ("gitlab deploy", &[T(&["gl", "dt-"]), R(WORD, 20)]),
    ("gitlab runner", &[T(&["gl", "rt-"]), R(WORD, 20)]),
    (
        "gitlab registration",
        &[T(&["GR", "1348941"]), R(MIXED, 20)],
    ),
    (
        "gitlab job",
        &[T(&["gl", "cbt-"]), R(HEX, 2), T(&["_"]), R(MIXED, 20)],
    ),
    ("bitbucket app password", &[T(&["AT", "BB"]), R(MIXED, 32)]),
    ("atlassian", &[T(&["ATA", "TT3"]), R(WORD, 186)]),
    ("atlassian service", &[T(&["ATC", "TT3"]), R(WORD, 186)]),
    (
        "slack bot",
        &[
            T(&["xo", "xb-"]),
            R(DIGITS, 12),
            T(&["-"]),
            R(DIGITS, 12),
            T(&["-"]),
            R(MIXED, 24),
        ],
    ),
    (
        "slack user",
        &[
            T(&["xo", "xp-"]),
            R(DIGITS, 12),
            T(&["-"]),
            R(DIGITS, 12),
            T(&["-"]),
            R(HEX, 32),
        ],
    ),
    (
        "slack app",
        &[
            T(&["xa", "pp-1-A"]),
            R(UPPER, 10),
            T(&["-"]),
            R(DIGITS, 13),
            T(&["-"]),
            R(HEX, 64),
        ],
    ),
    (
        "slack webhook",
        &[
            T(&["https://hooks.", "slack.com/services/T"]),
            R(UPPER, 8),
            T(&["/B"]),
            R(UPPER, 10),
            T(&["/"]),
            R(MIXED, 24),
        ],
    ),
    (
        "discord webhook",
        &[
            T(&["https://discord", ".com/api/webhooks/"]),
            R(DIGITS, 18),
            T(&["/"]),
            R(WORD, 68),
        ],
    ),
    (
        "discord bot",
        &[
            T(&["discord token ", "M"]),
            R(MIXED, 24),
            T(&["."]),
            R(MIXED, 6),
            T(&["."]),
            R(WORD, 38),
        ],
    ),
    (
        "teams webhook",
        &[
            T(&["https://corp.webhook", ".office.com/webhookb2/"]),
            Uuid,
            T(&["@"]),
            Uuid,
            T(&["/IncomingWebhook/"]),
            R(HEX, 32),
            T(&["/"]),
            Uuid,
        ],
    ),
    ("telegram", &[R(DIGITS, 10), T(&[":A", "A"]), R(MIXED, 33)]),
    ("openai old", &[T(&["s", "k-"]), R(MIXED, 48)]),
    ("openai project", &[T(&["s", "k-proj-"]), R(WORD, 120)]),
    (
        "anthropic",
        &[T(&["s", "k-ant-api03-"]), R(WORD, 93), T(&["AA"])],
    ),
    ("openrouter", &[T(&["s", "k-or-v1-"]), R(HEX, 64)]),
    ("groq", &[T(&["gs", "k_"]), R(MIXED, 52)]),
    ("xai", &[T(&["xa", "i-"]), R(MIXED, 80)]),
    ("perplexity", &[T(&["pp", "lx-"]), R(MIXED, 48)]),
    ("replicate", &[T(&["r", "8_"]), R(MIXED, 37)]),
    ("hugging face", &[T(&["h", "f_"]), R(MIXED, 34)]),
    ("nvidia", &[T(&["nv", "api-"]), R(WORD, 64)]),
    ("cerebras", &[T(&["cs", "k-"]), R(LOWER, 48)]),
    ("elevenlabs", &[T(&["s", "k_"]), R(HEX, 48)]),
    ("fireworks", &[T(&["f", "w_"]), R(MIXED, 24)]),
    ("jina", &[T(&["ji", "na_"]), R(MIXED, 60)]),
    ("tavily", &[T(&["tv", "ly-"]), R(MIXED, 32)]),
    ("firecrawl", &[T(&["f", "c-"]), R(HEX, 32)]),
    ("pinecone", &[T(&["pc", "sk_"]), R(MIXED, 60)]),
    (
        "langsmith",
        &[T(&["lsv2_", "pt_"]), R(HEX, 32), T(&["_"]), R(HEX, 10)],
    ),
    ("google api", &[T(&["AI", "za"]), R(WORD, 35)]),
    ("google oauth access", &[T(&["ya", "29."]), R(WORD, 60)]),
    ("google client secret", &[T(&["GOC", "SPX-"]), R(WORD, 28)]),
    ("google refresh", &[T(&["1/", "/0"]), R(WORD, 60)]),
    (
        "firebase",
        &[
            T(&["AA", "AA"]),
            R(MIXED, 7),
            T(&[":APA", "91b"]),
            R(WORD, 134),
        ],
    ),
    (
        "azure ad",
        &[T(&["client_secret=abc", "8Q~"]), R(MIXED, 34)],
    ),
    (
        "azure signature",
        &[
            T(&["https://a.blob.core.windows.net/b?sv=2024&s", "ig="]),
            R(MIXED, 43),
            T(&["%3D"]),
        ],
    ),
    (
        "azure storage",
        &[
            T(&["AccountName=a;Account", "Key="]),
            R(BASE64, 86),
            T(&["=="]),
        ],
    ),
    (
        "azure bus",
        &[T(&["SharedAccess", "Key="]), R(BASE64, 43), T(&["="])],
    ),
    (
        "azure devops",
        &[R(MIXED, 76), T(&["AZ", "DO"]), R(MIXED, 4)],
    ),
    ("stripe live", &[T(&["sk_", "live_"]), R(MIXED, 24)]),
    ("stripe test", &[T(&["sk_", "test_"]), R(MIXED, 24)]),
    ("stripe restricted", &[T(&["rk_", "live_"]), R(MIXED, 24)]),
    ("stripe webhook", &[T(&["wh", "sec_"]), R(MIXED, 32)]),
    ("square access", &[T(&["sq0", "atp-"]), R(WORD, 22)]),
    ("square secret", &[T(&["sq0", "csp-"]), R(WORD, 43)]),
    (
        "braintree",
        &[
            T(&["access_token$", "production$"]),
            R(LOWER, 16),
            T(&["$"]),
            R(HEX, 32),
        ],
    ),
    ("shopify", &[T(&["shp", "at_"]), R(HEX, 32)]),
    ("shopify secret", &[T(&["shp", "ss_"]), R(HEX, 32)]),
    ("easypost", &[T(&["EZ", "AK"]), R(MIXED, 54)]),
    ("duffel", &[T(&["duffel_", "live_"]), R(MIXED, 43)]),
    ("shippo", &[T(&["shippo_", "live_"]), R(HEX, 40)]),
    ("twilio", &[T(&["S", "K"]), R(HEX, 32)]),
    (
        "sendgrid",
        &[T(&["S", "G."]), R(WORD, 22), T(&["."]), R(WORD, 43)],
    ),
    ("mailgun", &[T(&["ke", "y-"]), R(HEX, 32)]),
    ("mailchimp", &[R(HEX, 32), T(&["-u", "s14"])]),
    (
        "sendinblue",
        &[T(&["xkey", "sib-"]), R(HEX, 64), T(&["-"]), R(LOWER, 16)],
    ),
    (
        "resend",
        &[T(&["r", "e_"]), R(MIXED, 8), T(&["_"]), R(MIXED, 24)],
    ),
    ("vault service", &[T(&["hv", "s."]), R(WORD, 95)]),
    ("vault batch", &[T(&["hv", "b."]), R(WORD, 150)]),
    (
        "terraform",
        &[R(MIXED, 14), T(&[".atlas", "v1."]), R(WORD, 67)],
    ),
    ("pulumi", &[T(&["pu", "l-"]), R(HEX, 40)]),
    ("doppler", &[T(&["dp.", "pt."]), R(MIXED, 43)]),
    ("infracost", &[T(&["ic", "o-"]), R(MIXED, 32)]),
    ("1password", &[T(&["ops_", "eyJ"]), R(MIXED, 260)]),
    (
        "age",
        &[
            T(&["AGE-SECRET-", "KEY-1"]),
            R("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
        ],
    ),
    (
        "grafana service",
        &[T(&["gl", "sa_"]), R(MIXED, 32), T(&["_"]), R(HEX, 8)],
    ),
    ("grafana cloud", &[T(&["gl", "c_"]), R(MIXED, 60)]),
    ("new relic", &[T(&["NR", "AK-"]), R(UPPER, 27)]),
    (
        "sentry organisation",
        &[T(&["sn", "trys_"]), R(MIXED, 120), T(&["_"]), R(MIXED, 43)],
    ),
    ("sentry user", &[T(&["sn", "tryu_"]), R(HEX, 64)]),
    (
        "dynatrace",
        &[T(&["dt0c", "01."]), R(UPPER, 24), T(&["."]), R(UPPER, 64)],
    ),
    ("datadog", &[T(&["DATADOG_APP_", "KEY="]), R(HEX, 40)]),
    ("planetscale", &[T(&["pscale_", "tkn_"]), R(WORD, 43)]),
    ("supabase", &[T(&["sb", "p_"]), R(HEX, 40)]),
    ("databricks", &[T(&["da", "pi"]), R(HEX, 32)]),
    ("neon", &[T(&["na", "pi_"]), R(LOWER, 64)]),
    ("digitalocean", &[T(&["dop_", "v1_"]), R(HEX, 64)]),
    ("netlify", &[T(&["nf", "p_"]), R(MIXED, 36)]),
    ("fly", &[T(&["FlyV1 ", "fm2_"]), R(BASE64, 120)]),
    ("heroku", &[T(&["HRKU-", "AA"]), R(WORD, 58)]),
    (
        "cloudflare",
        &[T(&["CLOUDFLARE_API_", "TOKEN="]), R(MIXED, 40)],
    ),
    ("notion", &[T(&["nt", "n_"]), R(DIGITS, 11), R(MIXED, 35)]),
    ("figma", &[T(&["fi", "gd_"]), R(WORD, 40)]),
    ("linear", &[T(&["lin_", "api_"]), R(MIXED, 40)]),
    (
        "postman",
        &[T(&["PM", "AK-"]), R(HEX, 24), T(&["-"]), R(HEX, 34)],
    ),
    ("hubspot", &[T(&["pat-", "na1-"]), Uuid]),
    ("contentful", &[T(&["CFP", "AT-"]), R(WORD, 43)]),
    ("docker", &[T(&["dckr_", "pat_"]), R(WORD, 27)]),
    ("npm", &[T(&["np", "m_"]), R(MIXED, 36)]),
    ("pypi", &[T(&["py", "pi-AgEIcHlwaS5vcmc"]), R(WORD, 120)]),
    ("rubygems", &[T(&["ruby", "gems_"]), R(HEX, 48)]),
    ("crates.io", &[T(&["ci", "o"]), R(MIXED, 32)]),
    ("nuget", &[T(&["oy", "2"]), R(LOWER, 43)]),
    ("artifactory", &[T(&["AK", "Cp8"]), R(MIXED, 68)]),
    (
        "circleci",
        &[T(&["CCI", "PAT_"]), R(MIXED, 22), T(&["_"]), R(HEX, 40)],
    ),
    ("buildkite", &[T(&["bk", "ua_"]), R(HEX, 40)]),
    ("sonarqube", &[T(&["sq", "u_"]), R(HEX, 40)]),
    (
        "tailscale",
        &[
            T(&["tskey-", "auth-"]),
            R(MIXED, 17),
            T(&["-"]),
            R(MIXED, 32),
        ],
    ),
    ("launchdarkly", &[T(&["sd", "k-"]), Uuid]),
    ("posthog", &[T(&["ph", "x_"]), R(MIXED, 43)]),
    ("nats user seed", &[T(&["SU", "A"]), R(BASE32, 55)]),
    ("nats account seed", &[T(&["SA", "A"]), R(BASE32, 55)]),
    (
        "helmdeck memory key",
        &[T(&["HELMDECK_MEMORY_", "KEY="]), R(HEX, 64)],
    ),
    (
        "helmdeck previous keys",
        &[
            T(&["HELMDECK_MEMORY_KEY_", "PREVIOUS: \""]),
            R(HEX, 64),
            T(&[","]),
            R(HEX, 64),
        ],
    ),
    (
        "helmdeck vault key",
        &[
            T(&["export HELMDECK_VAULT_", "KEY='"]),
            R(HEX, 64),
            T(&["'"]),
        ],
    ),
    (
        "helmdeck token",
        &[T(&["h", "d_"]), R(HEX, 16), T(&["_"]), R(HEX, 72)],
    ),
    ("rsa key", &[T(&["-----BEGIN RSA ", "PRIVATE KEY-----"])]),
    (
        "pgp key",
        &[T(&["-----BEGIN PGP ", "PRIVATE KEY BLOCK-----"])],
    ),
    (
        "putty key",
        &[T(&["PuTTY-User-", "Key-File-3: ssh-ed25519"])],
    ),
    (
        "jwt",
        &[
            T(&["ey", "J"]),
            R(MIXED, 33),
            T(&[".ey", "J"]),
            R(MIXED, 60),
            T(&["."]),
            R(WORD, 43),
        ],
    ),
    (
        "postgres url",
        &[
            T(&["postgres://app", ":"]),
            R(MIXED, 12),
            T(&["@db.example.org/app"]),
        ],
    ),
    (
        "redis url",
        &[T(&["redis://", ":"]), R(MIXED, 16), T(&["@cache:6379/0"])],
    ),
    (
        "bearer header",
        &[T(&["Authorization: Bea", "rer "]), R(MIXED, 40)],
    ),
    (
        "basic header",
        &[T(&["Authorization: Ba", "sic "]), R(MIXED, 30), T(&["=="])],
    ),
    (
        "netrc",
        &[
            T(&["machine a.example login b pass", "word "]),
            R(MIXED, 14),
            T(&["!"]),
        ],
    ),
    (
        "registry login",
        &[
            T(&["{\"auths\": {\"r.example\": {\"au", "th\": \""]),
            R(MIXED, 40),
            T(&["\"}}}"]),
        ],
    ),
    (
        "curl",
        &[
            T(&["curl -u some", "body:"]),
            R(MIXED, 14),
            T(&[" https://a.example"]),
        ],
    ),
    (
        "any secret",
        &[T(&["SESSION_SEC", "RET: \""]), R(MIXED, 40), T(&["\""])],
    ),
    ("any key", &[T(&["x-api-", "key: "]), R(HEX, 40)]),
];

#[test]
fn values_of_known_kinds_are_found_in_every_surrounding() {
    assert!(KINDS.len() >= 112, "{}", KINDS.len());
    let mut missed = BTreeSet::new();
    let mut numbers = Numbers(77);
    for (kind, parts) in KINDS {
        for _ in 0..10 {
            let mut value = String::new();
            for part in *parts {
                match part {
                    T(pieces) => value.push_str(&pieces.concat()),
                    R(alphabet, length) => value.push_str(&numbers.text(alphabet, *length)),
                    Uuid => value.push_str(
                        &[8, 4, 4, 4, 12]
                            .map(|length| numbers.text(HEX, length))
                            .join("-"),
                    ),
                }
            }
            let json =
                serde_json::json!({ "log": format!("line\n\t{value}\nline"), "n": 1 }).to_string();
            let prose = format!("They use ({value}), they say.");
            for text in [
                value.clone(),
                json.clone(),
                serde_json::json!([json]).to_string(),
                prose,
            ] {
                if !has_leak(text.as_bytes()) {
                    missed.insert((*kind, text));
                    break;
                }
            }
        }
    }
    let kinds: BTreeSet<_> = missed.iter().map(|(kind, _)| kind).collect();
    assert!(
        missed.len() <= 3,
        "{} of {}: {kinds:?}\n{missed:#?}",
        missed.len(),
        10 * KINDS.len()
    );
}
