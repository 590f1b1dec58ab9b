//! Whether a browser may have been made to send a request.
//!
//! A page of another site can have its visitor's browser send requests here, and with a name that it
//! makes resolve to this machine it can even read the answers. Browsers say in `Origin` and
//! `Sec-Fetch-Site` which page sends a request, and in `Host` which name they were given. The gateway
//! answers no question of CORS, so a page of another site reads nothing; here it is kept from writing,
//! and, where no token is asked for, from everything.

use std::net::IpAddr;

use axum::http::header::{HOST, HeaderMap, HeaderName, ORIGIN};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{Method, Version};

use super::denial::Denial;

/// Which site the page is of that sends a request, as the browser says.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What is known of a request before its caller is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surroundings<'a> {
    /// Names under which the operator says that the gateway is reached, in lower case, with a port
    /// where a browser shows one.
    pub(super) names: &'a [String],
    /// Whether nothing but its way here says who the caller is.
    pub(super) is_open: bool,
    /// Whether the request came through a socket that no browser opens.
    pub(super) is_local_socket: bool,
    /// Whether this end of the connection speaks TLS.
    pub(super) is_tls: bool,
}

/// Refuses what a page of another site may have sent.
pub(super) fn check(request: &Parts, around: Surroundings<'_>) -> Result<(), Denial> {
    let host = host(request)?;
    if around.is_open && !around.is_local_socket && !is_own_host(host.as_ref(), around.names) {
        return Err(Denial::ForeignHost);
    }
    let only_reads = matches!(request.method, Method::GET | Method::HEAD);
    if only_reads && !around.is_open {
        return Ok(());
    }
    let is_foreign = is_foreign_site(&request.headers)
        || request.headers.get_all(ORIGIN).iter().any(|origin| {
            let origin = origin.to_str().ok();
            !origin.is_some_and(|origin| is_own_origin(origin, host.as_ref(), around))
        });
    if is_foreign { Err(Denial::ForeignOrigin) } else { Ok(()) }
}

/// The name and port to which the request is sent; `None` in a request of HTTP/1.0 without one.
fn host(request: &Parts) -> Result<Option<Authority>, Denial> {
    let mut said = request.headers.get_all(HOST).iter();
    let in_header = said.next();
    // HTTP/2 says it in the request line.
    if said.next().is_some() || (in_header.is_none() && request.version == Version::HTTP_11) {
        return Err(Denial::Host);
    }
    let in_header = match in_header {
        Some(text) => Some(authority(text.to_str().map_err(|_| Denial::Host)?)?),
        None => None,
    };
    match (request.uri.authority(), in_header) {
        (Some(line), Some(header)) if !same(line.as_str(), header.as_str()) => Err(Denial::Host),
        (Some(line), _) => authority(line.as_str()).map(Some),
        (None, header) => Ok(header),
    }
}

/// A name with or without a port, and without a login.
fn authority(text: &str) -> Result<Authority, Denial> {
    if text.contains('@') {
        return Err(Denial::Host);
    }
    text.parse().map_err(|_| Denial::Host)
}

fn same(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
}

/// Whether a request for this host can be meant for a gateway that only this machine reaches.
fn is_own_host(host: Option<&Authority>, names: &[String]) -> bool {
    host.is_some_and(|host| is_loopback_name(host.host()) || is_named(host, names))
}

fn is_named(host: &Authority, names: &[String]) -> bool {
    names.iter().any(|name| same(name, host.as_str()) || same(name, host.host()))
}

/// Whether a name always means this machine. A name that somebody else may give an address is none.
fn is_loopback_name(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    same(host, "localhost") || address.is_ok_and(|it| it.to_canonical().is_loopback())
}

/// Whether the browser says that a page of another site sends the request. `none`: its user does.
fn is_foreign_site(headers: &HeaderMap) -> bool {
    let is_own = |said: &[u8]| matches!(said, b"same-origin" | b"none");
    headers.get_all(FETCH_SITE).iter().any(|said| !is_own(said.as_bytes()))
}

