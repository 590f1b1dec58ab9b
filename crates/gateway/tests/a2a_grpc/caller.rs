//! A caller over gRPC: tonic's client, with messages by the description of the service.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use axum::http::uri::PathAndQuery;
use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor};
use serde_json::Value as Json;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{AsciiMetadataKey, MetadataMap};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

/// Whatever a test waits for comes sooner than this.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// The description of the service.
static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let description: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/a2a.binpb"));
    DescriptorPool::decode(description).unwrap()
});

/// A caller of an agent.
#[derive(Clone)]
pub(crate) struct Caller {
    channel: Channel,
    /// The agent, as requests name it.
    pub(crate) tenant: String,
    headers: MetadataMap,
}

impl Caller {
    /// A caller that says which version it speaks.
    pub(crate) async fn of(to: SocketAddr, agent: &str) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{to}")).unwrap();
        Self::over(endpoint.timeout(SOON).connect().await.unwrap(), agent)
    }

    /// The same over a connection that is there.
    pub(crate) fn over(channel: Channel, agent: &str) -> Self {
        let caller = Self { channel, tenant: agent.to_owned(), headers: MetadataMap::new() };
        caller.with("a2a-version", "1.0")
    }

    /// The same caller, which sends this with each request, too.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        let name: AsciiMetadataKey = name.parse().unwrap();
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    /// The answer to a request.
    pub(crate) async fn ask(&self, method: &str, params: Json) -> Result<Json, Status> {
        let (path, codec, request) = self.request(method, params);
        let mut grpc = self.ready().await;
        grpc.unary(request, path, codec).await.map(tonic::Response::into_inner)
    }

    /// The answer to a request that is not refused.
    pub(crate) async fn result(&self, method: &str, params: Json) -> Json {
        self.ask(method, params).await.unwrap()
    }

    /// What happens.
    pub(crate) async fn stream(
        &self,
        method: &str,
        params: Json,
    ) -> Result<Streaming<Json>, Status> {
        let (path, codec, request) = self.request(method, params);
        let mut grpc = self.ready().await;
        grpc.server_streaming(request, path, codec).await.map(tonic::Response::into_inner)
    }

    async fn ready(&self) -> Grpc<Channel> {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(64 << 20);
        grpc.ready().await.unwrap();
        grpc
    }

    fn request(&self, method: &str, mut params: Json) -> (PathAndQuery, PlainCodec, Request<Json>) {
        let service = POOL.get_service_by_name("lf.a2a.v1.A2AService").unwrap();
        let known = service.methods().find(|known| known.name() == method).unwrap();
        params["tenant"] = self.tenant.clone().into();
        let mut request = Request::new(params);
        *request.metadata_mut() = self.headers.clone();
        let path = format!("/{}/{method}", service.full_name());
        (path.try_into().unwrap(), PlainCodec(known), request)
    }
}

/// Everything that a stream tells, to its end.
pub(crate) async fn rest(stream: &mut Streaming<Json>) -> Vec<Json> {
    let mut all = Vec::new();
    while let Some(next) = stream.message().await.unwrap() {
        all.push(next);
    }
    all
}

/// Writes requests and reads answers.
struct PlainCodec(MethodDescriptor);

struct PlainEncoder(MessageDescriptor);

struct PlainDecoder(MessageDescriptor);

impl Codec for PlainCodec {
    type Encode = Json;
    type Decode = Json;
    type Encoder = PlainEncoder;
    type Decoder = PlainDecoder;

    fn encoder(&mut self) -> PlainEncoder {
        PlainEncoder(self.0.input())
    }

    fn decoder(&mut self) -> PlainDecoder {
        PlainDecoder(self.0.output())
    }
}

impl Encoder for PlainEncoder {
    type Item = Json;
    type Error = Status;

    fn encode(&mut self, item: Json, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        DynamicMessage::deserialize(self.0.clone(), item).unwrap().encode(out).unwrap();
        Ok(())
    }
}

impl Decoder for PlainDecoder {
    type Item = Json;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Json>, Status> {
        let message = DynamicMessage::decode(self.0.clone(), from).unwrap();
        Ok(Some(serde_json::to_value(message).unwrap()))
    }
}
