//! A link for tests, to a gateway that is not there.

use super::link::LinkedGateway;
use crate::http::connect::HttpSettings;
use crate::http::gateways::GatewayLinks;

/// A link that began when so many Steps had come to its worker.
pub(super) async fn linked(before: u64) -> LinkedGateway {
    let gateways = GatewayLinks::of(&HttpSettings::new("http://nobody")).await.unwrap();
    LinkedGateway::new(gateways.current(), "/v1/pools/p/workers/l".into(), before, 0)
}
