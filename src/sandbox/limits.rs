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
        let shared = || sessions.parent().is_some_and(|above| image::is_own(above, sessions));
        let disk = match Images::find() {
            Ok(images) => Ok(Disk::Images(images)),
            Err(_) if shared() => Ok(Disk::Shared),
            Err(reason) => Err(reason),
        };
        Self { memory: Cgroups::find(), disk }
    }

    /// Finds out what can be had, and makes it ready.
    pub(crate) fn prepare(place: &SessionFolder) -> Self {
        let Self { memory, disk } = Self::find(place.path());
        let memory = memory.and_then(|cgroups| cgroups.prepare().map(|()| cgroups));
        let disk = disk.and_then(|disk| match &disk {
            Disk::Images(images) => match place.try_images(images) {
                Ok(()) => Ok(disk),
                Err(error) => Err(error.to_string()),
            },
            Disk::Shared => Ok(disk),
        });
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
    pub(crate) fn missing(&self) -> Option<String> {
        let memory = self.memory.as_ref().err().map(|why| format!("memory and processes have no cgroup: {why}"));
        let disk = self.disk.as_ref().err().map(|why| format!("folders have no file system of their own: {why}"));
        match (memory, disk) {
            (Some(memory), Some(disk)) => Some(format!("{memory}; {disk}")),
            (memory, disk) => memory.or(disk),
        }
    }

    /// Describes the limits in one line.
    pub(crate) fn describe(&self) -> String {
        match self.missing() {
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
    pub(crate) fn check(&self, config: &SessionConfig) -> Result<()> {
        match self.missing().filter(|_| config.require_limits) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(memory: Option<&str>, disk: Option<&str>) -> Limits {
        // What is there does not matter here, only whether something is.
        let memory = match memory {
            Some(why) => Err(why.to_owned()),
            None => Ok(Cgroups::of("/nonexistent".into())),
        };
        Limits { memory, disk: disk.map_or(Ok(Disk::Shared), |why| Err(why.to_owned())) }
    }

    #[test]
    fn required_limits_refuse_what_is_best_effort() {
        let required = SessionConfig { require_limits: true, ..SessionConfig::default() };
        for (memory, disk) in
            [(None, None), (Some("no-v2"), None), (None, Some("no-root")), (Some("no-v2"), Some("no-root"))]
        {
            let limits = limits(memory, disk);
            let reasons: Vec<&str> = [memory, disk].into_iter().flatten().collect();
            limits.check(&SessionConfig::default()).unwrap();
            assert_eq!(limits.describe().contains("best effort"), !reasons.is_empty());
            match limits.check(&required) {
                Ok(()) => assert!(reasons.is_empty()),
                Err(error) => {
                    assert_eq!(error.code(), Code::SessionUnavailable);
                    assert!(!reasons.is_empty() && error.message().contains("sessions.require_limits"), "{error}");
                    assert!(reasons.iter().all(|why| error.message().contains(why)), "{error}");
                }
            }
        }
    }
}
