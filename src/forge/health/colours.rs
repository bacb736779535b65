//! Folder colours. A colour says what a folder is; a badge with a shape and a word shows its health.

use super::Colour;

/// The colour of each folder, as the RFC prints it.
pub const MEMORY_COLOURS: [(&str, &str); 5] = [
    ("long-term", "#4CAF50"),
    ("short-term", "#2196F3"),
    ("artifacts", "#9C27B0"),
    ("linear", "#FF9800"),
    ("git", "#607D8B"),
];

/// Returns the shape and the word of each state, so that no meaning depends on colour alone.
#[must_use]
pub const fn badge(colour: Colour) -> (&'static str, &'static str) {
    match colour {
        Colour::Green => ("circle", "OK"),
        Colour::Yellow => ("triangle", "Stale"),
        Colour::Red => ("octagon", "Broken"),
        Colour::Grey => ("dash", "n/a"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_colours_are_those_of_the_rfc() {
        let text = include_str!("../fixtures/colours.ts");
        let printed: Vec<(&str, &str)> = text
            .lines()
            .filter_map(|line| {
                let mut quoted = line.split('"').skip(1).step_by(2);
                Some((quoted.next()?, quoted.next()?))
            })
            .collect();
        assert_eq!(printed, MEMORY_COLOURS);
    }

    #[test]
    fn every_state_has_a_shape_and_a_word_of_its_own() {
        let all: std::collections::BTreeSet<_> = Colour::ALL.into_iter().map(badge).collect();
        assert_eq!(all.len(), Colour::ALL.len());
    }
}
