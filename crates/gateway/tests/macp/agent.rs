//! An agent that speaks MACP by the client that tonic makes.

use std::net::SocketAddr;
use std::time::Duration;

use prost::Message;
use tenure_macp::pb::macp_runtime_service_client::MacpRuntimeServiceClient;
use tenure_macp::pb::stream_session_response::Response as Told;
use tenure_macp::pb::{
    Ack, CancelSessionRequest, CommitmentPayload, Envelope, GetSessionRequest,
    ResumeSessionRequest, SendRequest, SessionMetadata, SessionStartPayload, StreamSessionRequest,
    StreamSessionResponse, SuspendSessionRequest,
};
use tenure_macp::task_pb::{
    TaskAcceptPayload, TaskCompletePayload, TaskFailPayload, TaskRejectPayload, TaskRequestPayload,
    TaskUpdatePayload,
};
use tenure_macp::{SessionState, TASK_MODE};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use uuid::Uuid;

/// Whatever a test waits for comes sooner than this.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A way to a gateway.
#[derive(Clone)]
pub(crate) struct Wire(pub(crate) MacpRuntimeServiceClient<Channel>);

impl Wire {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        Self::try_to(address).await.unwrap()
    }

    /// None while nobody is there.
    pub(crate) async fn try_to(address: SocketAddr) -> Option<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = endpoint.connect().await.ok()?;
        Some(Self(MacpRuntimeServiceClient::new(channel).max_encoding_message_size(8 << 20)))
    }
}

/// An agent with its token.
#[derive(Clone)]
pub(crate) struct Agent {
    pub(crate) wire: Wire,
    pub(crate) name: String,
    /// The header in which it brings its token, and how.
    header: (&'static str, String),
}

impl Agent {
    pub(crate) fn new(wire: Wire, name: &str) -> Self {
        Self { wire, name: name.to_owned(), header: ("authorization", format!("Bearer {name}")) }
    }

    /// The same, which brings its token in another way.
    pub(crate) fn with_header(self, name: &'static str, value: &str) -> Self {
        Self { header: (name, value.to_owned()), ..self }
    }

    /// A request of this agent.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if !self.header.1.is_empty() {
            request.metadata_mut().insert(self.header.0, self.header.1.parse().unwrap());
        }
        request
    }

    pub(crate) async fn send(&self, envelope: Envelope) -> Ack {
        self.try_send(envelope).await.unwrap()
    }

    pub(crate) async fn try_send(&self, envelope: Envelope) -> Result<Ack, Status> {
        let request = self.request(SendRequest { envelope: Some(envelope) });
        let answer = timeout(SOON, self.wire.0.clone().send(request)).await.unwrap()?;
        Ok(answer.into_inner().ack.unwrap())
    }

    /// Sends a message that is accepted.
    pub(crate) async fn says(&self, session: &str, kind: &str, payload: &impl Message) -> Ack {
        let ack = self.send(self.envelope(session, kind, payload)).await;
        assert!(ack.ok && ack.error.is_none(), "{kind}: {ack:?}");
        ack
    }

    /// Sends a message that is refused, and gives the code.
    pub(crate) async fn refused(&self, session: &str, kind: &str, of: &impl Message) -> String {
        code(&self.send(self.envelope(session, kind, of)).await)
    }

    pub(crate) fn envelope(&self, session: &str, kind: &str, payload: &impl Message) -> Envelope {
        Envelope {
            macp_version: "1.0".into(),
            mode: TASK_MODE.into(),
            message_type: kind.into(),
            message_id: Uuid::new_v4().to_string(),
            session_id: session.into(),
            sender: String::new(),
            timestamp_unix_ms: now_ms(),
            payload: payload.encode_to_vec(),
        }
    }

    /// Starts a session, and gives its id.
    pub(crate) async fn starts(&self, start: SessionStartPayload) -> String {
        let session = Uuid::new_v4().to_string();
        let ack = self.says(&session, "SessionStart", &start).await;
        assert_eq!(ack.session_state(), SessionState::Open);
        session
    }

    pub(crate) async fn metadata(&self, session: &str) -> SessionMetadata {
        self.try_metadata(session).await.unwrap()
    }

    pub(crate) async fn try_metadata(&self, session: &str) -> Result<SessionMetadata, Status> {
        let request = self.request(GetSessionRequest { session_id: session.into() });
        let answer = timeout(SOON, self.wire.0.clone().get_session(request)).await.unwrap()?;
        Ok(answer.into_inner().metadata.unwrap())
    }

    pub(crate) async fn state(&self, session: &str) -> SessionState {
        self.metadata(session).await.state()
    }

    pub(crate) async fn cancel(&self, session: &str) -> Result<Ack, Status> {
        let asked = CancelSessionRequest { session_id: session.into(), reason: "enough".into() };
        let answer = self.wire.0.clone().cancel_session(self.request(asked)).await?;
        Ok(answer.into_inner().ack.unwrap())
    }

    pub(crate) async fn suspend(&self, session: &str) -> Result<Ack, Status> {
        let asked = SuspendSessionRequest { session_id: session.into(), reason: "later".into() };
        let answer = self.wire.0.clone().suspend_session(self.request(asked)).await?;
        Ok(answer.into_inner().ack.unwrap())
    }

    pub(crate) async fn resume(&self, session: &str) -> Result<Ack, Status> {
        let asked = ResumeSessionRequest { session_id: session.into(), reason: String::new() };
        let answer = self.wire.0.clone().resume_session(self.request(asked)).await?;
        Ok(answer.into_inner().ack.unwrap())
    }

    /// A stream that is open as long as the sender is kept.
    pub(crate) async fn stream(&self) -> Result<Stream, Status> {
        let (to, sent) = mpsc::unbounded_channel();
        let sent = futures::stream::unfold(sent, async |mut sent| Some((sent.recv().await?, sent)));
        let request = self.request(sent);
        let told = timeout(SOON, self.wire.0.clone().stream_session(request)).await.unwrap()?;
        Ok(Stream { to, told: told.into_inner() })
    }

    /// A stream that tells the messages of a session behind a place.
    pub(crate) async fn follows(&self, session: &str, after_sequence: u64) -> Stream {
        let stream = self.stream().await.unwrap();
        stream.subscribe(session, after_sequence);
        stream
    }
}

