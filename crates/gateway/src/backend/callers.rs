//! [`CallerConnections`]: the connections of callers, each with the clients that use it.

use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::recent::RecentUses;

/// Something that the first who asks makes, and the others wait for.
pub(super) type OnceMade<T> = Arc<OnceCell<T>>;

/// What those have in common who ask as one caller.
type SharedConnection<C, S, L> = Arc<CallerConnection<C, S, L>>;

/// A bounded cache of callers. It forgets a caller with its connection and all clients on it, so that no client
/// keeps a connection open that no longer counts.
#[derive(Debug)]
pub(super) struct CallerConnections<K, C, S, L> {
    callers: Mutex<RecentUses<K, SharedConnection<C, S, L>>>,
    clients_max: usize,
}

/// The connection of one caller, and its clients, one for each session.
#[derive(Debug)]
pub(super) struct CallerConnection<C, S, L> {
    connection: OnceCell<C>,
    clients: Mutex<RecentUses<S, OnceMade<L>>>,
}

impl<K: Clone + Eq + Hash, C: Clone, S: Clone + Eq + Hash, L> CallerConnections<K, C, S, L> {
    /// A cache of so many connections, with so many clients on each.
    pub(super) fn new(connections_max: usize, clients_max: usize) -> Self {
        Self { callers: Mutex::new(RecentUses::new(connections_max)), clients_max }
    }

    /// What there is of a caller.
    pub(super) fn of(&self, caller: &K) -> SharedConnection<C, S, L> {
        let make = || {
            let clients = Mutex::new(RecentUses::new(self.clients_max));
            Arc::new(CallerConnection { connection: OnceCell::new(), clients })
        };
        self.callers.lock().get_or_make(caller, make)
    }
}

impl<C: Clone, S: Clone + Eq + Hash, L> CallerConnection<C, S, L> {
    /// The connection, which is opened if it is not there.
    ///
    /// # Errors
    /// As those of `open`.
    pub(super) async fn connection<E, F>(&self, open: impl FnOnce() -> F) -> Result<C, E>
    where
        F: Future<Output = Result<C, E>>,
    {
        self.connection.get_or_try_init(open).await.cloned()
    }

    /// The place for the client of a session.
    pub(super) fn client(&self, session: &S) -> OnceMade<L> {
        self.clients.lock().get_or_make(session, OnceMade::default)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Weak;

    use super::*;

    type Cache = CallerConnections<&'static str, Arc<()>, u32, Arc<()>>;

    /// Has a client made for the session of a caller, on its connection, as the backend does.
    async fn join(cache: &Cache, caller: &'static str, session: u32) -> Weak<()> {
        let caller = cache.of(&caller);
        let open = || async { Ok::<_, Infallible>(Arc::new(())) };
        let connection = caller.connection(open).await.unwrap();
        let client = async || Ok::<_, Infallible>(Arc::clone(&connection));
        caller.client(&session).get_or_try_init(client).await.unwrap();
        Arc::downgrade(&connection)
    }

    #[tokio::test]
    async fn clients_go_with_their_connection() {
        let cache = Cache::new(2, 10);
        let first = join(&cache, "a", 1).await;
        let again = join(&cache, "a", 2).await;
        assert!(Weak::ptr_eq(&first, &again), "its sessions share a connection");
        join(&cache, "b", 1).await;
        join(&cache, "c", 1).await;
        assert!(first.upgrade().is_none(), "no client holds it open");
        assert!(!Weak::ptr_eq(&first, &join(&cache, "a", 1).await));
    }

    #[tokio::test]
    async fn a_caller_has_so_many_clients() {
        let cache = Cache::new(2, 2);
        let connection = join(&cache, "a", 1).await;
        for session in 2..10 {
            join(&cache, "a", session).await;
        }
        assert_eq!(connection.strong_count(), 3, "the connection itself and two clients");
    }
}
