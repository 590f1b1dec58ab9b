//! Who is let in, and as whom.

use std::os::unix::fs::PermissionsExt as _;

use tenure_gateway::server::{HttpServer, ServerError, ServerSettings};
use tokio::net::UnixStream;

use crate::raw::Raw;
use crate::site::{Site, request, settings, tokens_in, two_tokens};

#[tokio::test]
async fn without_authentication_everybody_is_the_local_user() {
    let site = Site::open().await;
    let answer = site.ask("GET /who", &[]).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "local orchestrator"));
    let with = site.ask_as("whatever", "GET /who").await;
    assert_eq!(with.body, "local orchestrator");
}

#[tokio::test]
async fn without_authentication_only_this_machine_is_listened_to() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let tcp = vec!["127.0.0.1:0".parse().unwrap(), address.parse().unwrap()];
        let refused = HttpServer::bind(ServerSettings { tcp, ..settings() }).await.unwrap_err();
        assert!(matches!(refused, ServerError::Open(_)), "{refused}");
        assert!(refused.to_string().contains("tokens"), "it says what to do: {refused}");
    }
    let dir = tempfile::tempdir().unwrap();
    let tcp = vec!["0.0.0.0:0".parse().unwrap()];
    let identities = Some(two_tokens(dir.path()));
    assert!(HttpServer::bind(ServerSettings { tcp, identities, ..settings() }).await.is_ok());
}

#[tokio::test]
async fn a_token_says_who_its_caller_is() {
    let site = Site::closed().await;
    for (token, who) in [("ann-token", "ann orchestrator"), ("bob-token", "bob observer")] {
        let answer = site.ask_as(token, "POST /who").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, who));
    }
    assert_eq!(site.ask("GET /livez", &[]).await.status, 200, "probes bring no token");
}

/// AUTH-SERVER-002: who is unknown learns how to log in, and nothing else. Cards of agents are for everybody.
#[tokio::test]
async fn who_is_unknown_learns_how_to_log_in_and_nothing_else() {
    let site = Site::closed().await;
    let none = site.ask("GET /who", &[]).await;
    assert_eq!((none.status, none.header("www-authenticate")), (401, "Bearer"));
    assert_eq!(
        (none.header("content-type"), none.code()),
        ("application/problem+json", "unauthenticated".into())
    );
    for line in ["GET /none", "DELETE /who", "POST /a2a/echo", "GET /a2a/echo/extendedAgentCard"] {
        assert_eq!(site.ask(line, &[]).await.status, 401, "it does not say what there is");
    }
    let card = site.ask("GET /a2a/echo/.well-known/agent-card.json", &[]).await;
    assert_eq!(card.status, 404, "here are no agents");
    let wrong = site.ask_as("ann-tokem", "GET /who").await;
    let said = wrong.header("www-authenticate");
    assert!(wrong.status == 401 && said.starts_with("Bearer error=\"invalid_token\""), "{said}");
    let double = [("authorization", "Bearer ann-token"), ("authorization", "Bearer bob-token")];
    assert_eq!(site.ask("GET /who", &double).await.status, 401);
    let basic = [("authorization", "Basic YW5uOnRva2Vu")];
    assert_eq!(site.ask("GET /who", &basic).await.status, 401);
}

#[tokio::test]
async fn what_a_proxy_may_have_written_says_nothing() {
    let site = Site::closed().await;
    for name in ["x-forwarded-user", "x-remote-user", "x-client-cert", "x-tenure-principal"] {
        assert_eq!(site.ask("GET /who", &[(name, "ann")]).await.status, 401, "{name}");
    }
    // Nor does it make one address many.
    let mut statuses = Vec::new();
    for guess in 0..12 {
        let from = format!("203.0.113.{guess}");
        let token = format!("Bearer guess-{guess}");
        let headers = [
            ("authorization", token.as_str()),
            ("x-forwarded-for", &from),
            ("forwarded", "for=203.0.113.9"),
            ("x-real-ip", &from),
        ];
        statuses.push(site.ask("GET /who", &headers).await.status);
    }
    assert_eq!(statuses, [[401; 10].as_slice(), &[429; 2]].concat());
}

