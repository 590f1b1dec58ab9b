//! MACP over gRPC, as little as is needed of it.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use prost::Message;
use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::stage::{Stage, token};

const SEND: &str = "/macp.v1.MACPRuntimeService/Send";
const CANCEL: &str = "/macp.v1.MACPRuntimeService/CancelSession";

#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(string, tag = "1")]
    macp_version: String,
    #[prost(string, tag = "2")]
    mode: String,
    #[prost(string, tag = "3")]
    message_type: String,
    #[prost(string, tag = "4")]
    message_id: String,
    #[prost(string, tag = "5")]
    session_id: String,
    #[prost(int64, tag = "7")]
    timestamp_unix_ms: i64,
    #[prost(bytes = "vec", tag = "8")]
    payload: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct SessionStart {
    #[prost(string, tag = "1")]
    intent: String,
    #[prost(string, repeated, tag = "2")]
    participants: Vec<String>,
    #[prost(string, tag = "3")]
    mode_version: String,
    #[prost(string, tag = "4")]
    configuration_version: String,
    #[prost(int64, tag = "6")]
    ttl_ms: i64,
}

#[derive(Clone, PartialEq, Message)]
struct SendRequest {
    #[prost(message, optional, tag = "1")]
    envelope: Option<Envelope>,
}

#[derive(Clone, PartialEq, Message)]
struct CancelRequest {
    #[prost(string, tag = "1")]
    session_id: String,
    #[prost(string, tag = "2")]
    reason: String,
}

/// The answer to both.
#[derive(Clone, PartialEq, Message)]
struct AckAnswer {
    #[prost(message, optional, tag = "1")]
    ack: Option<Ack>,
}

#[derive(Clone, PartialEq, Message)]
struct Ack {
    #[prost(bool, tag = "1")]
    ok: bool,
    #[prost(message, optional, tag = "7")]
    error: Option<MacpError>,
}

#[derive(Clone, PartialEq, Message)]
struct MacpError {
    #[prost(string, tag = "1")]
    code: String,
}

/// An agent with a login.
#[derive(Clone)]
pub(crate) struct MacpAgent {
    channel: Channel,
    name: String,
}

impl MacpAgent {
    /// On a connection of its own.
    pub(crate) async fn connect(stage: &Stage, name: &str) -> Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", stage.grpc))?;
        Ok(Self { channel: endpoint.connect().await?, name: name.to_owned() })
    }

    /// The id of one of its sessions, a UUID of version 4 in form.
    pub(crate) fn session_id(&self, number: u64) -> String {
        let who = self.name.bytes().fold(0_u32, |sum, byte| sum * 31 % 65_521 + u32::from(byte));
        format!("{who:08x}-0000-4000-8000-{number:012x}")
    }

    /// Starts a session. Answers the code of the refusal, or `ok`.
    pub(crate) async fn start(&self, session_id: &str) -> Result<String> {
        let start = SessionStart {
            intent: "nothing".into(),
            participants: vec![self.name.clone(), "nobody".into()],
            mode_version: "1.0.0".into(),
            configuration_version: "config.default".into(),
            ttl_ms: 3_600_000,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        let envelope = Envelope {
            macp_version: "1.0".into(),
            mode: "macp.mode.task.v1".into(),
            message_type: "SessionStart".into(),
            message_id: format!("start-{session_id}"),
            session_id: session_id.into(),
            timestamp_unix_ms: i64::try_from(now)?,
            payload: start.encode_to_vec(),
        };
        self.ask(SEND, SendRequest { envelope: Some(envelope) }).await
    }

    /// Cancels a session. Answers as [`start`](Self::start).
    pub(crate) async fn cancel(&self, session_id: &str) -> Result<String> {
        let asked = CancelRequest { session_id: session_id.into(), reason: "over".into() };
        self.ask(CANCEL, asked).await
    }

    async fn ask<T: Message + 'static>(&self, path: &'static str, message: T) -> Result<String> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await?;
        let mut request = Request::new(message);
        let bearer = format!("Bearer {}", token(&self.name)).parse()?;
        request.metadata_mut().insert("authorization", bearer);
        let codec = ProstCodec::<T, AckAnswer>::default();
        let answer = match grpc.unary(request, PathAndQuery::from_static(path), codec).await {
            Ok(answer) => answer.into_inner(),
            Err(status) => return Ok(format!("{:?}", status.code())),
        };
        let ack = answer.ack.context("no ack")?;
        Ok(if ack.ok { "ok".to_owned() } else { ack.error.unwrap_or_default().code })
    }
}
