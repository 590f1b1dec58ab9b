//! TLS in front of a collector, as most have it that are not on the same machine.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, version};

/// Takes TLS, and hands on what is in it. An authority of its own has signed for it.
#[derive(Debug)]
pub struct Front {
    address: SocketAddr,
    authority: PathBuf,
    _stop: oneshot::Sender<()>,
}

impl Front {
    /// Starts one before a collector. The certificate of its authority goes into a directory.
    ///
    /// # Errors
    /// There is no port, or nothing can be written.
    pub fn start(to: SocketAddr, dir: &Path) -> Result<Self> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let server = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        let server = server.signed_by(&key, &authority)?;
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_protocol_versions(&[&version::TLS13, &version::TLS12])?;
        let config = config.with_no_client_auth();
        let mut config = config.with_single_cert(vec![server.der().clone()], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let file = dir.join("authority.pem");
        std::fs::write(&file, authority.pem())?;

        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    served = serve(listener, acceptor, to) => served,
                    _ = stopped => Ok(()),
                }
            })
        });
        Ok(Self { address, authority: file, _stop: stop })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The file with the certificate of its authority, in PEM.
    pub fn authority(&self) -> &Path {
        &self.authority
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, to: SocketAddr) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (outside, _) = listener.accept().await?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            // Who trusts somebody else leaves.
            let mut outside = acceptor.accept(outside).await?;
            let mut inside = TcpStream::connect(to).await?;
            copy_bidirectional(&mut outside, &mut inside).await
        });
    }
}
