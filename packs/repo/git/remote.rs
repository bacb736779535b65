//! A remote repository, reached through the egress proxy: its refs, fetches from it, pushes to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use helmdeck_core::{Code, Error, Result, Secret};
use helmdeck_egress::{Proxy, ProxyConfig, Target};
use helmdeck_git::is_id;
use tempfile::TempDir;

use super::agent::Agent;
use super::fifo::{Fifo, SecretParts};
use super::process::{self, Finished};
use super::reason::{self, Facts};
use super::runner::{Git, LONGEST, MAX_OUTPUT, scratch};
use super::settings::Settings;
use super::shell::quoted;
use super::size;
use crate::repo::names::is_ref;
use crate::repo::url::{RepoUrl, Transport};

/// The user name for a token without one. GitHub and others accept it with any token.
const TOKEN_USER: &str = "x-access-token";

/// The variable with the password of the proxy, for `helmdeck __connect`.
const PROXY_AUTHORIZATION: &str = "HELMDECK_PROXY_AUTHORIZATION";

/// The receiver of a push to a repository on this machine: git's own, without anything that the
/// repository could make it run.
const OWN_RECEIVER: &str = "git -c core.hooksPath=/dev/null -c core.alternateRefsCommand=true -c receive.autogc=false \
     -c receive.denyCurrentBranch=refuse receive-pack";

/// An open remote repository. Its secret can be read only until this value is dropped.
pub(crate) struct Remote {
    url: RepoUrl,
    proxy: Option<Proxy>,
    marks: Marks,
    credential: Option<Secret>,
    git: Git,
    ended_by_itself: AtomicBool,
    settings: Settings,
    variables: Vec<(&'static str, String)>,
    _fifo: Option<Fifo>,
    #[cfg_attr(not(test), expect(dead_code, reason = "held so that it lives as long"))]
    agent: Option<Agent>,
    // Last, so that the folder is removed when nothing uses it any more.
    scratch: TempDir,
}

/// The refs of a remote repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Refs {
    /// The branch that HEAD names, without `refs/heads/`; `None` if it names none.
    pub(crate) default_branch: Option<String>,
    /// All refs by their full name, with their ids. `HEAD` is one of them.
    pub(crate) ids: BTreeMap<String, String>,
}

/// Record of git's calls to the credential helper, as empty files.
struct Marks {
    asked: PathBuf,
    rejected: PathBuf,
}

impl Marks {
    /// Returns whether the server requested a credential.
    fn asked(&self) -> bool {
        self.asked.exists()
    }

    /// Returns whether the server rejected the credential.
    fn rejected(&self) -> bool {
        self.rejected.exists()
    }
}

/// The answer of a credential helper (git-credential(1)).
struct Login {
    user: String,
    secret: Secret,
    host: String,
}

impl SecretParts for Login {
    fn parts(&self) -> Vec<&str> {
        // Checked for this host before.
        let secret = self.secret.expose_for(&self.host).unwrap_or_default();
        vec!["username=", &self.user, "\npassword=", secret.trim(), "\n"]
    }
}

