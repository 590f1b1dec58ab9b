//! Who may use the socket of a command: its own processes. The directory of the socket is open to no other user; of the
//! worker's own user, the kernel says which process has connected, and whether that descends from the command.

use tokio::net::UnixStream;
use tokio::sync::watch;

/// The first process of a command, once it has begun: all others descend from it.
pub(in crate::worker) type FirstProcess = watch::Receiver<Option<u32>>;

/// How many ancestors of a process are looked at.
#[cfg(target_os = "linux")]
const ANCESTORS_MAX: usize = 256;

/// Whether a connection is that of a process of the command. Where the kernel does not say who descends from whom,
/// only the rights on the directory protect the socket.
pub(super) async fn is_of_command(stream: &UnixStream, first: &mut FirstProcess) -> bool {
    #[cfg(target_os = "linux")]
    {
        let Ok(first) = first.wait_for(Option::is_some).await.map(|first| *first) else {
            return false;
        };
        let peer = stream.peer_cred().ok().and_then(|peer| u32::try_from(peer.pid()?).ok());
        peer.zip(first).is_some_and(|(peer, first)| descends(peer, first))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = first;
        stream.peer_cred().is_ok()
    }
}

#[cfg(target_os = "linux")]
fn descends(process: u32, from: u32) -> bool {
    let mut ancestors = std::iter::successors(Some(process), |it| parent_of(*it));
    ancestors.by_ref().take(ANCESTORS_MAX).any(|it| it == from)
}

/// The parent of a process; none: there is no such process, or it is the first of all.
#[cfg(target_os = "linux")]
fn parent_of(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Behind the name, which may have blanks and brackets in it, stand the state and the parent.
    let (_, rest) = stat.rsplit_once(')')?;
    let parent = rest.split_whitespace().nth(1)?.parse().ok()?;
    (parent > 0).then_some(parent)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn children_descend_from_their_parents_and_not_the_other_way_round() {
        let own = std::process::id();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(descends(child.id(), own) && descends(own, own));
        assert!(!descends(own, child.id()));
        assert!(!descends(u32::MAX, own), "there is no such process");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
