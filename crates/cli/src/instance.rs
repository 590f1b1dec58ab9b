//! The name under which a process sends telemetry. A process to which its user gave a name has the same after every
//! start, so that a restart makes no new series.

use std::os::unix::net::UnixListener;

/// How many processes of one machine may have one name. Further ones are named by their boots.
const SAME_MAX: usize = 256;

/// A name that no other process of this machine has now. The name is free again when this is dropped or the process
/// dies.
#[derive(Debug)]
pub(crate) struct InstanceName {
    pub(crate) name: String,
    _held: UnixListener,
}

impl InstanceName {
    /// The name that was given; with `.2`, `.3` and so on for further processes that were given the same. `None`: so
    /// many names are taken, or the system has none to hold.
    pub(crate) fn take(service: &str, given: &str) -> Option<Self> {
        let names = (1..=SAME_MAX).map(|number| match number {
            1 => given.to_owned(),
            _ => format!("{given}.{number}"),
        });
        names.into_iter().find_map(|name| {
            let held = hold(&format!("tenure-instance/{service}/{name}"))?;
            Some(Self { name, _held: held })
        })
    }
}

/// Holds a name on this machine, as the name of a socket without a file: the system removes that with its process.
#[cfg(target_os = "linux")]
fn hold(name: &str) -> Option<UnixListener> {
    use std::os::linux::net::SocketAddrExt as _;
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).ok()?;
    UnixListener::bind_addr(&address).ok()
}

#[cfg(not(target_os = "linux"))]
fn hold(_: &str) -> Option<UnixListener> {
    None
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_after_a_restart_and_no_two_have_it_at_once() {
        let given = format!("n-{}", std::process::id());
        let name = |of: &Option<InstanceName>| of.as_ref().unwrap().name.clone();
        let first = InstanceName::take("test", &given);
        let second = InstanceName::take("test", &given);
        assert_eq!((name(&first), name(&second)), (given.clone(), format!("{given}.2")));
        assert_eq!(name(&InstanceName::take("other", &given)), given, "of another service");
        drop(first);
        assert_eq!(name(&InstanceName::take("test", &given)), given);
    }
}
