//! Common start of all calls: the root of the project, its name, the vault, and where state is
//! stored.

use std::path::{Path, PathBuf};

use helmdeck_git::discover::{FOREIGN, Repository, project_name};
use serde_json::Value;

use crate::config::SeamConfig;
use crate::context::Context;
use crate::error::{StateError, Warning};
use crate::readers::{Kind, LongTerm, Look, Name, Spaces, Vault};
use crate::settings::{Settings, passed_over, text};
use crate::text::{LookedAt, Short, quoted, read_within};

/// The folder of a project's own state.
pub(crate) const HARNESS: &str = ".harness";
/// The folder of a project's own memory.
const FORGE: &str = ".forge";
/// The file with the name of the project.
const PROJECT: &str = "project.json";
/// The file that says where state is stored.
const MODE: &str = ".project-mode";
/// Its valid values.
const MODES: [&str; 3] = ["local", "backend", "vault"];
/// The largest `project.json`, in bytes.
const MOST_PROJECT: usize = 1 << 20;
/// The largest `.project-mode`, in bytes.
const MOST_MODE: usize = 4_096;

/// Of these, every vault has one.
const VAULT: [&str; 8] = [
    "projects",
    "memory",
    "desk",
    "personal",
    "personal-private",
    "personal-projects",
    "_inbox",
    ".obsidian",
];

/// Name of a project, and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slug {
    pub(crate) name: Name,
    pub(crate) from: &'static str,
}

/// Common start of all calls.
#[derive(Debug)]
pub(crate) struct Resolved<'a> {
    pub(crate) look: &'a dyn Look,
    /// The root of the project, as the caller writes it.
    pub(crate) shown: PathBuf,
    /// The same, to be opened.
    pub(crate) root: PathBuf,
    /// Whether it was named, not searched for.
    named: bool,
    /// Whether its `.harness` is another user's, and counts as absent.
    others: bool,
    repository: Option<Repository>,
    /// Name of the project. An unsafe name is an error, for callers that must not go on without.
    pub(crate) slug: Result<Option<Slug>, StateError>,
    /// The vault, and what says where it is.
    pub(crate) vault: Option<(Vault<'a>, String)>,
    /// Whether state is stored in the project even if there is a vault.
    pub(crate) local: bool,
    /// Something that binds a worker and cannot be read.
    pub(crate) corrupt: Option<StateError>,
    /// Warnings about memory that cannot be read.
    pub(crate) warnings: Vec<Warning>,
}

impl<'a> Resolved<'a> {
    pub(crate) fn of(look: &'a dyn Look, config: &SeamConfig, context: &Context) -> Self {
        let given = context
            .cwd
            .as_deref()
            .filter(|path| !path.as_os_str().is_empty());
        let at = config.cwd.join(given.unwrap_or(Path::new("")));
        let mut resolved = Self {
            look,
            shown: given.map_or_else(|| config.cwd.clone(), tidy),
            root: at,
            named: given.is_some() || !config.discover,
            others: false,
            repository: None,
            slug: Ok(None),
            vault: None,
            local: false,
            corrupt: None,
            warnings: Vec::new(),
        };
        if !resolved.root.is_absolute() {
            let error = StateError::nowhere();
            resolved
                .warnings
                .push(Warning::unreadable(error.to_string()));
            resolved.corrupt = Some(error);
            return resolved;
        }
        resolved.find_root(config);
        let settings = resolved.settings(config);
        resolved.vault = resolved.find_vault(config, &settings);
        resolved.check_harness();
        resolved.local = resolved.is_local(&settings);
        resolved.slug = resolved.find_slug();
        resolved
    }