impl Git {
    /// Opens a repository with the call's credential; `named` = the caller named this credential.
    ///
    /// # Errors
    /// `forbidden` for a folder that may not be used, a host that may not be reached, or a named
    /// credential that is not for the host; `credential_invalid` for a credential that cannot be
    /// one of this repository; `not_found` for a missing folder.
    pub(crate) async fn open(
        &self,
        url: &RepoUrl,
        credential: Option<Secret>,
        named: bool,
    ) -> Result<Remote> {
        let scratch = scratch()?;
        let mut url = url.clone();
        let mut settings = Settings::speaking(url.transport().name());
        let marks = Marks {
            asked: scratch.path().join("asked"),
            rejected: scratch.path().join("rejected"),
        };
        let mut variables = Vec::new();
        let (mut proxy, mut fifo, mut agent, mut used) = (None, None, None, None);
        if let Some(host) = url.host().cloned() {
            used = self.credential_for(&url, credential, named)?;
            let target = Target::only(host, url.port());
            let opened = self
                .egress
                .proxy(target, ProxyConfig::default())
                .await
                .map_err(|error| {
                    Error::new(Code::ResourceExhausted, "no proxy can be started")
                        .with_source(error)
                })?;
            match url.transport() {
                Transport::Ssh => {
                    let key = used.as_ref();
                    agent = match key {
                        Some(key) => Some(self.agent(scratch.path(), key, &url).await?),
                        None => None,
                    };
                    variables.push(("GIT_SSH_COMMAND", self.ssh(&opened, agent.as_ref())?));
                    variables.push(("GIT_SSH_VARIANT", "ssh".to_owned()));
                    variables.push((PROXY_AUTHORIZATION, opened.authorization()));
                }
                _ => {
                    variables.push(("http_proxy", opened.url()));
                    variables.push(("https_proxy", opened.url()));
                    fifo = login(&url, used.as_ref(), scratch.path())?;
                    settings.add(
                        &format!("credential.{}.helper", url.origin()),
                        &helper(fifo.as_ref(), &marks),
                    );
                }
            }
            proxy = Some(opened);
        } else {
            url = self.folder(&url)?;
        }
        let git = self.clone();
        Ok(Remote {
            url,
            proxy,
            marks,
            credential: used,
            git,
            ended_by_itself: AtomicBool::new(true),
            settings,
            variables,
            _fifo: fifo,
            agent,
            scratch,
        })
    }

    /// Checks that a credential may be sent to a host.
    ///
    /// A credential that the caller did not name is left out for other hosts. It is also left out
    /// over http, where anyone on the network path could read it.
    fn credential_for(
        &self,
        url: &RepoUrl,
        credential: Option<Secret>,
        named: bool,
    ) -> Result<Option<Secret>> {
        let Some(secret) = credential else {
            return Ok(None);
        };
        let host = &url.host().map(ToString::to_string).unwrap_or_default();
        if url.is_readable_on_the_way() {
            let message = "no credential goes over http, where everybody on the way can read it; use the https address";
            return if named {
                Err(Error::new(Code::Forbidden, message))
            } else {
                Ok(None)
            };
        }
        let plain = host.trim_start_matches('[').trim_end_matches(']');
        let by_operator = || {
            self.config
                .credential_hosts
                .iter()
                .any(|glob| glob.matches(plain))
        };
        if secret.is_bound_to(host) || (secret.expose_for(host).is_ok() && by_operator()) {
            return Ok(Some(secret));
        }
        if !named {
            return Ok(None);
        }
        let message = format!(
            "the credential is not for the host {host:?}: give it that host in the vault, or let the operator add the host to \
             repo.credential_hosts"
        );
        Err(Error::new(Code::Forbidden, message))
    }

    async fn agent(&self, folder: &Path, key: &Secret, url: &RepoUrl) -> Result<Agent> {
        let host = url.host().map(ToString::to_string).unwrap_or_default();
        if !is_private_key(key.expose_for(&host)?) {
            let message = "repo_url is one for ssh, and the credential is no ssh key; use the https address, or a key";
            return Err(Error::new(Code::CredentialInvalid, message));
        }
        Agent::start(folder, &self.config.path, key, &host).await
    }

