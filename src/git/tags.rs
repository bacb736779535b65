//! Annotated tags.

use crate::error::{Error, Result};
use crate::oid::Oid;
use crate::refs::Updated;
use crate::repository::{Git, complaint};
use crate::run::Run;
use helmdeck_core::Timestamp;

/// A tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    /// Its name, without `refs/tags/`.
    pub name: String,
    /// The id of the tag object, or of the tagged object for a lightweight tag.
    pub oid: Oid,
    /// The tagged commit, which may be missing in this clone ([`Tag::here`]).
    ///
    /// `None` if something else is tagged or the tag is unreadable.
    pub commit: Option<Oid>,
    /// Whether that commit is here. In a shallow clone it may be missing.
    pub here: bool,
    /// Whether it is annotated.
    pub annotated: bool,
    /// The message without a signature; empty for a lightweight tag.
    pub message: String,
    /// The time of the tagger; `None` for a lightweight tag.
    pub time: Option<Timestamp>,
}

/// The result of creating a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// The tag was created.
    Created,
    /// A tag of that name existed and was not changed.
    AlreadyExists,
}

impl Git {
    /// Returns the tags with a prefix (`checkpoint/`), sorted by name. Damaged tags are included.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn tags(&self, prefix: &str) -> Result<Vec<Tag>> {
        let folder = prefix.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut refs = self.references(format!("refs/tags/{folder}").trim_end_matches('/'))?;
        refs.retain(|(name, _)| {
            name.strip_prefix("refs/tags/")
                .is_some_and(|name| name.starts_with(prefix))
        });
        let names: String = refs.iter().map(|(_, oid)| format!("{oid}\n")).collect();
        let objects = self.objects(&names)?;
        let mut tags: Vec<Tag> = refs
            .into_iter()
            .zip(objects)
            .map(|((name, oid), object)| {
                let name = name.trim_start_matches("refs/tags/").to_owned();
                let mut tag = Tag {
                    name,
                    oid,
                    commit: None,
                    here: false,
                    annotated: false,
                    message: String::new(),
                    time: None,
                };
                match object {
                    Some(object) if object.kind == "tag" => {
                        fill(&mut tag, &String::from_utf8_lossy(&object.bytes))
                    }
                    Some(object) if object.kind == "commit" => tag.commit = Some(object.oid),
                    _ => {}
                }
                tag
            })
            .collect();
        let commits: String = tags
            .iter()
            .filter_map(|tag| Some(format!("{}\n", tag.commit.as_ref()?)))
            .collect();
        if !commits.is_empty() {
            let run = Run {
                stdin: commits.into(),
                ..Run::default()
            };
            let checked = self
                .succeed(&["cat-file", "--batch-check=%(objecttype)"], &run)?
                .text();
            let marked = tags.iter_mut().filter(|tag| tag.commit.is_some());
            marked
                .zip(checked.lines())
                .for_each(|(tag, kind)| tag.here = kind == "commit");
        }
        Ok(tags)
    }

    /// Returns one tag; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`Git::succeed`].
    pub fn tag(&self, name: &str) -> Result<Option<Tag>> {
        Ok(self.tags(name)?.into_iter().find(|tag| tag.name == name))
    }

    /// Creates an annotated tag, signed if the user's settings say so.
    ///
    /// Of several concurrent calls, one creates it.
    ///
    /// # Errors
    /// `E_USAGE` if the name is invalid; `E_GIT` if it cannot be written.
    pub fn create_tag(&self, name: &str, at: &Oid, message: &str) -> Result<Created> {
        let full = format!("refs/tags/{name}");
        if !self.is_reference_name(&full)? {
            return Err(Error::usage(format!("{name:?} is no name of a tag")));
        }
        let mut run = Run::writing().stdin(message);
        run.environment = self.identity()?;
        let args = [
            "tag",
            "--annotate",
            "--file=-",
            "--cleanup=verbatim",
            "--end-of-options",
            name,
            at.as_str(),
        ];
        let output = self.run(&args, &run)?;
        if output.ok() {
            return Ok(Created::Created);
        }
        if self.reference(&full)?.is_some() {
            Ok(Created::AlreadyExists)
        } else {
            Err(complaint(&args, &output))
        }
    }

    /// Deletes a tag if it has not changed since it was read.
    ///
    /// # Errors
    /// `E_REFUSED` if it has changed; `E_GIT` if it cannot be written.
    pub fn drop_tag(&self, tag: &Tag, reason: &str) -> Result<()> {
        match self.update_ref(
            &format!("refs/tags/{}", tag.name),
            None,
            Some(&tag.oid),
            reason,
        )? {
            Updated::Done => Ok(()),
            Updated::Differs => Err(Error::refused(format!(
                "the tag {} is another one now",
                tag.name
            ))),
        }
    }
}

