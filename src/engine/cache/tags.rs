//! Tags of cached answers: their length limit, and the families that a write falls back on.

use sha2::{Digest, Sha256};

use super::key::hex;

/// Limit of a tag in the store, in bytes (`helmdeck_memory::Limits::tag_bytes`).
const MAX_TAG_BYTES: usize = 256;
/// Bytes of a longer tag that are kept; its SHA-256 follows.
const KEPT_BYTES: usize = 160;
/// The family of every tagged answer.
pub(crate) const ANY: &str = "*";
/// Family of answers with too many tags for their own families.
pub(crate) const WIDE: &str = "*:*";
/// Limit of families of an answer.
///
/// With its own tags, they are fewer than the store allows (`helmdeck_memory::Limits::tags`).
const MAX_FAMILIES: usize = 8;

/// Returns the tag of cached answers as a store has it.
///
/// It is in lower case, and no longer than a store takes. Use it to delete from the store without
/// an engine.
#[must_use]
pub fn stored_tag(tag: &str) -> String {
    bounded(tag.to_lowercase())
}

/// Returns the form under which a tag is stored and purged.
///
/// It is the tag, or, if that is longer than a store takes, its beginning and its SHA-256. So a
/// purge by the full tag finds the answers that were stored with it.
pub(crate) fn bounded(tag: String) -> String {
    if tag.len() <= MAX_TAG_BYTES {
        return tag;
    }
    let digest = hex(&Sha256::digest(tag.as_bytes()));
    format!(
        "{}#sha256:{digest}",
        &tag[..tag.floor_char_boundary(KEPT_BYTES)]
    )
}

/// Returns the family of a tag: the text before its first `:`, then `:*`.
///
/// Returns `None` for a tag without a `:`.
pub(crate) fn family(tag: &str) -> Option<String> {
    tag.split_once(':')
        .map(|(name, _)| bounded(format!("{name}:*")))
}

/// Returns the families that an answer with these tags is stored with.
///
/// A write whose own tag has no value purges by family all that it may have outdated.
pub(crate) fn families<'a>(tags: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut families = Vec::new();
    for tag in tags {
        let of_tag = family(tag).into_iter().chain([ANY.to_owned()]);
        for family in of_tag {
            if !families.contains(&family) {
                families.push(family);
            }
        }
    }
    if families.len() > MAX_FAMILIES {
        vec![ANY.to_owned(), WIDE.to_owned()]
    } else {
        families
    }
}

/// Returns whether a tag is a family, which no manifest contains.
pub(crate) fn is_family(tag: &str) -> bool {
    tag == ANY || tag.ends_with(":*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_tags_are_cut_and_stay_distinct() {
        let (a, b) = (
            format!("svc:{}a", "é".repeat(300)),
            format!("svc:{}b", "é".repeat(300)),
        );
        let (short_a, short_b) = (bounded(a.clone()), bounded(b));
        assert!(
            short_a.len() <= MAX_TAG_BYTES && short_a != short_b && short_a.starts_with("svc:é")
        );
        assert_eq!(bounded(a), short_a);
        assert_eq!(bounded("x".repeat(256)), "x".repeat(256));
    }

    #[test]
    fn families_end_at_the_first_colon() {
        let tags = ["svc:a:b".to_owned(), "svc:c".to_owned(), "plain".to_owned()];
        assert_eq!(families(tags.iter()), ["svc:*", "*"]);
        let many: Vec<String> = (0..20).map(|index| format!("a{index}:b")).collect();
        assert_eq!(families(many.iter()), [ANY, WIDE]);
        assert!(is_family("svc:*") && is_family(WIDE) && is_family("*") && !is_family("svc:a"));
    }
}
