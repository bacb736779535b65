//! Descendants of a process: lists them, measures their memory, and kills one (`/proc`, `proc(5)`).

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Memory of all descendants of a process, in bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Memory of the processes: anonymous, shared, and unnamed files in memory.
    pub(crate) memory: u64,
    /// Unnamed (deleted) files on the device of the session's folder.
    pub(crate) nameless: u64,
}

/// Returns all processes with their parents.
fn all() -> Vec<(i32, i32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    ids.filter_map(|pid| Some((pid, parent(pid)?))).collect()
}

/// Returns the parent of a process.
///
/// The name in `/proc/<pid>/stat` can contain any character, so parsing starts after its end.
fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[end + 1..]).ok()?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Returns the children of a process.
pub(crate) fn children(of: Pid) -> Vec<Pid> {
    let of = of.as_raw_nonzero().get();
    all()
        .into_iter()
        .filter(|(_, parent)| *parent == of)
        .filter_map(|(pid, _)| Pid::from_raw(pid))
        .collect()
}

/// Returns all descendants of a process.
pub(crate) fn below(root: Pid) -> Vec<i32> {
    let mut of: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for (pid, parent) in all() {
        of.entry(parent).or_default().push(pid);
    }
    let mut found = Vec::new();
    let mut todo = vec![root.as_raw_nonzero().get()];
    while let Some(pid) = todo.pop() {
        let children = of.remove(&pid).unwrap_or_default();
        todo.extend_from_slice(&children);
        found.extend(children);
    }
    found
}

/// Returns a process with its ancestors and descendants.
pub(crate) fn family(of: Pid) -> BTreeSet<i32> {
    let own = of.as_raw_nonzero().get();
    let ancestors =
        std::iter::successors(Some(own), |pid| parent(*pid).filter(|parent| *parent > 0));
    ancestors.chain(below(of)).collect()
}

/// Returns the memory of all descendants of a process. `device` is that of the session's folder.
///
/// Shared memory counts once for each process while the sum stays below `allowed`, because that is
/// cheap. Only beyond the limit are the proportional shares used, which the kernel must count page
/// by page.
pub(crate) fn usage(root: Pid, device: u64, allowed: u64) -> Usage {
    let usage = add_up(root, device, memory);
    if usage.memory <= allowed {
        usage
    } else {
        add_up(root, device, share)
    }
}

fn add_up(root: Pid, device: u64, memory: impl Fn(i32) -> u64) -> Usage {
    let mut usage = Usage::default();
    let mut seen = BTreeSet::new();
    for pid in below(root) {
        usage.memory = usage.memory.saturating_add(memory(pid));
        let Ok(open) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        for file in open.flatten() {
            // Follows the link, so that the open file itself is examined.
            let Ok(about) = std::fs::metadata(file.path()) else {
                continue;
            };
            if !about.is_file() || about.nlink() > 0 || !seen.insert((about.dev(), about.ino())) {
                continue;
            }
            let bytes = about.blocks().saturating_mul(512);
            let place = if about.dev() == device {
                &mut usage.nameless
            } else {
                &mut usage.memory
            };
            *place = place.saturating_add(bytes);
        }
    }
    usage
}

/// Returns the memory of one process that is not backed by files, in bytes.
///
/// Memory shared with other processes counts in full.
fn memory(pid: i32) -> u64 {
    sum(pid, "status", &["RssAnon:", "RssShmem:"]).unwrap_or(0)
}

/// Returns the same memory, with only its share of what other processes use too.
///
/// Shared memory counts in full if the kernel does not report the share.
fn share(pid: i32) -> u64 {
    sum(pid, "smaps_rollup", &["Pss_Anon:", "Pss_Shmem:"]).unwrap_or_else(|| memory(pid))
}

/// Adds up lines in KiB of a file below `/proc/<pid>`; `None` if one is missing.
fn sum(pid: i32, file: &str, names: &[&str]) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let number = |name: &&str| {
        let line = text.lines().find_map(|line| line.strip_prefix(*name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    let numbers: Option<Vec<u64>> = names.iter().map(number).collect();
    Some(numbers?.iter().sum::<u64>().saturating_mul(1024))
}

/// Kills a child of a process, and never another process that now has its id.
pub(crate) fn kill_child(pid: Pid, of: Pid) {
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    if parent(pid.as_raw_nonzero().get()) == Some(of.as_raw_nonzero().get()) {
        // Fails only if it has ended already.
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
}

/// Kills a child that was not waited for, so its id is still its own.
pub(crate) fn kill(pid: Pid) {
    let _ = rustix::process::kill_process(pid, Signal::KILL);
}