    /// Returns the command that git starts for ssh.
    ///
    /// It uses neither the user's settings nor the user's keys, and connects through the proxy.
    fn ssh(&self, proxy: &Proxy, agent: Option<&Agent>) -> Result<String> {
        let connect = self.config.connect.as_ref().ok_or_else(|| {
            Error::new(
                Code::Forbidden,
                "ssh cannot be used here; use the https address of the repository",
            )
        })?;
        // ssh reads %h and %p in this line, and puts `exec` in front; a shell reads the rest.
        let program = quoted(connect).replace('%', "%%");
        let through = format!("ProxyCommand={program} __connect {} %h %p", proxy.address());
        let identity = agent.map_or_else(
            || "none".to_owned(),
            |agent| agent.socket().display().to_string(),
        );
        let known = self
            .config
            .known_hosts
            .as_ref()
            .map_or_else(|| "none".to_owned(), |path| path.display().to_string());
        let options = [
            format!("IdentityAgent={identity}"),
            "IdentityFile=none".to_owned(),
            "BatchMode=yes".to_owned(),
            "StrictHostKeyChecking=yes".to_owned(),
            format!("UserKnownHostsFile={known}"),
            "UpdateHostKeys=no".to_owned(),
            "CheckHostIP=no".to_owned(),
            "PreferredAuthentications=publickey".to_owned(),
            "ClearAllForwardings=yes".to_owned(),
            "ForwardAgent=no".to_owned(),
            "PermitLocalCommand=no".to_owned(),
            "ControlPath=none".to_owned(),
            "ConnectTimeout=30".to_owned(),
            "ServerAliveInterval=30".to_owned(),
            through,
        ];
        let options: String = options
            .iter()
            .map(|option| format!(" -o {}", quoted(Path::new(option))))
            .collect();
        Ok(format!("ssh -F /dev/null{options}"))
    }
}

impl Remote {
    /// Returns the address; that of a folder has its links resolved.
    pub(crate) const fn url(&self) -> &RepoUrl {
        &self.url
    }

    /// Returns the credential that is used, if one is.
    #[cfg(test)]
    pub(crate) const fn credential(&self) -> Option<&Secret> {
        self.credential.as_ref()
    }

    /// Returns the socket of the agent with the key, if there is one.
    #[cfg(test)]
    pub(crate) fn agent_socket(&self) -> Option<&Path> {
        self.agent.as_ref().map(Agent::socket)
    }

    /// Lists the refs. A repository without commits has none.
    ///
    /// # Errors
    /// As [`Remote::fetch`].
    pub(crate) async fn list(&self) -> Result<Refs> {
        let url = self.url.to_string();
        let finished = self
            .run(self.scratch.path(), &["ls-remote", "--symref", "--", &url])
            .await?;
        if !finished.succeeded() {
            return Err(self.failure(&finished));
        }
        let mut refs = Refs::default();
        for line in String::from_utf8_lossy(&finished.stdout).lines() {
            match line.split_once('\t') {
                Some((named, "HEAD")) if named.starts_with("ref: ") => {
                    let branch = named.strip_prefix("ref: refs/heads/");
                    refs.default_branch = branch.filter(|name| is_ref(name)).map(str::to_owned);
                }
                Some((id, name)) if is_id(id) => {
                    refs.ids.insert(name.to_owned(), id.to_owned());
                }
                _ => {}
            }
        }
        Ok(refs)
    }

    /// Fetches into a clean bare repository.
    ///
    /// # Errors
    /// `credential_invalid` if the server wants another credential; `not_found` if the repository
    /// or the ref does not exist; `forbidden` if the host may not be reached or its key changed;
    /// `timeout` if it does not answer; `too_large` if the repository grows over its limit;
    /// `handler_failed` otherwise.
    pub(crate) async fn fetch(
        &self,
        repository: &Path,
        depth: Option<u32>,
        specs: &[&str],
    ) -> Result<()> {
        let url = self.url.to_string();
        let depth = depth.map(|depth| format!("--depth={depth}"));
        let mut arguments = vec![
            "fetch",
            "--quiet",
            "--force",
            "--prune",
            "--no-tags",
            "--no-auto-maintenance",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
        ];
        arguments.extend(depth.as_deref());
        arguments.extend(["--", &url]);
        arguments.extend(specs);
        let most = self.git.config().max_bytes;
        let finished = tokio::select! {
            finished = self.run(repository, &arguments) => finished?,
            // Dropping the run kills it.
            error = size::outgrown(repository, most) => return Err(error),
        };
        size::check(repository, most).await?;
        if finished.succeeded() {
            Ok(())
        } else {
            Err(self.failure(&finished))
        }
    }

