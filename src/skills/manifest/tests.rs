use super::*;

const RFC: &str = include_str!("../fixtures/skill.toml");

fn codes(problems: &[Problem]) -> Vec<(&str, Option<usize>)> {
    problems.iter().map(|problem| (problem.code.as_str(), problem.line)).collect()
}

#[test]
fn the_manifest_of_the_rfc_is_read() {
    let Read { manifest, errors, warnings } = read(RFC);
    assert_eq!((errors, warnings), (vec![], vec![]));
    assert_eq!(manifest.name, "code-generation");
    assert_eq!(manifest.description, "Generate Rust code following sx9 patterns");
    assert_eq!(manifest.version, "1.0.0");
    assert_eq!(manifest.triggers.keywords, ["generate", "create", "implement", "add function"]);
    assert_eq!(manifest.triggers.file_patterns, ["*.rs", "Cargo.toml"]);
    assert_eq!(manifest.triggers.linear_labels, ["feature", "enhancement"]);
    assert_eq!(manifest.resources.get("templates").unwrap(), "templates/");
    assert_eq!(manifest.dependencies.requires, ["qa-review"]);
    assert_eq!(read(&print(&manifest)).manifest, manifest);
}

#[test]
fn writing_triggers_leaves_all_else_as_it_is() {
    let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert_eq!(add_triggers(RFC, &own(&["CREATE"]), &[]), Ok(None));
    let odd = format!("{RFC}\n[odd] # kept\nx = 1\n");
    let text = add_triggers(&odd, &own(&["make", "create"]), &own(&["*.toml"])).unwrap().unwrap();
    let expected = odd
        .replace("\"add function\"]", "\"add function\", \"make\"]")
        .replace("\"Cargo.toml\"]", "\"Cargo.toml\", \"*.toml\"]");
    assert_eq!(text, expected);
    assert!(add_triggers("triggers = 1", &own(&["x"]), &[]).is_err());
    assert!(add_triggers("[", &own(&["x"]), &[]).is_err());
}

#[test]
fn everything_that_is_wrong_is_told_with_its_line() {
    let text = "[skill]\nname = \"Bad--Name\"\ndescription = \"\"\nversion = \"1\"\nauthor = \"x\"\n[triggers]\n\
                    keywords = \"one\"\nfile_patterns = [\"{a\"]\nlinear_labels = [\"\"]\n[resources]\ninstructions = \"../x\"\n\
                    more = 1\n[dependencies]\nrequires = [\"No\"]\n[odd]\n";
    let Read { errors, warnings, .. } = read(text);
    let expected = [
        ("missing", Some(3)),
        ("wrong_type", Some(7)),
        ("entry", Some(9)),
        ("outside", Some(11)),
        ("wrong_type", Some(12)),
        ("name", Some(2)),
        ("version", Some(4)),
        ("pattern", Some(8)),
        ("dependency", Some(14)),
    ];
    assert_eq!(codes(&errors), expected, "{errors:#?}");
    assert_eq!(codes(&warnings), [("unknown_table", Some(15)), ("unknown_key", Some(5))]);
    assert_eq!(codes(&read("a = ").errors), [("not_toml", Some(1))]);
    assert_eq!(codes(&read(&"#".repeat(LARGEST + 1)).errors), [("too_large", None)]);
    assert_eq!(codes(&read("skill = 1\n[resources]\ninstructions = \"i\"").errors)[0], ("wrong_type", Some(1)));
    assert_eq!(read("").errors.len(), 2, "no [skill], no instructions");
}

#[test]
fn lengths_are_held_at_their_limits() {
    let with = |name: &str, description: &str| {
        let text = format!(
            "[skill]\nname = \"{name}\"\ndescription = \"{description}\"\nversion = \"1.0.0\"\n[resources]\ninstructions = \"i\""
        );
        read(&text).errors.len()
    };
    assert_eq!(with(&"a".repeat(64), &"é".repeat(1024)), 0);
    assert_eq!(with(&"a".repeat(65), "d"), 1);
    assert_eq!(with("a", &"é".repeat(1025)), 1);
}

#[test]
fn names_versions_and_paths_follow_their_rules() {
    for (text, yes) in [
        ("a", true),
        ("a-1", true),
        ("", false),
        ("-a", false),
        ("a-", false),
        ("a--b", false),
        ("A", false),
        ("a_b", false),
    ] {
        assert_eq!(is_name(text), yes, "{text}");
    }
    for (text, yes) in [
        ("1.0.0", true),
        ("0.10.2-rc.1+b.01", true),
        ("1.0.0-0a", true),
        ("1.0", false),
        ("1.0.0.0", false),
        ("01.0.0", false),
        ("1.0.0-", false),
        ("1.0.0-01", false),
        ("v1.0.0", false),
        ("1.0.0+", false),
    ] {
        assert_eq!(is_version(text), yes, "{text}");
    }
    for (text, yes) in [
        ("a", true),
        ("a/b/", true),
        ("", false),
        ("/a", false),
        ("a/../b", false),
        ("./a", false),
        ("a//b", false),
        ("C:a", false),
        ("a\\b", false),
        ("a\0", false),
    ] {
        assert_eq!(is_inside(text), yes, "{text}");
    }
}
