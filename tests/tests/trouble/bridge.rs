//! A collector that a Prometheus of any version can read: it takes metrics by OTLP, and lists the newest of each
//! process as the Prometheus of deploy/grafana would name them. A process that sends no more is no longer listed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, NumberDataPoint, number_data_point};
use prost::Message as _;
use tokio::sync::oneshot;

/// How long a process may send nothing: three times as long as it takes.
const STALE: Duration = Duration::from_millis(1_500);

/// What each process has sent last, as lines, and when.
type Sent = Arc<Mutex<BTreeMap<String, (Instant, String)>>>;

/// A collector that listens until this is dropped.
pub(crate) struct Bridge {
    pub(crate) address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Bridge {
    pub(crate) fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    served = serve(listener) => served,
                    _ = stopped => Ok(()),
                }
            })
        });
        Ok(Self { address, _stop: stop })
    }
}

async fn serve(listener: TcpListener) -> Result<()> {
    let (listener, sent) = (tokio::net::TcpListener::from_std(listener)?, Sent::default());
    loop {
        let (stream, _) = listener.accept().await?;
        let sent = Arc::clone(&sent);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, Arc::clone(&sent)));
            // The other end may leave at any time.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    sent: Sent,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
    let text = match head.uri.path() {
        "/metrics" => sent
            .values()
            .filter(|(at, _)| at.elapsed() < STALE)
            .fold(String::new(), |text, (_, lines)| text + lines),
        "/v1/metrics" => {
            for (process, lines) in
                ExportMetricsServiceRequest::decode(body).map(read).unwrap_or_default()
            {
                sent.insert(process, (Instant::now(), lines));
            }
            String::new()
        }
        _ => String::new(),
    };
    let mut response = Response::new(Full::from(text));
    // Prometheus 3 reads no page that does not say what it is.
    let plain = HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    Ok(response)
}

/// What each process says, as lines.
fn read(request: ExportMetricsServiceRequest) -> Vec<(String, String)> {
    let processes = request.resource_metrics.into_iter();
    let process = processes.map(|of| {
        let named = labels(of.resource.unwrap_or_default().attributes);
        let named = ["service_instance_id", "service_name"]
            .map(|name| named.get(name).cloned().unwrap_or_default());
        let [instance, job] = named;
        let own =
            BTreeMap::from([("instance".to_owned(), instance.clone()), ("job".to_owned(), job)]);
        let mut lines = String::new();
        for metric in of.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
            write_metric(&mut lines, metric, &own);
        }
        (instance, lines)
    });
    process.collect()
}

type Labels = BTreeMap<String, String>;

fn write_metric(out: &mut String, metric: Metric, own: &Labels) {
    let unit = match metric.unit.as_str() {
        "s" => "_seconds",
        "By" => "_bytes",
        _ => "",
    };
    let name = metric.name.replace('.', "_") + unit;
    match metric.data {
        Some(Data::Gauge(all)) => {
            all.data_points.into_iter().for_each(|point| number(out, &name, point, own));
        }
        Some(Data::Sum(all)) => {
            let name = if all.is_monotonic { name + "_total" } else { name };
            all.data_points.into_iter().for_each(|point| number(out, &name, point, own));
        }
        Some(Data::Histogram(all)) => {
            for point in all.data_points {
                let of = joined(own, labels(point.attributes));
                let bounds = point.explicit_bounds.iter().map(f64::to_string);
                let mut below = 0;
                for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(point.bucket_counts) {
                    below += count;
                    let of = joined(&of, Labels::from([("le".to_owned(), bound)]));
                    line(out, &format!("{name}_bucket"), &of, below as f64);
                }
                line(out, &format!("{name}_count"), &of, point.count as f64);
                line(out, &format!("{name}_sum"), &of, point.sum.unwrap_or(f64::NAN));
            }
        }
        _ => {}
    }
}

fn number(out: &mut String, name: &str, point: NumberDataPoint, own: &Labels) {
    let value = match point.value {
        Some(number_data_point::Value::AsDouble(value)) => value,
        Some(number_data_point::Value::AsInt(value)) => value as f64,
        None => return,
    };
    line(out, name, &joined(own, labels(point.attributes)), value);
}

fn line(out: &mut String, name: &str, labels: &Labels, value: f64) {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    let _ = writeln!(out, "{name}{{{}}} {value}", labels.join(",")); // Into a string.
}

fn joined(own: &Labels, more: Labels) -> Labels {
    own.clone().into_iter().chain(more).collect()
}

fn labels(all: Vec<KeyValue>) -> Labels {
    let text = |it: KeyValue| match it.value.and_then(|value| value.value) {
        Some(Value::StringValue(value)) => value,
        Some(Value::BoolValue(value)) => value.to_string(),
        Some(Value::IntValue(value)) => value.to_string(),
        Some(Value::DoubleValue(value)) => value.to_string(),
        _ => String::new(),
    };
    all.into_iter().map(|it| (it.key.replace('.', "_"), text(it))).collect()
}
