//! Checks whether commands can be sandboxed on this machine, by running one.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use helmdeck_core::session::{Ended, Exec};
use helmdeck_core::{Code, Error, Result};
use helmdeck_process::Spawner;
use rustix::process::geteuid;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::command::{self, Allowed, Run};
use super::config::SessionConfig;
use super::sandbox::{Bwrap, Folders, Sandbox};

/// Timeout of a command that does nothing, on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

const MISSING: &str = "sessions need bubblewrap, which is not installed here: install the package `bubblewrap`, \
    or set sessions.allow_unsandboxed = true to run commands without a sandbox";
const REFUSED: &str = "bubblewrap cannot make a sandbox here: user namespaces must be allowed \
    (kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces, or what a container \
    forbids), and sessions.read_only_paths must be there; or set sessions.allow_unsandboxed = true to run commands without a sandbox";

const AS_ROOT: &str = "there is no sandbox here, and commands never run as root: start helmdeck as another user for \
    sessions.allow_unsandboxed = true to count";

const NOT_EVEN: &str = "commands cannot run here, with a sandbox or without: the limits of sessions.processes, sessions.address_space, \
    sessions.disk and sessions.open_files must not be above those of helmdeck itself, and system calls must be allowed to be refused (seccomp)";

const UNREADABLE: &str = "commands run as another user, who cannot run the helmdeck program: make it readable and executable for \
    everybody (`chmod 755`)";

/// Returns whether a user can read and execute a file, as far as its mode says.
fn can_run(program: &Path, user: u32) -> bool {
    // If this cannot be read, the attempt decides.
    let Ok(meta) = std::fs::metadata(program) else {
        return true;
    };
    let shift = if meta.uid() == user {
        6
    } else if meta.gid() == user {
        3
    } else {
        0
    };
    (meta.mode() >> shift) & 0o5 == 0o5
}

/// Finds a sandbox that works.
///
/// # Errors
/// `session_unavailable` with what is missing and what to do.
pub(super) async fn probe(
    spawner: &Spawner,
    program: &Path,
    config: &SessionConfig,
    tasks: &TaskTracker,
) -> Result<Sandbox> {
    let unavailable = |message: &'static str| Error::new(Code::SessionUnavailable, message);
    let user = geteuid().is_root().then_some(config.user);
    if user.is_some_and(|user| !can_run(program, user)) {
        return Err(unavailable(UNREADABLE).with_source(program.display().to_string()));
    }
    let bwrap = tokio::task::spawn_blocking(Bwrap::find)
        .await
        .ok()
        .flatten();
    let missing = bwrap.is_none();
    let sandbox = Sandbox {
        bwrap,
        program: program.to_owned(),
        user,
    };
    let refused = match missing {
        true => unavailable(MISSING),
        false => match attempt(spawner, &sandbox, config, tasks).await {
            Ok(()) => return Ok(sandbox),
            Err(error) => unavailable(REFUSED).with_source(error.cause()),
        },
    };
    if !config.allow_unsandboxed {
        return Err(refused);
    }
    if sandbox.user.is_some() {
        // Another user could not reach the session's folder, and as root they could do anything.
        return Err(unavailable(AS_ROOT).with_source(refused.cause()));
    }
    let bare = Sandbox {
        bwrap: None,
        ..sandbox
    };
    if let Err(error) = attempt(spawner, &bare, config, tasks).await {
        return Err(unavailable(NOT_EVEN).with_source(error.cause()));
    }
    tracing::warn!(
        reason = refused.message(),
        cause = refused.cause(),
        "commands of sessions run WITHOUT a sandbox: they can read and reach what this process can"
    );
    Ok(bare)
}

/// Runs a command that does nothing, over folders that exist anyway.
async fn attempt(
    spawner: &Spawner,
    sandbox: &Sandbox,
    config: &SessionConfig,
    tasks: &TaskTracker,
) -> Result<()> {
    // Folders that every machine has, so that none is made. Missing files of `/etc` are left out.
    let folders = Folders {
        folder: "/usr/bin".into(),
        supplies: "/usr/bin".into(),
        etc: "/nonexistent".into(),
    };
    let exec = Exec {
        timeout: LIMIT,
        ..Exec::new(["true"])
    };
    let line = sandbox.line(&folders, config, config.memory, None, &exec);
    let Folders {
        folder, supplies, ..
    } = folders;
    let allowed = Allowed {
        memory: None,
        disk: u64::MAX,
        folder,
        supplies,
        owner: None,
        timeout: LIMIT,
    };
    let run = Run {
        spawner,
        line,
        allowed,
        cgroup: None,
        stop: &CancellationToken::new(),
        tasks,
    };
    let executed = command::run(run, &exec, ()).await?;
    match executed.ended {
        Ended::Exited(0) => Ok(()),
        other => {
            let said = String::from_utf8_lossy(&executed.stderr.head).into_owned();
            Err(Error::new(Code::SessionUnavailable, format!("{other:?}")).with_source(said))
        }
    }
}
