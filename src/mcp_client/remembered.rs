//! Stored lists of tools, so that the next start knows them without starting the servers.
//!
//! One file per server. It is bound to the server's configuration (program or address, names of
//! variables and credentials), and sealed if there is a memory key. Without a key it is plain text,
//! and is not written if it contains something like a token.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use helmdeck_core::{Identity, leaks};
use helmdeck_memory::{KeyRing, Namespace};
use serde::{Deserialize, Serialize};

use super::config::McpServer;
use super::listing::Listing;

/// Purpose of the seal.
const PURPOSE: &str = "mcp-listing";
/// Version of the file format.
const FORM: u32 = 1;
/// Size limit of a file, in bytes.
const MAX_BYTES: usize = 8 << 20;

/// Storage of lists.
#[derive(Clone)]
pub struct Remembered {
    folder: PathBuf,
    ring: Option<Arc<KeyRing>>,
    makes: bool,
}

#[derive(Serialize, Deserialize)]
struct Document {
    form: u32,
    /// The digest of the server's configuration.
    server: Vec<u8>,
    listing: Listing,
}

helmdeck_core::redacted_debug!(Remembered);

impl Remembered {
    /// Makes a storage in `folder`. `makes` says whether a missing parent folder is made.
    pub fn new(folder: PathBuf, ring: Option<Arc<KeyRing>>, makes: bool) -> Self {
        Self {
            folder,
            ring,
            makes,
        }
    }

    fn path(&self, server: &McpServer, sealed: bool) -> PathBuf {
        self.folder.join(format!(
            "{}.{}",
            server.name,
            if sealed { "sealed" } else { "json" }
        ))
    }

    /// Returns a server's stored list; `None` if there is none for this configuration. Blocks.
    pub(crate) fn load(&self, server: &McpServer) -> Option<Listing> {
        let path = self.path(server, self.ring.is_some());
        let mut bytes = Vec::new();
        fs::File::open(&path)
            .ok()?
            .take(MAX_BYTES as u64 + 1)
            .read_to_end(&mut bytes)
            .ok()?;
        let plain = match &self.ring {
            Some(ring) => ring
                .open_blob(&namespace(), PURPOSE, server.name.as_bytes(), &bytes)
                .ok(),
            None => Some(bytes),
        };
        let read = plain.and_then(|plain| serde_json::from_slice::<Document>(&plain).ok());
        match read {
            Some(document) if document.form == FORM && document.server == server.digest() => {
                Some(document.listing)
            }
            Some(_) => None,
            None => {
                tracing::debug!(
                    mcp.server = server.name,
                    "what is remembered of an MCP server cannot be read"
                );
                None
            }
        }
    }

    /// Stores a server's list. Blocks. A failed write only makes the next start slower.
    pub(crate) fn keep(&self, server: &McpServer, listing: &Listing) {
        let document = Document {
            form: FORM,
            server: server.digest(),
            listing: listing.clone(),
        };
        let Ok(plain) = serde_json::to_vec(&document) else {
            return;
        };
        let bytes = match &self.ring {
            Some(ring) => ring
                .seal_blob(&namespace(), PURPOSE, server.name.as_bytes(), &plain)
                .ok(),
            None => (!leaks::has_leak(&plain)).then_some(plain),
        };
        let written = match bytes.filter(|bytes| bytes.len() <= MAX_BYTES) {
            Some(bytes) => self.write(&self.path(server, self.ring.is_some()), &bytes),
            None => fs::remove_file(self.path(server, self.ring.is_some())),
        };
        // The other file is from another setting of the memory key.
        let _ = fs::remove_file(self.path(server, self.ring.is_none()));
        if let Err(error) = written {
            tracing::debug!(mcp.server = server.name, %error, "the tools of an MCP server are not remembered");
        }
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
        let data = self.folder.parent().unwrap_or(&self.folder);
        if !self.makes && !data.is_dir() {
            return Ok(());
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)?;
        // Several processes may write at once; each renames its own file.
        let half = path.with_extension(format!("{}.half", std::process::id()));
        let _ = fs::remove_file(&half);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&half)?;
        let done = file.write_all(bytes).and_then(|()| fs::rename(&half, path));
        if done.is_err() {
            let _ = fs::remove_file(&half);
        }
        done
    }
}

fn namespace() -> Namespace {
    Namespace::of_caller(&Identity::local())
}

#[cfg(test)]
mod tests {
    use helmdeck_memory::key::MemoryKey;
    use serde_json::json;

    use super::super::config::{McpReach, McpServer};
    use super::super::listing::Tool;
    use super::*;

    fn server(program: &str) -> McpServer {
        McpServer::new(
            "x",
            McpReach::Command {
                argv: vec![program.into()],
                cwd: None,
                env: Default::default(),
            },
        )
    }

    fn listing(description: &str) -> Listing {
        let tool =
            json!({"name": "a", "description": description, "inputSchema": {"type": "object"}});
        let tools = Tool::read(&tool).into_iter().collect();
        Listing {
            server: "s 1".into(),
            protocol: "p".into(),
            tools,
            cut: None,
        }
    }

    fn ring(fill: &str) -> Arc<KeyRing> {
        Arc::new(KeyRing::new(
            MemoryKey::parse("K", &fill.repeat(32)).unwrap(),
            Vec::new(),
        ))
    }

    #[test]
    fn stored_list_needs_the_same_configuration() {
        let folder = tempfile::tempdir().unwrap();
        for ring in [None, Some(ring("a1"))] {
            let kept = Remembered::new(folder.path().join("data/mcp"), ring, true);
            kept.keep(&server("p"), &listing("d"));
            assert_eq!(kept.load(&server("p")), Some(listing("d")));
            assert_eq!(kept.load(&server("q")), None);
        }
    }

    #[test]
    fn list_is_sealed_for_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp");
        Remembered::new(path.clone(), Some(ring("a1")), true)
            .keep(&server("p"), &listing("canary"));
        let text = fs::read(path.join("x.sealed")).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains("canary"));
        assert_eq!(
            Remembered::new(path.clone(), Some(ring("b2")), true).load(&server("p")),
            None
        );
        assert_eq!(Remembered::new(path, None, true).load(&server("p")), None);
    }

    #[test]
    fn unsealed_list_with_token_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Remembered::new(folder.path().join("mcp"), None, true);
        kept.keep(&server("p"), &listing("d"));
        kept.keep(&server("p"), &listing(&format!("ghp_{}", "a1".repeat(18))));
        assert_eq!(kept.load(&server("p")), None);
        assert_eq!(fs::read_dir(folder.path().join("mcp")).unwrap().count(), 0);
    }

    #[test]
    fn a_data_folder_is_made_only_if_asked() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        Remembered::new(data.join("mcp"), None, false).keep(&server("p"), &listing("d"));
        assert!(!data.exists());
        Remembered::new(data.join("mcp"), None, true).keep(&server("p"), &listing("d"));
        let mode = |path: &Path| {
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).unwrap().permissions())
                & 0o777
        };
        assert_eq!(
            (mode(&data), mode(&data.join("mcp/x.json"))),
            (0o700, 0o600)
        );
    }
}
