//! One cgroup (v2) per command: limits of memory, swap and processes that hold whatever the command
//! does.
//!
//! The kernel charges each page to the cgroup that first used it: anonymous, shared, in a file in
//! memory, mapped or not, held by a descriptor or by one that is in flight between two sockets. So
//! nothing has to be found in order to be counted. Documentation of the kernel:
//! `admin-guide/cgroup-v2`.
//!
//! ```text
//! <base>/                    delegated to helmdeck; memory and pids are enabled for its children
//!   helmdeck-main/           helmdeck itself, because a cgroup with limited children has no processes of its own
//!   helmdeck-run-<pid>-<n>/  one command. helmdeck holds a lock on the folder, which is free once helmdeck has ended
//! ```

use std::ffi::OsStr;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Access, AtFlags, CWD, accessat, getxattr};
use rustix::process::getpid;

use super::processes;

/// Cgroup of helmdeck itself.
const MAIN: &str = "helmdeck-main";
/// Prefix of the cgroups of commands.
const RUN: &str = "helmdeck-run-";
/// Marks that systemd sets on a cgroup that it leaves to its service (`Delegate=`).
const DELEGATED: &[&str] = &["user.delegate", "trusted.delegate"];
/// Attempts to leave a cgroup in which processes keep starting.
const LEAVES: usize = 20;
/// Processes around a command, which count towards its limit.
const AROUND: u64 = 8;
/// How long the processes of a cgroup may take to end after they were killed.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Interval of checks for that.
const END_LOOK: Duration = Duration::from_millis(2);
/// Limits of the cgroup that is made to see whether one can be made.
const TRIAL: (u64, u64) = (64 << 20, 16);

/// The cgroup below which commands get theirs.
#[derive(Debug, Clone)]
pub(crate) struct Cgroups {
    base: PathBuf,
}

/// The cgroup of one command. Dropping it kills what is in it, and removes it.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
    _lock: File,
}

impl Cgroups {
    #[cfg(test)]
    pub(crate) const fn of(base: PathBuf) -> Self {
        Self { base }
    }

    /// Finds a cgroup that belongs to helmdeck alone. Changes nothing.
    ///
    /// # Errors
    /// Why there is none, for operators.
    pub(crate) fn find() -> Result<Self, String> {
        let read = |path| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let (top, own) = locate(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)?;
        Self::under(&top, &own)
    }

    /// The same, for a process in `own`, where `top` is the outermost cgroup that it sees.
    fn under(top: &Path, own: &Path) -> Result<Self, String> {
        let base = base(top, own)?;
        let shown = base.display();
        if let Some(unit) = unit(&base) {
            return Err(format!(
                "the cgroup {shown} belongs to a service manager, which has {unit} in it"
            ));
        }
        if let Ok(kind) = std::fs::read_to_string(base.join("cgroup.type"))
            && kind.trim() != "domain"
        {
            return Err(format!(
                "the cgroup {shown} is not a domain of its own (cgroup.type: {})",
                kind.trim()
            ));
        }
        for controller in ["memory", "pids"] {
            if !has(&base.join("cgroup.controllers"), controller) {
                let message = "is not available in the cgroup (the system mounts it as cgroup v1, or does not delegate it)";
                return Err(format!("the controller \"{controller}\" {message} {shown}"));
            }
        }
        let may = |path: &Path, access| accessat(CWD, path, access, AtFlags::EACCESS).is_ok();
        let files = ["cgroup.procs", "cgroup.subtree_control"].map(|name| base.join(name));
        if !may(&base, Access::WRITE_OK | Access::EXEC_OK)
            || !files.iter().all(|file| may(file, Access::WRITE_OK))
        {
            return Err(format!("the cgroup {shown} cannot be written"));
        }
        let found = Self { base };
        match found.strangers() {
            0 => Ok(found),
            _ if found.is_root() || found.is_ready() => Ok(found),
            count => Err(format!(
                "{count} other processes are in the cgroup {}: start helmdeck in one of its own",
                found.base.display()
            )),
        }
    }

