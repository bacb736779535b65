//! How the limits of memory and disk are enforced on this machine, or why they are best effort.

use std::path::Path;

use helmdeck_core::{Code, Error, Result};

use super::cgroup::Cgroups;
use super::config::SessionConfig;
use super::image::{self, Images};
use super::place::SessionFolder;

/// What enforces the limits of commands; else, why nothing does.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) memory: std::result::Result<Cgroups, String>,
    pub(crate) disk: std::result::Result<Disk, String>,
}

/// What keeps the disk limit.
#[derive(Debug)]
pub(crate) enum Disk {
    /// Each session has a file system.
    Images(Images),
    /// All sessions have one together, apart from everything else.
    Shared,
}

impl Limits {
    /// Finds out what can be had, for the folder of all sessions. Changes nothing.
    pub(crate) fn find(sessions: &Path) -> Self {
        Self {
            memory: Cgroups::find(),
            disk: disk(sessions, Images::find()),
        }
    }

    /// Finds out what can be had, and makes it ready.
    pub(crate) fn prepare(place: &SessionFolder) -> Self {
        let Self { memory, disk } = Self::find(place.path());
        let memory = memory.and_then(|cgroups| cgroups.prepare().map(|()| cgroups));
        let disk = match disk {
            Ok(Disk::Images(images)) => {
                let tried = place
                    .try_images(&images)
                    .map(|()| images)
                    .map_err(|error| error.to_string());
                self::disk(place.path(), tried)
            }
            other => other,
        };
        Self { memory, disk }
    }

    /// Returns what makes a file system for the folder of a session, if each has one.
    pub(crate) const fn images(&self) -> Option<&Images> {
        match &self.disk {
            Ok(Disk::Images(images)) => Some(images),
            _ => None,
        }
    }

    /// Returns why limits are best effort; `None` if they are not.
    pub(crate) fn missing(&self, sandboxed: bool) -> Option<String> {
        if !sandboxed {
            return Some(
                "commands run without a sandbox, so they can change their own limits".to_owned(),
            );
        }
        let memory = self
            .memory
            .as_ref()
            .err()
            .map(|why| format!("memory and processes have no cgroup: {why}"));
        let disk = self
            .disk
            .as_ref()
            .err()
            .map(|why| format!("folders have no file system of their own: {why}"));
        match (memory, disk) {
            (Some(memory), Some(disk)) => Some(format!("{memory}; {disk}")),
            (memory, disk) => memory.or(disk),
        }
    }

    /// Describes the limits in one line.
    pub(crate) fn describe(&self, sandboxed: bool) -> String {
        match self.missing(sandboxed) {
            Some(missing) => format!("limits are best effort ({missing})"),
            None => match self.disk {
                Ok(Disk::Shared) => "limits are enforced (a cgroup for each command, one file system for all folders)",
                _ => "limits are enforced (a cgroup for each command, a file system for each folder)",
            }
            .to_owned(),
        }
    }

    /// Checks that limits are enforced, if the operator requires it.
    ///
    /// # Errors
    /// `session_unavailable` with what is missing and what to do.
    pub(crate) fn check(&self, config: &SessionConfig, sandboxed: bool) -> Result<()> {
        match self.missing(sandboxed).filter(|_| config.require_limits) {
            None => Ok(()),
            Some(missing) => Err(Error::new(
                Code::SessionUnavailable,
                format!(
                    "sessions.require_limits is set, and limits cannot be enforced here: {missing}; docs/sessions.md \
                     says what they need"
                ),
            )),
        }
    }
}

/// Returns what keeps the disk limit, with what is known of images.
fn disk(
    sessions: &Path,
    images: std::result::Result<Images, String>,
) -> std::result::Result<Disk, String> {
    let is_own = || {
        sessions
            .parent()
            .is_some_and(|above| image::is_own(above, sessions))
    };
    match images {
        Ok(images) => Ok(Disk::Images(images)),
        Err(_) if is_own() && !image::shares_room(sessions) => Ok(Disk::Shared),
        Err(reason) => Err(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(memory: Option<&str>, disk: Option<&str>) -> Limits {
        // What is there does not matter here, only whether something is.
        let memory = match memory {
            Some(why) => Err(why.to_owned()),
            None => Ok(Cgroups::of("/nonexistent".into())),
        };
        Limits {
            memory,
            disk: disk.map_or(Ok(Disk::Shared), |why| Err(why.to_owned())),
        }
    }

    #[test]
    fn required_limits_refuse_what_is_best_effort() {
        let required = SessionConfig {
            require_limits: true,
            ..SessionConfig::default()
        };
        for (memory, disk) in [
            (None, None),
            (Some("no-v2"), None),
            (None, Some("no-root")),
            (Some("no-v2"), Some("no-root")),
        ] {
            let limits = limits(memory, disk);
            let reasons: Vec<&str> = [memory, disk].into_iter().flatten().collect();
            limits.check(&SessionConfig::default(), true).unwrap();
            assert_eq!(
                limits.describe(true).contains("best effort"),
                !reasons.is_empty()
            );
            assert!(
                limits
                    .describe(false)
                    .contains("best effort (commands run without a sandbox")
            );
            assert!(limits.check(&required, false).is_err());
            match limits.check(&required, true) {
                Ok(()) => assert!(reasons.is_empty()),
                Err(error) => {
                    assert_eq!(error.code(), Code::SessionUnavailable);
                    assert!(
                        !reasons.is_empty() && error.message().contains("sessions.require_limits"),
                        "{error}"
                    );
                    assert!(
                        reasons.iter().all(|why| error.message().contains(why)),
                        "{error}"
                    );
                }
            }
        }
    }
}
