//! The transfer of a body into the store.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use lowroad_engine::stream::{BodyReceiver, BodySender, StreamItem};
use lowroad_http::stored_head::EncodedHead;
use lowroad_store::clock;
use lowroad_store::disk_cache::PendingWrite;
use lowroad_store::key::HashedKey;
use lowroad_store::object::ObjectKind;
use lowroad_store::streaming_object::{GrowthOutcome, StreamingObject};
use lowroad_store::{ObjectArc, StoredObject};

use super::disk_copy::DiskCopy;
use super::{HeadDetails, PendingHead, StoreRequest, whole};

/// After this time without new bytes, requests that have not begun their response call the handler themselves.
const STUCK: Duration = Duration::from_secs(5);

/// The transfer of a body into the store.
pub struct CacheFill {
    pub storing: StoreRequest,
    /// The object that readers find during the transfer.
    pub object: ObjectArc,
    /// The disk copy, until it is begun.
    pub for_disk: Option<DiskCopy>,
    /// Keeps the object in memory until the disk has it.
    pub held: Option<Arc<PendingWrite>>,
    /// The end of the body; `Cut` until it ends.
    pub ended: StreamItem,
}

impl CacheFill {
    /// Transfers the body until its end; the drop stores it.
    pub async fn run(mut self, from: BodyReceiver) {
        let executor = self.storing.executor.clone();
        loop {
            let next = poll_fn(|context| self.poll_next(&from, context));
            let next = match executor.timeout(STUCK, next).await {
                Ok(next) => next,
                Err(_) => {
                    self.filling()
                        .into_iter()
                        .for_each(StreamingObject::release);
                    poll_fn(|context| self.poll_next(&from, context)).await
                }
            };
            match next {
                StreamItem::Bytes(bytes) => self.grow(bytes),
                ended => return self.ended = ended,
            }
        }
    }

    fn grow(&mut self, bytes: Bytes) {
        // The bytes of all bodies in flight have a common bound.
        let drawn = self.storing.store.draw(bytes);
        let has_room = drawn.is_ok();
        let bytes = drawn.unwrap_or_else(|bytes| bytes);
        let now_ms = clock::now_ms();
        let grown = self
            .filling()
            .map(|filling| filling.grow(bytes, has_room, now_ms));
        if let Some(GrowthOutcome::TooLong(parts)) = grown {
            if !self.go_on_disk(parts) {
                self.remove();
            }
            // From now on, bytes stay only until all readers have them.
            self.filling().into_iter().for_each(StreamingObject::let_go);
        }
    }

    fn poll_next(&self, from: &BodyReceiver, context: &mut Context<'_>) -> Poll<StreamItem> {
        let StoreRequest {
            route, executor, ..
        } = &self.storing;
        let behind = |slow: BodySender| match &route.spools {
            Some(spools) => spools.behind(slow, executor),
            None => slow,
        };
        let Some(filling) = self.filling() else {
            return Poll::Ready(StreamItem::Cut);
        };
        match ready!(filling.poll_wanted(context, behind)) {
            true => from.poll_next(context),
            // No reader is left: dropping `from` cancels the handler.
            false => Poll::Ready(StreamItem::Cut),
        }
    }

    fn whole(&self, filling: &StreamingObject, parts: &[Bytes]) -> Option<StoredObject> {
        let lifetime = self.object.validity.lifetime()?;
        let head = PendingHead {
            built: EncodedHead {
                text: filling.bytes.to_vec(),
                map: filling.head,
            },
            about: HeadDetails {
                modified_s: filling.modified_s,
                lifetime: lifetime.clone(),
                selecting: filling.selecting.clone(),
            },
        };
        let StoreRequest { key, store, .. } = &self.storing;
        let key = HashedKey {
            hash: key.hash,
            bytes: &key.bytes,
        };
        whole(store, key, head, parts)
    }

    fn remove(&self) {
        let StoreRequest { key, store, .. } = &self.storing;
        store.remove(key.hash, &key.bytes, &self.object);
    }

    fn filling(&self) -> Option<&StreamingObject> {
        match &self.object.kind {
            ObjectKind::Filling(filling, _) => Some(filling),
            _ => None,
        }
    }
}

impl Drop for CacheFill {
    /// Stores the body if it is whole, and then ends its readers, even after a panic or a cancellation.
    fn drop(&mut self) {
        let Some(filling) = self.filling() else {
            return;
        };
        let parts = filling.end(&self.ended);
        let whole = parts.as_ref().and_then(|parts| self.whole(filling, parts));
        let StoreRequest { key, store, .. } = &self.storing;
        let is_in_memory = match whole {
            Some(object) => {
                store.complete(key.hash, &key.bytes, &self.object, ObjectArc::new(object))
            }
            None => false,
        };
        // An object with its body on the way to disk leaves memory once the disk has it.
        let is_on_its_way = self.ended == StreamItem::End && filling.is_kept();
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
