//! [`MacpService`]: the methods of `macp.v1.MACPRuntimeService`.
//!
//! `Send` and what steers a session refuse in their answer, the Ack; every other method refuses with a status.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream;
use tenure_macp::pb::macp_runtime_service_server::MacpRuntimeService;
use tenure_macp::pb::{
    Ack, CancelSessionRequest, CancelSessionResponse, Envelope, GetManifestRequest,
    GetManifestResponse, GetPolicyRequest, GetPolicyResponse, GetSessionRequest,
    GetSessionResponse, InitializeRequest, InitializeResponse, ListExtModesRequest,
    ListExtModesResponse, ListModesRequest, ListModesResponse, ListPoliciesRequest,
    ListPoliciesResponse, ListRootsRequest, ListRootsResponse, ListSessionsRequest,
    ListSessionsResponse, RegistryChanged, ResumeSessionRequest, ResumeSessionResponse,
    RootsChanged, SendRequest, SendResponse, StreamSessionRequest, StreamSessionResponse,
    SuspendSessionRequest, SuspendSessionResponse, WatchModeRegistryRequest,
    WatchModeRegistryResponse, WatchRootsRequest, WatchRootsResponse, WatchSessionsRequest,
    WatchSessionsResponse, WatchSignalsRequest, WatchSignalsResponse,
};
use tenure_macp::{
    MacpCode, MacpKind, MacpRefusal, MacpRuntime, MacpSteer, bind_sender, check_ambient,
    check_shape, is_session_id, refuse, task_mode,
};
use tenure_mcp::Share;
use tonic::codegen::BoxStream;
use tonic::{Extensions, Request, Response, Status, Streaming};

use super::caller::MacpCaller;
use super::marks::SessionMark;
use super::serve::ServedSessions;
use super::status::{MacpFault, MacpResult, to_status};
use super::{MacpSettings, now_ms};
use crate::live::StreamPermit;
use crate::{Backend, Gateway};

/// The service.
pub(super) struct MacpService<B: Backend>(Arc<ServiceShared<B>>);

/// What all requests of the service share.
pub(super) struct ServiceShared<B: Backend> {
    pub(super) gateway: Arc<Gateway<B>>,
    pub(super) settings: Arc<MacpSettings>,
}

impl<B: Backend> MacpService<B> {
    pub(super) fn new(gateway: Arc<Gateway<B>>, settings: Arc<MacpSettings>) -> Self {
        Self(Arc::new(ServiceShared { gateway, settings }))
    }
}

impl<B: Backend> ServiceShared<B> {
    /// The way to the sessions.
    pub(super) async fn sessions(&self) -> MacpResult<ServedSessions<B>> {
        ServedSessions::open(Arc::clone(&self.gateway), Arc::clone(&self.settings)).await
    }

    /// The last place that is known of the log of a session: what is accepted from now on comes behind it.
    pub(super) async fn newest_mark(&self, session_id: &str) -> SessionMark {
        if !is_session_id(session_id) {
            return SessionMark::default();
        }
        let known = self.gateway.macp.of(&self.settings.session, session_id);
        known.lock().await.marks.newest()
    }

    /// The caller of a request.
    ///
    /// # Errors
    /// UNAUTHENTICATED or FORBIDDEN.
    pub(super) fn caller(&self, of: &Extensions) -> Result<MacpCaller, MacpRefusal> {
        MacpCaller::of(of, &self.settings)
    }

    /// Takes an envelope of a caller, and answers it.
    ///
    /// # Errors
    /// It is refused, or cannot be carried out now.
    pub(super) async fn take(
        &self,
        envelope: &mut Envelope,
        caller: Result<MacpCaller, MacpRefusal>,
    ) -> MacpResult<Ack> {
        let kind = check_shape(envelope, self.settings.payload_bytes_max)?;
        let caller = caller?;
        bind_sender(envelope, &caller.name)?;
        caller.check_sends()?;
        let _share = self.gateway.macp.shares.take(&caller.name, envelope.payload.len())?;
        match kind {
            MacpKind::Start => {
                caller.check_starts()?;
                self.sessions().await?.start(envelope).await
            }
            MacpKind::InSession => self.sessions().await?.send(envelope).await,
            MacpKind::Ambient => {
                check_ambient(envelope)?;
                self.signal(envelope, &caller).await
            }
        }
    }

    /// The share of a call that reads.
    ///
    /// # Errors
    /// RATE_LIMITED.
    pub(super) fn share(&self, caller: &MacpCaller) -> Result<Share, Status> {
        self.gateway.macp.shares.call(&caller.name).map_err(|refusal| to_status(&refusal))
    }

