//! `StreamSession`: the accepted messages of a session, from a place on, and messages that come on the stream.

use std::sync::Arc;

use futures::stream::BoxStream as Items;
use futures::{StreamExt as _, stream};
use tenure_core::{Commit, Rejection};
use tenure_macp::pb::stream_session_response::Response as Told;
use tenure_macp::pb::{Envelope, StreamSessionRequest, StreamSessionResponse};
use tenure_macp::{MacpCode, MacpRefusal};
use tenure_mcp::Share;
use tonic::codegen::BoxStream;
use tonic::{Code as GrpcCode, Status, Streaming};

use super::caller::MacpCaller;
use super::facts;
use super::marks::SessionMark;
use super::serve::{ServedSessions, not_found};
use super::service::ServiceShared;
use super::status::{MacpFault, MacpResult, to_status, with_code};
use crate::Backend;
use crate::live::StreamPermit;

/// Refusals that end a stream, as what they refuse is no matter of the session.
const ENDING: [MacpCode; 7] = [
    MacpCode::Unauthenticated,
    MacpCode::PayloadTooLarge,
    MacpCode::RateLimited,
    MacpCode::InternalError,
    MacpCode::InvalidSessionId,
    MacpCode::InvalidPolicyDefinition,
    MacpCode::SessionAlreadyExists,
];

impl<B: Backend> ServiceShared<B> {
    /// The answers to what comes on a stream.
    pub(super) fn streamed(
        self: &Arc<Self>,
        requests: Streaming<StreamSessionRequest>,
        caller: MacpCaller,
        permit: StreamPermit,
    ) -> BoxStream<StreamSessionResponse> {
        let new = SessionStream::new(Arc::clone(self), caller, permit);
        let stream = SessionStream { requests: Some(requests), ..new };
        let told = stream::unfold(stream, async |mut stream| {
            let told = stream.next().await?;
            stream.is_over |= told.is_err();
            Some((told, stream))
        });
        told.boxed()
    }
}

/// A stream of a caller.
pub(super) struct SessionStream<B: Backend> {
    service: Arc<ServiceShared<B>>,
    /// What the caller still sends.
    requests: Option<Streaming<StreamSessionRequest>>,
    caller: MacpCaller,
    /// The session to which the stream belongs.
    session_id: Option<String>,
    /// What the session tells.
    followed: Option<FollowedSession<B>>,
    is_over: bool,
    _permit: StreamPermit,
}

impl<B: Backend> SessionStream<B> {
    /// A stream on which nothing comes.
    pub(super) fn new(
        service: Arc<ServiceShared<B>>,
        caller: MacpCaller,
        permit: StreamPermit,
    ) -> Self {
        Self {
            service,
            requests: None,
            caller,
            session_id: None,
            followed: None,
            is_over: false,
            _permit: permit,
        }
    }

    /// What to tell next; none at the end.
    pub(super) async fn next(&mut self) -> Option<Result<StreamSessionResponse, Status>> {
        while !self.is_over {
            let told = tokio::select! {
                told = next_of(&mut self.followed) => {
                    return Some(told?.map(|it| answer(Told::Envelope(it))));
                }
                request = next_request(&mut self.requests) => match request {
                    None => match self.end_soon().await {
                        Ok(true) => continue,
                        Ok(false) => return None,
                        Err(status) => Err(status),
                    },
                    Some(Ok(request)) => self.take(request).await,
                    Some(Err(status)) => Err(status),
                },
            };
            match told {
                Ok(None) => {}
                Ok(Some(told)) => return Some(Ok(answer(told))),
                Err(status) => return Some(Err(status)),
            }
        }
        None
    }

    /// The caller sends nothing more: it is told what is there now, and then the stream ends. Whether there may be
    /// something.
    async fn end_soon(&mut self) -> Result<bool, Status> {
        self.requests = None;
        let (Some(followed), Some(id)) = (&mut self.followed, &self.session_id) else {
            return Ok(false);
        };
        let _share = self.service.share(&self.caller)?;
        let session = followed.sessions.shown(id).await?;
        followed.last = Some(session.map_or(0, |session| session.ordinal()));
        Ok(true)
    }