    /// Makes the cgroup ready for commands: moves helmdeck into a child, enables the controllers,
    /// and makes a trial.
    ///
    /// # Errors
    /// Why it cannot be used, for operators.
    pub(crate) fn prepare(&self) -> Result<(), String> {
        let failed = |what: &str, error: &io::Error| {
            format!("{what} in the cgroup {}: {error}", self.base.display())
        };
        self.reap();
        for attempt in 1.. {
            if self.is_ready() {
                break;
            }
            if !self.is_root() {
                self.leave()
                    .map_err(|error| failed("helmdeck cannot be moved", &error))?;
            }
            match write(&self.base.join("cgroup.subtree_control"), "+memory +pids") {
                Ok(()) => break,
                // A process was started there in the meantime.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && attempt < LEAVES => {}
                Err(error) => return Err(failed("the controllers cannot be enabled", &error)),
            }
        }
        let trial = self
            .make(TRIAL.0, TRIAL.1)
            .map_err(|error| failed("no child can be limited", &error))?;
        if !trial.path.join("cgroup.kill").exists() {
            return Err("cgroup.kill is missing: it needs Linux 5.14".to_owned());
        }
        trial
            .end()
            .map_err(|error| failed("a child cannot be removed", &error))
    }

    /// Makes the cgroup of a command.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn make(&self, memory: u64, processes: u64) -> io::Result<Cgroup> {
        let cgroup = self.make_plain()?;
        let set = |name: &str, value: &str| {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}"));
            write(&cgroup.path.join(name), value).map_err(named)
        };
        set("memory.max", &memory.to_string())?;
        match set("memory.swap.max", "0") {
            // The kernel counts no swap here, so there must be none.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !has_swap() => {}
            other => other?,
        }
        // A command that lost a process to the limit is no longer what it was, so all of it goes.
        set("memory.oom.group", "1")?;
        set("pids.max", &processes.saturating_add(AROUND).to_string())?;
        Ok(cgroup)
    }

    /// Makes a cgroup without limits, and takes its lock.
    fn make_plain(&self) -> io::Result<Cgroup> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = self
                .base
                .join(format!("{RUN}{}-{number}", getpid().as_raw_nonzero()));
            match std::fs::create_dir(&path) {
                // That of another PID namespace, or of an ended process with the same id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other?,
            }
            match locked(&path) {
                // Another process took it for an abandoned one, and removes it.
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Ok(Some(lock)) if path.exists() => return Ok(Cgroup { path, _lock: lock }),
                Ok(Some(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Kills and removes what ended processes left.
    pub(crate) fn reap(&self) {
        let Ok(entries) = std::fs::read_dir(&self.base) else {
            return;
        };
        for entry in entries.flatten() {
            if !entry
                .file_name()
                .to_str()
                .is_some_and(|name| name.starts_with(RUN))
            {
                continue;
            }
            if let Ok(Some(lock)) = locked(&entry.path()) {
                let abandoned = Cgroup {
                    path: entry.path(),
                    _lock: lock,
                };
                if let Err(error) = abandoned.end() {
                    tracing::warn!(%error, "the cgroup of an abandoned command cannot be removed");
                }
            }
        }
    }

    /// Returns whether this is the root of all cgroups, which may have processes beside limited
    /// children.
    fn is_root(&self) -> bool {
        !self.base.join("cgroup.type").exists()
    }

    /// Returns whether the controllers are enabled for children.
    fn is_ready(&self) -> bool {
        let enabled = self.base.join("cgroup.subtree_control");
        has(&enabled, "memory") && has(&enabled, "pids")
    }

    fn members(&self) -> Vec<i32> {
        let text = std::fs::read_to_string(self.base.join("cgroup.procs")).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.trim().parse().ok())
            .collect()
    }

    /// Counts processes that did not start helmdeck and that helmdeck did not start.
    fn strangers(&self) -> usize {
        let family = processes::family(getpid());
        self.members()
            .into_iter()
            .filter(|pid| !family.contains(pid))
            .count()
    }

    /// Moves helmdeck, what it started and what started it into a child.
    fn leave(&self) -> io::Result<()> {
        let main = self.base.join(MAIN);
        match std::fs::create_dir(&main) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
        let family = processes::family(getpid());
        for pid in self
            .members()
            .into_iter()
            .filter(|pid| family.contains(pid))
        {
            match write(&main.join("cgroup.procs"), &pid.to_string()) {
                // It has ended.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                other => other?,
            }
        }
        Ok(())
    }
}

impl Cgroup {
    /// Returns the folder, for [`enter`].
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Kills everything in it.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn kill(&self) -> io::Result<()> {
        write(&self.path.join("cgroup.kill"), "1")
    }

    /// Returns whether the kernel killed something in it for lack of memory.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        let events = std::fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        let count = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok();
        events
            .lines()
            .find_map(count)
            .is_some_and(|count| count > 0)
    }

    /// Kills everything in it, waits until it is gone, and removes the cgroup.
    ///
    /// # Errors
    /// Those of the system; `TimedOut` if a process does not end.
    pub(crate) fn end(&self) -> io::Result<()> {
        let start = Instant::now();
        loop {
            match std::fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                other => return other,
            }
            self.kill()?;
            if start.elapsed() > END_LIMIT {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "a killed process does not end",
                ));
            }
            std::thread::sleep(END_LOOK);
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Whoever ends it waits for that. This is for commands that were never started.
        let _ = self.kill();
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Moves this process into a cgroup.
///
/// # Errors
/// Those of the system.
pub(crate) fn enter(cgroup: &Path) -> io::Result<()> {
    write(&cgroup.join("cgroup.procs"), "0")
}

