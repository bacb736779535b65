use super::*;
use crate::fixture::Fixture;

/// The forms as the RFC prints them.
const FEATURE: &str = include_str!("rfc_feature.yaml");
const BUG: &str = include_str!("rfc_bug.yaml");

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture
        .repository
        .write(".forge/linear/templates/feature.yaml", FEATURE);
    fixture
        .repository
        .write(".forge/linear/templates/bug.yaml", BUG);
    fixture
}

fn values(pairs: &[(&str, &[&str])]) -> Values {
    pairs
        .iter()
        .map(|(name, all)| {
            (
                (*name).to_owned(),
                all.iter().map(|one| (*one).to_owned()).collect(),
            )
        })
        .collect()
}

fn checked(forms: &Forms<'_>, name: &str, values: &Values) -> check::Checked {
    check::check(&forms.show(name).unwrap(), values)
}

const GOOD: &[(&str, &[&str])] = &[
    ("title", &["Halve a number"]),
    ("description", &["Round down.\n\n## Not a field\n\n- x"]),
    ("parent_rfc", &["RFC-9060"]),
    ("affected_crates", &["alpha", "root"]),
    ("acceptance_criteria", &["It halves 4", "It halves -1"]),
    ("qa_requirements", &["unit_tests"]),
];

fn with_crates() -> Fixture {
    let fixture = fixture();
    let write = |path: &str, text: &str| fixture.repository.write(path, text);
    write(
        "Cargo.toml",
        "[package]\nname = \"root\"\n[workspace]\nmembers = [\"crates/*\", \"other\"]\nexclude = [\"crates/no\"]\n",
    );
    write("crates/a/Cargo.toml", "[package]\nname = \"alpha\"\n");
    write("crates/no/Cargo.toml", "[package]\nname = \"no\"\n");
    write("other/Cargo.toml", "[package]\nname = \"beta\"\n");
    fixture
}

#[test]
fn the_forms_of_the_rfc_load_unchanged() {
    let form = parse(FEATURE).unwrap();
    assert_eq!((form.template.as_str(), form.fields.len()), ("feature", 6));
    assert_eq!(
        form.fields[3].options,
        [Choice::From {
            from: OptionSource::WorkspaceCrates
        }]
    );
    assert_eq!(form.fields[5].options.len(), 3);
    assert_eq!(form.fields[4].min_items, Some(1));
    assert!(
        form.other.is_empty() && form.fields.iter().all(|field| field.other.is_empty()),
        "every member is known"
    );
    let form = parse(BUG).unwrap();
    assert_eq!((form.template.as_str(), form.fields.len()), ("bug", 5));
    assert_eq!(form.fields[0].pattern_kind(), PatternKind::Wildcard);
    assert_eq!(form.fields[4].pattern_kind(), PatternKind::Regex);
    // Those that `init` writes say the same.
    for (ours, theirs) in [
        (include_str!("../init/forms/feature.yaml"), FEATURE),
        (include_str!("../init/forms/bug.yaml"), BUG),
    ] {
        let mut ours = parse(ours).unwrap();
        let theirs = parse(theirs).unwrap();
        ours.fields
            .iter_mut()
            .for_each(|field| field.pattern_kind = None);
        assert_eq!(ours, theirs);
    }
}

#[test]
fn a_filled_form_becomes_an_issue() {
    let fixture = with_crates();
    let forms = Forms::new(&fixture.project);
    let names: Vec<_> = forms
        .list()
        .unwrap()
        .into_iter()
        .map(|form| form.name)
        .collect();
    assert_eq!(names, ["bug", "feature"]);
    let shown = forms.show("feature").unwrap();
    assert_eq!(shown.options["affected_crates"], ["alpha", "beta", "root"]);
    let more = IssueFields {
        labels: Some(vec!["math".to_owned()]),
        ..IssueFields::default()
    };
    let issue = forms.add("feature", &values(GOOD), &more).unwrap().issue;
    assert_eq!(
        (issue.title.as_str(), issue.kind.as_deref()),
        ("Halve a number", Some("feature"))
    );
    let criteria: Vec<_> = issue
        .acceptance_criteria
        .iter()
        .map(crate::issues::Criterion::text)
        .collect();
    assert_eq!(criteria, ["It halves 4", "It halves -1"]);
    assert_eq!(issue.labels, ["math"]);
    let body = issue.description.unwrap();
    assert!(
        body.contains("\n## Affected crates\n\n- alpha\n- root\n"),
        "{body}"
    );
}

#[test]
fn every_error_is_named_at_once() {
    let fixture = with_crates();
    let forms = Forms::new(&fixture.project);
    let wrong = values(&[
        ("description", &[" "]),
        ("parent_rfc", &["RFC-12"]),
        ("affected_crates", &["gamma"]),
        ("qa_requirements", &["unit_tests", "manual_qa"]),
        ("more", &["x"]),
    ]);
    let checked = checked(&forms, "feature", &wrong);
    let fields: Vec<_> = checked
        .errors
        .iter()
        .map(|error| error.split(' ').next().unwrap())
        .collect();
    assert_eq!(
        fields,
        [
            "more",
            "title",
            "description",
            "parent_rfc",
            "affected_crates",
            "acceptance_criteria",
            "qa_requirements"
        ]
    );
    let error = forms
        .add("feature", &wrong, &IssueFields::default())
        .unwrap_err();
    assert!(
        error.code == "E_FORM" && error.message.contains("title is required"),
        "{error}"
    );
    assert_eq!(forms.show("none").unwrap_err().category, Category::NotFound);
}

