//! Messages to systemd (`sd_notify(3)`): the server is ready, reloads its configuration, or stops.

use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

use crate::env::ProcessEnvironment;

/// The variable with the socket of the service manager.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Connection to the service manager; without one, messages go nowhere.
#[derive(Debug)]
pub(crate) struct Notifier(Option<(UnixDatagram, SocketAddr)>);

impl Notifier {
    /// Looks for the service manager in the environment.
    pub(crate) fn new(env: &ProcessEnvironment) -> Self {
        let address = env.path(SOCKET).and_then(|path| address(&path));
        Self(address.and_then(|address| Some((UnixDatagram::unbound().ok()?, address))))
    }

    /// Reports that the server is ready, and what the service manager shows as its state.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}\n", status.replace('\n', " ")));
    }

    /// Reports that the configuration is read again; [`Self::ready`] follows.
    pub(crate) fn reloading(&self) {
        self.send("RELOADING=1\nSTATUS=reloading\n");
    }

    /// Reports that the server finishes running requests and then ends.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=finishing running requests\n");
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.0 else {
            return;
        };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::warn!(%error, "the service manager at {SOCKET} cannot be told");
        }
    }
}

/// Returns the address of a socket: a path, or a name in the abstract namespace after `@`.
fn address(path: &Path) -> Option<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = path.as_os_str().as_encoded_bytes().strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt as _;
        return SocketAddr::from_abstract_name(name).ok();
    }
    path.is_absolute()
        .then(|| SocketAddr::from_pathname(path).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn messages_reach_a_socket_by_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(&ProcessEnvironment::of(&[(SOCKET, path.to_str().unwrap())]));
        notifier.ready("on\nport 1");
        assert_eq!(received(&socket), "READY=1\nSTATUS=on port 1\n");
        notifier.reloading();
        assert!(received(&socket).starts_with("RELOADING=1\n"));
        notifier.stopping();
        assert!(received(&socket).starts_with("STOPPING=1\n"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn messages_reach_an_abstract_socket() {
        use std::os::linux::net::SocketAddrExt as _;
        let name = format!("helmdeck-notify-{}", std::process::id());
        let socket =
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Notifier::new(&ProcessEnvironment::of(&[(SOCKET, &format!("@{name}"))])).stopping();
        assert!(received(&socket).starts_with("STOPPING=1\n"));
    }

    #[test]
    fn no_or_wrong_socket_is_ignored() {
        for pairs in [
            &[][..],
            &[(SOCKET, "")],
            &[(SOCKET, "relative")],
            &[(SOCKET, "/no/such/socket")],
        ] {
            Notifier::new(&ProcessEnvironment::of(pairs)).ready("x");
        }
    }
}
