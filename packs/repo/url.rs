//! Strict parser of repository addresses: git gets only what was parsed here.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use helmdeck_core::{Code, Error, Result};
use percent_encoding::percent_decode_str;
use url::{Host, Url};

/// The longest address, in bytes.
const MAX_BYTES: usize = 2048;

/// Way to reach a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Transport {
    /// `https://`.
    Https,
    /// `http://`.
    Http,
    /// `ssh://`, or `user@host:path` as scp writes it.
    Ssh,
    /// A folder of this machine.
    File,
}

impl Transport {
    /// Returns git's name of it, as in its setting `protocol.<name>.allow`.
    pub(crate) fn name(self) -> &'static str {
        self.into()
    }

    const fn port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
            Self::Ssh => 22,
            Self::File => 0,
        }
    }
}

/// The address of a repository, without any secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RepoUrl {
    transport: Transport,
    host: Option<Host<String>>,
    port: u16,
    /// User name for ssh.
    user: Option<String>,
    /// Path as written: with `/` in front, unless scp's form had none.
    path: String,
}

impl RepoUrl {
    /// Parses an address.
    ///
    /// The forms are `https://`, `http://`, `ssh://`, `user@host:path`, `file:///path` and an
    /// absolute path.
    ///
    /// # Errors
    /// `invalid_input`; no message repeats what may be a password.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text.is_empty() || text.len() > MAX_BYTES {
            return Err(refused(format!(
                "repo_url must have 1 to {MAX_BYTES} bytes"
            )));
        }
        if text
            .chars()
            .any(|char| char.is_control() || char.is_whitespace() || char == '\\')
        {
            return Err(refused(
                "repo_url must not have blanks, line ends, control characters or backslashes",
            ));
        }
        if text
            .split(['/', ':'])
            .any(|part| matches!(decode(part).as_deref(), Some("." | "..")))
        {
            return Err(refused(
                "repo_url must not have \".\" or \"..\" in its path",
            ));
        }
        match text.split_once("://") {
            Some((scheme, _)) => Self::parse_url(scheme, text),
            None if text.starts_with('/') => Self::parse_path(text),
            None => Self::parse_scp(text),
        }
    }

    fn parse_url(scheme: &str, text: &str) -> Result<Self> {
        let transport = match scheme.to_ascii_lowercase().as_str() {
            "https" => Transport::Https,
            "http" => Transport::Http,
            "ssh" | "git+ssh" | "ssh+git" => Transport::Ssh,
            "file" => Transport::File,
            _ => {
                return Err(refused(
                    "repo_url must begin with https://, http://, ssh:// or file://",
                ));
            }
        };
        let url =
            Url::parse(text).map_err(|_| refused("repo_url is not an address that can be read"))?;
        if url.password().is_some() || (transport != Transport::Ssh && !url.username().is_empty()) {
            return Err(refused(
                "repo_url must not hold a user or password; name a credential instead",
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refused("repo_url must not have a query or fragment"));
        }
        if transport == Transport::File {
            let local = url
                .host_str()
                .is_none_or(|host| host.is_empty() || host == "localhost");
            let path = decode(url.path()).filter(|_| local);
            return Self::parse_path(
                &path.ok_or_else(|| refused("repo_url must name a folder of this machine"))?,
            );
        }
        // The hosts of schemes that a browser does not know are not parsed as such.
        let host = Host::parse(url.host_str().unwrap_or_default())
            .map_err(|_| refused("repo_url has no host"))?;
        let user = match url.username() {
            "" => None,
            user => Some(user.to_owned()),
        };
        let port = url.port().unwrap_or(transport.port());
        Self::new(transport, host, port, user, url.path().to_owned())
    }

    fn parse_scp(text: &str) -> Result<Self> {
        let odd = || {
            refused(
                "repo_url is neither an address (https://host/path) nor user@host:path nor an absolute path",
            )
        };
        let (front, path) = match text.find(']') {
            Some(end) if text[end + 1..].starts_with(':') => (&text[..=end], &text[end + 2..]),
            Some(_) => return Err(odd()),
            None => text.split_once(':').ok_or_else(odd)?,
        };
        // "ext::command" is a helper's name to git, not a host.
        if path.starts_with(':') || front.contains('/') {
            return Err(odd());
        }
        let (user, host) = match front.rsplit_once('@') {
            Some((user, host)) => (Some(user.to_owned()), host),
            None => (None, front),
        };
        let host = Host::parse(host).map_err(|_| odd())?;
        Self::new(
            Transport::Ssh,
            host,
            Transport::Ssh.port(),
            user,
            path.to_owned(),
        )
    }

    fn new(
        transport: Transport,
        host: Host<String>,
        port: u16,
        user: Option<String>,
        path: String,
    ) -> Result<Self> {
        let host = match host {
            Host::Domain(name) => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
                if name.is_empty() || name.starts_with('-') || !name.bytes().all(plain) {
                    return Err(refused("repo_url has a host that no name is like"));
                }
                Host::Domain(name)
            }
            address => address,
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if user
            .as_ref()
            .is_some_and(|user| user.starts_with('-') || !user.bytes().all(plain))
        {
            return Err(refused(
                "repo_url has a user that is not letters, digits, \".\", \"_\" and \"-\"",
            ));
        }
        let bare = path.trim_matches('/');
        if bare.is_empty() || bare.starts_with('-') || decode(bare).is_none() {
            return Err(refused("repo_url has no path of a repository"));
        }
        Ok(Self {
            transport,
            host: Some(host),
            port,
            user,
            path,
        })
    }

    fn parse_path(path: &str) -> Result<Self> {
        let parts = Path::new(path).components();
        let plain = parts
            .clone()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        if !Path::new(path).is_absolute()
            || !plain
            || parts.count() < 2
            || path.contains(['\0', '\n'])
        {
            return Err(refused("repo_url must be an absolute path without \"..\""));
        }
        Ok(Self {
            transport: Transport::File,
            host: None,
            port: 0,
            user: None,
            path: path.to_owned(),
        })
    }

    /// Returns how it is reached.
    pub(crate) const fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns the host, as [`url::Host`] writes it; `None` for a folder of this machine.
    pub(crate) const fn host(&self) -> Option<&Host<String>> {
        self.host.as_ref()
    }

    /// Returns the port, that of the transport if none was written.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Returns whether the network can read what is sent: plain http, except to this machine
    /// itself.
    pub(crate) fn is_readable_on_the_way(&self) -> bool {
        let is_here = match &self.host {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            _ => false,
        };
        self.transport == Transport::Http && !is_here
    }

    /// Returns the folder, if it is one of this machine.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        (self.transport == Transport::File).then(|| PathBuf::from(&self.path))
    }

    /// Returns scheme, host and port, as git writes the part of a setting that belongs to an
    /// address.
    pub(crate) fn origin(&self) -> String {
        let Some(host) = &self.host else {
            return String::new();
        };
        let port = if self.port == self.transport.port() {
            String::new()
        } else {
            format!(":{}", self.port)
        };
        format!("{}://{host}{port}", self.transport.name())
    }

    /// Returns the canonical text of this repository, for every way to write its address.
    ///
    /// It is `host/path`, or the path of a folder. Use it for keys only: git cannot use it.
    pub(crate) fn key(&self) -> String {
        let path = decode(&self.path).unwrap_or_else(|| self.path.clone());
        let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        if parts.len() > 1 && parts.last() == Some(&".git") {
            parts.pop();
        }
        let joined = parts.join("/");
        let path = joined
            .strip_suffix(".git")
            .filter(|path| !path.is_empty())
            .unwrap_or(&joined);
        match &self.host {
            None => format!("/{path}"),
            Some(host) if self.port == self.transport.port() => format!("{host}/{path}"),
            Some(host) => format!("{host}:{}/{path}", self.port),
        }
    }
}

