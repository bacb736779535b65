//! Content of a new session's folder.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

use rustix::process::geteuid;

use super::disk;
use super::image::{self, Images};
use super::place::Folder;
use super::sandbox::{Folders, OWN_ETC};

/// Creates the folders of a session.
///
/// `user` is the user id of commands, if it differs from that of this process. With `images`, the
/// folder is a file system of `size` bytes; if that fails, and it is not required, it is an
/// ordinary folder.
pub(super) fn fill(
    session: &Folder,
    user: Option<u32>,
    images: Option<(&Images, bool)>,
    size: u64,
) -> io::Result<()> {
    let Folders {
        folder,
        supplies,
        etc,
    } = Folders::of(session.path());
    DirBuilder::new().mode(0o700).create(&folder)?;
    let mut is_own = false;
    if let Some((images, required)) = images {
        match images.make(
            session.path(),
            &folder,
            size,
            user.unwrap_or_else(|| geteuid().as_raw()),
        ) {
            Ok(()) => is_own = true,
            Err(error) if required => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "a session has no file system of its own, so its disk limit is best effort");
                image::unmake(session.path(), &folder)?;
            }
        }
    }
    if let Some(user) = user.filter(|_| !is_own) {
        disk::give(&folder, user)?;
    }
    // Commands read these as another user. Other users cannot get here, because the session's own
    // folder is closed.
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
