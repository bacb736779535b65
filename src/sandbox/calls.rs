//! System calls that commands can make (seccomp, `seccomp(2)`).
//!
//! `calls.txt` lists what is allowed, so a call of a newer kernel is closed until somebody adds it.
//! A refused call fails with `EPERM`, an unknown one with `ENOSYS`, which makes a C library use an
//! older call. A program for another architecture, such as a 32-bit one, is killed by its first
//! call.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// The calls with their numbers.
const CALLS: &str = include_str!("calls.txt");
/// Architectures, in the order of the columns of [`CALLS`].
const COLUMNS: &[&str] = &["x86_64", "aarch64", "riscv64"];
/// Socket families that a command may open.
///
/// They belong to the network namespace of the sandbox, which has no way out. Others, such as
/// `AF_VSOCK` (`vsock(7)`), leave it.
const FAMILIES: &[i32] = &[
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];
/// Flags of `clone(2)` that make a namespace. `CLONE_NEWTIME` is none of this call.
const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];
/// Execution domains that a command may choose (`personality(2)`): Linux, with the variants
/// `UNAME26` and `ADDR_NO_RANDOMIZE`, which debuggers and sanitizers use, and the query.
const PERSONALITIES: &[u32] = &[0x0, 0x8, 0x2_0000, 0x2_0008, 0x4_0000, u32::MAX];
/// Bit that marks calls of the x32 ABI.
///
/// They have the same architecture number as x86-64 (`seccomp(2)`, Caveats).
const X32: i64 = 0x4000_0000;

/// Rules of a filter: the calls that match, each with conditions on its arguments.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Refuses all other calls for this process and all that it executes or starts.
///
/// # Errors
/// A message, if this architecture or kernel does not support it.
pub(super) fn refuse() -> Result<(), String> {
    let apply = || -> Result<(), Box<dyn std::error::Error>> {
        let (allowed, refused) = filters(ARCH)?;
        apply_filter(&allowed)?;
        // Where both refuse a call, the error is that of the later filter.
        Ok(apply_filter(&refused)?)
    };
    apply().map_err(|error| format!("system calls cannot be refused: {error}"))
}

/// Returns the filter of allowed calls (all others are `ENOSYS`), and that of refused ones
/// (`EPERM`).
fn filters(architecture: &str) -> Result<(BpfProgram, BpfProgram), Box<dyn std::error::Error>> {
    let target = TargetArch::try_from(architecture)?;
    let numbers = numbers(architecture);
    let allowed: Rules = numbers
        .values()
        .filter(|call| call.allowed)
        .map(|call| (call.number, Vec::new()))
        .collect();
    let mut refused = Rules::new();
    let mut refuse = |name: &str, rules: Vec<SeccompRule>| {
        if let Some(call) = numbers.get(name) {
            refused.extend([call.number, call.number | X32].map(|number| (number, rules.clone())));
        }
    };
    numbers
        .iter()
        .filter(|(_, call)| !call.allowed)
        .for_each(|(name, _)| refuse(name, Vec::new()));
    for name in ["socket", "socketpair"] {
        refuse(
            name,
            vec![none_of(
                FAMILIES.iter().map(|family| family.unsigned_abs()),
            )?],
        );
    }
    refuse("personality", vec![none_of(PERSONALITIES.iter().copied())?]);
    refuse(
        "clone",
        NAMESPACES
            .iter()
            .map(|flag| has_flag(0, flag.unsigned_abs()))
            .collect::<Result<_, _>>()?,
    );
    // Huge pages count for no limit of memory.
    refuse("mmap", vec![has_flag(3, libc::MAP_HUGETLB.unsigned_abs())?]);
    refuse("memfd_create", vec![has_flag(1, libc::MFD_HUGETLB)?]);
    let error = |number: i32| SeccompAction::Errno(number.unsigned_abs());
    let allowed = SeccompFilter::new(allowed, error(libc::ENOSYS), SeccompAction::Allow, target)?;
    let refused = SeccompFilter::new(refused, SeccompAction::Allow, error(libc::EPERM), target)?;
    Ok((
        BpfProgram::try_from(allowed)?,
        BpfProgram::try_from(refused)?,
    ))
}

/// A line of [`CALLS`].
struct Listed {
    number: i64,
    allowed: bool,
}

