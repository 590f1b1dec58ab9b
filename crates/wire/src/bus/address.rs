//! The login that an address of NATS may have in it.

use std::fmt;

use percent_encoding::percent_decode_str;

/// Who somebody says to be.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user, or a token where there is no password.
    pub user: String,
    /// The password.
    pub password: Option<String>,
}

impl fmt::Debug for Login {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").finish_non_exhaustive()
    }
}

/// The login of the first address that has one, of some separated by commas:
/// `nats://user:password@host:port`, or `nats://token@host:port`. What has a meaning in addresses is
/// written as `%40` for `@`, and so on.
pub fn login(addresses: &str) -> Option<Login> {
    addresses.split(',').find_map(|address| {
        let address = address.trim();
        let behind = address.split_once("://").map_or(address, |(_, behind)| behind);
        let (login, _host) = behind.rsplit_once('@')?;
        let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
        Some(match login.split_once(':') {
            Some((user, password)) => {
                Login { user: decoded(user), password: Some(decoded(password)) }
            }
            None => Login { user: decoded(login), password: None },
        })
    })
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
}
