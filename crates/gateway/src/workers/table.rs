//! [`HttpWorkers`]: the links of all workers that reach the scheduler through this gateway.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures::future::join_all;
use parking_lot::Mutex;
use tenure_core::id::PoolId;
use tenure_core::sessions::Abilities;
use tenure_core::status::Role;
use tenure_core::{Code, Rejection, RejectionKind};
use tenure_ports::supervise::spawn;
use tenure_wire::bus::subject::Token;

use super::gone;
use super::link::{HttpLink, LinkOwner, in_time};
use crate::Gateway;
use crate::backend::Backend;
use crate::identity::Identity;

/// The most links of a gateway: each has a connection to the cluster, and up to some megabytes of
/// deliveries that wait.
pub(crate) const LINKS_MAX: usize = 4_096;

/// The most links of one principal, so that a program that joins again and again does not keep others
/// out.
pub(crate) const LINKS_OF_ONE_MAX: usize = 1_024;

/// A worker as it wants to join.
#[derive(Debug)]
pub(super) struct JoiningWorker {
    pub(super) pool: PoolId,
    pub(super) boot: Token,
    pub(super) abilities: Abilities,
    pub(super) concurrency: usize,
}

/// The links, by the name that each client has for its own, and by whose they are.
struct LinkTable<W> {
    by_id: HashMap<String, Arc<HttpLink<W>>>,
    by_owner: HashMap<LinkOwner, String>,
    /// The gateway stops: there are no more links.
    is_closed: bool,
}

impl<W> Default for LinkTable<W> {
    fn default() -> Self {
        Self { by_id: HashMap::new(), by_owner: HashMap::new(), is_closed: false }
    }
}

impl<W> LinkTable<W> {
    /// The link of this owner. One that is over, and is about to be removed, counts as absent.
    fn of(&self, owner: &LinkOwner) -> Option<Arc<HttpLink<W>>> {
        self.named(self.by_owner.get(owner)?)
    }

    /// The link with this name, if it is not over.
    fn named(&self, id: &str) -> Option<Arc<HttpLink<W>>> {
        self.by_id.get(id).filter(|link| !link.is_over()).cloned()
    }

    /// Whether there is a place for one more link of this owner, and no other link of the same worker.
    fn check_place(&self, owner: &LinkOwner) -> Result<(), Rejection> {
        if self.is_closed {
            return Err(Rejection::new(Code::Unavailable, "the gateway stops"));
        }
        let of_one = |it: &&LinkOwner| it.principal == owner.principal && it.role == owner.role;
        // To the scheduler, and in its answers, a worker is its principal and its boot.
        let is_elsewhere = |it: &LinkOwner| {
            (&it.principal, &it.boot) == (&owner.principal, &owner.boot) && it != owner
        };
        if self.by_owner.keys().any(is_elsewhere) {
            let message = "a worker of this login and this boot works in another pool or role";
            return Err(Rejection::invalid("boot", message));
        }
        if self.by_id.len() >= LINKS_MAX {
            return Err(too_many(LINKS_MAX));
        }
        match self.by_owner.keys().filter(of_one).count() < LINKS_OF_ONE_MAX {
            true => Ok(()),
            false => Err(too_many(LINKS_OF_ONE_MAX)),
        }
    }

    /// Adds a link. Answers the one whose place it takes.
    fn insert(&mut self, link: &Arc<HttpLink<W>>) -> Option<Arc<HttpLink<W>>> {
        let before = self.by_owner.insert(link.owner.clone(), link.id.clone());
        let before = before.and_then(|id| self.by_id.remove(&id));
        self.by_id.insert(link.id.clone(), Arc::clone(link));
        before
    }

    fn remove(&mut self, link: &HttpLink<W>) {
        self.by_id.remove(&link.id);
        if self.by_owner.get(&link.owner) == Some(&link.id) {
            self.by_owner.remove(&link.owner);
        }
    }
}

/// The workers of a gateway that speak HTTP.
pub(crate) struct HttpWorkers<B: Backend> {
    links: Arc<Mutex<LinkTable<B::Worker>>>,
}

impl<B: Backend> Default for HttpWorkers<B> {
    fn default() -> Self {
        Self { links: Arc::default() }
    }
}

impl<B: Backend> fmt::Debug for HttpWorkers<B> {
    /// Without the names of links, which are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpWorkers").field("links", &self.count()).finish()
    }
}

impl<B: Backend> HttpWorkers<B> {
    /// How many workers there are.
    pub(crate) fn count(&self) -> usize {
        self.links.lock().by_id.len()
    }

    /// The link with this name, if it is this caller's and of this pool.
    ///
    /// # Errors
    /// `worker_gone`
    pub(super) fn get(
        &self,
        who: &Identity,
        pool: &PoolId,
        id: &str,
    ) -> Result<Arc<HttpLink<B::Worker>>, Rejection> {
        let link = self.links.lock().named(id).ok_or_else(gone)?;
        let LinkOwner { principal, role, pool: of, .. } = &link.owner;
        let is_theirs = (principal, role, of) == (&who.principal, &who.role, pool);
        if is_theirs { Ok(link) } else { Err(gone()) }
    }

