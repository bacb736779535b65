//! `helmdeck seam save`: writes the note that `offer-save-here` offers, by a person's yes only.
//!
//! It is no part of the read-only client: that one only says what would be saved, and where.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use helmdeck_core::leaks;
use helmdeck_forge::knowledge::{Learning, What};
use helmdeck_forge::sessions::Sessions;
use helmdeck_forge::{Project, ProjectEnvironment};
use helmdeck_seam::{Candidate, Context, one_line};
use serde::Serialize;

use super::seam::SeamFailure;
use crate::output::Output;

/// The target of a candidate without a note vault.
const LONG_TERM: &str = ".forge/memory/long-term";
/// Maximum length of a kind and of a slug, in bytes.
const MAX_NAME: usize = 100;

/// What became of a candidate.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Saved {
    /// Whether it was written now.
    pub(super) saved: bool,
    /// The note, or the knowledge with `#` and its id.
    pub(super) path: String,
}

/// A valid candidate.
struct Note<'a> {
    kind: &'a str,
    slug: &'a str,
    body: &'a str,
    reason: Option<&'a str>,
}

/// Saves a candidate. A note that is known already is not written again.
pub(super) fn save(
    candidate: &Candidate,
    context: &Context,
    environment: &ProjectEnvironment,
    (output, yes): (Output, bool),
) -> Result<Saved, SeamFailure> {
    let note = Note::of(candidate)?;
    if let Some(path) = text(candidate, "duplicate_of") {
        return Ok(Saved {
            saved: false,
            path: path.to_owned(),
        });
    }
    let target = text(candidate, "target").unwrap_or_default();
    if text(candidate, "target_key") == Some(LONG_TERM) {
        agree(
            &format!("Add {:?} to the knowledge in {target}", note.context()),
            output,
            yes,
        )?;
        return note.learn(context, environment, target);
    }
    let path = Path::new(target)
        .join(note.folder())
        .join(format!("{}.md", note.slug));
    if path.symlink_metadata().is_ok() {
        return Err(stop(
            "exists",
            &path,
            "a note of that name is there, and stays as it is",
            "give another --slug",
        ));
    }
    agree(&format!("Write {}", path.display()), output, yes)?;
    let today = environment
        .zone
        .to_datetime(environment.now().0)
        .date()
        .to_string();
    match create(&path, &note.text(&today, text(candidate, "fingerprint"))) {
        Ok(()) => Ok(Saved {
            saved: true,
            path: path.display().to_string(),
        }),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(stop(
            "exists",
            &path,
            "somebody wrote a note of that name meanwhile",
            "give another --slug",
        )),
        Err(error) => Err(stop("not-saved", &path, error, "make the folder writable")),
    }
}

/// Requires the yes of a person.
fn agree(question: &str, output: Output, yes: bool) -> Result<(), SeamFailure> {
    if yes {
        return Ok(());
    }
    if !output.interactive {
        return Err(SeamFailure::usage(
            "helmdeck seam save",
            "there is no terminal to ask on",
            "say --yes if a person agreed",
        ));
    }
    match output.ask(&one_line(question)) {
        Ok(true) => Ok(()),
        Ok(false) => Err(SeamFailure::usage(
            "helmdeck seam save",
            "nothing was saved, as you said",
            "run it again to save it",
        )),
        Err(failure) => Err(SeamFailure::usage(
            "helmdeck seam save",
            failure.message(),
            "run it at a terminal",
        )),
    }
}

fn stop(
    code: &'static str,
    path: &Path,
    cause: impl std::fmt::Display,
    remedy: &str,
) -> SeamFailure {
    SeamFailure {
        code,
        exit: 2,
        line: format!("{}: {cause}; {remedy}", path.display()),
    }
}

fn text<'a>(candidate: &'a Candidate, name: &str) -> Option<&'a str> {
    candidate.get(name).and_then(|value| value.as_str())
}