    /// Finds the repository and the root of the project around the requested folder.
    fn find_root(&mut self, config: &SeamConfig) {
        let at = self
            .look
            .real(&self.root)
            .unwrap_or_else(|| self.root.clone());
        match Repository::find(&LookedAt(self.look), &at, self.named) {
            Ok(repository) => self.repository = repository,
            Err(why) => self.warnings.push(Warning::unreadable(why)),
        }
        if !self.named {
            let home = config.home.as_ref().and_then(|home| self.look.real(home));
            let found = self.discover(&at, home.as_deref());
            let root = self
                .repository
                .as_ref()
                .and_then(|repository| repository.root.clone());
            if let Some(root) = found.or(root) {
                self.shown.clone_from(&root);
                self.root = root;
            }
        }
        self.others = !self.named && self.is_others(&self.root.join(HARNESS));
        if self.named {
            self.warn_of_above(&at);
        }
    }

    /// Warns that a named folder is in a project whose marker does not count: nothing above it
    /// does.
    fn warn_of_above(&mut self, at: &Path) {
        let Some(top) = self
            .repository
            .as_ref()
            .and_then(|repository| repository.root.as_deref())
        else {
            return;
        };
        let has = |folder: &Path| matches!(self.look.about(&folder.join(HARNESS)), Ok(Some(_)));
        if at == top || !at.starts_with(top) || has(at) {
            return;
        }
        let above = at
            .ancestors()
            .skip(1)
            .take_while(|folder| folder.starts_with(top))
            .find(|folder| has(folder));
        if let Some(above) = above {
            let (at, harness) = (at.display(), above.join(HARNESS));
            let why = format!(
                "{at} is taken as the root of a project, and {} is not asked",
                harness.display()
            );
            self.warnings.push(Warning::below(why));
        }
    }

    /// Returns the folder that holds the nearest `.harness` of the current user.
    ///
    /// It looks up to the root of the repository. Outside of a repository it looks neither in the
    /// folders of other users nor above the home folder.
    fn discover(&mut self, at: &Path, home: Option<&Path>) -> Option<PathBuf> {
        let root = self
            .repository
            .as_ref()
            .and_then(|repository| repository.root.clone());
        for folder in at.ancestors() {
            let within = match &root {
                Some(root) => folder.starts_with(root),
                None => {
                    let above = home.is_some_and(|home| home != folder && home.starts_with(folder));
                    // The owner of a folder that cannot be looked at is unknown.
                    let own = || {
                        self.look
                            .about(folder)
                            .is_ok_and(|about| about.is_some_and(|about| !about.foreign))
                    };
                    folder == at || (!above && own())
                }
            };
            if !within {
                break;
            }
            let harness = folder.join(HARNESS);
            match self.look.about(&harness) {
                Ok(None) => {}
                Ok(Some(about)) if about.foreign => {
                    self.warnings.push(Warning::unreadable(format!(
                        "{}: {FOREIGN}",
                        harness.display()
                    )));
                }
                // One that cannot be looked at may bind: nothing above it is asked.
                Ok(Some(_)) | Err(_) => return Some(folder.to_owned()),
            }
        }
        None
    }

    fn is_others(&self, path: &Path) -> bool {
        self.look
            .about(path)
            .ok()
            .flatten()
            .is_some_and(|about| about.foreign)
    }

    /// Reads a short file in `.harness/`.
    pub(crate) fn read(&self, name: &str, most: usize) -> Short {
        if self.others {
            return Short::Absent;
        }
        let folder = self.root.join(HARNESS);
        read_within(self.look, &folder, &folder.join(name), most)
    }

    /// Returns the project's own folder of state, unless it is another user's.
    pub(crate) fn own_harness(&self) -> Option<PathBuf> {
        (!self.others).then(|| self.root.join(HARNESS))
    }

    /// Returns the path of something in `.harness/`, to be shown.
    pub(crate) fn shown_harness(&self, name: &str) -> PathBuf {
        self.shown.join(HARNESS).join(name)
    }

    /// Returns what the project is called, if it has a safe name.
    pub(crate) fn name(&self) -> Option<&Name> {
        self.slug.as_ref().ok()?.as_ref().map(|slug| &slug.name)
    }

