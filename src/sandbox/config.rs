//! Settings of sessions.

use std::path::{Path, PathBuf};

use helmdeck_core::duration::size;
use serde::{Deserialize, Serialize};

use super::sandbox;

/// Settings of sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionConfig {
    /// Memory limit of all processes of one command, unless its pack sets another. Default 2 GiB.
    #[serde(with = "size")]
    pub memory: u64,
    /// Address space limit of one process (`RLIMIT_AS`). Default 64 GiB.
    ///
    /// Programs reserve far more than they use.
    #[serde(with = "size")]
    pub address_space: u64,
    /// Limit of processes and threads of one command. Default 256.
    pub processes: u64,
    /// Limit of open files of one process. Default 1024.
    pub open_files: u64,
    /// Size limit of a session's folder. Default 4 GiB.
    #[serde(with = "size")]
    pub disk: u64,
    /// Size of a command's `/tmp`, which is in memory and removed with the command. Default 256
    /// MiB.
    #[serde(with = "size")]
    pub tmp: u64,
    /// Limit of sessions per caller. Default 8.
    pub max_per_caller: usize,
    /// Limit of all sessions. Default 64.
    pub max_total: usize,
    /// User id of commands when helmdeck itself runs as root; never 0. Default 65534 (`nobody`).
    pub user: u32,
    /// Host files and folders, besides `/usr`, that commands may read. Default none.
    ///
    /// They have the same path in the sandbox. None may hold helmdeck's data folder or lie in it.
    pub read_only_paths: Vec<PathBuf>,
    /// Search path of programs before the usual folders. Default none.
    pub path: Vec<PathBuf>,
    /// Whether commands may run unsandboxed where no sandbox works. Default false.
    pub allow_unsandboxed: bool,
    /// Whether commands are refused where limits of memory and disk are best effort. Default false.
    pub require_limits: bool,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            memory: 2 << 30,
            address_space: 64 << 30,
            processes: 256,
            open_files: 1024,
            disk: 4 << 30,
            tmp: 256 << 20,
            max_per_caller: 8,
            max_total: 64,
            user: 65_534,
            read_only_paths: Vec::new(),
            path: Vec::new(),
            allow_unsandboxed: false,
            require_limits: false,
        }
    }
}

impl SessionConfig {
    /// Checks rules that the types do not express.
    ///
    /// # Errors
    /// A message that names the setting.
    pub fn validate(&self) -> Result<(), String> {
        if self.user == 0 {
            return Err("user must not be 0: commands never run as root".to_owned());
        }
        if self.processes < 4 {
            return Err("processes must be at least 4".to_owned());
        }
        if self.open_files < 16 {
            return Err("open_files must be at least 16".to_owned());
        }
        for path in self.read_only_paths.iter().chain(&self.path) {
            if !path.is_absolute() || path.components().any(|part| part.as_os_str() == "..") {
                return Err(format!("{} must be an absolute path", path.display()));
            }
            if path.to_str().is_none_or(|path| path.contains([':', '\0'])) {
                return Err(format!("{} must be text without a colon", path.display()));
            }
        }
        for path in &self.read_only_paths {
            let closed = [
                "/", "/proc", "/sys", "/dev", "/run", "/var/run", "/tmp", "/etc",
            ];
            if closed
                .iter()
                .any(|closed| path.components().eq(Path::new(closed).components()))
            {
                return Err(format!(
                    "{} cannot be opened to commands as a whole",
                    path.display()
                ));
            }
        }
        Ok(())
    }

    /// Checks that no path that commands can read contains helmdeck's data, or lies in it.
    ///
    /// Links are followed.
    ///
    /// # Errors
    /// A message that names the setting, or the folder.
    pub fn keeps_from(&self, data: &Path) -> Result<(), String> {
        let data = resolved(data);
        for path in &self.read_only_paths {
            let shown = resolved(path);
            if data.starts_with(&shown) || shown.starts_with(&data) {
                return Err(format!(
                    "read_only_paths: {} would show commands the data of helmdeck in {}",
                    path.display(),
                    data.display()
                ));
            }
        }
        match sandbox::always_shown().find(|shown| data.starts_with(resolved(shown))) {
            Some(shown) => Err(format!(
                "the data folder {} is below {}, which commands of sessions may read: move it elsewhere",
                data.display(),
                shown.display()
            )),
            None => Ok(()),
        }
    }
}

/// Returns a path with links resolved, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (above.canonicalize(), path.strip_prefix(above)) {
            return real.join(rest);
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn readable_paths_never_overlap_the_data() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir_all(at("state/data")).unwrap();
        std::fs::create_dir_all(at("state/tools")).unwrap();
        std::os::unix::fs::symlink(at("state"), at("link")).unwrap();
        let refused = |path: &str, data: PathBuf| {
            let config = SessionConfig {
                read_only_paths: vec![at(path)],
                ..SessionConfig::default()
            };
            config.keeps_from(&data).err()
        };
        let data = || at("state/data");
        for path in [
            "state",
            "state/data",
            "state/data/packs",
            "link",
            "link/data",
            "link/data/sessions/x",
            "",
        ] {
            assert!(
                refused(path, data()).is_some_and(|message| message.contains("read_only_paths")),
                "{path}"
            );
        }
        // Created later, below a readable path.
        assert!(refused("link/tools", at("state/tools/new/data")).is_some());
        for path in ["state/tools", "link/tools", "state/data2", "elsewhere"] {
            assert_eq!(refused(path, data()), None, "{path}");
        }
        let below = refused("elsewhere", "/usr/local/share/helmdeck".into()).unwrap();
        assert!(below.contains("/usr"), "{below}");
        assert!(refused("elsewhere", "/bin/helmdeck-data".into()).is_some());
        assert_eq!(refused("elsewhere", "/var/lib/helmdeck".into()), None);
    }
}