impl<'a> Note<'a> {
    /// Checks a candidate. An offer accepts any, a note must have a kind, a slug and a body.
    fn of(candidate: &'a Candidate) -> Result<Self, SeamFailure> {
        let name = |name: &str| {
            let given = text(candidate, name).unwrap_or_default();
            let is_plain = (1..=MAX_NAME).contains(&given.len())
                && given
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
            let remedy = "give small letters, digits and -";
            if is_plain {
                Ok(given)
            } else {
                Err(SeamFailure::usage(
                    name,
                    format!("{given:?} is no name of a note"),
                    remedy,
                ))
            }
        };
        let (kind, slug) = (name("kind")?, name("slug")?);
        let body = text(candidate, "body").filter(|body| !body.trim().is_empty());
        let body = body.ok_or_else(|| {
            SeamFailure::usage("body", "the note has no text", "give it with --body-file")
        })?;
        let reason =
            text(candidate, "confidence_reason").filter(|reason| !reason.trim().is_empty());
        let mut texts = [Some(body), reason].into_iter().flatten();
        if let Some(rule) = texts.find_map(|text| leaks::first_leak(text.as_bytes())) {
            let line =
                format!("body: it holds what looks like a credential (rule {rule}); take it out");
            return Err(SeamFailure {
                code: "secret",
                exit: 2,
                line,
            });
        }
        Ok(Self {
            kind,
            slug,
            body,
            reason,
        })
    }

    /// The folder of the project's notes that recalls read for this kind.
    fn folder(&self) -> &'static str {
        match self.kind {
            "decision" | "adr" => "decisions",
            "known-issue" | "fix" | "bug" | "failure-incident" => "known-issues",
            "open-question" | "question" | "idea" => "open-questions",
            _ => "wiki-style",
        }
    }

    /// What it is about, in words.
    fn context(&self) -> String {
        self.slug.replace('-', " ")
    }

    /// The text of the note.
    fn text(&self, today: &str, fingerprint: Option<&str>) -> String {
        let fingerprint = fingerprint
            .map(|mark| format!("fingerprint: {mark}\n"))
            .unwrap_or_default();
        format!(
            "---\nkind: {}\nstatus: active\ncreated: {today}\nupdated: {today}\nslug: {}\n{fingerprint}---\n\n{}\n",
            self.kind,
            self.slug,
            self.body.trim_end()
        )
    }

    /// Adds it to the knowledge of the project.
    fn learn(
        &self,
        context: &Context,
        environment: &ProjectEnvironment,
        target: &str,
    ) -> Result<Saved, SeamFailure> {
        let failed = |error: helmdeck_forge::Error| {
            let line = format!("{target}: {}; see `helmdeck forge doctor`", error.message);
            SeamFailure {
                code: "not-saved",
                exit: 2,
                line,
            }
        };
        let folder = context.cwd.clone().unwrap_or_else(|| PathBuf::from("."));
        let project = Project::open(&folder, environment.clone()).map_err(failed)?;
        let project = project.ok_or_else(|| {
            SeamFailure::usage(target, "there is no .forge/", "run helmdeck forge init")
        })?;
        let (context, body) = (self.context(), self.body.trim().to_owned());
        let what = match (self.kind, self.reason) {
            ("decision", Some(reason)) => What::Decision {
                context,
                decision: body,
                rationale: reason.trim().to_owned(),
            },
            _ => What::Successful {
                context,
                approach: body,
            },
        };
        let added = Sessions::new(&project)
            .learn(Learning::new(what))
            .map_err(failed)?;
        Ok(Saved {
            saved: true,
            path: format!("{target}/knowledge#{}", added.id),
        })
    }
}

/// Creates a file whole. An existing file stays.
fn create(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().ok_or(ErrorKind::NotFound)?;
    fs::create_dir_all(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = folder.join(format!(".{name}.{}.tmp", std::process::id()));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&beside)?;
    // A link, unlike a rename, does not replace a note that somebody else wrote meanwhile.
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::hard_link(&beside, path));
    let _ = fs::remove_file(&beside);
    written
}

#[cfg(test)]
mod tests {
    use helmdeck_forge::init::{Init, init};
    use helmdeck_seam::Seam;
    use serde_json::json;

    use super::*;
    use crate::config::SeamSettings;
    use crate::env::ProcessEnvironment;
    use crate::terminal::Terminals;

    fn silent() -> Output {
        Output {
            json: false,
            verbose: 0,
            quiet: false,
            interactive: false,
            terminals: Terminals::default(),
        }
    }

