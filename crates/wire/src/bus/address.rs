//! Reads the login in an address of NATS, and gives addresses without their logins, to connect to
//! or to show.

use std::fmt;

use percent_encoding::percent_decode_str;

/// The login of a NATS user.
#[derive(Clone, PartialEq, Eq)]
pub struct UserLogin {
    /// The user, or a token if there is no password.
    pub user: String,
    /// The password.
    pub password: Option<String>,
}

impl fmt::Debug for UserLogin {
    /// Leaves out the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserLogin").finish_non_exhaustive()
    }
}

/// The login of the first address that has one, in a list separated by commas:
/// `nats://user:password@host:port`, or `nats://token@host:port`. Characters with a meaning in
/// addresses are escaped: `%40` for `@`, and so on.
pub fn login(addresses: &str) -> Option<UserLogin> {
    addresses.split(',').find_map(|address| {
        let address = address.trim();
        let behind = address.split_once("://").map_or(address, |(_, behind)| behind);
        let (login, _host) = behind.rsplit_once('@')?;
        let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
        Some(match login.split_once(':') {
            Some((user, password)) => {
                UserLogin { user: decoded(user), password: Some(decoded(password)) }
            }
            None => UserLogin { user: decoded(login), password: None },
        })
    })
}

/// The servers in a list of addresses separated by commas, to connect to. They have no logins, because
/// the client library logs the addresses that it gets; the caller passes the login to it in another way.
pub fn servers(addresses: &str) -> impl Iterator<Item = String> {
    addresses.split(',').map(str::trim).map(|address| {
        let (scheme, behind) = match address.split_once("://") {
            Some((scheme, behind)) => (format!("{scheme}://"), behind),
            None => (String::new(), address),
        };
        let server = behind.rsplit_once('@').map_or(behind, |(_, server)| server);
        scheme + server
    })
}

/// The schemes that an address of NATS may have.
const SCHEMES: [&str; 4] = ["nats", "tls", "ws", "wss"];

/// The text in place of what may be part of a login.
pub const HIDDEN: &str = "…";

/// The servers in a list of addresses separated by commas, to be shown: without users, passwords
/// and schemes.
///
/// A comma may also be part of a password, if somebody forgot to write `%2C`. It is certain to
/// separate addresses only if a scheme follows it, or if no `@` does; otherwise the text before it
/// is hidden with the login.
pub fn without_secrets(addresses: &str) -> String {
    let mut shown = Vec::new();
    let mut sure = 0; // How many of them are no part of a login for certain.
    for address in addresses.split(',').map(str::trim) {
        let (scheme, behind) = address.split_once("://").unwrap_or(("", address));
        let begins = SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known));
        if begins {
            sure = shown.len();
        }
        let server = match address.rsplit_once('@') {
            Some((_, server)) => {
                if !begins && shown.len() > sure {
                    shown.truncate(sure);
                    shown.push(HIDDEN);
                }
                server
            }
            None => behind,
        };
        shown.push(server.split('/').next().unwrap_or_default());
    }
    shown.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(addresses: &str) -> Option<(String, Option<String>)> {
        login(addresses).map(|login| (login.user, login.password))
    }

    #[test]
    fn a_login_is_read_out_of_an_address() {
        let ann = Some(("ann".into(), Some("s3cret".into())));
        assert_eq!(read("nats://ann:s3cret@host:4222"), ann);
        assert_eq!(read("ann:s3cret@host"), ann);
        assert_eq!(read("nats://one:4222, tls://ann:s3cret@two:4222"), ann);
        let odd = Some(("a@b".into(), Some("c:d%".into())));
        assert_eq!(read("nats://a%40b:c:d%25@host"), odd);
        assert_eq!(read("nats://token@host"), Some(("token".into(), None)));
        assert_eq!(read("nats://host:4222,nats://[::1]:4222"), None);
        assert!(!format!("{:?}", login("nats://ann:s3cret@host")).contains("s3cret"));
    }

    #[test]
    fn servers_are_connected_to_without_logins() {
        let all = servers("nats://ann:s3cret@one:4222, tls://two:4222,s3cret@three,ws://four/at");
        let expected = ["nats://one:4222", "tls://two:4222", "three", "ws://four/at"];
        assert_eq!(all.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn servers_are_shown_without_logins() {
        for (addresses, shown) in [
            ("nats://ann:s3cret@one:4222, nats://two:4222/", "one:4222,two:4222"),
            ("nats://one:4222,TLS://ann:s3cret@two", "one:4222,two"),
            ("nats://s3cret@[::1]:4222", "[::1]:4222"),
            ("ann:s3/cr@et@one,two", "one,two"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(addresses), shown, "{addresses}");
        }
    }

    #[test]
    fn no_piece_of_a_password_with_a_comma_is_shown() {
        for (addresses, shown) in [
            ("nats://ann:s3,cret@one", "…,one"),
            ("nats://ann:12,34@one", "…,one"),
            ("nats://ann:s3@c,ret@one", "…,one"),
            ("nats://ann:s,3,c@r,et@one,two", "…,one,two"),
            ("nats://zero,tls://ann:s3://c,ret@one", "zero,…,one"),
            ("zero,ann:s3cret@one", "…,one"),
        ] {
            assert_eq!(without_secrets(addresses), shown, "{addresses}");
        }
    }
}
