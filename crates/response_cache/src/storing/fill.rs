//! The transfer of a body into the store.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use lowroad_engine::stream::{Next, Receiver, Sender};
use lowroad_store::clock;
use lowroad_store::disk_cache::Held;
use lowroad_store::filling::{Filling, Grown};
use lowroad_store::object::Kind;
use lowroad_store::{Object, ObjectArc};

use super::on_disk::ForDisk;
use super::{About, Head, Storing, whole};

/// After this time without new bytes, requests that have not begun their response call the handler themselves.
const STUCK: Duration = Duration::from_secs(5);

/// The transfer of a body into the store.
pub struct Fill {
    pub storing: Storing,
    /// The object that readers find during the transfer.
    pub object: ObjectArc,
    /// The disk copy, until it is begun.
    pub for_disk: Option<ForDisk>,
    /// Keeps the object in memory until the disk has it.
    pub held: Option<Arc<Held>>,
    /// The end of the body; `Cut` until it ends.
    pub ended: Next,
}

impl Fill {
    /// Transfers the body until its end; the drop stores it.
    pub async fn run(mut self, from: Receiver) {
        let executor = self.storing.executor.clone();
        loop {
            let next = poll_fn(|context| self.poll_next(&from, context));
            let next = match executor.timeout(STUCK, next).await {
                Ok(next) => next,
                Err(_) => {
                    self.filling().into_iter().for_each(Filling::release);
                    poll_fn(|context| self.poll_next(&from, context)).await
                }
            };
            match next {
                Next::Bytes(bytes) => self.grow(bytes),
                ended => return self.ended = ended,
            }
        }
    }

    fn grow(&mut self, bytes: Bytes) {
        let drawn = self.storing.store.draw(bytes);
        let has_room = drawn.is_ok();
        let bytes = drawn.unwrap_or_else(|bytes| bytes);
        let now_ms = clock::now_ms();
        let grown = self
            .filling()
            .map(|filling| filling.grow(bytes, has_room, now_ms));
        if let Some(Grown::TooLong(parts)) = grown {
            if !self.go_on_disk(parts) {
                self.remove();
            }
            self.filling().into_iter().for_each(Filling::let_go);
        }
    }

    fn poll_next(&self, from: &Receiver, context: &mut Context<'_>) -> Poll<Next> {
        let Storing {
            route, executor, ..
        } = &self.storing;
        let behind = |slow: Sender| match &route.spools {
            Some(spools) => spools.behind(slow, executor),
            None => slow,
        };
        let Some(filling) = self.filling() else {
            return Poll::Ready(Next::Cut);
        };
        match ready!(filling.poll_wanted(context, behind)) {
            true => from.poll_next(context),
            // No reader is left: dropping `from` cancels the handler.
            false => Poll::Ready(Next::Cut),
        }
    }

    fn whole(&self, filling: &Filling, parts: &[Bytes]) -> Option<Object> {
        let lifetime = self.object.validity.lifetime()?;
        let head = Head {
            built: (filling.bytes.to_vec(), filling.head),
            about: About {
                modified_s: filling.modified_s,
                lifetime: lifetime.clone(),
                selecting: filling.selecting.clone(),
            },
        };
        let Storing { key, store, .. } = &self.storing;
        whole(store, (key.hash, &key.bytes), head, parts)
    }

    fn remove(&self) {
        let Storing { key, store, .. } = &self.storing;
        store.remove(key.hash, &key.bytes, &self.object);
    }

    fn filling(&self) -> Option<&Filling> {
        match &self.object.kind {
            Kind::Filling(filling, _) => Some(filling),
            _ => None,
        }
    }
}

impl Drop for Fill {
    /// Stores the body if it is whole, and then ends its readers, even after a panic or a cancellation.
    fn drop(&mut self) {
        let Some(filling) = self.filling() else {
            return;
        };
        let parts = filling.end(&self.ended);
        let whole = parts.as_ref().and_then(|parts| self.whole(filling, parts));
        let Storing { key, store, .. } = &self.storing;
        let is_in_memory = match whole {
            Some(object) => {
                store.complete(key.hash, &key.bytes, &self.object, ObjectArc::new(object))
            }
            None => false,
        };
        // An object with its body on the way to disk leaves memory once the disk has it.
        let is_on_its_way = self.ended == Next::End && filling.is_kept();
        if !is_in_memory && !is_on_its_way && (parts.is_none() || self.held.is_none()) {
            self.remove();
        }
        filling.tell_end(&self.ended);
        if let Some(parts) = parts {
            let held = self.held.take().filter(|_| !is_in_memory);
            self.storing.keep_whole(self.for_disk.take(), parts, held);
        }
    }
}