/// Parses a tag object: lines `object`, `type`, `tag` and `tagger`, an empty line, the message.
fn fill(tag: &mut Tag, text: &str) {
    let (head, message) = text.split_once("\n\n").unwrap_or((text, ""));
    let field = |name: &str| {
        head.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
    };
    tag.annotated = true;
    tag.commit = field("object")
        .and_then(Oid::parse)
        .filter(|_| field("type") == Some("commit"));
    let seconds = field("tagger").and_then(|line| line.rsplit(' ').nth(1)?.parse().ok());
    tag.time = seconds.map(crate::log::seconds);
    let signature = [
        "-----BEGIN PGP SIGNATURE-----",
        "-----BEGIN SSH SIGNATURE-----",
        "-----BEGIN SIGNED MESSAGE-----",
    ];
    let end = signature
        .iter()
        .filter_map(|mark| message.find(mark))
        .min()
        .unwrap_or(message.len());
    tag.message = message[..end].to_owned();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Repository;

    #[test]
    fn tag_is_created_once_and_read_back() {
        let repository = Repository::new();
        let git = repository.git();
        let first = repository.commit("first");
        let second = repository.commit("second");
        let message = "Working\n\n# no comment\n{\n  \"a\": 1\n}\n";
        let name = "checkpoint/SX9-123-v1";
        assert_eq!(
            git.create_tag(name, &first, message).unwrap(),
            Created::Created
        );
        assert_eq!(
            git.create_tag(name, &second, message).unwrap(),
            Created::AlreadyExists
        );
        assert_eq!(
            git.create_tag("checkpoint/a:b", &second, message)
                .unwrap_err()
                .code,
            "E_USAGE"
        );
        assert_eq!(
            git.create_tag("checkpoint/SX9-123-v1/a", &second, message)
                .unwrap_err()
                .code,
            "E_GIT"
        );
        repository.run(&["tag", "checkpoint/light"]);
        repository.run(&["tag", "other"]);
        let tags = git.tags("checkpoint/").unwrap();
        assert_eq!(tags.len(), 2);
        assert_eq!(
            (tags[0].name.as_str(), &tags[0].commit, tags[0].here),
            (name, &Some(first), true)
        );
        assert_eq!(
            (tags[0].message.as_str(), tags[0].annotated),
            (message, true)
        );
        assert!(tags[0].time.is_some());
        assert_eq!(
            (tags[1].annotated, &tags[1].commit, tags[1].here),
            (false, &Some(second), true)
        );
        assert_eq!(
            git.tag("checkpoint/SX9-123-v1").unwrap().as_ref(),
            Some(&tags[0])
        );
        assert_eq!(git.tag("checkpoint/SX9-123").unwrap(), None);
        git.drop_tag(&tags[0], "test").unwrap();
        assert_eq!(git.tag(name).unwrap(), None);
    }

    #[test]
    fn one_of_several_concurrent_calls_creates_the_tag() {
        let repository = Repository::new();
        let git = repository.git();
        let first = repository.commit("first");
        let made = std::thread::scope(|scope| {
            let each =
                || scope.spawn(|| git.create_tag("checkpoint/X-1-v1", &first, "m\n").unwrap());
            let threads: Vec<_> = std::iter::repeat_with(each).take(8).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .filter(|made| *made == Created::Created)
                .count()
        });
        assert_eq!(made, 1);
    }

    #[test]
    fn tag_without_identity_is_by_the_agent() {
        let repository = Repository::new();
        let first = repository.commit("first");
        let git = Repository::bare_git_at(repository.path());
        git.create_tag("t", &first, "m\n").unwrap();
        let raw = repository.run(&["cat-file", "tag", "t"]);
        assert!(
            raw.contains("tagger helmdeck <helmdeck@localhost>"),
            "{raw}"
        );
        assert!(
            !repository
                .run(&["config", "--list", "--local"])
                .contains("user.")
        );
    }

    #[test]
    fn tag_of_a_missing_commit_is_read() {
        let repository = Repository::new();
        let git = repository.git();
        let first = repository.commit("first");
        git.create_tag("checkpoint/a", &first, "m\n").unwrap();
        let object = repository
            .path()
            .join(".git/objects")
            .join(&first.as_str()[..2])
            .join(&first.as_str()[2..]);
        std::fs::remove_file(object).unwrap();
        let tag = git.tag("checkpoint/a").unwrap().unwrap();
        assert_eq!(
            (tag.commit, tag.here, tag.message.as_str()),
            (Some(first), false, "m\n")
        );
    }
}
