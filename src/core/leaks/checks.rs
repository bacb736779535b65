//! Checks of what a pattern found: whether it is random, and no word, hash, id or placeholder.

/// The least entropy of a value without a known shape, in bits a character.
const DISORDER: f64 = 3.5;
/// The same for hexadecimal digits.
const HEX_DISORDER: f64 = 3.0;

/// What a pattern found.
pub(super) struct Match<'a> {
    /// The text before it, as far as the search reads.
    pub(super) before: &'a str,
    /// All of it.
    pub(super) whole: &'a str,
    /// The value.
    pub(super) value: &'a str,
    /// Where the value begins in all of it.
    pub(super) value_at: usize,
}

/// Says whether a match is a credential.
pub(super) type Check = fn(&Match<'_>) -> bool;

/// Returns the check of a name in a file of rules.
pub(super) fn named(name: &str) -> Option<Check> {
    Some(match name {
        "has-digit" => |found| has(found.value, |c| c.is_ascii_digit()),
        "disordered" => |found| is_disordered(found.value),
        "password" => |found| {
            !is_placeholder(found.value)
                && is_plain(found.value)
                && kinds(found.value) >= 3
                && !is_member_path(found)
                && !is_working_folder(found)
        },
        "password-of-url" => |found| !is_placeholder(found.value) && !is_default_login(found),
        "assigned" => |found| {
            is_name_of_secret(found)
                && !is_placeholder(found.value)
                && is_disordered(found.value)
                && !names_something_else(name_of(found))
                && !is_member_path(found)
                && !is_working_folder(found)
        },
        _ => return None,
    })
}

/// Accepts a value that a name tells: it has digits and letters, and the name is not that of a hash
/// or an id.
pub(super) fn behind_a_name(found: &Match<'_>) -> bool {
    // Not only at its end, as those of a word that is numbered.
    let body = found.value.trim_end_matches(|c: char| c.is_ascii_digit());
    let is_mixed = has(body, |c| c.is_ascii_digit()) && has(body, |c| c.is_ascii_alphabetic());
    is_mixed && !is_placeholder(found.value) && !names_something_else(name_of(found))
}

/// Returns whether a value is the path of the working folder: `PWD=/home/user/work/App1`.
fn is_working_folder(found: &Match<'_>) -> bool {
    // The match may begin within the name.
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let start = found.before.trim_end_matches(is_part).len();
    let name = format!("{}{}", &found.before[start..], name_of(found)).to_ascii_lowercase();
    found.value.starts_with(['/', '~', '.']) && matches!(name.as_str(), "pwd" | "oldpwd")
}

/// Returns whether a URL has a login that programs come with, at this machine:
/// `amqp://guest:guest@localhost`.
fn is_default_login(found: &Match<'_>) -> bool {
    let user = found
        .whole
        .get(..found.value_at)
        .and_then(|before| before.rsplit("://").next());
    let host = found
        .whole
        .get(found.value_at + found.value.len()..)
        .and_then(|rest| rest.strip_prefix('@'));
    let here = |host: &str| {
        ["localhost", "127.0.0.1", "[::1]"].iter().any(|here| {
            host.strip_prefix(here)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        })
    };
    user.and_then(|user| user.strip_suffix(':')) == Some(found.value) && host.is_some_and(here)
}

/// Returns the name before a value: `token_sha256` of `token_sha256: "..."`.
fn name_of<'a>(found: &Match<'a>) -> &'a str {
    let before = found.whole.get(..found.value_at).unwrap_or_default();
    before.trim_end_matches(|c: char| !c.is_ascii_alphanumeric())
}

/// Accepts names of secrets. A page token is not one.
fn is_name_of_secret(found: &Match<'_>) -> bool {
    let before = found
        .before
        .trim_end_matches(['_', '-', ' '])
        .to_ascii_lowercase();
    let pages = [
        "page",
        "next",
        "prev",
        "previous",
        "pagination",
        "continuation",
        "sync",
        "skip",
        "resume",
    ];
    let is_token = found
        .whole
        .get(..5)
        .is_some_and(|word| word.eq_ignore_ascii_case("token"));
    !(is_token && pages.iter().any(|word| before.ends_with(word)))
}

