//! Content of a new session's folder.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

use super::disk;
use super::place::Folder;
use super::sandbox::{Folders, OWN_ETC};

/// Creates the folders of a session.
///
/// `user` is the user id of commands, if it differs from that of this process.
pub(super) fn fill(session: &Folder, user: Option<u32>) -> io::Result<()> {
    let Folders { folder, supplies, etc } = Folders::of(session.path());
    DirBuilder::new().mode(0o700).create(&folder)?;
    if let Some(user) = user {
        disk::give(&folder, user)?;
    }
    // Commands read these as another user. Other users cannot get here, because the session's own folder is closed.
    for path in [&supplies, &etc] {
        DirBuilder::new().mode(0o755).create(path)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o755))?;
    }
    for (name, content) in OWN_ETC {
        let path = etc.join(name);
        std::fs::write(&path, content)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o644))?;
    }
    Ok(())
}