    /// Takes what the caller sends.
    ///
    /// # Errors
    /// The stream ends.
    pub(super) async fn take(
        &mut self,
        request: StreamSessionRequest,
    ) -> Result<Option<Told>, Status> {
        let id = request.subscribe_session_id;
        match (request.envelope, id.is_empty()) {
            (Some(envelope), true) => self.send(envelope).await,
            (None, false) => self.subscribe(id, request.after_sequence).await,
            _ => {
                let message = "a request has either an envelope or a subscribe_session_id";
                Err(to_status(&MacpRefusal::new(MacpCode::InvalidRequest, message)))
            }
        }
    }

    async fn subscribe(&mut self, id: String, after: u64) -> Result<Option<Told>, Status> {
        self.bind(&id)?;
        self.followed = None; // It leaves its place to the new one.
        let shares = self.shares()?;
        let sessions = self.service.sessions().await?;
        match sessions.readable(&id, &self.caller).await {
            Ok(session) => {
                let mark = sessions.mark_before(&id, after).await?;
                let followed = FollowedSession::from(sessions, &id, mark, shares);
                let until = session.ordinal();
                self.followed = Some(FollowedSession { after, until, ..followed });
                Ok(None)
            }
            Err(MacpFault::Refused(refusal)) if refusal.code == MacpCode::Forbidden => {
                Ok(Some(Told::Error(refusal.error(&id, ""))))
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// Sends a message of the caller. It comes back when it is accepted, as to all who follow the session.
    async fn send(&mut self, mut envelope: Envelope) -> Result<Option<Told>, Status> {
        let id = envelope.session_id.clone();
        if !id.is_empty() {
            self.bind(&id)?;
        }
        let mut follows = None;
        if self.followed.is_none() && !id.is_empty() {
            let shares = self.shares()?; // Who may not follow sends nothing here.
            follows = Some((self.service.newest_mark(&id).await, shares)); // The message comes behind this place.
        }
        let taken = self.service.take(&mut envelope, Ok(self.caller.clone())).await;
        let refusal = match taken {
            Ok(_) if id.is_empty() => return Ok(None),
            Ok(ack) => {
                if let Some((mark, shares)) = follows {
                    let from = (!ack.duplicate).then_some(envelope.message_id);
                    self.follow(&id, from, mark, shares).await?;
                }
                return Ok(None);
            }
            Err(MacpFault::Refused(refusal)) => refusal,
            Err(trouble) => return Err(trouble.into()),
        };
        if ENDING.contains(&refusal.code) {
            return Err(to_status(&refusal));
        }
        if refusal.code == MacpCode::SessionNotOpen {
            return Err(with_code(GrpcCode::InvalidArgument, &refusal));
        }
        Ok(Some(Told::Error(refusal.error(&id, &envelope.message_id))))
    }

    /// Follows the session from the message on that was just accepted behind this place, or from now on.
    async fn follow(
        &mut self,
        id: &str,
        message: Option<String>,
        behind: SessionMark,
        shares: (Share, Share),
    ) -> Result<(), Status> {
        let sessions = self.service.sessions().await?;
        let followed = match message {
            Some(message) => {
                let followed = FollowedSession::from(sessions, id, behind, shares);
                FollowedSession { from: Some(message), ..followed }
            }
            None => {
                let session = sessions.shown(id).await?;
                let after = session.ok_or_else(|| to_status(&not_found(id)))?.ordinal();
                let mark = sessions.mark_before(id, after).await?;
                let followed = FollowedSession::from(sessions, id, mark, shares);
                FollowedSession { after, until: after, ..followed }
            }
        };
        self.followed = Some(followed);
        Ok(())
    }

    /// The shares of a stream that is to follow its session.
    fn shares(&self) -> Result<(Share, Share), Status> {
        let shares = &self.service.gateway.macp.shares;
        let follows = shares.follow(&self.caller.name).map_err(|refusal| to_status(&refusal))?;
        Ok((follows, self.service.share(&self.caller)?))
    }

    /// A stream belongs to one session.
    fn bind(&mut self, id: &str) -> Result<(), Status> {
        match &self.session_id {
            Some(bound) if bound != id => {
                let message = "the stream belongs to another session: open one for this";
                Err(to_status(&MacpRefusal::new(MacpCode::InvalidRequest, message)))
            }
            Some(_) => Ok(()),
            None => {
                self.session_id = Some(id.to_owned());
                Ok(())
            }
        }
    }
}

fn answer(told: Told) -> StreamSessionResponse {
    StreamSessionResponse { response: Some(told) }
}

async fn next_of<B: Backend>(
    followed: &mut Option<FollowedSession<B>>,
) -> Option<Result<Envelope, Status>> {
    match followed {
        Some(followed) => followed.next().await,
        None => std::future::pending().await,
    }
}

async fn next_request(
    requests: &mut Option<Streaming<StreamSessionRequest>>,
) -> Option<Result<StreamSessionRequest, Status>> {
    match requests {
        Some(requests) => requests.message().await.transpose(),
        None => std::future::pending().await,
    }
}

/// The messages of a session from a place on. The log of the Task has them, so nothing is missed and nothing waits in
/// memory for a slow reader.
struct FollowedSession<B: Backend> {
    sessions: ServedSessions<B>,
    task: tenure_core::id::TaskId,
    commits: Items<'static, Result<Commit, Rejection>>,
    /// Messages that were read and not told.
    read: std::collections::VecDeque<Envelope>,
    /// How many messages were read.
    ordinal: u64,
    /// Those up to this place are not told.
    after: u64,
    /// The first message to tell.
    from: Option<String>,
    /// A commit that is not read yet.
    taken: Option<Commit>,
    /// The place after which nothing is told, if there is one.
    last: Option<u64>,
    /// How many messages there were when this began.
    until: u64,
    /// A call that is under way, until these are read.
    reading: Option<Share>,
    _follows: Share,
}

impl<B: Backend> FollowedSession<B> {
    /// All messages behind a place.
    fn from(
        sessions: ServedSessions<B>,
        id: &str,
        mark: SessionMark,
        (follows, reading): (Share, Share),
    ) -> Self {
        let task = super::cached::task_of(&sessions.settings.session, id);
        let commits = sessions.client.watch_live(&task, mark.place).boxed();
        Self {
            sessions,
            task,
            commits,
            read: std::collections::VecDeque::new(),
            ordinal: mark.ordinal,
            after: 0,
            from: None,
            taken: None,
            last: None,
            until: 0,
            reading: Some(reading),
            _follows: follows,
        }
    }

    /// The next message; none behind the last one that is to be told. After the last one of a session this waits for
    /// ever. Nothing is lost if the returned future is dropped: a commit that was taken is read as a whole.
    async fn next(&mut self) -> Option<Result<Envelope, Status>> {
        loop {
            if let Some(envelope) = self.read.pop_front() {
                return Some(Ok(envelope));
            }
            if self.ordinal >= self.until {
                self.reading = None;
            }
            if self.last.is_some_and(|last| self.ordinal >= last) {
                return None;
            }
            if let Err(fault) = self.read_more().await {
                return Some(Err(fault.into()));
            }
        }
    }

    async fn read_more(&mut self) -> MacpResult<()> {
        if self.taken.is_none() {
            let Some(commit) = self.commits.next().await else {
                return std::future::pending().await;
            };
            self.taken = Some(commit?);
        }
        self.take().await?;
        self.taken = None;
        Ok(())
    }

    async fn take(&mut self) -> MacpResult<()> {
        let Some(commit) = &self.taken else { return Ok(()) };
        for record in facts::of_commit(&self.sessions.client, &self.task, commit).await? {
            let Some(envelope) = record.envelope()? else { continue };
            self.ordinal += 1;
            if self.from.as_ref().is_some_and(|from| *from == envelope.message_id) {
                self.from = None;
            }
            if self.ordinal > self.after && self.from.is_none() {
                self.read.push_back(envelope);
            }
        }
        Ok(())
    }
}
