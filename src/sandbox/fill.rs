//! What a fresh session's folder holds.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

use super::disk;
use super::place::Folder;
use super::sandbox::{Folders, OWN_ETC};

/// Makes the folders of a session. `user` is whom commands run as, if that is not this process's own.
pub(super) fn fill(session: &Folder, user: Option<u32>) -> io::Result<()> {
    let Folders { folder, supplies, etc } = Folders::of(session.path());
    DirBuilder::new().mode(0o700).create(&folder)?;
    if let Some(user) = user {
        disk::give(&folder, user)?;
    }
    // Commands read these as another user; nobody else comes this far, because the session's own folder is shut.
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
