//! TLS: the certificate of the server, and the authorities of its clients'.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// What the file with the authorities of clients should be.
const CLIENT_AUTHORITIES: &str = "authorities of client certificates";

/// The files of a server that speaks TLS, all in PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// Its certificate, with those between it and an authority.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The authorities of client certificates. Without them nobody is asked for one.
    pub client_authorities: Option<PathBuf>,
}

/// Why a server cannot speak TLS. No message has anything of a key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not what it should be.
    #[error("cannot use {} as {what}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What it should be.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The files do not go together.
    #[error("the certificate and the key cannot be used")]
    Pair(#[source] rustls::Error),
}

impl TlsError {
    fn file(path: &Path, what: &'static str, why: impl ToString) -> Self {
        Self::File { path: path.to_owned(), what, why: why.to_string() }
    }
}

/// What a server needs to speak TLS. New connections use what was read last.
#[derive(Debug)]
pub(super) struct ServerTls {
    files: TlsFiles,
    read: RwLock<ReadTls>,
}

/// What was read of the files.
#[derive(Debug, Clone)]
struct ReadTls {
    config: Arc<ServerConfig>,
    /// The same for connections that speak HTTP/2.
    #[cfg(feature = "grpc")]
    config_h2: Arc<ServerConfig>,
    /// The authorities by which client certificates are verified.
    authorities: Arc<[CertificateDer<'static>]>,
    /// Cancelled once there are other authorities.
    outdated: CancellationToken,
}

impl ServerTls {
    /// Reads the files.
    pub(super) fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let read = RwLock::new(ReadTls::of(&files)?);
        Ok(Self { files, read })
    }

    /// Reads the files again. If one is wrong, everything stays as it was. If the authorities are other ones,
    /// certificates that were verified by the former ones count no more.
    pub(super) fn reload(&self) -> Result<(), TlsError> {
        let mut new = ReadTls::of(&self.files)?;
        let mut read = self.read.write();
        match new.authorities == read.authorities {
            true => new.outdated = read.outdated.clone(),
            false => read.outdated.cancel(),
        }
        *read = new;
        Ok(())
    }

    /// What accepts the next connection, and what is cancelled once its client certificate counts no more.
    pub(super) fn acceptor(&self) -> (TlsAcceptor, CancellationToken) {
        let ReadTls { config, outdated, .. } = self.read.read().clone();
        (TlsAcceptor::from(config), outdated)
    }

    /// The same for a connection that speaks HTTP/2.
    #[cfg(feature = "grpc")]
    pub(super) fn acceptor_h2(&self) -> (TlsAcceptor, CancellationToken) {
        let ReadTls { config_h2, outdated, .. } = self.read.read().clone();
        (TlsAcceptor::from(config_h2), outdated)
    }
}

impl ReadTls {
    fn of(files: &TlsFiles) -> Result<Self, TlsError> {
        let authorities = match &files.client_authorities {
            Some(path) => certificates(path, CLIENT_AUTHORITIES)?,
            None => Vec::new(),
        };
        let config = config(files, &authorities)?;
        #[cfg(feature = "grpc")]
        let config_h2 = {
            let mut config = config.clone();
            config.alpn_protocols = vec![b"h2".to_vec()];
            Arc::new(config)
        };
        Ok(Self {
            #[cfg(feature = "grpc")]
            config_h2,
            config: Arc::new(config),
            authorities: authorities.into(),
            outdated: CancellationToken::new(),
        })
    }
}

