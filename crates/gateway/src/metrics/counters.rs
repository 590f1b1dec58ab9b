//! [`Counters`]: what the gateway itself does, counted where it happens.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::http::Method;
use parking_lot::{Mutex, RwLock};
use smol_str::SmolStr;

use super::text::{Exposition, MetricKind};

/// What stands for the route of a request that no route has.
const NO_ROUTE: &str = "other";

/// The bounds of the times that are counted apart, in milliseconds: those of the semantic conventions,
/// with finer ones below, as most answers take less than a millisecond.
const BOUNDS_MS: [u64; 11] = [1, 2, 5, 10, 25, 50, 100, 250, 1_000, 5_000, 30_000];

/// The same in seconds, as they are written.
const BOUNDS: [&str; 11] =
    ["0.001", "0.002", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "1", "5", "30"];

/// The methods that are counted by their names. A caller may send any text as a method.
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];

/// What stands for every other method.
const OTHER_METHOD: &str = "_OTHER";

/// The counts of a gateway. Cheap to clone; all clones count together.
#[derive(Debug, Clone, Default)]
pub struct Counters(Arc<GatewayCounts>);

#[derive(Debug, Default)]
struct GatewayCounts {
    /// By route template, of which there are as many as routes.
    routes: RwLock<HashMap<SmolStr, RouteRow>>,
    in_flight: AtomicU64,
    connections: AtomicU64,
    refused_connections: AtomicU64,
    streams: AtomicU64,
    refused_logins: AtomicU64,
}

#[derive(Debug, Default)]
struct RouteRow([Mutex<MethodRow>; METHODS.len() + 1]);

/// The requests of one route and method.
#[derive(Debug, Default)]
struct MethodRow {
    /// How many were answered with each status: a handful of them.
    statuses: Vec<(u16, u64)>,
    /// How many took up to each bound and longer than the one before.
    within: [u64; BOUNDS_MS.len() + 1],
    took: Duration,
}

impl MethodRow {
    fn note(&mut self, status: u16, took: Duration) {
        match self.statuses.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += 1,
            None => self.statuses.push((status, 1)),
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_MS.iter().position(|bound| micros <= bound * 1_000);
        self.within[at.unwrap_or(BOUNDS_MS.len())] += 1;
        self.took += took;
    }
}

/// A thing that exists at present, which is counted out when this is dropped.
#[derive(Debug)]
pub(crate) struct CountedIn {
    counters: Counters,
    which: fn(&GatewayCounts) -> &AtomicU64,
}