    /// Returns whether the last run ended without a signal, so that nothing is half written.
    ///
    /// It may have failed.
    pub(crate) fn ended_by_itself(&self) -> bool {
        self.ended_by_itself.load(Ordering::Relaxed)
    }

    /// Pushes a commit of a clean bare repository as a new branch.
    ///
    /// # Errors
    /// `conflict` if the branch exists or the server does not take it; else as [`Remote::fetch`].
    pub(crate) async fn push_new_branch(
        &self,
        repository: &Path,
        commit: &str,
        branch: &str,
    ) -> Result<()> {
        let url = self.url.to_string();
        let (lease, spec) = (
            format!("--force-with-lease=refs/heads/{branch}:"),
            format!("{commit}:refs/heads/{branch}"),
        );
        let receiver = format!("--receive-pack={OWN_RECEIVER}");
        let mut arguments = vec![
            "push",
            "--quiet",
            "--porcelain",
            "--no-verify",
            "--no-signed",
            &lease,
        ];
        if self.url.transport() == Transport::File {
            arguments.push(&receiver);
        }
        arguments.extend(["--", &url, &spec]);
        let finished = self.run(repository, &arguments).await?;
        if let Some(error) = reason::of_rejection(&finished, branch) {
            return Err(error);
        }
        if finished.succeeded() {
            Ok(())
        } else {
            Err(self.failure(&finished))
        }
    }

    fn failure(&self, finished: &Finished) -> Error {
        let facts = Facts {
            host: self.url.host().map(ToString::to_string),
            trouble: self.proxy.as_ref().and_then(Proxy::trouble),
            asked: self.marks.asked(),
            rejected: self.marks.rejected(),
            credential: self.credential.as_ref(),
        };
        reason::of_failure(facts, finished)
    }

    async fn run(&self, folder: &Path, arguments: &[&str]) -> Result<Finished> {
        let mut command = self.git.command(self.scratch.path(), &self.settings);
        command
            .args(arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(folder);
        self.ended_by_itself.store(false, Ordering::Relaxed);
        let finished = process::run(command, [], MAX_OUTPUT, LONGEST).await?;
        self.ended_by_itself
            .store(finished.ended_by_itself(), Ordering::Relaxed);
        Ok(finished)
    }
}

/// Prepares the answer of the credential helper.
fn login(url: &RepoUrl, credential: Option<&Secret>, folder: &Path) -> Result<Option<Fifo>> {
    let Some(secret) = credential else {
        return Ok(None);
    };
    let host = url.host().map(ToString::to_string).unwrap_or_default();
    let text = secret.expose_for(&host)?.trim();
    if is_private_key(text) {
        let message = "repo_url is one for https, and the credential is an ssh key; use the ssh address, or a token";
        return Err(Error::new(Code::CredentialInvalid, message));
    }
    let user = secret.user().unwrap_or(TOKEN_USER).to_owned();
    // A line end would add a line to the answer, and with it anything else.
    if text.is_empty() || text.contains(['\n', '\r', '\0']) || user.contains(['\n', '\r', '\0']) {
        return Err(Error::new(
            Code::CredentialInvalid,
            "the credential is empty or has line ends, which no token has",
        ));
    }
    Fifo::serve(
        folder,
        "login",
        Login {
            user,
            secret: secret.clone(),
            host,
        },
    )
    .map(Some)
}

/// Returns the credential helper: it answers with the login, and records what git asks.
fn helper(login: Option<&Fifo>, marks: &Marks) -> String {
    let answer = login.map_or_else(String::new, |login| {
        format!(" cat {};", quoted(login.path()))
    });
    let (asked, rejected) = (quoted(&marks.asked), quoted(&marks.rejected));
    format!(
        "!f() {{ case \"$1\" in get) : >{asked};{answer} ;; erase) : >{rejected} ;; esac; }}; f"
    )
}

fn is_private_key(text: &str) -> bool {
    text.trim_start().starts_with("-----BEGIN ")
}