    /// Returns the long-term memory in `.forge/`, if there is one.
    pub(crate) fn forge(&self, config: &SeamConfig) -> Result<Option<LongTerm<'a>>, Warning> {
        if !config.forge {
            return Ok(None);
        }
        let root = self
            .look
            .real(&self.root)
            .unwrap_or_else(|| self.root.clone());
        let repository = self
            .repository
            .as_ref()
            .and_then(|repository| repository.root.as_deref());
        // In a folder that was named, it is not asked whose it is.
        let named = Some(&*root).filter(|_| self.named);
        let found =
            LongTerm::find(self.look, &root, repository.or(named)).map_err(Warning::unreadable)?;
        let forge = found.as_ref().map(|forge| forge.root().join(FORGE));
        match forge.filter(|forge| named != forge.parent() && self.is_others(forge)) {
            Some(forge) => Err(Warning::unreadable(format!(
                "{}: {FOREIGN}",
                forge.display()
            ))),
            None => Ok(found),
        }
    }

    /// Adds that the name of the project cannot be used, for calls that go on without it.
    pub(crate) fn warn_of_slug(&mut self) {
        if let Err(error) = &self.slug {
            self.warnings.push(Warning::unreadable(error.to_string()));
        }
    }

    fn settings(&mut self, config: &SeamConfig) -> Settings {
        if !config.settings {
            return Settings::default();
        }
        let prefix = config
            .prefix
            .clone()
            .or_else(|| Some(config.home.as_ref()?.join(".claude")));
        let Some(prefix) = prefix else {
            return Settings::default();
        };
        match Settings::read(self.look, &config.cwd.join(expand(&prefix, config))) {
            Ok(settings) => {
                self.warnings
                    .extend(settings.wrong.iter().map(Warning::unreadable));
                settings
            }
            Err(why) => {
                self.warnings.push(Warning::unreadable(why));
                Settings::default()
            }
        }
    }

    fn find_vault(
        &mut self,
        config: &SeamConfig,
        settings: &Settings,
    ) -> Option<(Vault<'a>, String)> {
        let given = config.vaults.iter().find_map(|given| {
            let path = given.path.to_str().map_or_else(
                || PathBuf::from(&given.path),
                |path| PathBuf::from(path.trim()),
            );
            (!path.as_os_str().is_empty()).then(|| (given.by.clone(), path))
        });
        let set = || {
            settings
                .vault
                .as_ref()
                .map(|(by, path)| ((*by).to_owned(), PathBuf::from(path)))
        };
        let is_given = given.is_some();
        let Some((by, path)) = given.or_else(set) else {
            if settings.wants_vault {
                let why = "storage.backend is \"vault\", and nothing says where the vault is: set MEMORY_VAULT_PATH";
                self.warnings.push(Warning::unreadable(why));
            }
            return None;
        };
        let root = config.cwd.join(expand(&path, config));
        if !self.is_folder(&root) {
            let why = format!("{by}: {} is no folder; memory is left out", root.display());
            self.warnings.push(Warning::unreadable(why));
            return None;
        }
        let mut spaces = Spaces::default();
        for (name, path) in &settings.spaces {
            if let Err(why) = spaces.set(name, path) {
                self.warnings.push(Warning::unreadable(format!(
                    "plugins.obsidian-vault.spaces: {why}"
                )));
            }
        }
        if !self.is_vault(&root, settings) {
            let why = format!(
                "{by}: {} holds nothing that a vault has, such as projects/ or memory/",
                root.display()
            );
            self.warnings.push(Warning::unreadable(why));
        }
        let vault = Vault::new(self.look, root, spaces);
        // What is given directly is the root already.
        let Some(inner) = settings.memory_root.as_ref().filter(|_| !is_given) else {
            return Some((vault, by));
        };
        match vault.within(inner) {
            Ok(vault) if self.is_folder(vault.root()) => return Some((vault, by)),
            Ok(vault) => self.warnings.push(Warning::unreadable(format!(
                "{} is no folder",
                vault.root().display()
            ))),
            Err(why) => self.warnings.push(Warning::unreadable(format!(
                "plugins.obsidian-vault.memory_root: {why}"
            ))),
        }
        None
    }

    /// Returns whether a folder has anything of a vault in it. An empty one is a vault that begins.
    fn is_vault(&self, root: &Path, settings: &Settings) -> bool {
        let set = settings
            .spaces
            .iter()
            .map(|(_, path)| path.as_str())
            .chain(settings.memory_root.as_deref());
        let mut names = VAULT.into_iter().chain(set);
        names.any(|name| matches!(self.look.about(&root.join(name)), Ok(Some(_))))
            || self
                .look
                .list(root, 1)
                .is_ok_and(|entries| entries.is_none_or(|entries| entries.is_empty()))
    }

    /// Checks `.harness`: if it exists and is no folder, it hides what is bound.
    fn check_harness(&mut self) {
        if self.others {
            return;
        }
        let path = self.root.join(HARNESS);
        let wrong = match (self.look.about(&path), self.look.behind(&path)) {
            (Ok(None), _) => return,
            (_, Ok(Some(about))) if about.kind == Kind::Folder => return,
            (Ok(Some(_)), Ok(None)) => "it is a link that leads nowhere".to_owned(),
            (_, Ok(_)) => "it is no folder".to_owned(),
            (Err(error), _) | (_, Err(error)) => error.to_string(),
        };
        self.bad(
            &self.shown.join(HARNESS),
            wrong,
            "make it a folder, or move it away",
        );
    }

    fn bad(&mut self, path: &Path, cause: String, remedy: &str) {
        self.warnings
            .push(Warning::unreadable(format!("{}: {cause}", path.display())));
        self.corrupt
            .get_or_insert_with(|| StateError::corrupt(path, cause, remedy));
    }

    fn is_local(&mut self, settings: &Settings) -> bool {
        let remedy = "write local or backend into it, or remove it";
        let own = match self.read(MODE, MOST_MODE) {
            Short::Absent => String::new(),
            Short::Text(text) => text,
            Short::Lossy(_) => {
                self.bad(
                    &self.shown_harness(MODE),
                    "it is no UTF-8 text".to_owned(),
                    remedy,
                );
                String::new()
            }
            Short::Wrong(why) => {
                self.bad(&self.shown_harness(MODE), why, remedy);
                String::new()
            }
        };
        let own = Some(own.trim()).filter(|own| !own.is_empty());
        if let Some(own) =
            own.filter(|own| !MODES.iter().any(|mode| mode.eq_ignore_ascii_case(own)))
        {
            let path = self.shown_harness(MODE);
            let why = format!(
                "{}: {} is no mode, and counts as backend; {remedy}",
                path.display(),
                quoted(own)
            );
            self.warnings.push(Warning::unreadable(why));
        }
        own.or(settings.state_mode.as_deref())
            .is_some_and(|mode| mode.eq_ignore_ascii_case("local"))
    }

    fn find_slug(&mut self) -> Result<Option<Slug>, StateError> {
        if let Some((name, from)) = self.own_name() {
            let path = self.shown_harness(PROJECT);
            let remedy = format!("write a name without slashes and control characters as {from}");
            return Name::parse(&name)
                .map(|name| Some(Slug { name, from }))
                .map_err(|why| {
                    StateError::unsafe_name(
                        &path,
                        format!("unsafe project name {}: {why}", quoted(&name)),
                        remedy,
                    )
                });
        }
        let Some(repository) = &self.repository else {
            return Ok(None);
        };
        let origin = repository
            .origin(&LookedAt(self.look))
            .unwrap_or_else(|why| {
                self.warnings.push(Warning::unreadable(why));
                None
            });
        let Some(origin) = origin else {
            return Ok(None);
        };
        let name = project_name(&origin);
        if name.is_empty() {
            return Ok(None);
        }
        match Name::parse(name) {
            Ok(name) => Ok(Some(Slug {
                name,
                from: "origin",
            })),
            // Without a vault, and in local mode, it is not needed.
            Err(_) if self.vault.is_none() || self.local => Ok(None),
            Err(why) => {
                let cause = format!(
                    "unsafe project name {} in the address of origin: {why}",
                    quoted(name)
                );
                let remedy = format!(
                    "write the name as vault_project into {}",
                    self.shown_harness(PROJECT).display()
                );
                Err(StateError::unsafe_name(&repository.config(), cause, remedy))
            }
        }
    }

    /// Returns the name that `project.json` gives, and how.
    fn own_name(&mut self) -> Option<(String, &'static str)> {
        let shown = self.shown_harness(PROJECT);
        let remedy = "mend it, or remove it";
        let text = match self.read(PROJECT, MOST_PROJECT) {
            Short::Absent => return None,
            Short::Text(text) => text,
            Short::Lossy(text) => {
                self.bad(&shown, "it is no UTF-8 text".to_owned(), remedy);
                text
            }
            Short::Wrong(why) => {
                self.bad(&shown, why, remedy);
                return None;
            }
        };
        let value: Value = match serde_json::from_str(&text) {
            Ok(value) => value,
            Err(error) => {
                let why = format!(
                    "{}: it is no JSON, and is passed over: {error}",
                    shown.display()
                );
                self.warnings.push(Warning::unreadable(why));
                return None;
            }
        };
        let mut wrong = Vec::new();
        let name = name_of(&value, &mut wrong);
        let told = wrong
            .iter()
            .map(|why| Warning::unreadable(format!("{}: {why}", shown.display())));
        self.warnings.extend(told);
        name
    }

    pub(crate) fn is_folder(&self, path: &Path) -> bool {
        self.look
            .behind(path)
            .ok()
            .flatten()
            .is_some_and(|about| about.kind == Kind::Folder)
    }
}

