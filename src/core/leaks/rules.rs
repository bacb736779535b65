//! The rules: shapes of credentials.

use super::Rule;

/// The least entropy of a value without a known shape, in bits a character.
const DISORDER: f64 = 3.5;
/// The same for hexadecimal digits.
const HEX_DISORDER: f64 = 3.0;

const fn known(id: &'static str, what: &'static str, anchors: &'static [&'static str], pattern: &'static str) -> Rule {
    Rule { id, what, anchors, before: word_start, pattern, real: |_, _| true }
}

// In the patterns, `(?:[ \t\r]|\\[nrt])` is white space within a line, also as JSON writes it, and `\\"` in a class of
// quotes is a quote as JSON writes it.
pub(super) const RULES: &[Rule] = &[
    known("aws-access-key", "an access key of AWS", &["akia", "asia"], r"((?:AKIA|ASIA)[A-Z0-9]{16})\b"),
    known(
        "github-token",
        "a token of GitHub",
        &["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"],
        r"(gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{22,255})",
    ),
    known(
        "gitlab-token",
        "a token of GitLab",
        &["glpat-", "glptt-", "gldt-", "glrt-", "glcbt-", "glsoat-", "glft-", "glimt-", "glagent-"],
        r"(gl[a-z]{2,5}-[A-Za-z0-9_-]{20,})",
    ),
    known(
        "slack-token",
        "a token of Slack",
        &["xox", "xapp-", "hooks.slack.com"],
        r"(xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{10,}|hooks\.slack\.com\\?/services\\?/T[A-Z0-9]{6,}\\?/B[A-Z0-9]{6,}\\?/[A-Za-z0-9]{16,})",
    ),
    Rule {
        id: "model-key",
        what: "a key of a model provider",
        anchors: &["sk-"],
        before: word_start,
        pattern: r"(sk-[A-Za-z0-9_-]{20,})",
        real: |_, value| has(value, |c| c.is_ascii_digit()) && disorder(value) >= DISORDER,
    },
    known(
        "google-key",
        "a key of Google",
        &["aiza", "ya29.", "gocspx-"],
        r"(AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,})",
    ),
    known(
        "stripe-key",
        "a key of Stripe",
        &["sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_"],
        r"([sr]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/]{24,})",
    ),
    known("npm-token", "a token of npm", &["npm_"], r"(npm_[A-Za-z0-9]{36})"),
    known("pypi-token", "a token of PyPI", &["pypi-"], r"(pypi-[A-Za-z0-9_-]{32,})"),
    known(
        "linear-key",
        "a key of Linear",
        &["lin_api_", "lin_oauth_", "lin_wh_"],
        r"(lin_(?:api|oauth|wh)_[A-Za-z0-9]{20,})",
    ),
    known("hugging-face-token", "a token of Hugging Face", &["hf_"], r"(hf_[A-Za-z0-9]{34,})"),
    known("sendgrid-key", "a key of SendGrid", &["sg."], r"(SG\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{40,})"),
    Rule {
        id: "jwt",
        what: "a signed token",
        // The begin of the second part: far rarer than that of the first.
        anchors: &[".eyj"],
        before: jwt_header,
        pattern: r"\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,}",
        real: |_, _| true,
    },
    Rule {
        id: "private-key",
        what: "a private key",
        anchors: &["-----begin ", "age-secret-key-1"],
        before: anywhere,
        pattern: r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|AGE-SECRET-KEY-1[A-Z0-9]{20,})",
        real: |_, _| true,
    },
    known("helmdeck-token", "an API token of helmdeck", &["hd_"], r"(hd_[0-9a-f]{16}_[0-9a-f]{72})"),
    Rule {
        id: "url-password",
        what: "a password in a URL",
        anchors: &["://", r":\/\/"],
        before: |before, _| before.last().filter(|byte| byte.is_ascii_alphanumeric()).map(|_| 0),
        pattern: r#":\\?/\\?/[^\s/:@"'<>\\]*:([^\s/@"'`\\]{3,})@[A-Za-z0-9\[]"#,
        real: |_, value| !is_placeholder(value),
    },
    Rule {
        id: "bearer-token",
        what: "a token in a header",
        anchors: &["bearer", "basic"],
        before: anywhere,
        pattern: r"(?i:bearer|basic)(?:[ \t\r]|\\[nrt])+([A-Za-z0-9._~+/-]{20,}=*)",
        real: |_, value| is_disordered(value),
    },
    Rule {
        id: "assigned-password",
        what: "a password",
        anchors: &["password", "passwd", "passphrase", "pwd"],
        before: anywhere,
        pattern: r#"(?i:password|passwd|passphrase|pwd)[\\"'`*]{0,4}(?:[ \t\r]|\\[nrt])*(?:=>|:=|=|:|[ \t]is[ \t])(?:[ \t\r]|\\[nrt])*[\\"'`]{0,4}([^\s"'`,;\\]{8,200})"#,
        real: |_, value| !is_placeholder(value) && is_plain(value) && kinds(value) >= 3,
    },
    Rule {
        id: "assigned-secret",
        what: "a secret",
        anchors: &["secret", "token", "password", "passwd", "pwd", "credential", "key"],
        before: secret_name,
        pattern: r#"[A-Za-z0-9_]{3,32}[\\"'`*]{0,4}(?:[ \t\r]|\\[nrt])*(?:=>|:=|=|:|[ \t]is[ \t])(?:[ \t\r]|\\[nrt])*[\\"'`]{0,4}([A-Za-z0-9+/=_.~-]{16,400})"#,
        real: |whole, value| {
            !is_placeholder(value) && is_disordered(value) && !names_a_hash(whole) && !is_member_path(whole, value)
        },
    },
];

