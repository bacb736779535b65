//! The hooks of git that keep the protocol, as git runs them.

use super::fixture::Fixture;

#[test]
fn oversized_or_binary_message_stays_unchanged() {
    let fixture = Fixture::light("");
    fixture.forge(&["session", "start"]);
    let message = fixture.root().join(".git/MESSAGE");
    let prepared = |bytes: &[u8]| {
        std::fs::write(&message, bytes).unwrap();
        fixture.forge(&["hook", "prepare-commit-msg", ".git/MESSAGE"]);
        std::fs::read(&message).unwrap()
    };
    let short = prepared(b"Halve a number\n");
    assert!(String::from_utf8(short).unwrap().contains("Forge-Session: "));
    let long = format!("Halve a number\n\n{}\n# what git says\n", "words ".repeat(200_000));
    let latin = b"Halve a n\xfcmber\n";
    for whole in [long.as_bytes(), latin] {
        assert!(prepared(whole) == whole, "{} bytes", whole.len());
    }
}
