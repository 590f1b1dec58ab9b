//! What stands before every route: it lets in who may come in, says who that is, and bounds what each
//! request and its answer take.
//!
//! In this order a request is refused: a page of another site has sent it ([`origin`]), its body is too
//! long ([`body`]), its caller is unknown ([`credentials`], [`refusals`]). Then its [`Identity`] goes
//! among its extensions, and its route has a time to answer. An answer that goes on ends with the
//! gateway, and with the credentials of its caller ([`lasting`]). A long one takes its bytes until it was
//! read ([`answers`]).
//!
//! The gateway believes no header about where a request comes from: `Forwarded` and `X-Forwarded-*`
//! are what anybody may write.

mod answers;
mod bind;
mod body;
mod credentials;
mod denial;
mod good_logins;
mod lasting;
mod origin;
mod refusals;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{
    AUTHORIZATION, CONNECTION, HeaderMap, HeaderName, TRANSFER_ENCODING, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, Method};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use tokio::sync::watch::Receiver;
use tokio_util::sync::CancellationToken;

pub(crate) use self::answers::{AnswerMemory, AnswerShare, SHORT as SHORT_ANSWER};
pub use self::bind::{BindRefused, check_bind};
use self::body::BodyMemory;
pub(crate) use self::body::BodyShare;
use self::credentials::Credentials;
pub(crate) use self::credentials::Peer;
use self::denial::Denial;
use self::good_logins::GoodLogins;
pub(crate) use self::lasting::FollowingAnswer;
use self::lasting::LoginWatch;
use self::origin::Surroundings;
use self::refusals::RefusedLogins;
use crate::identity::{Authenticator, Identity, LoggedIn, LoginRefused};
use crate::metrics::Counters;
use crate::{a2a, health};

/// Paths for which nobody has to say who it is: probes bring no token, and what the pages say stands in
/// this repository too.
const FOR_EVERYBODY: [&str; 4] = [health::LIVE_PATH, health::READY_PATH, "/openapi.json", "/docs"];

/// Whether nobody has to say who it is. The card of an agent says how one does that.
fn is_for_everybody(path: &str) -> bool {
    FOR_EVERYBODY.contains(&path) || a2a::is_card(path)
}

/// Whether the route itself refuses who is not known.
fn asks_itself(path: &str) -> bool {
    #[cfg(feature = "grpc")]
    return crate::macp::asks_itself(path);
    #[cfg(not(feature = "grpc"))]
    return path.is_empty();
}

/// Whether the body goes on for as long as its sender likes, and each of its messages is bounded.
fn has_endless_body(path: &str) -> bool {
    #[cfg(feature = "grpc")]
    return crate::macp::has_endless_body(path);
    #[cfg(not(feature = "grpc"))]
    return path.is_empty();
}

/// How long a read may still take when the gateway stops. A long poll would take much longer.
const READS_WHEN_STOPPING: Duration = Duration::from_millis(500);

/// Who may embed or read an answer without asking: no page of another site.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// What the guard of a gateway goes by.
#[derive(Debug)]
pub(crate) struct GuardSettings {
    /// Who says who a caller is; `None`: nobody, and every caller is the local user.
    pub(crate) authenticator: Option<Arc<Authenticator>>,
    /// Further names under which the gateway is reached.
    pub(crate) names: Vec<String>,
    /// The longest body of a request.
    pub(crate) body_bytes_max: usize,
    /// What all bodies may take together.
    pub(crate) bodies_bytes_max: usize,
    /// What all long answers may take together.
    pub(crate) answers_bytes_max: usize,
    /// How long a long answer may take until its last byte was taken.
    pub(crate) answer_timeout: Duration,
    /// How long a route has until it begins to answer.
    pub(crate) request_timeout: Duration,
}

/// The guard of a gateway.
#[derive(Debug)]
pub(crate) struct RequestGuard {
    settings: GuardSettings,
    memory: BodyMemory,
    answers: AnswerMemory,
    refused: RefusedLogins,
    /// Credentials that need not wait behind the guesses of others.
    good: GoodLogins,
    reloads: Option<Receiver<u64>>,
    /// How many reloads the refused logins know of.
    reloads_seen: AtomicU64,
    counters: Counters,
    stop: CancellationToken,
}

