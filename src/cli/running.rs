//! Where a server of this data folder listens: `ui`, `health`, `drain` and `status` find it without
//! a setting.
//!
//! `serve` holds a lock on `servers/<PORT>` in the data folder, whose text is the address, for as
//! long as it runs. A file that nobody holds is that of a server that was killed. Without a data
//! folder nothing is written.

use std::fs::{self, File, TryLockError};
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::config::Settings;

/// Folder of the files, in the data folder.
const FOLDER: &str = "servers";
/// Limit of a file in bytes: an address is shorter.
const LONGEST: u64 = 64;

/// A server that says where it listens, until it is dropped.
#[cfg(feature = "serve")]
pub(crate) struct Running {
    path: PathBuf,
    _locked: File,
}

#[cfg(feature = "serve")]
impl Running {
    /// Says where a server listens. A data folder that cannot be written is no reason not to serve.
    pub(crate) fn at(settings: &Settings, address: SocketAddr) -> Option<Self> {
        let data = settings.data_dir().ok().filter(|data| data.is_dir())?;
        let say = || -> std::io::Result<Self> {
            let folder = data.join(FOLDER);
            fs::create_dir_all(&folder)?;
            let path = folder.join(address.port().to_string());
            let mut file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)?;
            file.try_lock()?;
            file.set_len(0)?;
            std::io::Write::write_all(&mut file, address.to_string().as_bytes())?;
            Ok(Self {
                path,
                _locked: file,
            })
        };
        say().inspect_err(|error| tracing::debug!(%error, "commands find this server by [server] listen only")).ok()
    }
}

#[cfg(feature = "serve")]
impl Drop for Running {
    fn drop(&mut self) {
        // The lock ends with the file.
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, "the address of this server stays");
        }
    }
}

/// Returns where the server is reached from this machine: the one that runs, or else where one
/// would listen.
///
/// Of several, the one of the setting counts, or else the one that started last.
pub(crate) fn address(settings: &Settings) -> SocketAddr {
    let listen = reachable(settings.server.listen);
    let found = settings
        .data_dir()
        .map(|data| running(data))
        .unwrap_or_default();
    if found.contains(&listen) {
        listen
    } else {
        found.last().copied().unwrap_or(listen)
    }
}

/// Returns the addresses of the servers that run, the one that started last at the end.
fn running(data: &Path) -> Vec<SocketAddr> {
    let entries = fs::read_dir(data.join(FOLDER))
        .into_iter()
        .flatten()
        .flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, held(entry.path())?)))
        .collect();
    found.sort();
    found
        .into_iter()
        .map(|(_, address)| reachable(address))
        .collect()
}

/// Returns the address in a file that a server holds.
fn held(path: PathBuf) -> Option<SocketAddr> {
    let file = File::open(path).ok()?;
    if !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)) {
        return None;
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    text.parse().ok()
}

/// Returns where a listener is reached from this machine: "any address" means loopback.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_is_reached_over_loopback() {
        for (listen, expected) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:8080", "[::1]:8080"),
            ("192.0.2.7:1", "192.0.2.7:1"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), expected);
        }
    }
}
