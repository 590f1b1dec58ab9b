//! Makes the exporters and the resource from the settings.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use hyper_rustls::{ConfigBuilderExt as _, HttpsConnectorBuilder};
use opentelemetry::{Key, KeyValue};
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig};
use opentelemetry_otlp::{
    Compression, ExporterBuildError, LogExporter, MetricExporter, SpanExporter, WithExportConfig,
    WithHttpConfig, WithTonicConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::LogExporter as _;
use opentelemetry_sdk::trace::SpanExporter as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::{ClientConfig, RootCertStore};

use super::loops::AddressedExporter;
use super::reach::CollectorAddress;
use crate::names;
use crate::settings::{ExportSettings, ExportTarget, Protocol};

/// Why the exporters could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExporterError {
    /// The file of certificates cannot be read.
    #[error("{}: {error}", file.display())]
    Unreadable { file: PathBuf, error: io::Error },
    /// The file has no certificate.
    #[error("{}: there is no certificate in it", .0.display())]
    NoCertificate(PathBuf),
    /// A certificate of the file is damaged.
    #[error(transparent)]
    Pem(#[from] pem::Error),
    /// TLS cannot be set up with these settings, or a certificate is not that of an authority.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// No thread or runtime could be started, or the machine's trusted authorities could not be
    /// read.
    #[error(transparent)]
    Machine(#[from] io::Error),
    /// The exporter does not accept its settings.
    #[error(transparent)]
    Settings(#[from] ExporterBuildError),
}

/// The exporters, by signal.
#[derive(Debug)]
pub(super) struct Exporters {
    pub(super) traces: Option<AddressedExporter<SpanExporter>>,
    pub(super) metrics: Option<AddressedExporter<MetricExporter>>,
    pub(super) logs: Option<AddressedExporter<LogExporter>>,
}

impl Exporters {
    /// Makes the exporters, within the runtime that they will use. Sends nothing yet. The exporters
    /// read headers from the environment themselves.
    pub(super) fn connect(
        settings: &ExportSettings,
        resource: &Resource,
    ) -> Result<Self, ExporterError> {
        let mut traces = one(settings.traces.as_ref(), |it| match it.protocol {
            Protocol::Grpc => Ok(by_grpc(SpanExporter::builder().with_tonic(), it)?.build()?),
            Protocol::Http => Ok(by_http(SpanExporter::builder().with_http(), it)?.build()?),
        })?;
        let metrics = one(settings.metrics.as_ref(), |it| match it.protocol {
            Protocol::Grpc => Ok(by_grpc(MetricExporter::builder().with_tonic(), it)?.build()?),
            Protocol::Http => Ok(by_http(MetricExporter::builder().with_http(), it)?.build()?),
        })?;
        let mut logs = one(settings.logs.as_ref(), |it| match it.protocol {
            Protocol::Grpc => Ok(by_grpc(LogExporter::builder().with_tonic(), it)?.build()?),
            Protocol::Http => Ok(by_http(LogExporter::builder().with_http(), it)?.build()?),
        })?;
        traces.iter_mut().for_each(|it| it.exporter.set_resource(resource));
        logs.iter_mut().for_each(|it| it.exporter.set_resource(resource));
        Ok(Self { traces, metrics, logs })
    }
}

fn one<T>(
    target: Option<&ExportTarget>,
    build: impl Fn(&ExportTarget) -> Result<T, ExporterError>,
) -> Result<Option<AddressedExporter<T>>, ExporterError> {
    let Some(target) = target else { return Ok(None) };
    let port = if target.protocol == Protocol::Grpc { 4317 } else { 4318 };
    let address = CollectorAddress::of(&target.endpoint, port);
    Ok(Some(AddressedExporter { exporter: build(target)?, address }))
}

/// An exporter without TLS settings trusts no authority, so they are always given.
fn by_grpc<B: WithExportConfig + WithTonicConfig>(
    builder: B,
    target: &ExportTarget,
) -> Result<B, ExporterError> {
    let mut builder = builder.with_endpoint(&target.endpoint).with_timeout(target.timeout);
    if target.is_compressed {
        builder = builder.with_compression(Compression::Gzip);
    }
    if !target.is_tls() {
        return Ok(builder);
    }
    let tls = match trusted(target)? {
        Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
        None => ClientTlsConfig::new().with_enabled_roots(),
    };
    Ok(builder.with_tls_config(tls))
}

/// The exporters' default client has no TLS, so they get one that has.
fn by_http<B: WithExportConfig + WithHttpConfig>(
    builder: B,
    target: &ExportTarget,
) -> Result<B, ExporterError> {
    let mut builder = builder.with_endpoint(&target.endpoint).with_timeout(target.timeout);
    if target.is_compressed {
        builder = builder.with_compression(Compression::Gzip);
    }
    if !target.is_tls() {
        return Ok(builder);
    }
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls(target)?);
    let connector = connector.https_only().enable_http1().build();
    Ok(builder.with_http_client(HyperClient::new(connector, target.timeout, None)))
}

fn tls(target: &ExportTarget) -> Result<ClientConfig, ExporterError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions()?;
    let builder = match trusted(target)? {
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                roots.add(certificate?)?;
            }
            builder.with_root_certificates(roots)
        }
        None => builder.with_native_roots()?,
    };
    Ok(builder.with_no_client_auth())
}

/// The authorities in the file that the settings name: at least one.
fn trusted(target: &ExportTarget) -> Result<Option<Vec<u8>>, ExporterError> {
    let Some(file) = &target.certificate else { return Ok(None) };
    let pem = std::fs::read(file)
        .map_err(|error| ExporterError::Unreadable { file: file.clone(), error })?;
    match CertificateDer::pem_slice_iter(&pem).next() {
        Some(Ok(_)) => Ok(Some(pem)),
        _ => Err(ExporterError::NoCertificate(file.clone())),
    }
}

/// What this process is. What the environment says (`OTEL_SERVICE_NAME`,
/// `OTEL_RESOURCE_ATTRIBUTES`) goes before what the process knows itself.
pub(super) fn resource(settings: &ExportSettings) -> Resource {
    let said = Resource::builder().build();
    let is_said = |key: &'static str| {
        said.get(&Key::from_static_str(key))
            .is_some_and(|it| !it.as_str().starts_with("unknown_service"))
    };
    let own = [
        ("service.name", settings.service.clone()),
        ("service.namespace", "tenure".to_owned()),
        ("service.instance.id", settings.instance.clone()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("host.name", host()),
        (names::BOOT, settings.boot.clone().unwrap_or_default()),
    ];
    let own = own.into_iter().filter(|(key, value)| !is_said(key) && !value.is_empty());
    let own = own.map(|(key, value)| KeyValue::new(key, value));
    Resource::builder().with_attributes(own).build()
}

/// The name of the machine; empty if it is not known.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
