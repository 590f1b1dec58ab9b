//! The collector by gRPC.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use hyper::HeaderMap;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tokio::net::TcpListener;
use tonic::codec::CompressionEncoding;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use super::Got;

struct Taker(Arc<Mutex<Got>>);

impl Taker {
    fn take(&self, signal: &'static str, headers: &HeaderMap, take: impl FnOnce(&mut Got)) {
        let mut got = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        got.note_headers(signal, headers);
        take(&mut got);
    }
}

#[tonic::async_trait]
impl TraceService for Taker {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        self.take("traces", &headers, |got| got.take_spans(request.into_inner()));
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Taker {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        self.take("metrics", &headers, |got| got.take_metrics(request.into_inner()));
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl LogsService for Taker {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        self.take("logs", &headers, |got| got.take_logs(request.into_inner()));
        Ok(Response::new(Default::default()))
    }
}

pub(super) async fn serve(listener: TcpListener, got: Arc<Mutex<Got>>) -> Result<()> {
    let taker = || Taker(Arc::clone(&got));
    let gzip = CompressionEncoding::Gzip;
    Server::builder()
        .add_service(TraceServiceServer::new(taker()).accept_compressed(gzip))
        .add_service(MetricsServiceServer::new(taker()).accept_compressed(gzip))
        .add_service(LogsServiceServer::new(taker()).accept_compressed(gzip))
        .serve_with_incoming(TcpIncoming::from(listener))
        .await?;
    Ok(())
}