/// Returns whether a name is that of a hash, or of what only belongs to a secret: `token_sha256`,
/// `secretName`.
fn names_something_else(name: &str) -> bool {
    const HASHES: [&str; 13] = [
        "hash",
        "sha1",
        "sha256",
        "sha512",
        "sha",
        "md5",
        "digest",
        "fingerprint",
        "checksum",
        "commit",
        "revision",
        "etag",
        "h1",
    ];
    const PARTS: [&str; 9] = [
        "id", "uuid", "name", "type", "ref", "path", "file", "url", "uri",
    ];
    let lower = name.to_ascii_lowercase();
    // A word of its own: behind a mark, or with a capital letter behind a small one.
    let is_own_word = |part: &str| {
        lower.strip_suffix(part).is_some_and(|rest| {
            rest.ends_with(|c: char| !c.is_ascii_alphanumeric())
                || (rest.ends_with(|c: char| c.is_ascii_alphabetic())
                    && name[rest.len()..].starts_with(char::is_uppercase))
        })
    };
    HASHES.iter().any(|word| lower.ends_with(word)) || PARTS.into_iter().any(is_own_word)
}

/// Returns whether a value is code that names a member: `token: request.headers2.authorization`.
///
/// A literal would be in quotes.
fn is_member_path(found: &Match<'_>) -> bool {
    let value = found.value;
    let quoted = found
        .whole
        .get(..found.value_at)
        .is_some_and(|before| before.ends_with(['"', '\'', '`', '\\']));
    !quoted
        && value.contains('.')
        && value.split('.').all(|segment| {
            segment.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && !segment.contains(['+', '/', '=', '~'])
        })
}

/// Returns whether a value only stands for another.
fn is_placeholder(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    value.starts_with(['$', '<', '{', '%', '['])
        || lower
            .chars()
            .all(|c| matches!(c, '*' | 'x' | '.' | '-' | '_'))
        || matches!(
            lower.as_str(),
            "password" | "passwd" | "pass" | "pwd" | "pw" | "secret" | "token"
        )
        || ["your", "example", "placeholder", "redacted", "changeme"]
            .iter()
            .any(|word| lower.starts_with(word))
}

/// Returns whether a value is not a piece of code: no call, no path of names, no digest, no
/// `name=value`.
fn is_plain(value: &str) -> bool {
    let is_pair = value
        .split_once('=')
        .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
    let is_generic = value.contains('<') && value.ends_with('>');
    let marks = ["@sha256:", "::", "(", ")", "{", "}", "://"];
    !is_pair && !is_generic && !marks.iter().any(|mark| value.contains(mark))
}

/// Counts the kinds of characters: lower case, upper case, digits, punctuation not used in names.
fn kinds(value: &str) -> usize {
    let marks = |c: char| c.is_ascii_punctuation() && !matches!(c, '-' | '_' | '.' | '/');
    let kinds: [fn(char) -> bool; 3] = [
        |c| c.is_lowercase(),
        |c| c.is_uppercase(),
        |c| c.is_ascii_digit(),
    ];
    kinds.into_iter().filter(|kind| has(value, *kind)).count() + usize::from(has(value, marks))
}

fn has(value: &str, kind: impl Fn(char) -> bool) -> bool {
    value.chars().any(kind)
}

/// Returns whether a value is random: no words, no labelled hash, no UUID, no artifact name.
fn is_disordered(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    if ["triv", "sha1", "sha256", "sha384", "sha512", "md5", "blob"]
        .iter()
        .any(|prefix| lower.starts_with(prefix))
        || is_uuid(&lower)
    {
        return false;
    }
    let bare = value.trim_end_matches('=');
    if bare.len() >= 32 && bare.chars().all(|c| c.is_ascii_hexdigit()) {
        return entropy(bare) >= HEX_DISORDER;
    }
    // Names are runs of words; a key has one long run.
    let longest = bare
        .split(['.', '_', '-', '/'])
        .max_by_key(|run| run.len())
        .unwrap_or_default();
    let mixed =
        |run: &str| has(run, |c| c.is_ascii_digit()) && has(run, |c| c.is_ascii_alphabetic());
    longest.len() >= 10 && mixed(longest) && entropy(bare) >= DISORDER
}

fn is_uuid(lower: &str) -> bool {
    let groups: Vec<&str> = lower.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups
            .iter()
            .all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns the entropy of a text in bits a character.
pub(super) fn entropy(value: &str) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in value.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let all = f64::from(u32::try_from(value.len()).unwrap_or(u32::MAX));
    counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| f64::from(*count) / all)
        .map(|part| -part * part.log2())
        .sum()
}