#[tokio::test]
async fn who_guesses_waits_even_with_the_right_token() {
    let site = Site::closed().await;
    for guess in 0..10 {
        assert_eq!(site.ask_as(&format!("guess-{guess}"), "GET /who").await.status, 401);
    }
    let right = site.ask_as("ann-token", "GET /who").await;
    assert_eq!(right.status, 429);
    let seconds: u64 = right.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&seconds), "{seconds}");
    assert_eq!(site.ask("GET /livez", &[]).await.status, 200);
}

/// Mechanisms 15: whoever guesses costs those behind its address nothing that were let in before. They are still
/// checked, also after the file was read again.
#[tokio::test]
async fn who_guesses_does_not_lock_out_those_who_were_let_in_before() {
    let site = Site::closed().await;
    assert_eq!(site.ask_as("ann-token", "GET /who").await.status, 200);
    let guess = async |round: u32| {
        let mut statuses = Vec::new();
        for guess in 0..12 {
            statuses.push(site.ask_as(&format!("guess-{round}-{guess}"), "GET /who").await.status);
        }
        assert_eq!(statuses, [[401; 10].as_slice(), &[429; 2]].concat());
    };
    guess(0).await;
    assert_eq!(site.ask_as("ann-token", "GET /who").await.status, 200);
    assert_eq!(site.ask_as("bob-token", "GET /who").await.status, 429, "nobody knows it yet");
    tokens_in(
        site.dir.path(),
        &[("ann-token", "ann", "observer"), ("kim-token", "kim", "observer")],
    );
    site.files.reload().unwrap();
    guess(1).await;
    assert_eq!(site.ask_as("ann-token", "GET /who").await.body, "ann observer");
    tokens_in(site.dir.path(), &[("kim-token", "kim", "observer")]);
    site.files.reload().unwrap();
    assert_eq!(site.ask_as("ann-token", "GET /who").await.status, 401, "it is not good any more");
}

#[tokio::test]
async fn who_repeats_a_wrong_token_does_not_lock_out_the_others_of_its_address() {
    let site = Site::closed().await;
    let mut last = 0;
    for _ in 0..12 {
        last = site.ask_as("revoked", "GET /who").await.status;
    }
    assert_eq!(last, 429);
    assert_eq!(site.ask_as("ann-token", "GET /who").await.status, 200);
}

#[tokio::test]
async fn a_token_that_is_taken_away_ends_its_streams() {
    let site = Site::closed().await;
    let mut readers = Vec::new();
    for token in ["ann-token", "bob-token"] {
        let mut reader = site.connect().await;
        let token = format!("Bearer {token}");
        reader.send(request("GET /events", &[("authorization", &token)])).await;
        reader.until("data: first").await;
        readers.push(reader);
    }
    tokens_in(site.dir.path(), &[("bob-token", "bob", "observer")]);
    site.files.reload().unwrap();
    readers[0].until("\r\n0\r\n\r\n").await; // The stream ends as streams do.
    assert_eq!(site.ask_as("ann-token", "GET /who").await.status, 401);
    assert_eq!(site.ask_as("bob-token", "GET /who").await.status, 200);
    site.stop();
    readers[1].rest().await; // It went on until now.
    site.stopped().await;
}

#[tokio::test]
async fn a_unix_socket_is_for_the_local_user() {
    let site = Site::with(|settings, dir| {
        settings.tcp.clear();
        settings.unix = vec![dir.join("http.sock")];
        settings.identities = Some(two_tokens(dir));
    })
    .await;
    let path = site.dir.path().join("http.sock");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut connection = Raw::new(UnixStream::connect(&path).await.unwrap());
    connection.send(request("GET /who", &[("host", "any")])).await;
    assert_eq!(connection.answer().await.unwrap().body, "local orchestrator");
    connection.send(request("GET /who", &[("authorization", "Bearer bob-token")])).await;
    assert_eq!(
        connection.answer().await.unwrap().body,
        "bob observer",
        "who says more is believed"
    );
    connection.send(request("GET /who", &[("authorization", "Bearer wrong")])).await;
    assert_eq!(connection.answer().await.unwrap().status, 401);
    site.stop();
    site.stopped().await;
    assert!(!path.exists());
}
