use super::*;
use helmdeck_core::leaks::samples::credentials;

#[test]
fn a_refused_credential_is_never_shown() {
    for (rule, credential) in credentials() {
        let found = scan(&format!("see {credential} there"));
        assert!(
            found.iter().any(|finding| finding.rule == rule),
            "{rule} not in {credential}: {found:?}"
        );
        let error = refuse("a.json", &found[0], found.len());
        assert_eq!((error.category.exit_code(), error.code), (7, "E_SECRET"));
        let said = serde_json::to_string(&error).unwrap();
        for piece in credential
            .split_whitespace()
            .filter(|piece| piece.len() > 15)
        {
            assert!(!said.contains(piece), "{said}");
        }
    }
}
