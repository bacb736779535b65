//! Inherited file descriptors: what starts helmdeck may leave files, folders and keys open, and no program that helmdeck starts may
//! have them.

/// The first descriptor after stdin, stdout and stderr.
const FIRST: i32 = 3;

/// Marks every open descriptor but stdin, stdout and stderr as close-on-exec (`fcntl(2)`, `FD_CLOEXEC`), so that no program that
/// this process starts inherits one. This process goes on to use them.
///
/// Call it first thing in `main`. The engine calls it again before it starts a program, for descriptors that came later.
pub fn close_descriptors_on_exec() {
    close_fds::set_fds_cloexec_threadsafe(FIRST, &[]);
}
