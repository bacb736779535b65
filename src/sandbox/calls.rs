//! System calls that commands cannot make (seccomp, `seccomp(2)`).
//!
//! These are memory that is attributed to no process, ways out of the namespaces, parts of the kernel that no build or
//! test needs, and socket families that a network namespace does not contain.
//!
//! They fail with `EPERM`, as in a container of Docker. A program for another architecture, such as a 32-bit one, is
//! killed by its first call.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

/// Refused system calls.
const REFUSED: &[i64] = &[
    // Memory and objects that outlive their processes within the IPC namespace (`sysvipc(7)`); POSIX shared memory is
    // there.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_semget,
    libc::SYS_msgget,
    // Keyrings have no namespace: those of the user who started helmdeck would be accessible (`keyrings(7)`).
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // A large attack surface that commands do not need.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Memory that no limit counts (`memfd_secret(2)`).
    libc::SYS_memfd_secret,
];
/// Socket families that a command may open.
///
/// They belong to the network namespace of the sandbox, which has no way out. Others, such as `AF_VSOCK` (`vsock(7)`),
/// leave it.
const FAMILIES: &[i32] = &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// Calls that open sockets; their first argument is the family.
const OPENS_SOCKET: &[i64] = &[libc::SYS_socket, libc::SYS_socketpair];
/// Bit that marks calls of the x32 ABI.
///
/// They have the same architecture number as x86-64 (`seccomp(2)`, Caveats).
const X32: i64 = 0x4000_0000;

/// Refuses the calls for this process and all that it executes or starts.
///
/// # Errors
/// A message, if this architecture or kernel does not support it.
pub(super) fn refuse() -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("system calls cannot be refused: {error}");
    let numbers = REFUSED.iter().flat_map(|number| [*number, number | X32]);
    let mut rules: BTreeMap<_, _> = numbers.map(|number| (number, Vec::new())).collect();
    let other_family = other_family().map_err(|error| failed(&error))?;
    let numbers = OPENS_SOCKET.iter().flat_map(|number| [*number, number | X32]);
    rules.extend(numbers.map(|number| (number, vec![other_family.clone()])));
    let first_process = first_process().map_err(|error| failed(&error))?;
    let numbers = [libc::SYS_ptrace, libc::SYS_ptrace | X32];
    rules.extend(numbers.map(|number| (number, vec![first_process.clone()])));
    let architecture = TargetArch::try_from(ARCH).map_err(|error| failed(&error))?;
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture);
    let program = BpfProgram::try_from(filter.map_err(|error| failed(&error))?).map_err(|error| failed(&error))?;
    apply_filter(&program).map_err(|error| failed(&error))
}

/// Matches a call whose first argument is none of [`FAMILIES`]. The kernel reads 32 bits of it.
fn other_family() -> Result<SeccompRule, seccompiler::BackendError> {
    let differs = |family: &i32| {
        let family = u64::from(family.unsigned_abs());
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)
    };
    SeccompRule::new(FAMILIES.iter().map(differs).collect::<Result<_, _>>()?)
}

/// Matches `ptrace(2)` of process 1, which waits for the command and ends the sandbox: a command that
/// stops it would end only by its timeout. Debuggers may trace every other process in there.
fn first_process() -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, 1)?])
}
