//! Inherited file descriptors: the parent of helmdeck may leave files, folders and keys open.
//!
//! No program that helmdeck starts may inherit them.

/// The first descriptor after stdin, stdout and stderr.
const FIRST: i32 = 3;

/// Marks every open descriptor except stdin, stdout and stderr as close-on-exec.
///
/// No program that this process starts inherits them (`fcntl(2)`, `FD_CLOEXEC`). This process can
/// still use them.
///
/// Call it first in `main`. The asynchronous interface calls it again before each start, for
/// descriptors that were opened later.
pub fn close_descriptors_on_exec() {
    close_fds::set_fds_cloexec_threadsafe(FIRST, &[]);
}