/// A request that was let in.
struct Admitted {
    request: Request,
    share: BodyShare,
    /// Where its answer takes its bytes; none: the answer is the same for everybody, and there once.
    answers: Option<AnswerShare>,
    login: Option<LoginWatch>,
}

impl RequestGuard {
    /// `stop` is cancelled when the gateway is to stop.
    pub(crate) fn new(
        mut settings: GuardSettings,
        counters: Counters,
        stop: CancellationToken,
    ) -> Arc<Self> {
        settings.names.iter_mut().for_each(|name| name.make_ascii_lowercase());
        let memory = BodyMemory::new(settings.bodies_bytes_max, settings.body_bytes_max);
        let answers = AnswerMemory::new(settings.answers_bytes_max, settings.answer_timeout);
        let reloads = settings.authenticator.as_ref().map(|by| by.reloads());
        let (refused, good) = Default::default();
        let reloads_seen = AtomicU64::new(0);
        Arc::new(Self {
            settings,
            memory,
            answers,
            refused,
            good,
            reloads,
            reloads_seen,
            counters,
            stop,
        })
    }

    /// Puts the guard before all routes.
    pub(crate) fn before(self: Arc<Self>, routes: Router) -> Router {
        routes.layer(from_fn_with_state(self, guard))
    }

    fn admit(&self, request: Request) -> Result<Admitted, Denial> {
        let (mut parts, body) = request.into_parts();
        let peer = parts.extensions.get::<Arc<Peer>>().cloned();
        // Only a server puts it there. Without one nobody knows who asks.
        let peer = peer.ok_or(Denial::NoLogin)?;
        origin::check(&parts, self.surroundings(&peer))?;
        self.memory.check(&parts.headers)?;
        let (mut login, mut caller) = (None, None);
        if !is_for_everybody(parts.uri.path()) {
            match self.identify(&parts.headers, &peer) {
                Ok((identity, watch)) => {
                    caller = Some(identity.principal.clone());
                    parts.extensions.insert(identity);
                    login = watch;
                }
                Err(_) if asks_itself(parts.uri.path()) => {}
                Err(denial) => return Err(denial),
            }
        }
        parts.headers.remove(AUTHORIZATION); // Nothing behind this needs it, or could log it.
        // Without authentication everybody counts as one caller. All callers without a login count as one, too.
        let caller = caller.as_ref().map_or("", |principal| principal.as_str());
        let caller = self.settings.authenticator.is_some().then_some(caller);
        let (body, share) = match has_endless_body(parts.uri.path()) {
            true => (body, self.memory.share(caller)),
            false => self.memory.weigh(body, caller),
        };
        parts.extensions.insert(share.clone()); // For routes that make much of a body.
        let is_for_one = !is_for_everybody(parts.uri.path());
        let answers = is_for_one.then(|| self.answers.share(caller));
        if let Some(answers) = &answers {
            parts.extensions.insert(answers.clone()); // For routes whose answers come in parts.
        }
        Ok(Admitted { request: Request::from_parts(parts, body), share, answers, login })
    }