/// Returns the listed calls of an architecture by name.
fn numbers(architecture: &str) -> BTreeMap<&'static str, Listed> {
    let column = COLUMNS.iter().position(|column| *column == architecture);
    let parse = |line: &'static str| {
        let mut words = line.split_ascii_whitespace();
        let allowed = match words.next()? {
            "allow" => true,
            "refuse" => false,
            _ => return None,
        };
        let name = words.next()?;
        Some((
            name,
            Listed {
                number: words.nth(column?)?.parse().ok()?,
                allowed,
            },
        ))
    };
    CALLS.lines().filter_map(parse).collect()
}

/// Matches a call whose first argument is none of these values. The kernel reads 32 bits of it.
fn none_of(values: impl Iterator<Item = u32>) -> Result<SeccompRule, seccompiler::BackendError> {
    let differs = |value| {
        SeccompCondition::new(
            0,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Ne,
            u64::from(value),
        )
    };
    SeccompRule::new(values.map(differs).collect::<Result<_, _>>()?)
}

/// Matches a call one of whose arguments, counted from 0, has this flag.
fn has_flag(argument: u8, flag: u32) -> Result<SeccompRule, seccompiler::BackendError> {
    let flag = u64::from(flag);
    SeccompRule::new(vec![SeccompCondition::new(
        argument,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(flag),
        flag,
    )?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_list_is_read() {
        let lines = CALLS.lines().filter(|line| !line.starts_with('#'));
        let mut names = std::collections::BTreeSet::new();
        for line in lines {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            assert!(
                words.len() == 2 + COLUMNS.len() && matches!(words[0], "allow" | "refuse"),
                "{line}"
            );
            assert!(
                words[2..]
                    .iter()
                    .all(|number| *number == "-" || number.parse::<i64>().is_ok()),
                "{line}"
            );
            assert!(names.insert(words[1]), "{line} is there twice");
        }
        for architecture in COLUMNS {
            let numbers = numbers(architecture);
            let unique: std::collections::BTreeSet<_> =
                numbers.values().map(|call| call.number).collect();
            assert!(
                numbers.len() > 280 && unique.len() == numbers.len(),
                "{architecture}"
            );
            filters(architecture).unwrap();
        }
    }

    /// The numbers of this architecture, as the C library knows them.
    #[test]
    fn numbers_are_those_of_the_system() {
        let numbers = numbers(ARCH);
        let known = [
            ("read", libc::SYS_read, true),
            ("openat2", libc::SYS_openat2, true),
            ("clone", libc::SYS_clone, true),
            ("statx", libc::SYS_statx, true),
            ("faccessat2", libc::SYS_faccessat2, true),
            ("pidfd_open", libc::SYS_pidfd_open, true),
            ("memfd_create", libc::SYS_memfd_create, true),
            ("ptrace", libc::SYS_ptrace, true),
            ("shmget", libc::SYS_shmget, false),
            ("shmat", libc::SYS_shmat, false),
            ("semget", libc::SYS_semget, false),
            ("msgget", libc::SYS_msgget, false),
            ("add_key", libc::SYS_add_key, false),
            ("request_key", libc::SYS_request_key, false),
            ("keyctl", libc::SYS_keyctl, false),
            ("bpf", libc::SYS_bpf, false),
            ("perf_event_open", libc::SYS_perf_event_open, false),
            ("userfaultfd", libc::SYS_userfaultfd, false),
            ("io_uring_setup", libc::SYS_io_uring_setup, false),
            ("io_uring_enter", libc::SYS_io_uring_enter, false),
            ("io_uring_register", libc::SYS_io_uring_register, false),
            ("memfd_secret", libc::SYS_memfd_secret, false),
            ("mount", libc::SYS_mount, false),
            ("setns", libc::SYS_setns, false),
            ("unshare", libc::SYS_unshare, false),
            ("open_by_handle_at", libc::SYS_open_by_handle_at, false),
            ("name_to_handle_at", libc::SYS_name_to_handle_at, false),
            ("process_madvise", libc::SYS_process_madvise, false),
            ("pidfd_getfd", libc::SYS_pidfd_getfd, false),
        ];
        for (name, number, allowed) in known {
            let call = numbers
                .get(name)
                .unwrap_or_else(|| panic!("{name} is not listed"));
            assert_eq!((call.number, call.allowed), (number, allowed), "{name}");
        }
        // Its flags are in memory, where no filter sees them.
        assert!(!numbers.contains_key("clone3"));
    }
}