    /// Saves a candidate of a project in a folder, with this note vault.
    fn saved(
        folder: &Path,
        vault: &str,
        candidate: &serde_json::Value,
        yes: bool,
    ) -> Result<Saved, SeamFailure> {
        let env = ProcessEnvironment::of(&[("HELMDECK_MEMORY", vault)]);
        let seam = Seam::on_disk(crate::seam::config(&SeamSettings::default(), &env));
        let context = Context {
            cwd: Some(folder.to_owned()),
            phase: None,
            plan: None,
        };
        let offered = seam.offer(&context, candidate).candidates.remove(0);
        save(
            &offered,
            &context,
            &ProjectEnvironment::default(),
            (silent(), yes),
        )
    }

    fn project() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(".harness")).unwrap();
        fs::write(
            folder.path().join(".harness/project.json"),
            "{\"vault_project\": \"widget\"}",
        )
        .unwrap();
        folder
    }

    #[test]
    fn note_is_written_once_after_a_yes() {
        let (folder, vault) = (project(), tempfile::tempdir().unwrap());
        fs::create_dir_all(vault.path().join("projects/widget")).unwrap();
        let vault = vault.path().to_str().unwrap();
        let note =
            json!({"kind": "decision", "slug": "use-nats", "body": "Events go over NATS.\n"});
        assert_eq!(
            saved(folder.path(), vault, &note, false).unwrap_err().code,
            "usage"
        );
        assert!(
            !Path::new(vault).join("projects/widget/decisions").exists(),
            "nobody said yes"
        );
        let first = saved(folder.path(), vault, &note, true).unwrap();
        assert!(
            first.saved
                && first
                    .path
                    .ends_with("projects/widget/decisions/use-nats.md"),
            "{first:?}"
        );
        let text = fs::read_to_string(&first.path).unwrap();
        assert!(
            text.starts_with("---\nkind: decision\nstatus: active\ncreated: "),
            "{text}"
        );
        assert!(text.ends_with("---\n\nEvents go over NATS.\n"), "{text}");
        let again = saved(folder.path(), vault, &note, true).unwrap();
        assert_eq!(
            (again.saved, &again.path),
            (false, &first.path),
            "the same text is known"
        );
        let other = json!({"kind": "decision", "slug": "use-nats", "body": "Or not.\n"});
        assert_eq!(
            saved(folder.path(), vault, &other, true).unwrap_err().code,
            "exists"
        );
        assert_eq!(fs::read_to_string(&first.path).unwrap(), text);
    }

    #[test]
    fn without_a_vault_the_project_learns_it() {
        let folder = project();
        init(
            folder.path(),
            ProjectEnvironment::default(),
            &Init {
                no_git: true,
                ..Init::default()
            },
        )
        .unwrap();
        let note =
            json!({"kind": "fix", "slug": "retry-on-429", "body": "Wait as the header says."});
        let saved = saved(folder.path(), "", &note, true).unwrap();
        let project = Project::open(folder.path(), ProjectEnvironment::default())
            .unwrap()
            .unwrap();
        let knowledge = helmdeck_forge::export::export(&project).unwrap().knowledge;
        let knowledge = serde_json::to_string(&knowledge).unwrap();
        assert!(
            knowledge.contains("retry on 429") && knowledge.contains("Wait as the header says."),
            "{knowledge}"
        );
        assert!(
            saved.saved && saved.path.contains("knowledge#"),
            "{saved:?}"
        );
    }

    #[test]
    fn candidates_that_make_no_note_are_refused() {
        let (folder, vault) = (project(), tempfile::tempdir().unwrap());
        fs::create_dir_all(vault.path().join("projects/widget")).unwrap();
        let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
        for (note, code) in [
            (json!({"kind": "fix", "slug": "../x", "body": "b"}), "usage"),
            (json!({"kind": "Fix", "slug": "x", "body": "b"}), "usage"),
            (json!({"kind": "fix", "slug": "x", "body": " "}), "usage"),
            (json!({"kind": "fix", "slug": "x", "body": token}), "secret"),
        ] {
            let refused =
                saved(folder.path(), vault.path().to_str().unwrap(), &note, true).unwrap_err();
            assert_eq!(refused.code, code, "{note}");
        }
        assert_eq!(
            fs::read_dir(vault.path().join("projects/widget"))
                .unwrap()
                .count(),
            0
        );
    }
}
