//! A caller of a gateway sends bodies as large as they may be, and not their last bytes.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::Result;

use crate::common::http::{head, status};
use crate::common::judge::{Attack, Going, Told};
use crate::common::stage::{Stage, token};
use crate::common::victim::Way;

/// Bodies that are on their way: together longer than all of a gateway may be.
const BODIES: usize = 20;

/// What a body says it has.
const LENGTH: usize = 16 << 20;

/// What comes of it.
const SENT: usize = LENGTH - 1;

/// Longest that one write waits for a gateway that reads no more.
const STALL: Duration = Duration::from_millis(500);

pub(crate) const ATTACK: Attack = Attack {
    name: "bodies",
    is_in_short: true,
    way: Way::Gateway,
    refused: Some("429"),
    memory_mib: 768,
    run,
};

fn run(stage: &Stage, going: &Going) -> Result<Told> {
    let (mut told, mut open) = (Told::default(), Vec::new());
    let piece = vec![b' '; 1 << 20];
    for _ in 0..BODIES {
        let mut way = TcpStream::connect((Ipv4Addr::LOCALHOST, stage.http))?;
        way.set_write_timeout(Some(STALL))?;
        let length = format!("Content-Length: {LENGTH}\r\n");
        let head = head(Some(&token("attacker")), "POST", "/v1/sessions/other/tasks", &length);
        way.write_all(head.as_bytes())?;
        let mut left = SENT;
        while left > 0 && going.is_on() {
            let next = left.min(piece.len());
            // It may have been refused by now.
            if way.write_all(&piece[..next]).is_err() {
                break;
            }
            left -= next;
        }
        told.sent += 1;
        open.push(way);
    }
    // Those that are refused are told so, and the others are held as long as they may be.
    while going.is_on() {
        open.retain_mut(|way| match answer(way) {
            Some(status) => {
                told.note(status.to_string());
                false
            }
            None => true,
        });
    }
    Ok(told)
}

/// The status of the answer, if one has come.
fn answer(way: &mut TcpStream) -> Option<u16> {
    way.set_read_timeout(Some(Duration::from_millis(10))).ok()?;
    let mut said = [0; 512];
    let length = way.read(&mut said).ok()?;
    status(&String::from_utf8_lossy(&said[..length]))
}
