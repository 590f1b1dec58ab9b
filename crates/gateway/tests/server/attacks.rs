//! What browsers are made to send, and what no client sends.

use crate::site::{Site, request};

/// A page of another site sends what its visitor's browser lets it send.
#[tokio::test]
async fn a_page_of_another_site_changes_nothing() {
    let (open, closed) = (Site::open().await, Site::closed().await);
    for foreign in [
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        for line in ["POST /who", "PUT /who", "DELETE /who", "OPTIONS /who"] {
            let answer = open.ask(line, &[foreign]).await;
            assert_eq!((answer.status, answer.code()), (403, "permission_denied".into()), "{line}");
            assert_eq!(answer.find("access-control-allow-origin"), None);
            let token = ("authorization", "Bearer ann-token");
            assert_eq!(closed.ask(line, &[foreign, token]).await.status, 403, "{line}");
        }
        assert_eq!(open.ask("GET /who", &[foreign]).await.status, 403);
    }
    let own = format!("http://{}", open.address);
    let host = open.address.to_string();
    let answer = open.ask("POST /who", &[("origin", &own), ("host", &host)]).await;
    assert_eq!(answer.status, 200, "its own page may");
}

/// A name of an attacker may resolve to 127.0.0.1.
#[tokio::test]
async fn a_rebound_name_reaches_nothing() {
    let open = Site::open().await;
    for host in ["evil.example", "evil.example:8080", "localhost.evil.example", "192.0.2.1"] {
        let own = format!("http://{host}");
        for headers in [
            &[("host", host)][..],
            &[("host", host), ("origin", &own)],
            &[("host", host), ("x-forwarded-host", "localhost")],
            &[("host", host), ("forwarded", "host=localhost;for=127.0.0.1")],
        ] {
            assert_eq!(open.ask("GET /who", headers).await.status, 403, "{host}");
        }
    }
    let closed = Site::closed().await;
    let headers = [("host", "tenure.example.org"), ("authorization", "Bearer ann-token")];
    assert_eq!(closed.ask("GET /who", &headers).await.status, 200);
}

#[tokio::test]
async fn a_name_that_the_operator_gave_is_answered() {
    let site = Site::with(|settings, _| settings.names = vec!["Box.Example.org".into()]).await;
    let headers = [("host", "box.example.org"), ("origin", "https://box.example.org")];
    assert_eq!(site.ask("POST /who", &headers).await.status, 200);
}

/// A server and a proxy before it must not disagree on where a request ends.
#[tokio::test]
async fn nothing_hides_behind_a_request() {
    let site = Site::open().await;
    site.gate.add_permits(1);
    let hidden = request("POST /held", &[]); // It would take the permit.
    for (headers, status) in [
        ("content-length: 5\r\ncontent-length: 6\r\n", 400),
        ("content-length: +5\r\n", 400),
        ("content-length: 5, 6\r\n", 400),
        ("transfer-encoding: chunked, gzip\r\n", 400),
        ("transfer-encoding: xchunked\r\n", 400),
        ("content-length : 5\r\n", 400),
        ("x: y\r\n folded: z\r\n", 400),
        (" x: y\r\n", 400),
        ("x\0: y\r\n", 400),
        ("x: y\0\r\n", 400),
        ("x y: z\r\n", 400),
        (": y\r\n", 400),
        ("x: y\rcontent-length: 5\r\n", 400),
        // A bare line feed ends a line, so that nothing hides behind it either.
        ("content-length: 5\ncontent-length: 6\r\n", 400),
    ] {
        let mut connection = site.connect().await;
        let text = format!("POST /count HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n{hidden}");
        connection.send(text).await;
        let answer = connection.answer().await.unwrap();
        assert_eq!(answer.status, status, "{headers:?}");
        assert_eq!(connection.rest().await, "", "nothing more is answered: {headers:?}");
    }
    assert_eq!(site.gate.available_permits(), 1, "nor is it carried out");
}

/// What says its length twice is read as chunks, as the standard has it, and nothing is read after it.
#[tokio::test]
async fn chunks_count_before_a_length_and_end_the_connection() {
    let site = Site::open().await;
    site.gate.add_permits(1);
    let hidden = request("POST /held", &[]); // It would take the permit.
    for lengths in [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n",
        "content-length: 4\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\n",
    ] {
        let mut connection = site.connect().await;
        let head = format!("POST /count HTTP/1.1\r\nhost: localhost\r\n{lengths}\r\n");
        connection.send(format!("{head}3\r\nabc\r\n0\r\n\r\n{hidden}")).await;
        let answer = connection.answer().await.unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, "3"), "{lengths:?}");
        assert_eq!(answer.header("connection"), "close");
        assert_eq!(connection.rest().await, "", "{lengths:?}");
    }
    assert_eq!(site.gate.available_permits(), 1);
}

#[tokio::test]
async fn a_request_names_its_host_once() {
    let site = Site::open().await;
    for head in [
        "GET /who HTTP/1.1\r\n\r\n",
        "GET /who HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n",
        "GET http://localhost/who HTTP/1.1\r\nhost: evil.example\r\n\r\n",
        "GET /who HTTP/1.1\r\nhost: evil.example@localhost\r\n\r\n",
    ] {
        let mut connection = site.connect().await;
        connection.send(head).await;
        assert_eq!(connection.answer().await.unwrap().status, 400, "{head:?}");
    }
}

#[tokio::test]
async fn every_answer_tells_browsers_to_guess_nothing() {
    let site = Site::open().await;
    for (line, status) in [("GET /who", 200), ("GET /none", 404), ("PATCH /count", 405)] {
        let answer = site.ask(line, &[]).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin");
    }
}
