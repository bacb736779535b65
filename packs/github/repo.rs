//! Names of repositories. A name that could leave its place in a path is refused.

use helmdeck_core::{Code, Error};
use serde::Deserialize;

/// A repository's `owner/name`, checked.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Repo {
    pub(super) owner: String,
    pub(super) name: String,
}

impl TryFrom<String> for Repo {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        let good = |part: &str| {
            !matches!(part, "" | "." | "..")
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
        };
        match text.split_once('/') {
            Some((owner, name)) if good(owner) && good(name) => Ok(Self {
                owner: owner.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(Error::new(
                Code::InvalidInput,
                "repo must be \"owner/name\"",
            )),
        }
    }
}

impl Repo {
    /// Returns the path segments of something in this repository.
    pub(super) fn path<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        [&["repos", &self.owner, &self.name], rest].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_owner_and_name_make_a_repository() {
        let repo = Repo::try_from("rust-lang/rust.vim_2".to_owned()).unwrap();
        assert_eq!(
            repo.path(&["issues"]),
            ["repos", "rust-lang", "rust.vim_2", "issues"]
        );
        for text in [
            "", "a", "a/", "/b", "a/b/c", "../b", "a/..", "./b", "a/b?c", "a/b#c", "a%2f/b",
            "a/b c", "ä/b", "a\n/b",
        ] {
            assert!(Repo::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
