//! Marks: what tells apart two entries that got one number in two clones.
//!
//! The name of the file of such an entry, and what refers to it in a file, is its number with its
//! mark: `LOCAL-3-k7f2q9`. People say the number only.

/// Length of a mark, in characters.
const LENGTH: usize = 6;
/// Characters of a mark.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// Makes a mark of random bits.
#[must_use]
pub fn new(random: u128) -> String {
    let bits = (0..LENGTH).map(|at| usize::try_from(random >> (5 * at) & 31).unwrap_or_default());
    bits.map(|bits| char::from(ALPHABET.get(bits).copied().unwrap_or(b'a')))
        .collect()
}

/// Splits a name into the number and the mark, if it has one.
///
/// # Examples
///
/// ```
/// use helmdeck_forge_documents::marks::split;
///
/// assert_eq!(split("LOCAL-3-k7f2q9"), ("LOCAL-3", Some("k7f2q9")));
/// assert_eq!(split("LOCAL-3"), ("LOCAL-3", None));
/// assert_eq!(split("LOCAL-412001"), ("LOCAL-412001", None));
/// ```
#[must_use]
pub fn split(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once('-') {
        Some((number, mark))
            if number.contains('-')
                && mark.len() == LENGTH
                && mark.bytes().all(|byte| ALPHABET.contains(&byte)) =>
        {
            (number, Some(mark))
        }
        _ => (name, None),
    }
}

/// Returns a number with its mark.
#[must_use]
pub fn join(number: &str, mark: Option<&str>) -> String {
    mark.map_or_else(|| number.to_owned(), |mark| format!("{number}-{mark}"))
}
