//! The history.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::oid::Oid;
use crate::repository::Git;
use crate::run::Run;
use helmdeck_core::Timestamp;

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Its id.
    pub oid: Oid,
    /// Its parents; several for a merge, none for the first commit.
    pub parents: Vec<Oid>,
    /// When it was committed.
    pub time: Timestamp,
    /// Who wrote the change.
    pub author: Person,
    /// The first line of its message; several lines before the first empty one are joined.
    pub subject: String,
    /// The message after the subject.
    pub body: String,
    /// The trailers: lines `Name: value` of the last paragraph, in order.
    ///
    /// Those with the prefix of [`Git::trailers_anywhere`] count in any paragraph.
    pub trailers: Vec<(String, String)>,
}

/// The author of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Person {
    /// The name.
    pub name: String,
    /// The address.
    pub email: String,
}

impl Commit {
    /// Returns the values of a trailer, in order. The case of its name does not matter.
    pub fn trailer<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.trailers
            .iter()
            .filter(move |(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Returns the whole message.
    #[must_use]
    pub fn message(&self) -> String {
        if self.body.is_empty() {
            format!("{}\n", self.subject)
        } else {
            format!("{}\n\n{}\n", self.subject, self.body)
        }
    }
}

/// The lines of a commit before its message.
const FORMAT: &str = "--format=%H%n%P%n%ct%n%an%n%ae%n%B";

/// The earliest Unix time that git takes for one: a smaller number is a day of the month to it.
const EARLIEST: i64 = 100_000_000;

/// Returns the option of `git log` and `git rev-list` for the commits since a Unix second.
#[must_use]
pub fn since(second: i64) -> String {
    format!("--since={}", second.max(EARLIEST))
}

impl Git {
    /// Returns the newest commits of a range (`HEAD`, `a..b`), newest first; none before the first
    /// commit.
    ///
    /// # Errors
    /// `E_GIT` if the range has an unknown name.
    pub fn log(&self, range: &str, limit: usize) -> Result<Vec<Commit>> {
        Ok(self
            .log_with_messages(range, limit)?
            .into_iter()
            .map(|(commit, _)| commit)
            .collect())
    }

    /// Returns the newest commits of a range with their verbatim messages.
    ///
    /// # Errors
    /// As [`Git::log`].
    pub fn log_with_messages(&self, range: &str, limit: usize) -> Result<Vec<(Commit, String)>> {
        self.log_of(&[&format!("--max-count={limit}")], range, &[])
    }

    /// Returns the commits of a range that options of `git log` choose, with their verbatim
    /// messages. With paths, those that change one of them.
    ///
    /// # Errors
    /// As [`Git::log`].
    pub fn log_of(
        &self,
        options: &[&str],
        range: &str,
        paths: &[&str],
    ) -> Result<Vec<(Commit, String)>> {
        let fixed = [
            "log",
            "-z",
            FORMAT,
            "--encoding=UTF-8",
            "--no-mailmap",
            "--no-notes",
        ];
        let args = [
            &fixed[..],
            options,
            &["--end-of-options", range, "--"],
            paths,
        ]
        .concat();
        let output = self.run(&args, &Run::default())?;
        if !output.ok() {
            // The only failure that is not the caller's is `HEAD` of a repository without commits.
            return match self.head()? {
                None => Ok(Vec::new()),
                Some(_) => Err(crate::repository::complaint(&args, &output)),
            };
        }
        Ok(output
            .stdout
            .split(|byte| *byte == 0)
            .filter_map(|record| parse(record, self.trailer_prefix()))
            .collect())
    }

    /// Returns one commit; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`Git::run`].
    pub fn commit(&self, name: &str) -> Result<Option<Commit>> {
        match self.resolve(name)? {
            Some(oid) => Ok(self.log(oid.as_str(), 1)?.pop()),
            None => Ok(None),
        }
    }
}

fn parse(record: &[u8], trailer_prefix: &str) -> Option<(Commit, String)> {
    let text = String::from_utf8_lossy(record);
    let mut lines = text.splitn(6, '\n');
    let mut next = || lines.next();
    let oid = Oid::parse(next()?)?;
    let parents = next()?.split(' ').filter_map(Oid::parse).collect();
    let time = seconds(next()?.parse().unwrap_or_default());
    let author = Person {
        name: next()?.to_owned(),
        email: next()?.to_owned(),
    };
    let message = next()?;
    let (subject, body) = split(message);
    let trailers = trailers(&body, trailer_prefix);
    Some((
        Commit {
            oid,
            parents,
            time,
            author,
            subject,
            body,
            trailers,
        },
        message.to_owned(),
    ))
}

/// Splits a message into its subject and its body, as git does.
#[must_use]
pub fn split(message: &str) -> (String, String) {
    let mut lines = message
        .lines()
        .map(str::trim_end)
        .skip_while(|line| line.is_empty());
    let subject: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let rest: Vec<&str> = lines.skip_while(|line| line.is_empty()).collect();
    (subject.join(" "), rest.join("\n").trim_end().to_owned())
}

/// Returns the trailers of a message.
///
/// These are the lines of the last paragraph if all of them are trailers, and any trailer with the
/// prefix.
#[must_use]
pub fn trailers(body: &str, prefix: &str) -> Vec<(String, String)> {
    let last = body.trim_end().rsplit("\n\n").next().unwrap_or_default();
    let from = body.trim_end().len() - last.len();
    let all = last
        .lines()
        .all(|line| trailer(line).is_some() || line.starts_with([' ', '\t']));
    let mut found: Vec<(String, String)> = Vec::new();
    let (mut at, mut open) = (0, false);
    for line in body.split_inclusive('\n') {
        let in_last = all && at >= from;
        at += line.len();
        let text = line.trim_end();
        match trailer(text) {
            Some((name, value)) if in_last || has_prefix(name, prefix) => {
                found.push((name.to_owned(), value.to_owned()));
                open = true;
            }
            // An indented line continues the previous one.
            None if open && in_last && text.starts_with([' ', '\t']) => {
                if let Some((_, value)) = found.last_mut() {
                    value.push(' ');
                    value.push_str(text.trim());
                }
            }
            _ => open = false,
        }
    }
    found
}

pub(crate) fn seconds(seconds: i64) -> Timestamp {
    Timestamp(seconds.saturating_mul(1_000_000))
}

fn has_prefix(name: &str, prefix: &str) -> bool {
    !prefix.is_empty()
        && name
            .get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Parses a trailer line `Name: value`.
#[must_use]
pub fn trailer(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let is_name = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let value = value.strip_prefix([' ', '\t'])?.trim();
    (is_name && !value.is_empty()).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Repository;

    #[test]
    fn newest_commits_come_first() {
        let repository = Repository::new();
        let git = repository.git();
        assert_eq!(git.log("HEAD", 5).unwrap(), []);
        let first = repository.commit(
            "first\n\nbody: of it\n\nmore\n\nSigned-off-by: A <a@b>\nFixes: #1\n  and #2\n",
        );
        let second = repository.commit("second\nline");
        let log = git.log("HEAD", 5).unwrap();
        assert_eq!(log.len(), 2);
        assert_eq!(
            (&log[0].oid, log[0].subject.as_str(), log[0].body.as_str()),
            (&second, "second line", "")
        );
        assert_eq!(log[0].parents, std::slice::from_ref(&first));
        assert_eq!(log[1].author.email, "ann@example.com");
        assert_eq!(
            log[1].body,
            "body: of it\n\nmore\n\nSigned-off-by: A <a@b>\nFixes: #1\n  and #2"
        );
        assert_eq!(log[1].trailer("fixes").collect::<Vec<_>>(), ["#1 and #2"]);
        assert_eq!(log[1].trailers.len(), 2);
        assert_eq!(git.log(&format!("{first}..HEAD"), 5).unwrap().len(), 1);
        assert_eq!(git.log("HEAD", 1).unwrap().len(), 1);
        assert_eq!(git.log("nothing", 5).unwrap_err().code, "E_GIT");
        assert_eq!(
            git.log("--all", 5).unwrap_err().code,
            "E_GIT",
            "a range is never an option"
        );
        assert_eq!(git.commit("HEAD~1").unwrap().unwrap().oid, first);
        assert_eq!(git.commit("nothing").unwrap(), None);
    }

    #[test]
    fn trailers_with_prefix_count_in_every_paragraph() {
        let body = "Forge-Session: a\nForge-Linear: X-1\n\n* [X-2] second\n\nNote: no trailer\n\nForge-Session: b\nother text";
        let found = trailers(body, "Forge-");
        let short: Vec<_> = found
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            short,
            ["Forge-Session=a", "Forge-Linear=X-1", "Forge-Session=b"]
        );
    }
}