    fn surroundings(&self, peer: &Peer) -> Surroundings<'_> {
        Surroundings {
            names: &self.settings.names,
            is_open: self.settings.authenticator.is_none(),
            is_local_socket: peer.address.is_none(),
            is_tls: peer.is_tls,
        }
    }

    /// Who sends the request. On a Unix socket who brings nothing is the local user: nobody else can
    /// open it.
    fn identify(
        &self,
        headers: &HeaderMap,
        peer: &Peer,
    ) -> Result<(Identity, Option<LoginWatch>), Denial> {
        let Some(by) = &self.settings.authenticator else { return Ok((Identity::local(), None)) };
        let brought = Credentials::of(headers, peer).map_err(|why| self.refuse(why))?;
        let Some(credentials) = brought else {
            let is_local = peer.address.is_none();
            return if is_local { Ok((Identity::local(), None)) } else { Err(Denial::NoLogin) };
        };
        let login = self.log_in(by, &credentials, peer)?;
        let identity = login.identity.clone();
        let outdated = match &credentials {
            Credentials::Certificate(_) => peer.outdated.clone(),
            Credentials::Bearer(_) => CancellationToken::new(),
        };
        Ok((identity, Some(LoginWatch { by: Arc::clone(by), credentials, login, outdated })))
    }

    fn log_in(
        &self,
        by: &Authenticator,
        credentials: &Credentials,
        peer: &Peer,
    ) -> Result<LoggedIn, Denial> {
        self.forget_after_reload();
        let from = peer.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let now = Instant::now();
        let mark = credentials.mark();
        let unknown = mark.filter(|&mark| !self.good.has(from, mark));
        if let Some(wait) = unknown.and_then(|mark| self.refused.must_wait(from, mark, now)) {
            self.counters.login_refused();
            return Err(Denial::TooManyLogins(wait));
        }
        let login = credentials.login(by);
        match (&login, mark) {
            (Ok(login), Some(mark)) => {
                self.good.note(from, mark, login.identity.principal.as_str(), now);
            }
            // Whose credentials were good once does not guess.
            (Err(LoginRefused::Invalid), Some(mark)) => {
                self.good.remove(from, mark);
                self.refused.note(from, mark, now);
            }
            _ => {}
        }
        login.map_err(|why| self.refuse(why))
    }

    /// What was not valid before the file was read again may be valid now.
    fn forget_after_reload(&self) {
        let Some(reloads) = &self.reloads else { return };
        let count = *reloads.borrow();
        if self.reloads_seen.swap(count, Ordering::Relaxed) != count {
            self.refused.clear();
        }
    }

    fn refuse(&self, why: LoginRefused) -> Denial {
        self.counters.login_refused();
        Denial::Login(why)
    }

    /// The answer of the route, or why none is waited for.
    async fn answer(&self, admitted: Admitted, next: Next) -> Response {
        let Admitted { request, share, answers, login } = admitted;
        let method = request.method().clone();
        let answered = tokio::select! {
            answered = next.run(request) => answered,
            () = tokio::time::sleep(self.settings.request_timeout) => {
                Denial::too_late(&method).into_response()
            }
            () = self.reads_end(&method) => Denial::Stopping.into_response(),
        };
        if let Some(denied) = share.denied() {
            return denied.into_response(); // Whatever the route makes of a body that was cut off.
        }
        let weighed = match answers {
            Some(answers) => answers.weigh(answered).await,
            None => Ok(answered),
        };
        let answered = match weighed {
            Ok(answered) => answered,
            Err(refused) => return Denial::unanswered(&method, refused).into_response(),
        };
        let (parts, body) = answered.into_parts();
        let count = || self.counters.stream();
        let body = lasting::watch(&parts, body, &self.stop, login, count);
        Response::from_parts(parts, body)
    }

    /// Ends a moment after the gateway is told to stop, for requests that change nothing.
    async fn reads_end(&self, method: &Method) {
        if !matches!(*method, Method::GET | Method::HEAD) {
            std::future::pending::<()>().await;
        }
        self.stop.cancelled().await;
        tokio::time::sleep(READS_WHEN_STOPPING).await;
    }
}

/// The layer before every route.
async fn guard(State(guard): State<Arc<RequestGuard>>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let counted = guard.counters.request(route, request.method());
    let is_chunked = request.headers().contains_key(TRANSFER_ENCODING);
    let mut response = match guard.admit(request) {
        Ok(admitted) => guard.answer(admitted, next).await,
        Err(denial) => denial.into_response(),
    };
    harden(response.headers_mut(), is_chunked);
    counted.answered(response.status().as_u16());
    response
}

/// Adds what browsers and proxies are told with every answer.
fn harden(headers: &mut HeaderMap, is_chunked: bool) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    if is_chunked {
        // A request may have said its length too. The parser keeps quiet about that, and a proxy that
        // believed the length would take what follows for another request: nothing follows.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
}