    async fn steer(
        &self,
        of: &Extensions,
        steer: MacpSteer,
        session_id: &str,
        reason: &str,
    ) -> Result<Ack, Status> {
        let caller = self.caller(of).map_err(|refusal| to_status(&refusal))?;
        caller.check_sends().map_err(|refusal| to_status(&refusal))?;
        let _share = self.share(&caller)?;
        let sessions = self.sessions().await?;
        Ok(sessions.steer(steer, session_id, reason, &caller).await?)
    }
}

/// What a server says about itself.
fn runtime() -> MacpRuntime {
    MacpRuntime { version: env!("CARGO_PKG_VERSION").to_owned(), address: String::new() }
}

/// The name under which all who need no login share the streams of one.
const NOBODY: &str = "";

/// A stream that says how things stand, and on which nothing happens after that.
fn unchanging<T: Send + 'static>(first: T, permit: StreamPermit) -> BoxStream<T> {
    let all = stream::once(std::future::ready(Ok(first))).chain(stream::pending());
    all.inspect(move |_| {
        let _ = &permit;
    })
    .boxed()
}

#[tonic::async_trait]
impl<B: Backend> MacpRuntimeService for MacpService<B> {
    async fn initialize(
        &self,
        request: Request<InitializeRequest>,
    ) -> Result<Response<InitializeResponse>, Status> {
        let answer = runtime().initialize(request.get_ref());
        answer.map(Response::new).map_err(|refusal| to_status(&refusal))
    }

    async fn send(&self, request: Request<SendRequest>) -> Result<Response<SendResponse>, Status> {
        let caller = self.0.caller(request.extensions());
        let Some(mut envelope) = request.into_inner().envelope else {
            let message = "a request needs an envelope";
            return Err(to_status(&MacpRefusal::new(MacpCode::InvalidEnvelope, message)));
        };
        let ack = match self.0.take(&mut envelope, caller).await {
            Ok(ack) => ack,
            Err(MacpFault::Refused(refusal)) => refuse(&envelope, &refusal, now_ms()),
            Err(trouble) => return Err(trouble.into()),
        };
        Ok(Response::new(SendResponse { ack: Some(ack) }))
    }

    async fn stream_session(
        &self,
        request: Request<Streaming<StreamSessionRequest>>,
    ) -> Result<Response<BoxStream<StreamSessionResponse>>, Status> {
        let caller = self.0.caller(request.extensions()).map_err(|it| to_status(&it))?;
        let permit = self.0.gateway.live.open_as(&caller.name).map_err(too_many)?;
        let answers = self.0.streamed(request.into_inner(), caller, permit);
        Ok(Response::new(answers))
    }

    async fn get_session(
        &self,
        request: Request<GetSessionRequest>,
    ) -> Result<Response<GetSessionResponse>, Status> {
        let caller = self.0.caller(request.extensions()).map_err(|it| to_status(&it))?;
        let _share = self.0.share(&caller)?;
        let sessions = self.0.sessions().await?;
        let session = sessions.readable(&request.get_ref().session_id, &caller).await?;
        Ok(Response::new(GetSessionResponse { metadata: Some(session.metadata()) }))
    }

    async fn cancel_session(
        &self,
        request: Request<CancelSessionRequest>,
    ) -> Result<Response<CancelSessionResponse>, Status> {
        let (asked, of) = (request.get_ref(), request.extensions());
        let ack = self.0.steer(of, MacpSteer::Cancel, &asked.session_id, &asked.reason).await?;
        Ok(Response::new(CancelSessionResponse { ack: Some(ack) }))
    }

    async fn suspend_session(
        &self,
        request: Request<SuspendSessionRequest>,
    ) -> Result<Response<SuspendSessionResponse>, Status> {
        let (asked, of) = (request.get_ref(), request.extensions());
        let ack = self.0.steer(of, MacpSteer::Suspend, &asked.session_id, &asked.reason).await?;
        Ok(Response::new(SuspendSessionResponse { ack: Some(ack) }))
    }

    async fn resume_session(
        &self,
        request: Request<ResumeSessionRequest>,
    ) -> Result<Response<ResumeSessionResponse>, Status> {
        let (asked, of) = (request.get_ref(), request.extensions());
        let ack = self.0.steer(of, MacpSteer::Resume, &asked.session_id, &asked.reason).await?;
        Ok(Response::new(ResumeSessionResponse { ack: Some(ack) }))
    }

    async fn get_manifest(
        &self,
        request: Request<GetManifestRequest>,
    ) -> Result<Response<GetManifestResponse>, Status> {
        let manifest = runtime().manifest(&request.get_ref().agent_id);
        let manifest = Some(manifest.map_err(|it| to_status(&it))?);
        Ok(Response::new(GetManifestResponse { manifest }))
    }

    async fn list_modes(
        &self,
        _: Request<ListModesRequest>,
    ) -> Result<Response<ListModesResponse>, Status> {
        Ok(Response::new(ListModesResponse { modes: vec![task_mode()] }))
    }