    /// Joins a pool. A worker that joins again under the same boot gets the link that it has, unless
    /// it has other handlers or serves other sessions now. Answers whether the link is new.
    ///
    /// # Errors
    /// `unavailable`: the scheduler cannot be reached, or there are too many links.
    pub(super) async fn join(
        &self,
        backend: &B,
        who: &Identity,
        joining: JoiningWorker,
    ) -> Result<(Arc<HttpLink<B::Worker>>, bool), Rejection> {
        let JoiningWorker { pool, boot, abilities, concurrency } = joining;
        let (principal, role) = (who.principal.clone(), who.role);
        let owner = LinkOwner { principal, role, pool: pool.clone(), boot: boot.clone() };
        let there = self.links.lock().of(&owner);
        if let Some(link) = there {
            if link.abilities == abilities {
                link.join_again(concurrency);
                return Ok((link, false));
            }
            self.end(&link, None).await;
        }
        self.links.lock().check_place(&owner)?;
        // Whoever may work in the pool works as a worker, whatever else it may do.
        let worker = Identity { role: Role::Worker, ..who.clone() };
        let joined = backend.join(&worker, pool, boot, abilities.clone());
        let (port, deliveries) = in_time(joined).await?;
        let link = Arc::new(HttpLink::new(owner, abilities, port, concurrency));
        let before = {
            let mut links = self.links.lock();
            links.check_place(&link.owner)?; // Others may have joined meanwhile.
            links.insert(&link)
        };
        let (tending, table) = (Arc::clone(&link), Arc::clone(&self.links));
        // First, as the caller may leave while the link before this one is closed.
        spawn("the link of a worker that speaks HTTP", async move {
            tending.tend(deliveries).await;
            table.lock().remove(&tending);
        });
        if let Some(before) = before {
            before.close(None).await;
        }
        Ok((link, true))
    }

    /// Ends a link. `after` is as in [`HttpLink::close`].
    pub(super) async fn end(&self, link: &HttpLink<B::Worker>, after: Option<u64>) {
        self.links.lock().remove(link);
        link.close(after).await;
    }
}

impl<B: Backend> Gateway<B> {
    /// Ends the links of all workers, as the gateway stops: Steps that no client was sent go back at
    /// once, and clients join at another gateway. From then on nobody joins here.
    pub async fn part_with_workers(&self) {
        let all: Vec<_> = {
            let mut links = self.workers.links.lock();
            links.is_closed = true;
            links.by_id.values().cloned().collect()
        };
        join_all(all.iter().map(|link| link.close(None))).await;
    }
}

fn too_many(limit: usize) -> Rejection {
    let message = format!("{limit} workers are linked here, which is the most");
    Rejection::new(Code::Unavailable, message)
        .of_kind(RejectionKind::Overloaded)
        .with("limit", limit)
}

#[cfg(test)]
mod tests {
    use super::super::double::PortDouble;
    use super::*;

    fn link(principal: &str, number: usize) -> Arc<HttpLink<PortDouble>> {
        let owner = LinkOwner {
            principal: Token::new(principal).unwrap(),
            role: Role::Worker,
            pool: PoolId::new("default").unwrap(),
            boot: Token::new(format!("b{number}")).unwrap(),
        };
        Arc::new(HttpLink::new(owner, Abilities::default(), PortDouble::default(), 1))
    }

    #[tokio::test]
    async fn a_boot_has_one_link() {
        let mut table = LinkTable::default();
        let (first, second) = (link("ant", 1), link("ant", 1));
        assert!(table.insert(&first).is_none());
        assert!(table.insert(&second).is_some_and(|it| it.id == first.id));
        table.remove(&first);
        assert!(
            table.of(&second.owner).is_some(),
            "the end of the first one is not that of the second"
        );
        table.remove(&second);
        assert!(table.by_id.is_empty() && table.by_owner.is_empty());
    }

    /// A worker whose link has just ended gets a new one, and not the one that is about to be removed.
    #[tokio::test]
    async fn a_link_that_is_over_is_found_by_nobody() {
        let mut table = LinkTable::default();
        let (over, next) = (link("ant", 1), link("ant", 1));
        table.insert(&over);
        over.close(None).await;
        assert!(table.of(&over.owner).is_none() && table.named(&over.id).is_none());
        table.check_place(&next.owner).unwrap();
        table.insert(&next);
        table.remove(&over);
        assert!(table.of(&over.owner).is_some_and(|it| it.id == next.id));
    }

    #[tokio::test]
    async fn nobody_joins_a_gateway_that_stops() {
        let table = LinkTable::<PortDouble> { is_closed: true, ..LinkTable::default() };
        let refused = table.check_place(&link("ant", 1).owner).unwrap_err();
        assert_eq!(refused.code, Code::Unavailable);
    }

    #[tokio::test]
    async fn nobody_has_all_links() {
        let mut table = LinkTable::default();
        for number in 0..LINKS_OF_ONE_MAX {
            table.check_place(&link("ant", number).owner).unwrap();
            table.insert(&link("ant", number));
        }
        let refused = table.check_place(&link("ant", 0).owner).unwrap_err();
        assert_eq!(refused.details["limit"], LINKS_OF_ONE_MAX);
        let others = ["bee", "cat", "dog"];
        for principal in others {
            for number in 0..LINKS_OF_ONE_MAX {
                table.insert(&link(principal, number));
            }
        }
        let refused = table.check_place(&link("eel", 0).owner).unwrap_err();
        assert_eq!(
            (refused.code, &refused.details["limit"]),
            (Code::Unavailable, &LINKS_MAX.into())
        );
        let one = link("dog", 0);
        let there = table.of(&one.owner).unwrap();
        table.remove(&there);
        table.check_place(&link("eel", 0).owner).unwrap();
    }
}