/// The address as git takes it.
impl fmt::Display for RepoUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(host) = &self.host else {
            return f.write_str(&self.path);
        };
        match &self.user {
            // Without a slash in front the path is below the user's home, which an address cannot
            // say.
            user if !self.path.starts_with('/') => {
                let at = user
                    .as_ref()
                    .map_or_else(String::new, |user| format!("{user}@"));
                write!(f, "{at}{host}:{}", self.path)
            }
            Some(user) => write!(
                f,
                "{}{}",
                self.origin().replacen("://", &format!("://{user}@"), 1),
                self.path
            ),
            None => write!(f, "{}{}", self.origin(), self.path),
        }
    }
}

fn refused(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(Code::InvalidInput, message)
}

/// Decodes percent-encoding; `None` if the result is not UTF-8 or has control characters.
fn decode(text: &str) -> Option<String> {
    let text = percent_decode_str(text).decode_utf8().ok()?;
    (!text.contains(char::is_control)).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> String {
        RepoUrl::parse(text).unwrap().key()
    }

    #[test]
    fn every_spelling_of_one_repository_gives_one_key() {
        for text in [
            "https://github.com/rust-lang/log",
            "https://GitHub.com/rust-lang/log.git",
            "https://github.com:443/rust-lang/log.git/",
            "HTTPS://github.com./rust-lang//log/",
            "http://github.com/rust-lang/log",
            "https://github.com/rust%2Dlang/%6Cog",
            "ssh://git@github.com/rust-lang/log.git",
            "ssh://git@github.com:22/rust-lang/log",
            "ssh://github.com/rust-lang/log",
            "git+ssh://git@github.com/rust-lang/log",
            "git@github.com:rust-lang/log.git",
            "git@github.com:/rust-lang/log",
            "github.com:rust-lang/log/",
            "GIT@GITHUB.com:rust-lang/log",
        ] {
            assert_eq!(key(text), "github.com/rust-lang/log", "{text}");
        }
    }

    #[test]
    fn other_repositories_have_other_keys() {
        for (text, expected) in [
            ("https://github.com:8443/a/b", "github.com:8443/a/b"),
            ("https://github.com/a/B", "github.com/a/B"),
            ("https://github.com/a/b.gitx", "github.com/a/b.gitx"),
            ("ssh://git@host:2222/a", "host:2222/a"),
            ("https://2130706433/a", "127.0.0.1/a"),
            ("https://[::1]/a", "[::1]/a"),
            ("git@[::1]:a", "[::1]/a"),
            ("/srv/git/a.git", "/srv/git/a"),
            ("/srv/git/a/.git/", "/srv/git/a"),
            ("file:///srv/git/a", "/srv/git/a"),
            ("file:///srv/git/a%20b", "/srv/git/a b"),
        ] {
            assert_eq!(key(text), expected, "{text}");
        }
    }

    #[test]
    fn what_git_gets_is_what_was_understood() {
        for (text, shown) in [
            ("https://GitHub.com./a/b.git", "https://github.com/a/b.git"),
            ("http://0x7f.1:8080/a", "http://127.0.0.1:8080/a"),
            ("git@host:a/b", "git@host:a/b"),
            ("git@host:/a/b", "ssh://git@host/a/b"),
            ("ssh://git@host:2222/a/b", "ssh://git@host:2222/a/b"),
            ("file:///srv/a", "/srv/a"),
        ] {
            assert_eq!(RepoUrl::parse(text).unwrap().to_string(), shown, "{text}");
        }
        assert_eq!(
            RepoUrl::parse("http://0x7f.1:8080/a").unwrap().origin(),
            "http://127.0.0.1:8080"
        );
    }

    #[test]
    fn what_git_could_take_for_something_else_is_refused_and_no_password_is_repeated() {
        for text in [
            "",
            "a",
            "./a",
            "../a",
            "-oProxyCommand=x:a",
            "--upload-pack=touch x",
            "ext::sh -c touch",
            "ext::sh",
            "fd::7",
            "ftp://host/a",
            "git://host/a",
            "https://",
            "https:///a",
            "https://host",
            "https://host/",
            "https://user@host/a",
            "https://user:canary@host/a",
            "ssh://user:canary@host/a",
            "ssh://-oProxyCommand=x/a",
            "ssh://-x@host/a",
            "-x@host:a",
            "host:-a",
            "host:/-a",
            "https://host/a?canary",
            "https://host/a#canary",
            "https://host/a\nb",
            "https://host/a\0b",
            "https://host/a%0ab",
            "https://host/a%00",
            "https://host/a b",
            "https://ho st/a",
            "https://host/%2e%2e/a",
            "ssh://host/../a",
            "git@host:../a",
            "file://other/a",
            "file:///a/../b",
            "/",
            "/a/../b",
            "//..",
            "us er@host:a",
            "a'b@host:a",
            "$(x)@host:a",
        ] {
            let error = RepoUrl::parse(text).expect_err(text);
            assert_eq!(error.code(), Code::InvalidInput, "{text}");
            assert!(!error.to_string().contains("canary"), "{error}");
        }
        assert!(RepoUrl::parse(&format!("https://host/{}", "a".repeat(MAX_BYTES))).is_err());
    }
}