    async fn watch_mode_registry(
        &self,
        _: Request<WatchModeRegistryRequest>,
    ) -> Result<Response<BoxStream<WatchModeRegistryResponse>>, Status> {
        // The modes of a server do not change. Strangers may ask, and share what streams they may open.
        let permit = self.0.gateway.live.open_as(NOBODY).map_err(too_many)?;
        let change =
            RegistryChanged { registry: "modes".to_owned(), observed_at_unix_ms: now_ms() };
        Ok(Response::new(unchanging(WatchModeRegistryResponse { change: Some(change) }, permit)))
    }

    async fn list_roots(
        &self,
        _: Request<ListRootsRequest>,
    ) -> Result<Response<ListRootsResponse>, Status> {
        Ok(Response::new(ListRootsResponse::default()))
    }

    async fn watch_roots(
        &self,
        _: Request<WatchRootsRequest>,
    ) -> Result<Response<BoxStream<WatchRootsResponse>>, Status> {
        let permit = self.0.gateway.live.open_as(NOBODY).map_err(too_many)?;
        let change = RootsChanged { observed_at_unix_ms: now_ms() }; // There are none.
        Ok(Response::new(unchanging(WatchRootsResponse { change: Some(change) }, permit)))
    }

    async fn list_ext_modes(
        &self,
        _: Request<ListExtModesRequest>,
    ) -> Result<Response<ListExtModesResponse>, Status> {
        Ok(Response::new(ListExtModesResponse::default()))
    }

    async fn watch_signals(
        &self,
        request: Request<WatchSignalsRequest>,
    ) -> Result<Response<BoxStream<WatchSignalsResponse>>, Status> {
        let caller = self.0.caller(request.extensions()).map_err(|it| to_status(&it))?;
        let permit = self.0.gateway.live.open_as(&caller.name).map_err(too_many)?;
        Ok(Response::new(self.0.signals(caller, permit).await?))
    }

    async fn list_sessions(
        &self,
        request: Request<ListSessionsRequest>,
    ) -> Result<Response<ListSessionsResponse>, Status> {
        let caller = self.0.caller(request.extensions()).map_err(|it| to_status(&it))?;
        let asked = request.get_ref();
        let page = tenure_macp::page_of_sessions(asked.page_size, &asked.page_token);
        let page = page.map_err(|it| to_status(&it))?;
        let _share = self.0.share(&caller)?;
        let turn = self.0.gateway.macp.shares.turn(&caller.name).await;
        let _turn = turn.map_err(|it| to_status(&it))?;
        Ok(Response::new(self.0.sessions().await?.list(&page, &caller).await?))
    }

    async fn watch_sessions(
        &self,
        request: Request<WatchSessionsRequest>,
    ) -> Result<Response<BoxStream<WatchSessionsResponse>>, Status> {
        let caller = self.0.caller(request.extensions()).map_err(|it| to_status(&it))?;
        let permit = self.0.gateway.live.open_as(&caller.name).map_err(too_many)?;
        Ok(Response::new(self.0.sessions().await?.watch(caller, permit).await?))
    }

    async fn get_policy(
        &self,
        request: Request<GetPolicyRequest>,
    ) -> Result<Response<GetPolicyResponse>, Status> {
        self.0.caller(request.extensions()).map_err(|it| to_status(&it))?;
        let id = &request.get_ref().policy_id;
        let none = || {
            let message =
                format!("there is no policy {id:?}; ListPolicies names those that are there");
            to_status(&MacpRefusal::new(MacpCode::UnknownPolicyVersion, message))
        };
        let policies = self.0.settings.policies.now();
        let policy = policies.get(id).ok_or_else(none)?;
        let policy_descriptor = Some(policy.descriptor(self.0.gateway.macp.begun_ms));
        Ok(Response::new(GetPolicyResponse { policy_descriptor }))
    }

    async fn list_policies(
        &self,
        request: Request<ListPoliciesRequest>,
    ) -> Result<Response<ListPoliciesResponse>, Status> {
        self.0.caller(request.extensions()).map_err(|it| to_status(&it))?;
        let (mode, begun_ms) = (&request.get_ref().mode, self.0.gateway.macp.begun_ms);
        let policies = self.0.settings.policies.now();
        let descriptors = policies.list(mode).map(|policy| policy.descriptor(begun_ms)).collect();
        Ok(Response::new(ListPoliciesResponse { descriptors }))
    }
}

/// The refusal of one stream too many.
fn too_many(problem: crate::HttpProblem) -> Status {
    tracing::debug!(?problem, "a stream too many");
    let message = "as many streams are open as there may be; come back later";
    to_status(&MacpRefusal::new(MacpCode::RateLimited, message))
}

#[cfg(test)]
mod tests;
