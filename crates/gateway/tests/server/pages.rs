//! The pages for probes and scrapers, before a scheduler on a directory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tenure_core::id::PoolId;
use tenure_core::{Code, Rejection};
use tenure_gateway::server::{HttpServer, ServerSettings};
use tenure_gateway::{Counters, EmbeddedBackend, Gateway, GatewaySettings, process_pages};
use tenure_local::{JournalOptions, JsonlJournal, MemoryLeases};
use tenure_scheduler::{Config, Scheduler};
use tokio::net::TcpStream;

use crate::raw::{Raw, RawAnswer};
use crate::site::{request, settings, tokens_in};

/// A server before a gateway, for an observer's and a worker's token.
async fn serve() -> (SocketAddr, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = JsonlJournal::open(dir.path(), JournalOptions::default()).unwrap();
    let pool: PoolId = "default".parse().unwrap();
    let leases = Arc::<MemoryLeases>::default();
    let config = Config::embedded(pool.clone());
    let scheduler = Scheduler::start(Arc::new(journal), leases, config).await.unwrap();
    let backend = EmbeddedBackend::new(scheduler, None);
    let gateway = Gateway::new(backend, GatewaySettings::new("main".parse().unwrap()));
    let tokens = [("watch", "prometheus", "observer"), ("work", "ant", "worker")];
    let identities = Some(tokens_in(dir.path(), &tokens));
    let server = HttpServer::bind(ServerSettings { identities, ..settings() }).await.unwrap();
    let address = server.addresses()[0];
    tokio::spawn(server.serve(gateway, std::future::pending::<()>()));
    (address, dir)
}

async fn get(address: SocketAddr, path: &str, token: Option<&str>) -> RawAnswer {
    let mut connection = Raw::new(TcpStream::connect(address).await.unwrap());
    let token = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = token.iter().map(|token| ("authorization", token.as_str())).collect();
    connection.send(request(&format!("GET {path}"), &headers)).await;
    connection.answer().await.unwrap()
}

#[tokio::test]
async fn probes_need_no_token_and_scrapers_do() {
    let (address, _dir) = serve().await;
    for path in ["/livez", "/readyz", "/openapi.json", "/docs"] {
        assert_eq!(get(address, path, None).await.status, 200, "{path}");
    }
    assert_eq!(get(address, "/metrics", None).await.status, 401);
    assert_eq!(get(address, "/metrics", Some("work")).await.status, 403);
    assert_eq!(get(address, "/metrics", Some("watch")).await.status, 200);
}

#[tokio::test]
async fn metrics_count_requests_by_the_template_of_their_route() {
    let (address, _dir) = serve().await;
    for task in ["a", "b"] {
        let path = format!("/v1/sessions/main/tasks/{task}");
        assert_eq!(get(address, &path, Some("watch")).await.status, 404);
    }
    assert_eq!(get(address, "/v1/nothing", Some("watch")).await.status, 404);
    assert_eq!(get(address, "/livez", Some("wrong")).await.status, 200);
    assert_eq!(get(address, "/v1/pools", Some("wrong")).await.status, 401);
    let page = get(address, "/metrics", Some("watch")).await;
    assert_eq!(page.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    for line in [
        "tenure_gateway_requests_total{http_route=\"/v1/sessions/{session}/tasks/{task_id}\",\
         http_request_method=\"GET\",http_response_status_code=\"404\"} 2",
        "tenure_gateway_requests_total{http_route=\"other\",http_request_method=\"GET\",\
         http_response_status_code=\"404\"} 1",
        "http_server_active_requests 1",
        "tenure_gateway_logins_refused_total 1",
        "tenure_gateway_backend_up 1",
    ] {
        assert!(page.body.contains(&format!("\n{line}\n")), "{line}\n{}", page.body);
    }
    assert!(page.body.contains("\ntenure_tasks_in_memory{tenure_node="), "{}", page.body);
}

/// A process that is no gateway has the same pages behind the same guard.
#[tokio::test]
async fn the_pages_of_a_process_are_those_of_a_gateway() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = [("watch", "prometheus", "observer"), ("work", "ant", "worker")];
    let identities = Some(tokens_in(dir.path(), &tokens));
    let server = HttpServer::bind(ServerSettings { identities, ..settings() }).await.unwrap();
    let address = server.addresses()[0];
    let is_ready = Arc::new(AtomicBool::new(false));
    let ready = {
        let is_ready = Arc::clone(&is_ready);
        move || match is_ready.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(Rejection::new(Code::Unavailable, "it begins").with("secret", 1)),
        }
    };
    let metrics = |accepts: Option<&str>| match accepts {
        Some(it) if it.contains("openmetrics") => {
            ("application/openmetrics-text", "# EOF\n".to_owned())
        }
        _ => ("text/plain", "tenure_worker_slots 4\n".to_owned()),
    };
    let routes = process_pages(ready, metrics);
    tokio::spawn(server.serve_routes(routes, Counters::default(), std::future::pending::<()>()));
    assert_eq!(get(address, "/livez", None).await.status, 200);
    let unready = get(address, "/readyz", None).await;
    assert_eq!(unready.status, 503);
    assert!(!unready.body.contains("secret"), "{}", unready.body);
    is_ready.store(true, Ordering::Release);
    while get(address, "/readyz", None).await.status != 200 {
        tokio::time::sleep(Duration::from_millis(20)).await; // The answer before is used again for a second.
    }
    assert_eq!(get(address, "/metrics", None).await.status, 401);
    assert_eq!(get(address, "/metrics", Some("work")).await.status, 403);
    let page = get(address, "/metrics", Some("watch")).await;
    assert_eq!((page.status, &*page.body), (200, "tenure_worker_slots 4\n"));
    assert_eq!(get(address, "/v1/pools", Some("watch")).await.status, 404);
}
