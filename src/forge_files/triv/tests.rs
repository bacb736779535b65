use proptest::prelude::*;
use regex::Regex;

use super::*;

const ID: &str = "0193f6b0-8c00-7000-8000-000000000001";

fn context() -> Context<'static> {
    Context {
        kind: "code",
        session: "2025-12-24-session-001",
        agent: "Forge",
        key: Some("SX9-123"),
        head: None,
        name: "feature.rs",
    }
}

fn pattern<T: JsonSchema>() -> Regex {
    let schema = T::json_schema(&mut SchemaGenerator::default());
    Regex::new(schema.get("pattern").unwrap().as_str().unwrap()).unwrap()
}

#[test]
fn the_vectors_of_triv_1_hold() {
    assert_eq!(
        format!("{:032x}", murmur(b"hello", 0)),
        "5b1e906a48ae1d19cbd8a7b341bd9b02"
    );
    assert_eq!(sch(b""), "3nec5pfiewi6en74ae8ja1zz9");
    assert_eq!(sch(b"hello"), "55s8mvcf9diit4jklel4a08px");
    assert_eq!(sch(b"fn main() {}\n"), "2d74j8qqmvtroxz0ax7jdli74");
    assert_eq!(cuid(&context()).unwrap(), "06jdbyhg8amm4");
    assert_eq!(base36(u128::MAX, SCH_LEN), "f5lxx1zz5pnorynqglhzmsp33");
    assert_eq!(base36(u128::from(u64::MAX), CUID_LEN), "3w5e11264sgsf");
}

#[test]
fn a_whole_name_has_81_characters_and_reads_back() {
    let name = Triv::new(b"fn main() {}\n", &context(), ID.parse().unwrap()).unwrap();
    let text = name.to_string();
    assert_eq!(
        text,
        format!("triv:2d74j8qqmvtroxz0ax7jdli74_06jdbyhg8amm4_{ID}")
    );
    assert_eq!(text.len(), 81);
    assert_eq!(Triv::parse(&text), Ok(name.clone()));
    assert_eq!(
        serde_json::from_str::<Triv>(&serde_json::to_string(&name).unwrap()).unwrap(),
        name
    );
    let upper = text.to_uppercase();
    let v4 = text.replace("-7000-", "-4000-");
    let variant = text.replace("-8000-", "-c000-");
    let bare = text.replace('-', "");
    for no in [
        "",
        "triv:",
        "triv:abc_def_ghi",
        &text[..80],
        &text[1..],
        &upper,
        &v4,
        &variant,
        &bare,
    ] {
        assert!(Triv::parse(no).is_err(), "{no}");
        assert!(!pattern::<Triv>().is_match(no), "{no}");
    }
    assert!(
        Triv::new(
            b"",
            &context(),
            "0193f6b0-8c00-4000-8000-000000000001".parse().unwrap()
        )
        .is_err()
    );
}

#[test]
fn no_two_contexts_are_written_alike() {
    let torn = Context {
        session: "s\nForge",
        ..context()
    };
    assert!(cuid(&torn).is_err());
    let with_head = Context {
        head: Some("abc"),
        ..context()
    };
    assert_ne!(cuid(&with_head).unwrap(), cuid(&context()).unwrap());
}

#[test]
fn a_reference_finds_by_the_beginnings_of_its_parts() {
    let all: Vec<Triv> = [("hello", 1), ("hello", 2), ("world", 3)]
        .map(|(text, n)| {
            let id = format!("0193f6b0-8c00-7000-8000-00000000000{n}")
                .parse()
                .unwrap();
            Triv::new(text.as_bytes(), &context(), id).unwrap()
        })
        .into();
    let found = |text: &str| -> Vec<usize> {
        let reference = Reference::parse(text).unwrap();
        (0..all.len())
            .filter(|at| reference.matches(&all[*at]))
            .collect()
    };
    assert!(found("triv:abc_def_ghi").is_empty());
    assert_eq!(found("triv:55s8_06j_0193").len(), 2);
    assert_eq!(found(&format!("triv:{}_06j_019", &all[2].sch()[..5])), [2]);
    assert_eq!(found(&all[1].to_string()), [1]);
    assert!(
        found("triv:55s8_06k_0193").is_empty(),
        "every part has to fit"
    );
    for no in [
        "triv:ab_def_ghi",
        "triv:abc_def",
        "abc_def_ghi",
        "triv:ABC_def_ghi",
        "triv:abc_def_ghi_",
        "triv:abc_def_gh i",
    ] {
        assert!(Reference::parse(no).is_err(), "{no}");
        assert!(!pattern::<Reference>().is_match(no), "{no}");
    }
    let kept = "\"triv:abc_def_ghi\"";
    assert_eq!(
        serde_json::to_string(&serde_json::from_str::<Reference>(kept).unwrap()).unwrap(),
        kept
    );
}