#[test]
fn the_title_of_a_bug_is_a_wildcard() {
    let fixture = fixture();
    let forms = Forms::new(&fixture.project);
    let errors = |title: &str, range: &str| {
        let given = values(&[
            ("title", &[title]),
            ("reproduction_steps", &["Run it"]),
            ("git_bisect_range", &[range]),
        ]);
        checked(&forms, "bug", &given).errors.len()
    };
    assert_eq!(errors("[BUG] crash", "0123abc..4567def"), 0);
    for (title, range) in [
        ("crash", ""),
        ("[BUG] ", ""),
        ("B crash", ""),
        ("[BUG] x", "0123abc...4567def"),
    ] {
        assert_eq!(errors(title, range), 1, "{title} {range}");
    }
}

#[test]
fn a_source_without_options_asks_for_nothing() {
    let fixture = fixture();
    let text = "template: t\nfields:\n  - name: title\n    type: text\n  - name: crates\n    type: multi_select\n    \
                required: true\n    min_items: 2\n    options: [from: workspace_crates]\n";
    fixture
        .repository
        .write(".forge/linear/templates/t.yml", text);
    let checked = checked(
        &Forms::new(&fixture.project),
        "t",
        &values(&[("title", &["x"])]),
    );
    assert_eq!((checked.errors.len(), checked.warnings.len()), (0, 1));
}

#[test]
fn a_wrong_form_is_named_with_its_line() {
    let fixture = fixture();
    for (text, part) in [
        ("template: t\nfields:\n  - name: &x title\n", "t.yaml:3: "),
        ("template: t\nfields: []\n", "a form has a field title"),
        (
            "template: t\nfields:\n  - {name: title, type: text}\n  - {name: a, type: select}\n",
            "a has no options",
        ),
        (
            "template: t\nfields:\n  - {name: title, type: text, pattern: \"(\"}\n",
            "pattern",
        ),
        (
            "template: t\nfields:\n  - {name: title, type: color}\n",
            "color",
        ),
    ] {
        fixture
            .repository
            .write(".forge/linear/templates/t.yaml", text);
        let forms = Forms::new(&fixture.project);
        let error = forms.show("t").unwrap_err();
        assert!(
            error.code == "E_CORRUPT" && error.message.contains(part),
            "{text}: {error}"
        );
        assert!(
            forms
                .list()
                .unwrap()
                .iter()
                .any(|form| form.name == "t" && form.problem.is_some())
        );
    }
}

#[test]
fn plain_texts_of_a_form_have_the_types_of_json() {
    for (text, expected) in [
        (
            "a: 1\nb: -2.5\nc: \"1\"\nd: 1.2.3\n",
            r#"{"a":1,"b":-2.5,"c":"1","d":"1.2.3"}"#,
        ),
        (
            "a: true\nb: ~\nc:\nd: 'null'\ne: 2025-12-24\n",
            r#"{"a":true,"b":null,"c":null,"d":"null","e":"2025-12-24"}"#,
        ),
        ("- [x, False]\n- {}\n", r#"[["x",false],{}]"#),
        ("", "null"),
    ] {
        assert_eq!(
            serde_json::to_string(&json(yaml::parse(text).unwrap())).unwrap(),
            expected,
            "{text}"
        );
    }
}

/// A form of a stranger must not keep anybody waiting, whatever it holds.
#[test]
fn huge_forms_are_listed_with_their_problem() {
    let fixture = fixture();
    for (at, unit) in ["x\n", "x,\n", "[", "\"", "- "].iter().enumerate() {
        let text = format!("a: [x\n{}", unit.repeat(160_000 / unit.len()));
        fixture
            .repository
            .write(&format!(".forge/linear/templates/evil{at}.yaml"), &text);
    }
    let all = Forms::new(&fixture.project).list().unwrap();
    let evil: Vec<_> = all
        .iter()
        .filter(|form| form.name.starts_with("evil"))
        .collect();
    assert_eq!(evil.len(), 5);
    for form in evil {
        assert!(
            form.problem
                .as_ref()
                .is_some_and(|why| why.contains(".yaml:1: it has 1600")),
            "{form:?}"
        );
    }
    assert!(
        all.iter()
            .any(|form| form.name == "bug" && form.problem.is_none())
    );
}

#[test]
fn a_body_over_the_limit_is_refused() {
    let fixture = fixture();
    let long = "x".repeat(250_000);
    let given = values(&[("title", &["[BUG] x"]), ("reproduction_steps", &[&long])]);
    let errors = checked(&Forms::new(&fixture.project), "bug", &given).errors;
    assert!(
        errors.len() == 1 && errors[0].contains("250000"),
        "{errors:?}"
    );
}

#[test]
fn damaged_form_is_named_by_doctor_and_health() {
    let fixture = fixture();
    assert!(Forms::new(&fixture.project).damaged().unwrap().is_empty());
    let path = ".forge/linear/templates/bug.yaml";
    fixture.repository.write(path, "x: [\n");
    let doctor = crate::init::doctor(&fixture.project, false).unwrap();
    let found = doctor
        .found
        .iter()
        .find(|found| found.path == path)
        .unwrap();
    assert!(
        !doctor.healthy && found.detail.starts_with("the form cannot be used: "),
        "{found:?}"
    );
    let reasons = crate::health::measure(&fixture.project).long_term.reasons;
    assert!(
        reasons.iter().any(|reason| reason.detail.contains(path)),
        "{reasons:?}"
    );
}
