//! Connections that carry several requests at a time, for servers that can do that. How they do is the
//! protocol's affair; here is which one is taken, and when another is opened.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lowroad_engine::Local;
use lowroad_limits::{ConcurrencyLimit, Permit};

use crate::open::{Open, Unavailable};
use crate::pool::{Patience, Pool};

/// A connection with several requests.
pub trait Carrier: Send + Sync {
    /// The worker that drives it.
    fn worker(&self) -> usize;

    /// Whether it takes another request.
    fn has_room(&self) -> bool;

    /// Whether the connection is no more.
    fn is_over(&self) -> bool;
}

/// Those to one server. They count as connections of its pool.
pub struct Shared<S> {
    /// Held while one is opened: the others wait for it and share it.
    opening: Arc<ConcurrencyLimit>,
    carriers: Mutex<Vec<Arc<S>>>,
}

impl<S: Carrier> Shared<S> {
    /// None, for so many workers.
    pub fn new(workers: usize) -> Shared<S> {
        Shared {
            opening: ConcurrencyLimit::queued(1, workers, usize::MAX),
            carriers: Mutex::default(),
        }
    }

    /// One with room, or a new one, of which `start` makes a carrier on its worker. Another worker's
    /// only if there may be no more. `fresh` = all that are there are closed for new requests.
    ///
    /// # Errors
    /// [`Unavailable`]
    pub async fn get<O: Open>(
        &self,
        pool: &Pool<O>,
        worker: usize,
        fresh: bool,
        patience: Patience,
        start: impl FnOnce(O::Connection, Permit, usize, &Local) -> Arc<S>,
    ) -> Result<Arc<S>, Unavailable> {
        let worker = pool.number_of(worker);
        if let Some(carrier) = self.with_room(Some(worker), fresh) {
            return Ok(carrier);
        }
        let mut connecting = false;
        let getting = async {
            let opening = self.opening.acquire(worker, pool.now_ms(worker)).await;
            let _opening = opening.map_err(|_| Unavailable::TooManyWait)?;
            // Another request may have brought one meanwhile.
            if let Some(carrier) = self.with_room(Some(worker), false) {
                return Ok(carrier);
            }
            let permit = pool.bound().try_acquire_on(worker);
            if permit.is_none()
                && let Some(carrier) = self.with_room(None, false)
            {
                return Ok(carrier);
            }
            let permit = match permit {
                Some(permit) => permit,
                None => pool.permit(worker).await?,
            };
            connecting = true;
            let connection = pool.connect(worker, patience).await?;
            let carrier = start(connection, permit, worker, pool.local(worker));
            self.lock().push(carrier.clone());
            Ok(carrier)
        };
        // Apart, as in `Pool::lease`.
        let got = Box::pin(pool.in_time(worker, patience.total, getting)).await;
        got.unwrap_or(Err(match connecting {
            true => Unavailable::ConnectTimeout,
            false => Unavailable::NoneFree,
        }))
    }

    /// One of this worker's, or anybody's.
    fn with_room(&self, worker: Option<usize>, fresh: bool) -> Option<Arc<S>> {
        let mut carriers = self.lock();
        carriers.retain(|carrier| !carrier.is_over());
        if fresh {
            carriers.clear();
        }
        let of = |carrier: &S| worker.is_none_or(|worker| worker == carrier.worker());
        let mut carriers = carriers.iter();
        carriers
            .find(|carrier| of(carrier) && carrier.has_room())
            .cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<S>>> {
        self.carriers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