impl Drop for CountedIn {
    fn drop(&mut self) {
        (self.which)(&self.counters.0).fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct RequestInFlight {
    counted: CountedIn,
    route: Option<SmolStr>,
    method: usize,
    began: Instant,
}

impl RequestInFlight {
    /// Counts its answer. A request whose caller went away has none.
    pub(crate) fn answered(self, status: u16) {
        let Self { counted, route, method, began } = self;
        let route = route.as_deref().unwrap_or(NO_ROUTE);
        counted.counters.note(route, method, status, began.elapsed());
    }
}

impl Counters {
    fn count_in(&self, which: fn(&GatewayCounts) -> &AtomicU64) -> CountedIn {
        which(&self.0).fetch_add(1, Ordering::Relaxed);
        CountedIn { counters: self.clone(), which }
    }

    /// A request has come; `route` is the template of its path.
    pub(crate) fn request(&self, route: Option<&str>, method: &Method) -> RequestInFlight {
        let known = METHODS.iter().position(|name| *name == method.as_str());
        RequestInFlight {
            counted: self.count_in(|counted| &counted.in_flight),
            route: route.map(SmolStr::new),
            method: known.unwrap_or(METHODS.len()),
            began: Instant::now(),
        }
    }

    /// A connection was accepted.
    pub(crate) fn connection(&self) -> CountedIn {
        self.count_in(|counted| &counted.connections)
    }

    /// An answer has begun whose length is not known.
    pub(crate) fn stream(&self) -> CountedIn {
        self.count_in(|counted| &counted.streams)
    }

    /// A connection was closed at once, as there are too many.
    pub(crate) fn connection_refused(&self) {
        self.0.refused_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Credentials were not valid, or were not looked at after too many that were not.
    pub(crate) fn login_refused(&self) {
        self.0.refused_logins.fetch_add(1, Ordering::Relaxed);
    }

    fn note(&self, route: &str, method: usize, status: u16, took: Duration) {
        if let Some(row) = self.0.routes.read().get(route) {
            row.0[method].lock().note(status, took);
            return;
        }
        let mut routes = self.0.routes.write();
        let row = routes.entry(SmolStr::new(route)).or_default();
        row.0[method].lock().note(status, took);
    }

    /// Writes all of them.
    pub(super) fn write(&self, out: &mut Exposition) {
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counted = &*self.0;
        for (name, kind, help, value) in [
            (
                "http_server_active_requests",
                MetricKind::Gauge,
                "How many requests are being answered?",
                &counted.in_flight,
            ),
            (
                "tenure_gateway_connections",
                MetricKind::Gauge,
                "How many connections are open?",
                &counted.connections,
            ),
            (
                "tenure_gateway_connections_refused_total",
                MetricKind::Counter,
                "How many connections were closed at once, as there are too many?",
                &counted.refused_connections,
            ),
            (
                "tenure_gateway_streams",
                MetricKind::Gauge,
                "How many answers go on: streams of events, output and logs?",
                &counted.streams,
            ),
            (
                "tenure_gateway_logins_refused_total",
                MetricKind::Counter,
                "How many requests had credentials that are not valid, or came after too many such?",
                &counted.refused_logins,
            ),
        ] {
            out.family(name, kind, help);
            out.sample(name, &[], now(value));
        }
        self.write_requests(out);
    }

    fn write_requests(&self, out: &mut Exposition) {
        const COUNT: &str = "tenure_gateway_requests_total";
        const TOOK: &str = "http_server_request_duration_seconds";
        let routes = self.0.routes.read();
        let mut sorted: Vec<_> = routes.iter().collect();
        sorted.sort_unstable_by_key(|(route, _)| *route);
        let rows = || {
            sorted.iter().flat_map(|(route, row)| {
                let methods = METHODS.iter().chain(&[OTHER_METHOD]).copied();
                methods.zip(&row.0).map(move |(method, row)| (route.as_str(), method, row.lock()))
            })
        };
        out.family(COUNT, MetricKind::Counter, "How many requests were answered, and how?");
        for (route, method, row) in rows() {
            for (status, count) in &row.statuses {
                let status = status.to_string();
                let labels = [
                    ("http_route", route),
                    ("http_request_method", method),
                    ("http_response_status_code", status.as_str()),
                ];
                out.sample(COUNT, &labels, count);
            }
        }
        out.family(TOOK, MetricKind::Histogram, "How long until an answer begins?");
        for (route, method, row) in rows().filter(|(.., row)| !row.statuses.is_empty()) {
            write_histogram(
                out,
                TOOK,
                [("http_route", route), ("http_request_method", method)],
                &row,
            );
        }
    }
}

fn write_histogram(out: &mut Exposition, name: &str, labels: [(&str, &str); 2], row: &MethodRow) {
    let [route, method] = labels;
    let (mut sum, bucket) = (0, format!("{name}_bucket"));
    for (bound, count) in BOUNDS.iter().chain(&["+Inf"]).zip(row.within) {
        sum += count;
        out.sample(&bucket, &[route, method, ("le", bound)], sum);
    }
    out.sample(&format!("{name}_sum"), &labels, row.took.as_secs_f64());
    out.sample(&format!("{name}_count"), &labels, sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(counters: &Counters) -> String {
        let mut out = Exposition::default();
        counters.write(&mut out);
        out.into_text()
    }

    #[test]
    fn requests_count_by_route_method_and_status() {
        let counters = Counters::default();
        let route = Some("/v1/tasks/{task_id}");
        for (method, status) in [(Method::GET, 200), (Method::GET, 200), (Method::GET, 404)] {
            counters.request(route, &method).answered(status);
        }
        let odd = Method::from_bytes(b"BREW").unwrap();
        counters.request(None, &odd).answered(405);
        let text = text(&counters);
        for line in [
            "tenure_gateway_requests_total{http_route=\"/v1/tasks/{task_id}\",\
             http_request_method=\"GET\",http_response_status_code=\"200\"} 2",
            "tenure_gateway_requests_total{http_route=\"other\",http_request_method=\"_OTHER\",\
             http_response_status_code=\"405\"} 1",
            "http_server_request_duration_seconds_count{http_route=\"/v1/tasks/{task_id}\",\
             http_request_method=\"GET\"} 3",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
        }
        assert!(!text.contains("BREW"));
    }

    #[test]
    fn what_exists_at_present_is_counted_out() {
        let counters = Counters::default();
        let (stream, request) = (counters.stream(), counters.request(None, &Method::GET));
        assert!(text(&counters).contains("tenure_gateway_streams 1\n"));
        assert!(text(&counters).contains("http_server_active_requests 1\n"));
        drop((stream, request));
        assert!(text(&counters).contains("tenure_gateway_streams 0\n"));
        assert!(text(&counters).contains("http_server_active_requests 0\n"));
        assert!(!text(&counters).contains("http_route"), "it was not answered");
    }

    #[test]
    fn a_time_counts_below_the_first_bound_that_it_does_not_pass() {
        let mut row = MethodRow::default();
        row.note(200, Duration::from_millis(1));
        row.note(200, Duration::from_micros(1_001));
        row.note(200, Duration::from_secs(60));
        let mut out = Exposition::default();
        write_histogram(&mut out, "t", [("a", "b"), ("c", "d")], &row);
        let text = out.into_text();
        for (bound, count) in [("0.001", 1), ("0.002", 2), ("30", 2), ("+Inf", 3)] {
            let line = format!("t_bucket{{a=\"b\",c=\"d\",le=\"{bound}\"}} {count}\n");
            assert!(text.contains(&line), "{line}\n{text}");
        }
    }
}
