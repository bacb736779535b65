//! TLS to the server: its certificate and its name are always checked.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::Protection;
use crate::error::{Result, StoreError};

/// The longest file of certificates, in bytes: that of all authorities of the world has 0.3 MB.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// Makes what encrypts connections. Reads the file of certificates, if there is one.
///
/// # Errors
/// `BadUrl` if the file cannot be used; `Unavailable` if the system's authorities cannot be read.
pub(super) fn connector(protection: &Protection) -> Result<MakeRustlsConnect> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(StoreError::unavailable)?;
    let config = match protection {
        // Never used: such a target is connected to without TLS.
        Protection::None => builder
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth(),
        Protection::System => builder
            .with_platform_verifier()
            .map_err(StoreError::unavailable)?
            .with_no_client_auth(),
        Protection::File(path) => builder
            .with_root_certificates(roots(path)?)
            .with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}

fn roots(path: &Path) -> Result<RootCertStore> {
    let fail = |why: String| StoreError::BadUrl(format!("sslrootcert: {}: {why}", path.display()));
    let size = std::fs::metadata(path)
        .map_err(|error| fail(error.to_string()))?
        .len();
    if size > MAX_FILE_BYTES {
        return Err(fail("the file is too long to hold certificates".to_owned()));
    }
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(path).map_err(|error| fail(error.to_string()))?;
    for certificate in certificates {
        let added = certificate
            .map_err(|error| fail(error.to_string()))
            .map(|certificate| roots.add(certificate))?;
        added.map_err(|error| fail(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(fail("there is no certificate in it".to_owned()));
    }
    Ok(roots)
}
