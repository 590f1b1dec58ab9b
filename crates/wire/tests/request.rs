//! What stands around a request: the budget for its answer (CTRL-06).
#![allow(clippy::unwrap_used)]

use tenure_core::Command;
use tenure_core::command::Close;
use tenure_wire::bus::request::{Ask, Request};

fn within(ask: Ask) -> Request {
    let mut request = Request::new(Some("t".parse().unwrap()), Some("c-1".parse().unwrap()), ask);
    request.head.max_bytes = Some(4_096);
    request
}

#[test]
fn a_budget_goes_with_what_is_read() {
    let golden = include_bytes!("golden/bus-v1/request-get-within.msgpack");
    assert_eq!(within(Ask::Get).write().unwrap(), golden);
    assert_eq!(Request::read(golden).unwrap(), within(Ask::Get));
}

#[test]
fn a_budget_goes_with_what_is_commanded() {
    let cancel = within(Ask::Command(Box::new(Command::TaskCancel(Close::default()))));
    assert_eq!(Request::read(&cancel.write().unwrap()).unwrap(), cancel);
}
