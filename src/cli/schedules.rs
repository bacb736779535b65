//! Schedules of packs: whose jobs their runs are.

use helmdeck_core::Identity;

use crate::config::Settings;
use crate::exit::{Failure, Result};

/// Returns the caller of scheduled runs; `None` if nobody named one, and callers have to prove who
/// they are.
///
/// # Errors
/// A configuration failure if the setting is no caller.
pub(crate) fn caller(settings: &Settings, authenticated: bool) -> Result<Option<Identity>> {
    let named = settings.schedule.named().map_err(Failure::config)?;
    Ok(named.or_else(|| (!authenticated).then(Identity::local)))
}
