//! gRPC over TLS, with the files that the HTTP API has.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::http::Uri;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    SanType,
};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tenure_gateway::server::{ServerSettings, TlsFiles};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::Code;
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint, Error};

use crate::agents::agents;
use crate::caller::{Caller, SOON, rest};
use crate::site::Site;
use crate::talk::{in_short, message};

/// An authority, which signs the certificates of a test.
struct Signer(CertifiedIssuer<'static, KeyPair>);

impl Signer {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes the files of a server that trusts callers with certificates of this authority.
    fn files(&self, dir: &Path) -> TlsFiles {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let files = TlsFiles {
            certificate: dir.join("cert.pem"),
            key: dir.join("key.pem"),
            client_authorities: Some(dir.join("clients.pem")),
        };
        fs::write(&files.certificate, params.signed_by(&key, &self.0).unwrap().pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        fs::write(dir.join("clients.pem"), self.0.pem()).unwrap();
        files
    }

    /// The certificate and the key of a caller.
    fn client(&self, spiffe: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names.push(SanType::URI(spiffe.try_into().unwrap()));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().der().clone();
        (certificate, key.serialize_der().try_into().unwrap())
    }

    /// A connection of a caller that trusts this authority, and perhaps has a certificate of it.
    async fn connect(&self, to: SocketAddr, client: Option<&str>) -> Result<Channel, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match client.map(|spiffe| self.client(spiffe)) {
            Some((certificate, key)) => {
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let way = TlsWay { to, tls: TlsConnector::from(Arc::new(config)) };
        let endpoint = Endpoint::from_static("http://localhost").timeout(SOON);
        endpoint.connect_with_connector(way).await
    }
}

/// Opens the connections of a channel over TLS.
struct TlsWay {
    to: SocketAddr,
    tls: TlsConnector,
}

impl Service<Uri> for TlsWay {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (to, tls) = (self.to, self.tls.clone());
        async move {
            let stream = TcpStream::connect(to).await?;
            let name = ServerName::try_from("localhost").unwrap();
            let stream = tls.connect(name, stream).await?;
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            Ok(TokioIo::new(stream))
        }
        .boxed()
    }
}

/// A message and a stream go over TLS with HTTP/2. Who speaks without TLS, or trusts another authority, gets nothing.
#[tokio::test]
async fn agents_are_spoken_to_over_tls() {
    let signer = Signer::new();
    let with_tls = |server: &mut ServerSettings, dir: &Path| server.tls = Some(signer.files(dir));
    let site = Site::of(agents(), with_tls).await;
    let caller = Caller::over(signer.connect(site.grpc, None).await.unwrap(), "echo");
    let made = caller.result("SendMessage", json!({"message": message("echo hello")})).await;
    assert_eq!(made["task"]["artifacts"][0]["parts"][0]["text"], "hello");
    let params = json!({"message": message("echo a")});
    let mut stream = caller.stream("SendStreamingMessage", params).await.unwrap();
    let told: Vec<String> = rest(&mut stream).await.iter().map(in_short).collect();
    assert_eq!(told.last().unwrap(), "completed");

    assert!(Signer::new().connect(site.grpc, None).await.is_err());
    let open = Endpoint::from_shared(format!("http://{}", site.grpc)).unwrap().timeout(SOON);
    if let Ok(channel) = open.connect().await {
        let refused = Caller::over(channel, "echo").ask("ListTasks", json!({})).await;
        assert!(refused.is_err(), "{refused:?}");
    }
}

/// A certificate says who its caller is, as it does over HTTP. Who has none that is known, and no token, is not let in.
#[tokio::test]
async fn a_certificate_is_a_login() {
    let signer = Signer::new();
    let with_callers = |server: &mut ServerSettings, dir: &Path| {
        server.tls = Some(signer.files(dir));
        let path = dir.join("who.toml");
        let text = "[[certificates]]\nname = \"uri:spiffe://example.org/ann\"\nprincipal = \"ann\"\n\
                    role = \"orchestrator\"\nsessions = [\"a2a-echo\"]\n";
        fs::write(&path, text).unwrap();
        server.identities = Some(path);
    };
    let site = Site::of(agents(), with_callers).await;
    let ann = signer.connect(site.grpc, Some("spiffe://example.org/ann")).await.unwrap();
    let ann = Caller::over(ann, "echo");
    let made = ann.result("SendMessage", json!({"message": message("echo hello")})).await;
    assert_eq!(made["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    for stranger in [None, Some("spiffe://example.org/eve")] {
        let channel = signer.connect(site.grpc, stranger).await.unwrap();
        let refused = Caller::over(channel, "echo").ask("ListTasks", json!({})).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{stranger:?}");
    }
    assert_eq!(ann.result("ListTasks", json!({})).await["totalSize"], 1);
}
