//! Reads what gateways count, from the page that Prometheus reads: each of several gateways is asked for its own.

use std::time::Duration;

use futures::future::join_all;
use hyper::Method;
use tenure_core::Rejection;

use super::connect::{GatewayAddress, HttpConnectError, HttpSettings};
use super::link::{GatewayLink, HttpRequest};

/// The path of the page.
const PATH: &str = "/metrics";

/// The media type of the page.
const TEXT: &str = "text/plain";

/// The page of one gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayMetrics {
    /// The address of the gateway.
    pub address: String,
    /// The text of the page, or why there is none.
    pub text: Result<String, Rejection>,
}

/// Reads the pages of all gateways that the settings name, at the same time. Each is asked once.
///
/// # Errors
/// The settings cannot be used.
pub async fn read_metrics(
    settings: &HttpSettings,
) -> Result<Vec<GatewayMetrics>, HttpConnectError> {
    let addresses = GatewayAddress::all(settings).await?;
    let pages = addresses.into_iter().map(|address| read_page(address, settings.request_timeout));
    Ok(join_all(pages).await)
}

async fn read_page(address: GatewayAddress, within: Duration) -> GatewayMetrics {
    let link = GatewayLink::new(address);
    let request = HttpRequest::bare(Method::GET, PATH.to_owned(), TEXT);
    let text = link.bytes(&request, within).await;
    let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    GatewayMetrics { address: link.address().shown().to_owned(), text }
}
