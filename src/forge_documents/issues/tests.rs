use super::*;
use helmdeck_forge_files::json::print;

const ISSUE: &str = include_str!("../fixtures/issue.json");

#[test]
fn the_issue_of_the_rfc_loads_and_saves_back() {
    let issue: Issue = serde_json::from_str(ISSUE).unwrap();
    assert_eq!(
        (issue.linear_id.as_str(), issue.kind.as_deref()),
        ("SX9-123", Some("feature"))
    );
    assert_eq!(issue.owner(), Some("Forge"));
    assert_eq!(issue.acceptance_criteria.len(), 3);
    assert!(issue.other.is_empty(), "every member is known");
    // The RFC separates groups by empty lines, which this program does not write.
    assert_eq!(
        String::from_utf8(print(&issue).unwrap()).unwrap(),
        ISSUE.replace("\n\n", "\n")
    );
}

#[test]
fn a_bare_list_is_read_as_the_issues_of_a_file() {
    let bare: Active = serde_json::from_str(&format!("[{ISSUE}]")).unwrap();
    let whole: Active =
        serde_json::from_str(&format!("{{\"issues\": [{ISSUE}], \"mine\": 1}}")).unwrap();
    assert_eq!(bare.issues, whole.issues);
    assert_eq!(
        (bare.schema_version.as_str(), bare.synced_at),
        ("1.0", None)
    );
    assert!(whole.other.0.contains_key("mine"));
    assert_eq!(
        String::from_utf8(print(&Active::empty()).unwrap()).unwrap(),
        "{\n  \"schema_version\": \"1.0\",\n  \"synced_at\": null,\n  \"issues\": []\n}\n"
    );
    for no in [
        "{}",
        "3",
        "[3]",
        "{\"issues\": 3}",
        "{\"issues\": [], \"a\": 1, \"a\": 2}",
    ] {
        assert!(serde_json::from_str::<Active>(no).is_err(), "{no}");
    }
}

#[test]
fn a_criterion_is_a_sentence_or_says_whether_it_holds() {
    let text =
        r#"["a",{"text":"b","done":true,"evidence":"c","more":1},{"text":"d","done":false}]"#;
    let read: Vec<Criterion> = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    assert!(serde_json::from_str::<Criterion>("{\"done\": true}").is_err());
}

#[test]
fn what_the_types_cannot_say_is_checked() {
    let issue = |key: &str| Issue {
        linear_id: key.to_owned(),
        ..Issue::default()
    };
    let check = |issues: Vec<Issue>| {
        Active {
            issues,
            ..Active::empty()
        }
        .check()
    };
    assert_eq!(check(vec![issue("A-1"), issue("A-2")]), Ok(()));
    assert!(
        check(vec![issue("A-1"), issue("A-1")])
            .unwrap_err()
            .contains("twice")
    );
    assert!(
        check(vec![issue("SX9-xxx")])
            .unwrap_err()
            .contains("placeholder")
    );
    assert!(
        check(vec![Issue {
            priority: Some(5),
            ..issue("A-1")
        }])
        .unwrap_err()
        .contains("priority")
    );
    assert_eq!(
        check(vec![Issue {
            priority: Some(4),
            ..issue("A-1")
        }]),
        Ok(())
    );
}

#[test]
fn own_file_has_every_member_and_reads_back() {
    let bare = Issue {
        linear_id: "A-1".to_owned(),
        title: "t".to_owned(),
        ..Issue::default()
    };
    let full: Issue = serde_json::from_str(ISSUE).unwrap();
    let lines = |issue: &Issue| String::from_utf8(issue.print().unwrap()).unwrap();
    for issue in [&bare, &full] {
        let read: Issue = serde_json::from_str(&lines(issue)).unwrap();
        assert_eq!(read.plain(), *issue);
    }
    for member in [
        "\n\n  \"priority\": null,\n\n",
        "\n\n  \"agent_state\": null,\n\n",
        "\n\n  \"labels\": [],\n\n",
    ] {
        assert!(lines(&bare).contains(member), "{member}");
    }
}
