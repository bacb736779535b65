use super::Counter;

#[test]
fn the_estimate_of_ascii_is_that_of_the_original() {
    for length in [1, 3, 4, 5, 4000] {
        assert_eq!(Counter::Chars.count(&"a".repeat(length)), length as u64 / 4 + 1);
    }
    assert_eq!(Counter::Chars.count(""), 0);
}
