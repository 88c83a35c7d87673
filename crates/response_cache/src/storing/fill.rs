//! A body on its way into the store, until its end. Knows nothing of heads.

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

/// After so long without more of a body, who has not begun to answer with it asks for itself.
const STUCK: Duration = Duration::from_secs(5);

/// A body on its way into the store.
pub struct Fill {
    /// What storing it needs.
    pub storing: Storing,
    /// What readers find while it comes.
    pub object: ObjectArc,
    /// What the disk would be told, until it was.
    pub for_disk: Option<ForDisk>,
    /// Has others find it until the disk has it.
    pub held: Option<Arc<Held>>,
    /// How it ended; cut, as long as it has not.
    pub ended: Next,
}

impl Fill {
    /// Lets it come until its end; what becomes of it is the drop's to do.
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
            // Who makes it learns of it when `from` is dropped.
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
    /// Stores the body if it is whole, and then tells those who read it, whatever ended it: nobody waits for more.
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
        // What goes to the disk leaves memory once it is there.
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