/// Whether a page of this origin came from here.
fn is_own_origin(origin: &str, host: Option<&Authority>, around: Surroundings<'_>) -> bool {
    let Some((scheme, place)) = origin.split_once("://") else { return false };
    let default_port = match scheme {
        "https" => ":443",
        // A page that anybody on the way may have changed.
        "http" if !around.is_tls => ":80",
        _ => return false,
    };
    let bare = |text: &str| text.strip_suffix(default_port).unwrap_or(text).to_ascii_lowercase();
    let place = bare(place);
    host.is_some_and(|host| bare(host.as_str()) == place)
        || around.names.iter().any(|name| bare(name) == place)
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    const OPEN: Surroundings<'_> =
        Surroundings { names: &[], is_open: true, is_local_socket: false, is_tls: false };
    const CLOSED: Surroundings<'_> = Surroundings { is_open: false, ..OPEN };

    fn parts(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri("/v1/x");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn said(
        method: &str,
        headers: &[(&str, &str)],
        around: Surroundings<'_>,
    ) -> Result<(), Denial> {
        let mut all = vec![("host", "127.0.0.1:8080")];
        all.extend_from_slice(headers);
        check(&parts(method, &all), around)
    }

    #[test]
    fn a_page_of_another_site_cannot_write() {
        for foreign in [
            ("origin", "https://evil.example"),
            ("origin", "http://127.0.0.1:9090"),
            ("origin", "http://127.0.0.1"),
            ("origin", "null"),
            ("origin", "127.0.0.1:8080"),
            ("origin", "ftp://127.0.0.1:8080"),
            ("origin", ""),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", "anything"),
        ] {
            for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
                assert_eq!(said(method, &[foreign], CLOSED), Err(Denial::ForeignOrigin));
            }
            for method in ["GET", "HEAD", "POST"] {
                assert_eq!(
                    said(method, &[foreign], OPEN),
                    Err(Denial::ForeignOrigin),
                    "{foreign:?}"
                );
            }
            assert_eq!(said("GET", &[foreign], CLOSED), Ok(()), "its token is what matters");
        }
        let one_of_two = [("origin", "http://127.0.0.1:8080"), ("origin", "https://evil.example")];
        assert_eq!(said("POST", &one_of_two, OPEN), Err(Denial::ForeignOrigin));
    }

    /// A request of HTTP/2 names its host in its line, and needs no header for it.
    #[test]
    fn http2_says_the_host_in_the_line() {
        let asked = |uri: &str| {
            let request = Request::post(uri).version(Version::HTTP_2).body(()).unwrap();
            check(&request.into_parts().0, OPEN)
        };
        assert_eq!(asked("http://127.0.0.1:50051/x"), Ok(()));
        assert_eq!(asked("http://evil.example/x"), Err(Denial::ForeignHost));
        assert_eq!(asked("/x"), Err(Denial::ForeignHost));
    }

    #[test]
    fn its_own_pages_and_programs_may_write() {
        for own in [
            &[][..],
            &[("origin", "http://127.0.0.1:8080")],
            &[("origin", "http://127.0.0.1:8080"), ("sec-fetch-site", "same-origin")],
            &[("sec-fetch-site", "none")],
        ] {
            assert_eq!(said("POST", own, OPEN), Ok(()), "{own:?}");
            assert_eq!(said("POST", own, CLOSED), Ok(()), "{own:?}");
        }
    }

    #[test]
    fn a_page_without_tls_cannot_speak_for_one_with_it() {
        let tls = Surroundings { is_tls: true, ..CLOSED };
        let from = |scheme: &str| {
            let origin = format!("{scheme}://127.0.0.1:8080");
            said("POST", &[("origin", &origin)], tls)
        };
        assert_eq!(from("https"), Ok(()));
        assert_eq!(from("http"), Err(Denial::ForeignOrigin));
    }

    #[test]
    fn a_proxy_may_be_named() {
        let names = ["tenure.example.org".to_owned()];
        let around = Surroundings { names: &names, ..CLOSED };
        assert_eq!(said("POST", &[("origin", "https://tenure.example.org")], around), Ok(()));
        assert_eq!(said("POST", &[("origin", "https://tenure.example.org:443")], around), Ok(()));
        let other = [("origin", "https://tenure.example.org.evil.example")];
        assert_eq!(said("POST", &other, around), Err(Denial::ForeignOrigin));
    }

    #[test]
    fn a_name_that_others_may_give_an_address_does_not_reach_an_open_gateway() {
        let host = |host: &str, around| check(&parts("GET", &[("host", host)]), around);
        for own in ["localhost", "LOCALHOST:80", "127.0.0.1", "127.9.9.9:1", "[::1]:8080"] {
            assert_eq!(host(own, OPEN), Ok(()), "{own}");
        }
        for foreign in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8080",
            "192.168.0.1",
            "0.0.0.0:8080",
            "xlocalhost",
        ] {
            assert_eq!(host(foreign, OPEN), Err(Denial::ForeignHost), "{foreign}");
            assert_eq!(host(foreign, CLOSED), Ok(()), "a token is needed anyway");
        }
        let names = ["evil.example".to_owned()];
        assert_eq!(host("evil.example:80", Surroundings { names: &names, ..OPEN }), Ok(()));
        let socket = Surroundings { is_local_socket: true, ..OPEN };
        assert_eq!(host("any", socket), Ok(()));
    }

    #[test]
    fn a_request_says_once_where_it_goes() {
        for bad in [
            &[][..],
            &[("host", "localhost"), ("host", "localhost")],
            &[("host", "a@localhost")],
            &[("host", "")],
            &[("host", "local host")],
        ] {
            assert_eq!(check(&parts("GET", bad), CLOSED), Err(Denial::Host), "{bad:?}");
        }
        let whole = |uri: &str| {
            let request = Request::builder().uri(uri).header("host", "localhost");
            check(&request.body(()).unwrap().into_parts().0, OPEN)
        };
        assert_eq!(whole("http://localhost/x"), Ok(()));
        assert_eq!(whole("http://127.0.0.1/x"), Err(Denial::Host), "the two differ");
    }
}
