//! Who owns what, as the nodes say of themselves.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use futures::StreamExt as _;
use rmpv::Value;

use super::client::{runtime, wait};
use super::message::{list, text};

/// What each boot of a node said last.
type Said = Arc<Mutex<BTreeMap<String, (u64, Vec<u64>)>>>;

/// Hears what nodes own.
#[derive(Debug)]
pub struct Members {
    said: Said,
    _nats: async_nats::Client,
}

impl Members {
    /// Begins to listen.
    ///
    /// # Errors
    /// NATS does not answer.
    pub fn watch(url: &str) -> Result<Self> {
        let options = async_nats::ConnectOptions::new().retry_on_initial_connect();
        let servers: Vec<&str> = url.split(',').collect();
        let nats = wait(options.connect(servers))?;
        let mut heard = wait(nats.subscribe("tenure.v1.node.*.alive"))?;
        let said = Said::default();
        let shared = Arc::clone(&said);
        runtime().spawn(async move {
            let mut number = 0;
            while let Some(message) = heard.next().await {
                let mut bytes = message.payload.as_ref();
                let Ok(alive) = rmpv::decode::read_value(&mut bytes) else { continue };
                let owned = list(&alive, "owned").iter().filter_map(Value::as_u64).collect();
                let Some(node) = text(&alive, "node") else { continue };
                number += 1;
                let mut said = shared.lock().unwrap_or_else(PoisonError::into_inner);
                said.insert(node.to_owned(), (number, owned));
            }
        });
        Ok(Self { said, _nats: nats })
    }

    /// Those of `live` that own a partition, by what their newest boots said last.
    pub fn owners<'a>(&self, partition: u32, live: &[&'a str]) -> Vec<&'a str> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let owns = |name: &str| {
            let is_boot_of = |node: &str| node.rsplit_once('-').is_some_and(|(of, _)| of == name);
            let boots = said.iter().filter(|(node, _)| is_boot_of(node));
            let newest = boots.max_by_key(|(_, (number, _))| *number);
            newest.is_some_and(|(_, (_, owned))| owned.contains(&u64::from(partition)))
        };
        live.iter().copied().filter(|name| owns(name)).collect()
    }

    /// Forgets what all nodes said: what is asked then is what they say from now on.
    pub fn forget(&self) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
