//! What operators and inspectors ask beside Tasks: nodes, leases, and what commands wrote.

use hyper::Method;
use serde::Deserialize;
use tenure_core::Rejection;
use tenure_core::id::TaskId;
use tenure_wire::bus::operate::{LeasePage, LeaseRow, ListLeases, NodeFacts};
use tenure_wire::bus::output::{OutputPage, ReadOutput};
use tenure_wire::bus::request::Request;

use super::HttpClient;
use crate::http::link::{HttpRequest, JSON};
use crate::nats::client::Gather;

/// The answer of a gateway about nodes.
#[derive(Deserialize)]
struct GivenNodes {
    nodes: Vec<NodeFacts>,
    #[serde(default)]
    missing_partitions: Vec<u32>,
}

impl HttpClient {
    /// The facts of every node about itself, its workers and its pools. The gateway is asked once.
    ///
    /// # Errors
    /// `unavailable` if no gateway answers, or no node answers the gateway.
    pub async fn nodes(&self) -> Result<Gather<NodeFacts>, Rejection> {
        let path = format!("/v1/nodes?session={}", self.0.session);
        let request = HttpRequest::bare(Method::GET, path, JSON);
        let _turn = self.0.gateways.turn().await?;
        let heard: GivenNodes = self.0.gateways.json(&request, self.0.request_timeout).await?;
        let GivenNodes { nodes, missing_partitions } = heard;
        Ok(Gather { answers: nodes, missing_partitions })
    }

    /// Leases and open Attempts of the session, in the order of the Attempts.
    ///
    /// # Errors
    /// `unavailable` if no gateway answers for as long as patience lasts, or none that a node answers.
    pub async fn leases(&self) -> Result<Vec<LeaseRow>, Rejection> {
        let mut all: Vec<LeaseRow> = Vec::new();
        loop {
            let after = all.last().map(|row| row.attempt_id);
            let request = Request::new(None, None, ListLeases { after, ..ListLeases::default() });
            let (page, _): (LeasePage, _) = self.0.ask(&request, self.0.patience).await?;
            let is_last = !page.more || page.leases.is_empty();
            all.extend(page.leases);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// A page of what the command of an Attempt wrote, as its worker reads it now (ART-09).
    ///
    /// # Errors
    /// `worker_gone` if that worker is not connected; `unavailable` with `details.feature` if it cannot be asked.
    pub async fn read_output(
        &self,
        task: &TaskId,
        asked: ReadOutput,
    ) -> Result<OutputPage, Rejection> {
        self.0.ask_on(task, asked).await
    }
}
