//! Calling back: updates of a task are sent to an address that its caller has named.
//!
//! A configuration is a fact of its Task (FACT-01), and a courier carries the updates. The courier is a Step of
//! a Task of its own ([`courier`]), run by the gateways as workers: so it is leased, and when its gateway dies
//! another one goes on behind the last update that the receiver has taken. An update may come twice, and none is
//! left out.
//!
//! An address may be one of the operator's network, which callers must not reach through a gateway. So it is
//! checked ([`target`]) by the very IP address to which the connection is made, and no redirect is followed.

mod courier;
mod post;
mod target;

use serde::Deserialize;

pub(crate) use self::courier::{COURIERS, COURIERS_MAX, PushOrder, run_couriers};
pub(crate) use self::post::check_headers;
pub(crate) use self::target::PushTarget;

/// To which addresses the gateway may send updates, beside `https` to public ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PushRules {
    /// Names of hosts that may have any address, and be spoken to without TLS.
    pub(super) allow: Vec<String>,
}

impl PushRules {
    /// Whether the operator has named this host.
    fn names(&self, host: &str) -> bool {
        self.allow.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
    }
}