/// Writes to a file of a cgroup, which the kernel takes as one word.
fn write(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(path)?
        .write_all(value.as_bytes())
}

/// Returns whether a file of words has a word.
fn has(path: &Path, word: &str) -> bool {
    std::fs::read_to_string(path)
        .is_ok_and(|text| text.split_ascii_whitespace().any(|found| found == word))
}

/// Takes the lock of a cgroup; `None` if its owner still runs.
fn locked(path: &Path) -> io::Result<Option<File>> {
    let folder = File::open(path)?;
    match folder.try_lock() {
        Ok(()) => Ok(Some(folder)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn has_swap() -> bool {
    // A title, then a line for each.
    std::fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1)
}

/// Returns the cgroup that helmdeck may divide.
fn base(top: &Path, own: &Path) -> Result<PathBuf, String> {
    let parent = own
        .parent()
        .filter(|parent| own != top && parent.starts_with(top));
    // The outermost one is that of a container, or of a machine without a service manager.
    if own == top || is_delegated(own) {
        return Ok(own.to_owned());
    }
    match parent {
        // Another helmdeck there has moved the process that started this one.
        Some(parent) if own.file_name() == Some(OsStr::new(MAIN)) => Ok(parent.to_owned()),
        // systemd's `DelegateSubgroup=`.
        Some(parent) if is_delegated(parent) => Ok(parent.to_owned()),
        _ => Err(format!(
            "the cgroup {} was not delegated to helmdeck: start it with `systemd-run --user --scope -p Delegate=yes` or \
             with Delegate=yes in its service",
            own.display()
        )),
    }
}

fn is_delegated(cgroup: &Path) -> bool {
    let mut value = [0; 8];
    DELEGATED.iter().any(|name| {
        getxattr(cgroup, *name, &mut value[..]).is_ok_and(|size| value[..size] == *b"1")
    })
}

/// Returns a child that a service manager made.
fn unit(base: &Path) -> Option<String> {
    let names = std::fs::read_dir(base)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_unit = |name: &String| {
        [".slice", ".scope", ".service"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    names.into_iter().find(is_unit)
}

/// Returns where the outermost visible cgroup is, and that of this process.
fn locate(mounts: &str, own: &str) -> Result<(PathBuf, PathBuf), String> {
    let own = own
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .ok_or("this process is in no cgroup of version 2")?;
    if own.starts_with("/..") {
        return Err(format!(
            "the cgroup of this process ({own}) is outside of what it sees"
        ));
    }
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let fields: Vec<&str> = left.split(' ').collect();
        let (Some(root), Some(place)) = (fields.get(3), fields.get(4)) else {
            continue;
        };
        if right.split(' ').next() != Some("cgroup2") {
            continue;
        }
        if let Ok(rest) = Path::new(own).strip_prefix(root) {
            let top = PathBuf::from(place.replace("\\040", " "));
            let own = if rest.as_os_str().is_empty() {
                top.clone()
            } else {
                top.join(rest)
            };
            return Ok((top, own));
        }
    }
    Err("no cgroup file system of version 2 is mounted".to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    #[test]
    fn own_cgroup_is_found_below_its_mount() {
        let mount = |root: &str, place: &str| {
            format!("25 21 0:22 {root} {place} rw,nosuid - cgroup2 cgroup2 rw\n")
        };
        let sys = "21 1 0:20 / /sys rw - sysfs sysfs rw\n30 21 0:25 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";
        let at = |mounts: String, own: &str| {
            locate(&mounts, own)
                .map(|(top, own)| (top.display().to_string(), own.display().to_string()))
        };
        let both = |top: &str, own: &str| Ok((top.to_owned(), own.to_owned()));
        let cgroup = "/sys/fs/cgroup";
        let plain = || sys.to_owned() + &mount("/", cgroup);
        assert_eq!(at(plain(), "0::/\n"), both(cgroup, cgroup));
        assert_eq!(
            at(plain(), "0::/a/b.service\n"),
            both(cgroup, "/sys/fs/cgroup/a/b.service")
        );
        assert_eq!(
            at(plain(), "4:memory:/x\n0::/a\n"),
            both(cgroup, "/sys/fs/cgroup/a")
        );
        // A container that sees its own part, mounted from the whole.
        assert_eq!(
            at(mount("/docker/1", cgroup), "0::/docker/1/x\n"),
            both(cgroup, "/sys/fs/cgroup/x")
        );
        assert_eq!(
            at(mount("/", "/with\\040space"), "0::/a\n"),
            both("/with space", "/with space/a")
        );
        for (mounts, own) in [
            (plain(), "4:memory:/x\n"),
            (plain(), "0::/../x\n"),
            (sys.to_owned(), "0::/\n"),
            (mount("/docker/1", cgroup), "0::/docker/2\n"),
            (String::new(), ""),
        ] {
            assert!(locate(&mounts, own).is_err(), "{mounts} {own}");
        }
    }

    /// A folder with the files of a cgroup. `pids` are its processes.
    fn tree(at: &Path, kind: &str, controllers: &str, enabled: &str, pids: &str) {
        std::fs::create_dir_all(at).unwrap();
        for (name, text) in [
            ("cgroup.type", kind),
            ("cgroup.controllers", controllers),
            ("cgroup.subtree_control", enabled),
            ("cgroup.procs", pids),
        ] {
            std::fs::write(at.join(name), text).unwrap();
        }
    }

    #[test]
    fn only_an_own_and_delegated_cgroup_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        let own = top.join("own");
        let all = "cpu memory pids\n";
        let ours = format!(
            "{}\n{}\n",
            std::process::id(),
            std::os::unix::process::parent_id()
        );
        let under = |own: &Path| Cgroups::under(top, own).map(|found| found.base);
        let refused = |own: &Path, why: &str| {
            let reason = under(own).unwrap_err();
            assert!(reason.contains(why), "{reason}");
        };
        tree(top, "domain", all, "", &ours);
        assert_eq!(under(top), Ok(top.to_owned()), "a container's own");
        tree(&own, "domain", all, "", &ours);
        refused(&own, "not delegated");
        tree(&top.join(MAIN), "domain", all, "", &ours);
        assert_eq!(
            under(&top.join(MAIN)),
            Ok(top.to_owned()),
            "beside another helmdeck"
        );
        for (kind, controllers, pids, why) in [
            ("threaded", all, "", "cgroup.type"),
            ("domain invalid", all, "", "cgroup.type"),
            ("domain", "cpu pids", "", "\"memory\""),
            ("domain", "memory", "", "\"pids\""),
            ("domain", "hugetlb", "", "\"memory\""),
            ("domain", "memorys pid", "", "\"memory\""),
            ("domain", all, "0\n", "1 other"),
            ("domain", all, "999999998\n999999999\n", "2 other"),
        ] {
            tree(top, kind, controllers, "", pids);
            refused(top, why);
        }
        // Already divided: others may be beside, but not in the way.
        tree(top, "domain", all, "memory pids", "999999999\n");
        assert!(under(top).is_ok());
        // The root of all cgroups may have processes.
        tree(top, "domain", all, "", "999999999\n");
        std::fs::remove_file(top.join("cgroup.type")).unwrap();
        assert!(under(top).is_ok());
        std::fs::create_dir(top.join("user.slice")).unwrap();
        refused(top, "user.slice");
    }

    /// A cgroup of a real file system, if this user may make one; it needs no controller.
    fn real() -> Option<Cgroups> {
        let read = |path| std::fs::read_to_string(path).unwrap();
        let (top, own) = locate(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup")).ok()?;
        [own, top].into_iter().find_map(|above| {
            let base = above.join(format!("helmdeck-test-{}", std::process::id()));
            std::fs::create_dir(&base).ok().map(|()| Cgroups { base })
        })
    }

    /// Starts a program that stays, in a cgroup.
    fn inside(cgroup: &Cgroup) -> Child {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        write(&cgroup.path.join("cgroup.procs"), &child.id().to_string()).unwrap();
        child
    }

    #[test]
    fn cgroup_is_killed_and_removed_with_all_that_is_in_it() {
        let Some(cgroups) = real() else {
            assert!(
                Cgroups::find().is_err(),
                "a cgroup that can be had can be divided"
            );
            return;
        };
        let (first, second) = (cgroups.make_plain().unwrap(), cgroups.make_plain().unwrap());
        let mut children = [inside(&first), inside(&first), inside(&second)];
        // Nothing is abandoned while its owner runs.
        cgroups.reap();
        assert!(
            children
                .iter_mut()
                .all(|child| child.try_wait().unwrap().is_none())
        );
        assert!(std::fs::remove_dir(&first.path).is_err(), "it is in use");
        first.end().unwrap();
        assert!(!first.path.exists() && second.path.exists());
        let killed = |child: &mut Child| {
            std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap())
        };
        assert_eq!(killed(&mut children[0]), Some(9));
        assert_eq!(killed(&mut children[1]), Some(9));
        assert!(children[2].try_wait().unwrap().is_none());
        // As after a crash of its owner: the lock is free, the processes run on.
        let path = second.path.clone();
        let lock = second._lock.try_clone().unwrap();
        std::mem::forget(second);
        lock.unlock().unwrap();
        cgroups.reap();
        assert!(!path.exists());
        assert_eq!(killed(&mut children[2]), Some(9));
        // One that was never used.
        let unused = cgroups.make_plain().unwrap();
        let path = unused.path.clone();
        drop(unused);
        assert!(!path.exists());
        std::fs::remove_dir(&cgroups.base).unwrap();
    }

    #[test]
    fn cgroup_without_controllers_limits_nothing_and_says_so() {
        let Some(cgroups) = real() else {
            return assert!(Cgroups::find().is_err());
        };
        let error = cgroups.make(1 << 30, 64).unwrap_err();
        assert!(error.to_string().contains("memory.max"), "{error}");
        assert_eq!(
            std::fs::read_dir(&cgroups.base)
                .unwrap()
                .filter(|e| e.as_ref().unwrap().path().is_dir())
                .count(),
            0
        );
        std::fs::remove_dir(&cgroups.base).unwrap();
    }

    #[test]
    fn out_of_memory_is_read_from_the_events() {
        let folder = tempfile::tempdir().unwrap();
        for (text, killed) in [
            (
                "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n",
                false,
            ),
            ("low 0\nhigh 0\nmax 81\noom 0\noom_kill 0\n", false),
            (
                "low 0\nhigh 0\nmax 81\noom 1\noom_kill 3\noom_group_kill 1\n",
                true,
            ),
            ("", false),
        ] {
            std::fs::write(folder.path().join("memory.events"), text).unwrap();
            let lock = File::open(folder.path()).unwrap();
            let cgroup = Cgroup {
                path: folder.path().to_owned(),
                _lock: lock,
            };
            assert_eq!(cgroup.ran_out_of_memory(), killed, "{text}");
            std::mem::forget(cgroup);
        }
    }
}