#[expect(clippy::unnecessary_wraps, reason = "the form of every such check")]
fn anywhere(_: &[u8], _: &[u8]) -> Option<usize> {
    Some(0)
}

/// Accepts the start of a word.
///
/// An escape of JSON or of a URL before it ends a word, whatever the last character of the escape is.
fn word_start(before: &[u8], _: &[u8]) -> Option<usize> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let hex = |digits: &[u8]| digits.iter().all(u8::is_ascii_hexdigit);
    let free = match before {
        [.., last] if !is_word(last) => true,
        [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => true,
        _ => before.is_empty(),
    };
    let escaped = |size: usize, mark: &[u8]| {
        before.len().checked_sub(size + mark.len()).is_some_and(|from| {
            let tail = &before[from..];
            tail.starts_with(mark) && hex(&tail[mark.len()..])
        })
    };
    (free || escaped(2, b"%") || escaped(4, b"\\u")).then_some(0)
}

/// Accepts the end of a header: the first part of a signed token.
fn jwt_header(before: &[u8], _: &[u8]) -> Option<usize> {
    const HEADER: &[u8] = b"eyJ";
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let run = before.iter().rev().take_while(|byte| inside(byte)).count();
    let run = &before[before.len() - run..];
    let at = run.windows(HEADER.len()).position(|window| window == HEADER)?;
    let back = run.len() - at;
    (back >= HEADER.len() + 8).then_some(back)
}

/// Accepts names of secrets: words that mean a secret, or `key` behind a word that qualifies it.
///
/// A page token is not a secret.
fn secret_name(before: &[u8], anchor: &[u8]) -> Option<usize> {
    let before = match before {
        [rest @ .., b'_' | b'-' | b' '] => rest,
        all => all,
    };
    let ends_with = |word: &&str| {
        before.len().checked_sub(word.len()).is_some_and(|from| before[from..].eq_ignore_ascii_case(word.as_bytes()))
    };
    let accepted = match anchor {
        b"key" => ["api", "access", "auth", "account", "signing", "encryption", "private"].iter().any(&ends_with),
        b"token" => !["page", "next", "prev", "previous", "pagination", "continuation", "sync", "skip", "resume"]
            .iter()
            .any(&ends_with),
        _ => true,
    };
    accepted.then_some(0)
}

/// Returns whether a name is that of a hash: `token_sha256`.
fn names_a_hash(whole: &str) -> bool {
    let name = whole.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
    let name = name.to_ascii_lowercase();
    ["hash", "sha1", "sha256", "sha512", "md5", "digest", "fingerprint", "checksum"]
        .iter()
        .any(|word| name.ends_with(word))
}

/// Returns whether a value is code that names a member: `token: request.headers2.authorization`.
///
/// A literal would be in quotes.
fn is_member_path(whole: &str, value: &str) -> bool {
    let quoted = whole[..whole.len() - value.len()].ends_with(['"', '\'', '`', '\\']);
    let mut segments = value.split('.');
    !quoted
        && value.contains('.')
        && segments.all(|segment| {
            segment.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && !segment.contains(['+', '/', '=', '~'])
        })
}

/// Returns whether a value only stands for another.
fn is_placeholder(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    value.starts_with(['$', '<', '{', '%', '['])
        || lower.chars().all(|c| matches!(c, '*' | 'x' | '.' | '-' | '_'))
        || matches!(lower.as_str(), "password" | "passwd" | "pass" | "pwd" | "pw" | "secret" | "token")
        || ["your", "example", "placeholder", "redacted", "changeme"].iter().any(|word| lower.starts_with(word))
}

/// Returns whether a value is not a piece of code: no call, no path of names.
fn is_plain(value: &str) -> bool {
    !value.contains("::") && !value.contains(['(', ')', '{', '}']) && !value.contains("://")
}

/// Counts the kinds of characters: lower case, upper case, digits, punctuation not used in names.
fn kinds(value: &str) -> usize {
    let marks = |c: char| c.is_ascii_punctuation() && !matches!(c, '-' | '_' | '.' | '/');
    let kinds: [fn(char) -> bool; 3] = [|c| c.is_lowercase(), |c| c.is_uppercase(), |c| c.is_ascii_digit()];
    kinds.into_iter().filter(|kind| has(value, *kind)).count() + usize::from(has(value, marks))
}

fn has(value: &str, kind: impl Fn(char) -> bool) -> bool {
    value.chars().any(kind)
}

/// Returns whether a value is random: no words, no labelled hash, no UUID, no artifact name.
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

/// Returns the entropy of a text in bits a character.
fn disorder(value: &str) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in value.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let all = f64::from(u32::try_from(value.len()).unwrap_or(u32::MAX));
    counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count) / all).map(|part| -part * part.log2()).sum()
}