#[test]
fn the_file_names_of_the_rfc_are_read() {
    for (text, short, slug) in [
        ("triv_abc123_feature.rs", "abc123", "feature.rs"),
        ("triv_def456_readme.md", "def456", "readme.md"),
        ("triv_ghi789_qa_report.json", "ghi789", "qa_report.json"),
    ] {
        let name = FileName::parse(text).unwrap();
        assert_eq!((name.short(), name.slug()), (short, slug));
        assert_eq!(name.to_string(), text);
    }
    let long = "0".repeat(26);
    for no in [
        "triv_abc12_a.rs",
        "triv_ABC123_a.rs",
        "triv_abc123",
        "triv_abc123_",
        "triv_abc123_.rs",
        "triv_abc123_a/b",
        "x",
        &format!("triv_{long}_a.rs"),
    ] {
        assert!(FileName::parse(no).is_err(), "{no}");
    }
}

#[test]
fn a_short_that_another_has_grows_until_it_is_its_own() {
    let sch = sch(b"hello");
    assert_eq!(
        FileName::new(&sch, "a.txt", |_| false).to_string(),
        "triv_55s8mvcf9dii_a.txt"
    );
    let taken = ["55s8mvcf9dii", "55s8mvcf9diit"];
    assert_eq!(
        FileName::new(&sch, "a.txt", |short| taken.contains(&short)).short(),
        "55s8mvcf9diit4"
    );
    assert_eq!(FileName::new(&sch, "a.txt", |_| true).short(), sch);
}

#[test]
fn slugs_are_plain() {
    for (name, plain) in [
        ("feature.rs", "feature.rs"),
        ("QA Report.JSON", "qa-report.json"),
        ("../../etc/passwd", "etc-passwd"),
        (".gitignore", "gitignore"),
        ("é.md", "file.md"),
        ("_-x", "x"),
        ("", "file"),
        ("..", "file"),
    ] {
        assert_eq!(slug(name), plain, "{name:?}");
    }
    let long = slug(&format!("{}.json", "a".repeat(300)));
    assert_eq!(long.len(), SLUG_MAX);
    assert!(long.ends_with("aa.json"));
}

proptest! {
    #[test]
    fn every_name_reads_back(bytes in prop::collection::vec(any::<u8>(), 0..200), name in "[^\n]{0,40}", n in any::<u64>()) {
        let uuid = uuid::Builder::from_unix_timestamp_millis(n >> 16, &[7; 10]).into_uuid();
        let triv = Triv::new(&bytes, &Context { name: &name, ..context() }, uuid).unwrap();
        let text = triv.to_string();
        prop_assert_eq!(text.len(), 81);
        prop_assert!(pattern::<Triv>().is_match(&text));
        prop_assert!(Reference::parse(&text).unwrap().matches(&triv));
        prop_assert_eq!(Triv::parse(&text), Ok(triv.clone()));
        let file = FileName::new(triv.sch(), &name, |_| false);
        prop_assert!(file.to_string().len() < 160);
        prop_assert_eq!(FileName::parse(&file.to_string()), Ok(file));
    }

    #[test]
    fn what_parses_is_what_the_patterns_say(text in "(triv:)?[0-9a-zA-Z_-]{0,90}|triv:[0-9a-z]{2,26}_[0-9a-z]{2,14}_[0-9a-z-]{2,37}") {
        prop_assert_eq!(Reference::parse(&text).is_ok(), pattern::<Reference>().is_match(&text));
        prop_assert_eq!(Triv::parse(&text).is_ok(), pattern::<Triv>().is_match(&text));
    }

    #[test]
    fn any_beginning_of_the_parts_is_a_reference(sch in 3_usize..=25, cuid in 3_usize..=13, uuid in 3_usize..=36) {
        let name = Triv::new(b"hello", &context(), ID.parse().unwrap()).unwrap();
        let text = format!("triv:{}_{}_{}", &name.sch()[..sch], &name.cuid()[..cuid], &ID[..uuid]);
        prop_assert!(Reference::parse(&text).unwrap().matches(&name));
    }

    #[test]
    fn a_slug_stays_as_it_is(name in ".{0,200}") {
        let once = slug(&name);
        prop_assert!(is_slug(once.as_bytes()) && once.len() <= SLUG_MAX, "{}", once);
        prop_assert_eq!(slug(&once), once);
    }
}
