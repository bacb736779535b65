//! Tests of the command line definitions.

use clap::CommandFactory;

use super::*;

#[test]
fn the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn packs_and_namespaces_are_read() {
    let pack = PackRef::parse("a.b@v3").unwrap();
    assert_eq!(
        (pack.name.as_str(), pack.version.unwrap().number()),
        ("a.b", 3)
    );
    assert!(PackRef::parse("a.b@latest").unwrap().version.is_none());
    assert!(PackRef::parse("a.b@3").is_err());
    assert_eq!(
        parse_namespace("t/u").unwrap(),
        Namespace::new("t", "u", None)
    );
    assert_eq!(
        parse_namespace("t/u/s/1").unwrap(),
        Namespace::new("t", "u", Some("s/1"))
    );
    assert_eq!(
        parse_namespace("t/").unwrap(),
        Namespace::new("t", "", None)
    );
    assert!(
        parse_namespace("t").is_err()
            && parse_namespace("/u").is_err()
            && parse_namespace("t/u/").is_err()
    );
}

#[test]
fn no_cache_means_what_it_means_over_http() {
    let parse = |arguments: &[&str]| match Cli::try_parse_from(arguments).unwrap().command {
        Command::Run(run) => run.directive(),
        _ => unreachable!(),
    };
    assert_eq!(
        parse(&["helmdeck", "run", "a.b", "--no-cache"]),
        Directive::Refresh
    );
    assert_eq!(
        parse(&["helmdeck", "run", "a.b", "--cache", "only-if-cached"]),
        Directive::OnlyIfCached
    );
    assert_eq!(parse(&["helmdeck", "run", "a.b"]), Directive::Default);
}

#[test]
fn a_purge_needs_exactly_one_choice() {
    assert!(Cli::try_parse_from(["helmdeck", "cache", "purge"]).is_err());
    assert!(Cli::try_parse_from(["helmdeck", "cache", "purge", "--all", "--tag", "x"]).is_err());
    assert!(Cli::try_parse_from(["helmdeck", "cache", "purge", "--tag", "x"]).is_ok());
}
