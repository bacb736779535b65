//! The four skills of a new project.

macro_rules! samples {
    ($($path:literal)*) => {
        &[$((concat!(".forge/skills/", $path), include_str!(concat!("samples/", $path)))),*]
    };
}

/// Returns the files of the four skills of the RFC: path below the root of the repository, and
/// text.
#[must_use]
pub const fn samples() -> &'static [(&'static str, &'static str)] {
    samples![
        "code-generation/SKILL.md"
        "code-generation/templates/module.rs"
        "qa-review/SKILL.md"
        "qa-review/checklists/change.md"
        "linear-integration/SKILL.md"
        "linear-integration/forms/issue.md"
        "git-workflow/SKILL.md"
        "git-workflow/hooks/commit.txt"
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan;

    #[test]
    fn the_samples_are_valid_skills_within_their_budget() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in samples() {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let skills = scan(root.path()).unwrap();
        let names: Vec<_> = skills.iter().map(|skill| skill.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "code-generation",
                "git-workflow",
                "linear-integration",
                "qa-review"
            ]
        );
        for skill in skills {
            assert!(skill.is_valid() && skill.warnings.is_empty(), "{skill:#?}");
        }
        // The example of the RFC is about Rust and its project: as a sample it would match in every
        // project.
        let text: String = samples()
            .iter()
            .map(|(_, text)| text.to_lowercase())
            .collect();
        assert!(!text.contains("sx9 pattern") && !text.contains("*.rs"));
    }
}
