//! The settings of every run of git. They override those of the repository.

/// Settings by name, passed in variables (git-config(1), `GIT_CONFIG_COUNT`).
///
/// The last one of a name wins.
#[derive(Debug, Clone)]
pub(super) struct Settings(Vec<(String, String)>);

/// The settings of every run.
///
/// Each one stops a repository or its server from starting a program or sending data.
const ALWAYS: &[(&str, &str)] = &[
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.askPass", ""),
    ("core.alternateRefsCommand", "true"),
    // An empty name removes all earlier helpers.
    ("credential.helper", ""),
    ("protocol.allow", "never"),
    ("http.followRedirects", "false"),
    ("http.proxyAuthMethod", "basic"),
    // A server that is silent for a minute counts as gone.
    ("http.lowSpeedLimit", "1"),
    ("http.lowSpeedTime", "60"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("push.recurseSubmodules", "no"),
    ("push.gpgSign", "false"),
    ("commit.gpgSign", "false"),
    ("fetch.fsckObjects", "true"),
    ("transfer.fsckObjects", "true"),
    // One pack per fetch, checked in bounded memory; a file over the threshold is never in memory
    // as a whole.
    ("fetch.unpackLimit", "1"),
    ("core.bigFileThreshold", "64m"),
    ("core.deltaBaseCacheLimit", "96m"),
    ("pack.threads", "2"),
    ("pack.windowMemory", "128m"),
    ("pack.deltaCacheSize", "64m"),
    // Harmless errors of old tools that many histories contain.
    ("fetch.fsck.zeroPaddedFilemode", "warn"),
    ("fetch.fsck.badTimezone", "warn"),
    ("fetch.fsck.missingSpaceBeforeDate", "warn"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("init.defaultBranch", "main"),
    ("advice.detachedHead", "false"),
];

impl Settings {
    /// Returns the settings of a run without a network.
    pub(super) fn offline() -> Self {
        Self(
            ALWAYS
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        )
    }

    /// Returns the settings of a run that may use one protocol (`https`).
    pub(super) fn speaking(protocol: &str) -> Self {
        let mut settings = Self::offline();
        settings.add(&format!("protocol.{protocol}.allow"), "always");
        settings
    }

    /// Adds a setting.
    pub(super) fn add(&mut self, name: &str, value: &str) {
        self.0.push((name.to_owned(), value.to_owned()));
    }

    /// Returns the variables that pass them.
    pub(super) fn variables(&self) -> impl Iterator<Item = (String, String)> {
        let each = self
            .0
            .iter()
            .enumerate()
            .flat_map(|(number, (name, value))| {
                [
                    (format!("GIT_CONFIG_KEY_{number}"), name.clone()),
                    (format!("GIT_CONFIG_VALUE_{number}"), value.clone()),
                ]
            });
        std::iter::once(("GIT_CONFIG_COUNT".to_owned(), self.0.len().to_string())).chain(each)
    }
}
