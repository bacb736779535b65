//! What credentials look like.

use super::Rule;

/// How much disorder a text without a known shape needs, in bits a character.
const DISORDER: f64 = 3.5;
/// The same of hexadecimal digits.
const HEX_DISORDER: f64 = 3.0;

const fn known(id: &'static str, what: &'static str, needles: &'static [&'static str], pattern: &'static str) -> Rule {
    Rule { id, what, needles, pattern, real: |_| true }
}

pub(super) const RULES: &[Rule] = &[
    known("aws-access-key", "an access key of AWS", &["akia", "asia"], r"(?-u:\b)((?:AKIA|ASIA)[A-Z0-9]{16})(?-u:\b)"),
    known(
        "github-token",
        "a token of GitHub",
        &["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"],
        r"(?-u:\b)(gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{22,255})",
    ),
    known(
        "gitlab-token",
        "a token of GitLab",
        &["gl"],
        r"(?-u:\b)(gl(?:pat|ptt|dt|rt|cbt|soat|ft|imt|agent)-[A-Za-z0-9_-]{20,})",
    ),
    known(
        "slack-token",
        "a token of Slack",
        &["xox", "xapp-", "hooks.slack.com"],
        r"(?-u:\b)(xox[a-z]-[A-Za-z0-9-]{10,}|xapp-\d-[A-Za-z0-9-]{10,}|hooks\.slack\.com/services/T[A-Z0-9]{6,}/B[A-Z0-9]{6,}/[A-Za-z0-9]{16,})",
    ),
    Rule {
        id: "model-key",
        what: "a key of a model provider",
        needles: &["sk-"],
        pattern: r"(?-u:\b)(sk-(?:[a-z0-9]{2,10}-)*[A-Za-z0-9_-]{20,})",
        real: |value| has(value, |c| c.is_ascii_digit()) && disorder(value) >= DISORDER,
    },
    known(
        "google-key",
        "a key of Google",
        &["aiza", "ya29.", "gocspx-"],
        r"(?-u:\b)(AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,})",
    ),
    known(
        "stripe-key",
        "a key of Stripe",
        &["k_live_", "k_test_", "whsec_"],
        r"(?-u:\b)([sr]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/]{24,})",
    ),
    known("npm-token", "a token of npm", &["npm_"], r"(?-u:\b)(npm_[A-Za-z0-9]{36})"),
    known("pypi-token", "a token of PyPI", &["pypi-"], r"(?-u:\b)(pypi-[A-Za-z0-9_-]{32,})"),
    known("linear-key", "a key of Linear", &["lin_"], r"(?-u:\b)(lin_(?:api|oauth|wh)_[A-Za-z0-9]{20,})"),
    known("hugging-face-token", "a token of Hugging Face", &["hf_"], r"(?-u:\b)(hf_[A-Za-z0-9]{34,})"),
    known("sendgrid-key", "a key of SendGrid", &["sg."], r"(?-u:\b)(SG\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{40,})"),
    known("jwt", "a signed token", &["eyj"], r"(eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,})"),
    known(
        "private-key",
        "a private key",
        &["private key", "age-secret-key-"],
        r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|AGE-SECRET-KEY-1[A-Z0-9]{20,})",
    ),
    Rule {
        id: "url-password",
        what: "a password in a URL",
        needles: &["://"],
        pattern: r#"[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@"'<>]*:([^\s/@"'`]{3,})@[A-Za-z0-9\[]"#,
        real: |value| !is_placeholder(value),
    },
    Rule {
        id: "bearer-token",
        what: "a token in a header",
        needles: &["bearer ", "basic "],
        pattern: r"(?i:bearer|basic)\s+([A-Za-z0-9._~+/-]{20,}=*)",
        real: is_disordered,
    },
    Rule {
        id: "assigned-password",
        what: "a password",
        needles: &["passw", "pwd", "passphrase"],
        pattern: r#"(?i:password|passwd|passphrase|pwd)["'`*]{0,3}\s*(?:=|:|=>|:=|\sis\s)\s*["'`]{0,2}([^\s"'`,;]{8,200})"#,
        real: |value| !is_placeholder(value) && is_plain(value) && kinds(value) >= 3,
    },
    Rule {
        id: "assigned-secret",
        what: "a secret",
        needles: &["secret", "token", "key", "passw", "credential", "pwd"],
        pattern: r#"(?i:secret|token|api[_\- ]?key|access[_\- ]?key|auth[_\- ]?key|account[_\- ]?key|signing[_\- ]?key|encryption[_\- ]?key|private[_\- ]?key|password|passwd|pwd|credentials?)(?-i:[A-Za-z0-9_]{0,20})["'`*]{0,3}\s*(?:=|:|=>|:=|\sis\s)\s*["'`]{0,2}([A-Za-z0-9+/=_.~-]{16,400})"#,
        real: |value| !is_placeholder(value) && is_disordered(value),
    },
];

/// Says whether a value only stands for another.
fn is_placeholder(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    value.starts_with(['$', '<', '{', '%', '['])
        || lower.chars().all(|c| matches!(c, '*' | 'x' | '.' | '-' | '_'))
        || matches!(lower.as_str(), "password" | "passwd" | "pass" | "pwd" | "pw" | "secret" | "token")
        || ["your", "example", "placeholder", "redacted", "changeme"].iter().any(|word| lower.starts_with(word))
}

/// Says whether it is no piece of code: no call, no path of names.
fn is_plain(value: &str) -> bool {
    !value.contains("::") && !value.contains(['(', ')', '{', '}']) && !value.contains("://")
}

/// Counts the kinds of characters: lower case, upper case, digits, marks other than those in names.
fn kinds(value: &str) -> usize {
    let marks = |c: char| c.is_ascii_punctuation() && !matches!(c, '-' | '_' | '.' | '/');
    let kinds: [fn(char) -> bool; 3] = [|c| c.is_lowercase(), |c| c.is_uppercase(), |c| c.is_ascii_digit()];
    kinds.into_iter().filter(|kind| has(value, *kind)).count() + usize::from(has(value, marks))
}

fn has(value: &str, kind: impl Fn(char) -> bool) -> bool {
    value.chars().any(kind)
}

/// Says whether a text is made by chance: no words, no hash that says it is one, no UUID, no name of an artifact.
fn is_disordered(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    if ["triv", "sha1", "sha256", "sha384", "sha512", "md5", "blob"].iter().any(|prefix| lower.starts_with(prefix))
        || is_uuid(&lower)
    {
        return false;
    }
    let bare = value.trim_end_matches('=');
    if bare.len() >= 32 && bare.chars().all(|c| c.is_ascii_hexdigit()) {
        return disorder(bare) >= HEX_DISORDER;
    }
    // Names are runs of words; a key has one long run.
    let longest = bare.split(['.', '_', '-', '/']).max_by_key(|run| run.len()).unwrap_or_default();
    let mixed = |run: &str| has(run, |c| c.is_ascii_digit()) && has(run, |c| c.is_ascii_alphabetic());
    longest.len() >= 10 && mixed(longest) && disorder(bare) >= DISORDER
}

fn is_uuid(lower: &str) -> bool {
    let groups: Vec<&str> = lower.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns the bits a character of a text carries.
fn disorder(value: &str) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in value.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let all = f64::from(u32::try_from(value.len()).unwrap_or(u32::MAX));
    counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count) / all).map(|part| -part * part.log2()).sum()
}
