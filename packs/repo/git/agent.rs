//! An ssh agent with one key, for the time that a repository is used. The key is passed through
//! pipes.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use helmdeck_core::{Code, Error, Result, Secret};
use helmdeck_process::{Group, Pipes};
use tokio::process::Command;

use super::fifo::{Fifo, SecretParts};
use super::process::{run, spawn};
use super::shell::quoted;

/// Timeout for the start of the agent and for adding a key.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// A running agent. Dropping it ends it, and with it the key.
pub(super) struct Agent {
    socket: PathBuf,
    // The agent ends when its standard input is closed, which `_pipes` holds open.
    _pipes: Pipes,
    _group: Group,
}

/// The passphrase of the key.
struct Passphrase(Secret);

impl SecretParts for Passphrase {
    fn parts(&self) -> Vec<&str> {
        vec![self.0.passphrase().unwrap_or_default(), "\n"]
    }
}

impl Agent {
    /// Starts an agent with its socket in `folder`, which only this user can read, and adds the
    /// key.
    ///
    /// # Errors
    /// `internal` if the programs of OpenSSH cannot be started; `credential_invalid` if the key
    /// cannot be read.
    pub(super) async fn start(folder: &Path, path: &str, key: &Secret, host: &str) -> Result<Self> {
        let socket = folder.join("agent");
        let mut command = Command::new("ssh-agent");
        // The agent ends with the program that it starts, which ends with its stdin: with this
        // process, however that ends.
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", folder)
            .arg("-a")
            .arg(&socket)
            .arg("cat");
        let (group, pipes) = spawn(command)?;
        let agent = Self {
            _group: group,
            _pipes: pipes,
            socket,
        };
        agent.come_up().await?;

        let mut text = key.expose_for(host)?.trim().to_owned().into_bytes();
        text.push(b'\n');
        let mut command = Command::new("ssh-add");
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", folder)
            .env("SSH_AUTH_SOCK", &agent.socket)
            .args(["-q", "-"]);
        command.env("SSH_ASKPASS_REQUIRE", "force");
        let _opening = match key.passphrase() {
            Some(_) => {
                let fifo = Fifo::serve(folder, "passphrase", Passphrase(key.clone()))?;
                let script = folder.join("askpass");
                // The second time it answers nothing: ssh-add asks until the key opens or there is
                // no answer.
                let (said, fifo_path) = (quoted(&folder.join("said")), quoted(fifo.path()));
                write_program(
                    &script,
                    &format!(
                        "#!/bin/sh\nmkdir {said} 2>/dev/null && exec cat {fifo_path}\nexit 1\n"
                    ),
                )?;
                command.env("SSH_ASKPASS", script);
                Some(fifo)
            }
            None => {
                command.env("SSH_ASKPASS", "/bin/false");
                None
            }
        };
        let added = run(command, text, 4096, READY_WITHIN).await?;
        if !added.succeeded() {
            let message = "the ssh key of the credential cannot be read; is it a private key, and its passphrase right?";
            return Err(Error::new(Code::CredentialInvalid, message));
        }
        Ok(agent)
    }

    async fn come_up(&self) -> Result<()> {
        let waiting = async {
            // The file is there before anybody listens.
            while UnixStream::connect(&self.socket).is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(READY_WITHIN, waiting)
            .await
            .map_err(|_| Error::new(Code::Internal, "ssh-agent does not come up on this machine"))
    }

    /// Returns the path of its socket.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }
}

fn write_program(path: &Path, text: &str) -> Result<()> {
    let failed =
        |error| Error::new(Code::Internal, "a temporary file cannot be written").with_source(error);
    std::fs::write(path, text).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).map_err(failed)
}
