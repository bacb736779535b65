//! Checks whether a database could be created or written, without touching anything.

use std::path::Path;

use rustix::fs::{Access, access};

/// Returns why a database cannot be written, `None` if it can. It and its folder need not exist.
pub(crate) fn why_not(file: &Path) -> Option<String> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    // A missing folder would be created in the nearest existing one.
    let Some(place) = folder
        .ancestors()
        .find(|place| place.symlink_metadata().is_ok())
    else {
        return Some(format!("{} is not there", folder.display()));
    };
    if !place.is_dir() {
        return Some(format!("{} is not a folder", place.display()));
    }
    // SQLite writes files beside the database.
    if let Err(error) = access(place, Access::WRITE_OK | Access::EXEC_OK) {
        return Some(format!(
            "nothing can be written in {}: {}",
            place.display(),
            std::io::Error::from(error)
        ));
    }
    let error = access(file, Access::WRITE_OK)
        .err()
        .filter(|_| file.exists())?;
    Some(format!(
        "{} cannot be written: {}",
        file.display(),
        std::io::Error::from(error)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_judged_by_the_nearest_folder() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("not/there/yet.db");
        assert_eq!(why_not(&file), None);
        assert!(!home.path().join("not").exists());
        std::fs::write(home.path().join("not"), "in the way").unwrap();
        assert!(
            why_not(&file).unwrap().ends_with("not is not a folder"),
            "{:?}",
            why_not(&file)
        );
    }
}