/// Returns the name that `project.json` gives, and how. Invalid parts go to `wrong`.
fn name_of(value: &Value, wrong: &mut Vec<String>) -> Option<(String, &'static str)> {
    if !value.is_object() {
        wrong.push("it holds no JSON object, and is passed over".to_owned());
    }
    if let Some(name) = value
        .get("vault_project")
        .and_then(|name| text(name, "vault_project", wrong))
    {
        return Some((name, "vault_project"));
    }
    let github = value.get("github").filter(|github| !github.is_null())?;
    if !github.is_object() {
        wrong.push(passed_over("github", github, "an object"));
    }
    let repo = text(github.get("repo")?, "github.repo", wrong)?;
    let last = repo.rsplit('/').next().unwrap_or(&repo);
    let name = last.strip_suffix(".git").unwrap_or(last);
    if name.is_empty() {
        wrong.push(format!(
            "github.repo has no name at its end, and is passed over ({})",
            quoted(&repo)
        ));
        return None;
    }
    Some((name.to_owned(), "github.repo"))
}

/// Replaces `~` at the start of a path by the home folder.
fn expand(path: &Path, config: &SeamConfig) -> PathBuf {
    match (path.strip_prefix("~"), &config.home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

/// Returns a path without `.` and doubled slashes; `..` stays, for it may follow a link.
fn tidy(path: &Path) -> PathBuf {
    path.components()
        .filter(|part| !matches!(part, std::path::Component::CurDir))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shown_as_they_are_written() {
        for (path, shown) in [
            ("/a//b/./c/", "/a/b/c"),
            (".", ""),
            ("./a", "a"),
            ("a/../b", "a/../b"),
            ("~", "~"),
        ] {
            assert_eq!(tidy(Path::new(path)), Path::new(shown), "{path}");
        }
    }
}