fn config(
    files: &TlsFiles,
    authorities: &[CertificateDer<'static>],
) -> Result<ServerConfig, TlsError> {
    let certificates = certificates(&files.certificate, "certificates in PEM")?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| TlsError::file(&files.key, "a private key in PEM", error))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Pair)?;
    let builder = match &files.client_authorities {
        Some(path) => builder.with_client_cert_verifier(verifier(path, authorities)?),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(certificates, key).map_err(TlsError::Pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |error| TlsError::file(path, what, error);
    let read = CertificateDer::pem_file_iter(path).map_err(failed)?;
    let read: Vec<_> = read.collect::<Result<_, _>>().map_err(failed)?;
    if read.is_empty() {
        return Err(TlsError::file(path, what, "it has none"));
    }
    Ok(read)
}

/// Verifies the certificate of a client that has one. A client without one may have a token.
fn verifier(
    path: &Path,
    authorities: &[CertificateDer<'static>],
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in authorities {
        let added = roots.add(certificate.clone());
        added.map_err(|error| TlsError::file(path, CLIENT_AUTHORITIES, error))?;
    }
    let provider = Arc::new(ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| TlsError::file(path, CLIENT_AUTHORITIES, error))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A certificate and its key, in files.
    fn files(dir: &Path) -> TlsFiles {
        let (certificate, key) = (dir.join("cert.pem"), dir.join("key.pem"));
        let pair = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        fs::write(&certificate, params.self_signed(&pair).unwrap().pem()).unwrap();
        fs::write(&key, pair.serialize_pem()).unwrap();
        TlsFiles { certificate, key, client_authorities: None }
    }

    #[test]
    fn files_that_were_changed_count_once_they_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let tls = ServerTls::load(files(dir.path())).unwrap();
        let before = Arc::clone(&tls.read.read().config);
        files(dir.path());
        tls.reload().unwrap();
        assert!(!Arc::ptr_eq(&before, &tls.read.read().config));
    }

    #[test]
    fn other_authorities_outdate_what_the_former_ones_have_verified() {
        let dir = tempfile::tempdir().unwrap();
        let mut of_server = files(dir.path());
        let clients = dir.path().join("clients.pem");
        fs::copy(&of_server.certificate, &clients).unwrap();
        of_server.client_authorities = Some(clients.clone());
        let tls = ServerTls::load(of_server).unwrap();
        let (_, outdated) = tls.acceptor();
        files(dir.path());
        tls.reload().unwrap();
        assert!(!outdated.is_cancelled(), "the server has another certificate, and that is all");
        fs::copy(dir.path().join("cert.pem"), &clients).unwrap();
        tls.reload().unwrap();
        assert!(outdated.is_cancelled() && !tls.acceptor().1.is_cancelled());
    }

    #[test]
    fn a_wrong_file_is_named_and_leaves_everything_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let good = files(dir.path());
        let tls = ServerTls::load(good.clone()).unwrap();
        let before = Arc::clone(&tls.read.read().config);
        let secret = fs::read_to_string(&good.key).unwrap();
        for broken in ["", "no PEM", &secret[..secret.len() / 2]] {
            fs::write(&good.key, broken).unwrap();
            let said = tls.reload().unwrap_err().to_string();
            assert!(said.contains("key.pem"), "{said}");
        }
        fs::write(&good.key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
        assert!(matches!(tls.reload(), Err(TlsError::Pair(_))), "the key of another certificate");
        fs::write(&good.key, secret).unwrap();
        fs::write(&good.certificate, "").unwrap();
        assert!(tls.reload().unwrap_err().to_string().contains("cert.pem"));
        assert!(Arc::ptr_eq(&before, &tls.read.read().config));
    }

    /// A connection for gRPC agrees on HTTP/2, and every other one on HTTP/1.1.
    #[cfg(feature = "grpc")]
    #[test]
    fn each_address_agrees_on_what_it_speaks() {
        let dir = tempfile::tempdir().unwrap();
        let tls = ServerTls::load(files(dir.path())).unwrap();
        let read = tls.read.read();
        assert_eq!(read.config.alpn_protocols, [b"http/1.1"]);
        assert_eq!(read.config_h2.alpn_protocols, [b"h2"]);
    }

    #[test]
    fn authorities_have_to_be_there_if_they_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = files(dir.path());
        files.client_authorities = Some(files.certificate.clone());
        assert!(ServerTls::load(files.clone()).is_ok());
        files.client_authorities = Some(dir.path().join("none.pem"));
        assert!(ServerTls::load(files).is_err());
    }
}
