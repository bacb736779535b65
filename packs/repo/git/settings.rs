//! The settings that every run of git gets; they stand above those of any repository.

/// Settings by name, handed over in variables (git-config(1), `GIT_CONFIG_COUNT`): a later one of a name wins.
#[derive(Debug, Clone)]
pub(super) struct Settings(Vec<(String, String)>);

/// What holds for every run. Each line closes a way for a repository, or who feeds it, to have something run or sent.
const ALWAYS: &[(&str, &str)] = &[
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.askPass", ""),
    ("core.alternateRefsCommand", "true"),
    // An empty name drops all helpers before it.
    ("credential.helper", ""),
    ("protocol.allow", "never"),
    ("http.followRedirects", "false"),
    ("http.proxyAuthMethod", "basic"),
    // A server that says nothing for a minute has gone.
    ("http.lowSpeedLimit", "1"),
    ("http.lowSpeedTime", "60"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("push.recurseSubmodules", "no"),
    ("push.gpgSign", "false"),
    ("commit.gpgSign", "false"),
    ("fetch.fsckObjects", "true"),
    ("transfer.fsckObjects", "true"),
    // One pack per fetch, looked through in bounded memory; a file over the threshold is never held as a whole.
    ("fetch.unpackLimit", "1"),
    ("core.bigFileThreshold", "64m"),
    ("core.deltaBaseCacheLimit", "96m"),
    ("pack.threads", "2"),
    ("pack.windowMemory", "128m"),
    ("pack.deltaCacheSize", "64m"),
    // Mistakes of old tools that many histories have and that do no harm.
    ("fetch.fsck.zeroPaddedFilemode", "warn"),
    ("fetch.fsck.badTimezone", "warn"),
    ("fetch.fsck.missingSpaceBeforeDate", "warn"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("init.defaultBranch", "main"),
    ("advice.detachedHead", "false"),
];

impl Settings {
    /// Returns those of a run that reaches nobody.
    pub(super) fn offline() -> Self {
        Self(ALWAYS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    /// Returns those of a run that speaks one protocol (`https`).
    pub(super) fn speaking(protocol: &str) -> Self {
        let mut settings = Self::offline();
        settings.add(&format!("protocol.{protocol}.allow"), "always");
        settings
    }

    /// Adds one.
    pub(super) fn add(&mut self, name: &str, value: &str) {
        self.0.push((name.to_owned(), value.to_owned()));
    }

    /// Returns the variables that hand them over.
    pub(super) fn variables(&self) -> impl Iterator<Item = (String, String)> {
        let each = self.0.iter().enumerate().flat_map(|(number, (name, value))| {
            [(format!("GIT_CONFIG_KEY_{number}"), name.clone()), (format!("GIT_CONFIG_VALUE_{number}"), value.clone())]
        });
        std::iter::once(("GIT_CONFIG_COUNT".to_owned(), self.0.len().to_string())).chain(each)
    }
}