/// Both directions of a stream.
pub(crate) struct Stream {
    pub(crate) to: mpsc::UnboundedSender<StreamSessionRequest>,
    pub(crate) told: Streaming<StreamSessionResponse>,
}

impl Stream {
    pub(crate) fn subscribe(&self, session: &str, after_sequence: u64) {
        let subscribe_session_id = session.to_owned();
        let asked = StreamSessionRequest { envelope: None, subscribe_session_id, after_sequence };
        self.to.send(asked).unwrap();
    }

    pub(crate) fn send(&self, envelope: Envelope) {
        let asked = StreamSessionRequest { envelope: Some(envelope), ..Default::default() };
        self.to.send(asked).unwrap();
    }

    pub(crate) async fn next(&mut self) -> Result<Told, Status> {
        let told = timeout(SOON, self.told.message()).await.expect("something is told soon")?;
        Ok(told.expect("the stream goes on").response.unwrap())
    }

    /// The types of the next messages.
    pub(crate) async fn kinds(&mut self, count: usize) -> Vec<String> {
        let mut kinds = Vec::new();
        while kinds.len() < count {
            let Told::Envelope(envelope) = self.next().await.unwrap() else {
                panic!("an error is told")
            };
            kinds.push(envelope.message_type);
        }
        kinds
    }

    /// The code of the error that comes next.
    pub(crate) async fn error(&mut self) -> String {
        match self.next().await.unwrap() {
            Told::Error(error) => error.code,
            Told::Envelope(envelope) => panic!("{envelope:?}"),
        }
    }
}

/// The code of an Ack that refuses.
pub(crate) fn code(ack: &Ack) -> String {
    assert!(!ack.ok && ack.session_state() == SessionState::Unspecified, "{ack:?}");
    ack.error.as_ref().unwrap().code.clone()
}

/// The code that stands behind a status.
pub(crate) fn status_code(status: &Status) -> (tonic::Code, String) {
    let code = status.metadata().get("macp-error-code").map(|code| code.to_str().unwrap());
    (status.code(), code.unwrap_or_default().to_owned())
}

pub(crate) fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

pub(crate) fn start(participants: &[&str]) -> SessionStartPayload {
    SessionStartPayload {
        intent: "analyze Q4 sales data".into(),
        participants: participants.iter().map(|it| (*it).to_owned()).collect(),
        mode_version: "1.0.0".into(),
        configuration_version: "config.default".into(),
        policy_version: "policy.default".into(),
        ttl_ms: 300_000,
        ..SessionStartPayload::default()
    }
}

pub(crate) fn request(assignee: &str) -> TaskRequestPayload {
    TaskRequestPayload {
        task_id: "t1".into(),
        title: "Q4 Sales Analysis".into(),
        instructions: "Run the sales pipeline".into(),
        requested_assignee: assignee.into(),
        input: br#"{"quarter": "Q4"}"#.to_vec(),
        deadline_unix_ms: 1_735_689_600_000,
    }
}

pub(crate) fn accept() -> TaskAcceptPayload {
    TaskAcceptPayload { task_id: "t1".into(), ..Default::default() }
}

pub(crate) fn reject(reason: &str) -> TaskRejectPayload {
    TaskRejectPayload { task_id: "t1".into(), reason: reason.into(), ..Default::default() }
}

pub(crate) fn update(progress: f64) -> TaskUpdatePayload {
    let (task_id, status) = ("t1".into(), "running".into());
    TaskUpdatePayload { task_id, status, progress, message: "at work".into(), ..Default::default() }
}

pub(crate) fn complete(output: &[u8]) -> TaskCompletePayload {
    let (task_id, output) = ("t1".into(), output.to_vec());
    TaskCompletePayload { task_id, output, summary: "revenue up".into(), ..Default::default() }
}

pub(crate) fn fail() -> TaskFailPayload {
    TaskFailPayload {
        task_id: "t1".into(),
        error_code: "no_data".into(),
        reason: "there is none".into(),
        retryable: true,
        ..Default::default()
    }
}

pub(crate) fn commit(action: &str, outcome_positive: bool) -> CommitmentPayload {
    CommitmentPayload {
        commitment_id: Uuid::new_v4().to_string(),
        action: action.into(),
        authority_scope: "data-analysis".into(),
        reason: "it was delivered".into(),
        mode_version: "1.0.0".into(),
        policy_version: String::new(),
        configuration_version: "config.default".into(),
        outcome_positive,
        supersedes: None,
    }
}
