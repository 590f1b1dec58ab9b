//! A collector of OpenTelemetry in the test's own process: it takes all three signals by gRPC or by
//! HTTP, as the protocol's published schema has them, and keeps what came.

mod grpc;
mod http;
mod read;
mod tls;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use tokio::sync::oneshot;

pub use self::tls::Front;

/// How a collector is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// Protocol buffers by HTTP.
    Http,
}

/// Attributes, values as text.
pub type Attributes = BTreeMap<String, String>;

/// A span that came.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Who made it.
    pub resource: Attributes,
    /// Its trace, in hexadecimal.
    pub trace: String,
    /// Its id, in hexadecimal.
    pub id: String,
    /// The span above it, empty if there is none.
    pub parent: String,
    /// Its name.
    pub name: String,
    /// Its begin, in milliseconds.
    pub start_ms: i64,
    /// Its end, in milliseconds.
    pub end_ms: i64,
    /// What it says of itself.
    pub attributes: Attributes,
    /// Other spans it names: their ids, and what the link says.
    pub links: Vec<(String, Attributes)>,
    /// Why it failed.
    pub error: Option<String>,
}

impl Span {
    /// Whether it is that of a Task.
    pub fn is_task(&self) -> bool {
        self.attributes.contains_key("tenure.task.steps")
    }

    /// Whether a worker made it of a handler.
    pub fn is_run(&self) -> bool {
        self.attributes.contains_key("tenure.handler.end")
    }

    /// An attribute, or nothing.
    pub fn get(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }

    /// Whether another says the same, whoever made it.
    fn is_said_by(&self, other: &Self) -> bool {
        self.id == other.id && *self == Self { resource: self.resource.clone(), ..other.clone() }
    }
}

/// A point of a metric that came.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Who made it.
    pub resource: Attributes,
    /// The metric.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// `counter`, `updowncounter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// What tells it from other points.
    pub attributes: Attributes,
    /// The value; of a histogram how many there were.
    pub value: f64,
    /// Of a histogram the sum of them.
    pub sum: f64,
}

/// A log record that came.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Who made it.
    pub resource: Attributes,
    /// How grave it is.
    pub severity: String,
    /// The trace it belongs to, in hexadecimal.
    pub trace: String,
    /// What it says.
    pub body: String,
    /// And its fields.
    pub attributes: Attributes,
}

/// Everything that came, in its order.
#[derive(Debug, Clone, Default)]
pub struct Got {
    /// Spans.
    pub spans: Vec<Span>,
    /// Points; those of a metric come again and again.
    pub points: Vec<Point>,
    /// Log records.
    pub records: Vec<Record>,
    /// Headers of what came last, by signal.
    pub headers: BTreeMap<&'static str, Attributes>,
}

impl Got {
    /// The newest points of a metric.
    pub fn newest(&self, metric: &str) -> Vec<&Point> {
        let mut newest: BTreeMap<_, &Point> = BTreeMap::new();
        for point in self.points.iter().filter(|point| point.name == metric) {
            let who = point.resource.get("service.instance.id");
            newest.insert((who, &point.attributes), point);
        }
        newest.into_values().collect()
    }

    /// The newest values of a metric, summed over the points whose attribute is this.
    pub fn total(&self, metric: &str, attribute: Option<(&str, &str)>) -> f64 {
        let fits = |point: &&&Point| {
            attribute.is_none_or(|(name, value)| {
                point.attributes.get(name).is_some_and(|has| has == value)
            })
        };
        self.newest(metric).iter().filter(fits).map(|point| point.value).sum()
    }
}

/// A collector that listens.
#[derive(Debug)]
pub struct Receiver {
    protocol: Protocol,
    address: SocketAddr,
    got: Arc<Mutex<Got>>,
    _stop: oneshot::Sender<()>,
}

impl Receiver {
    /// Starts one on a free port.
    ///
    /// # Errors
    /// There is no port.
    pub fn start(protocol: Protocol) -> Result<Self> {
        Self::start_at(protocol, "127.0.0.1:0".parse()?)
    }

    /// Starts one at an address.
    ///
    /// # Errors
    /// Somebody else is there.
    pub fn start_at(protocol: Protocol, address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let got: Arc<Mutex<Got>> = Arc::default();
        let (stop, stopped) = oneshot::channel();
        let into = Arc::clone(&got);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let serve = async {
                    match protocol {
                        Protocol::Grpc => grpc::serve(listener, into).await,
                        Protocol::Http => http::serve(listener, into).await,
                    }
                };
                tokio::select! {
                    served = serve => served,
                    _ = stopped => Ok(()),
                }
            })
        });
        Ok(Self { protocol, address, got, _stop: stop })
    }

    /// What a process is told to find it.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        environment(self.protocol, self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What came so far.
    pub fn got(&self) -> MutexGuard<'_, Got> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until what came is enough, and answers it.
    ///
    /// # Errors
    /// It is not, in this time.
    pub fn wait(
        &self,
        what: &str,
        within: Duration,
        is_enough: impl Fn(&Got) -> bool,
    ) -> Result<Got> {
        let begun = Instant::now();
        loop {
            let got = self.got().clone();
            if is_enough(&got) {
                return Ok(got);
            }
            if begun.elapsed() > within {
                let spans: Vec<_> = got.spans.iter().map(|span| &span.name).collect();
                bail!(
                    "{what}: not within {within:?}; {spans:?}, {} points, {} records",
                    got.points.len(),
                    got.records.len()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What a process is told to find a collector. Metrics come often, so that tests need not wait.
pub fn environment(protocol: Protocol, address: SocketAddr) -> Vec<(&'static str, String)> {
    let name = match protocol {
        Protocol::Grpc => "grpc",
        Protocol::Http => "http/protobuf",
    };
    vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}")),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", name.into()),
        ("OTEL_METRIC_EXPORT_INTERVAL", "500".into()),
        ("OTEL_BSP_SCHEDULE_DELAY", "100".into()),
    ]
}
