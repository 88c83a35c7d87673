//! Transfers a response body into the store while it arrives.

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
use super::{HeadDetails, PendingHead, StoreRequest, build_whole};

/// After this time without new bytes, followers call the handler themselves if their response has not begun.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The transfer of a body into the store; dropping it ends the transfer.
pub struct CacheFill {
    pub store_request: StoreRequest,
    /// The object that readers find during the transfer.
    pub object: ObjectArc,
    /// The disk copy to be written; `None` once the write has begun.
    pub disk_copy: Option<DiskCopy>,
    /// Keeps the object in memory until its body is on disk.
    pub pending_write: Option<Arc<PendingWrite>>,
    /// How the body ended; `Cut` until then.
    pub ending: StreamItem,
}

impl CacheFill {
    /// Receives the body to its end; dropping `self` then stores it.
    pub async fn run(mut self, receiver: BodyReceiver) {
        let executor = self.store_request.executor.clone();
        loop {
            let next = poll_fn(|context| self.poll_next(&receiver, context));
            let next = match executor.timeout(STALL_TIMEOUT, next).await {
                Ok(next) => next,
                Err(_) => {
                    self.streaming()
                        .into_iter()
                        .for_each(StreamingObject::release);
                    poll_fn(|context| self.poll_next(&receiver, context)).await
                }
            };
            match next {
                StreamItem::Bytes(bytes) => self.grow(bytes),
                ending => return self.ending = ending,
            }
        }
    }

    fn grow(&mut self, bytes: Bytes) {
        // All arriving bodies share one memory limit.
        let reserved = self.store_request.store.reserve_arriving(bytes);
        let has_room = reserved.is_ok();
        let bytes = reserved.unwrap_or_else(|bytes| bytes);
        let now_ms = clock::now_ms();
        let outcome = self
            .streaming()
            .map(|streaming| streaming.push_bytes(bytes, has_room, now_ms));
        if let Some(GrowthOutcome::TooLong(parts)) = outcome {
            if !self.continue_on_disk(parts) {
                self.remove();
            }
            // From now on, bytes are freed once all readers have them.
            self.streaming()
                .into_iter()
                .for_each(StreamingObject::release_consumed);
        }
    }

    fn poll_next(&self, receiver: &BodyReceiver, context: &mut Context<'_>) -> Poll<StreamItem> {
        let StoreRequest {
            route, executor, ..
        } = &self.store_request;
        let spool_slow = |slow: BodySender| match &route.spools {
            Some(spools) => spools.spool_for(slow, executor),
            None => slow,
        };
        let Some(streaming) = self.streaming() else {
            return Poll::Ready(StreamItem::Cut);
        };
        match ready!(streaming.poll_demand(context, spool_slow)) {
            true => receiver.poll_next(context),
            // No reader is left: dropping `receiver` cancels the handler.
            false => Poll::Ready(StreamItem::Cut),
        }
    }

    fn build_object(&self, streaming: &StreamingObject, parts: &[Bytes]) -> Option<StoredObject> {
        let lifetime = self.object.validity.lifetime()?;
        let head = PendingHead {
            encoded: EncodedHead {
                text: streaming.bytes.to_vec(),
                map: streaming.head,
            },
            details: HeadDetails {
                modified_s: streaming.modified_s,
                lifetime: lifetime.clone(),
                selecting: streaming.selecting.clone(),
            },
        };
        let StoreRequest { key, store, .. } = &self.store_request;
        let key = HashedKey {
            hash: key.hash,
            bytes: &key.bytes,
        };
        build_whole(store, key, head, parts)
    }

    fn remove(&self) {
        let StoreRequest { key, store, .. } = &self.store_request;
        store.remove(key.hash, &key.bytes, &self.object);
    }

    fn streaming(&self) -> Option<&StreamingObject> {
        match &self.object.kind {
            ObjectKind::Streaming(streaming, _) => Some(streaming),
            _ => None,
        }
    }
}

impl Drop for CacheFill {
    /// Stores the body if it is complete, and then signals its end to the readers; also after a panic or a
    /// cancellation.
    fn drop(&mut self) {
        let Some(streaming) = self.streaming() else {
            return;
        };
        let parts = streaming.end(&self.ending);
        let whole = parts
            .as_ref()
            .and_then(|parts| self.build_object(streaming, parts));
        let StoreRequest { key, store, .. } = &self.store_request;
        let is_in_memory = match whole {
            Some(object) => {
                store.complete(key.hash, &key.bytes, &self.object, ObjectArc::new(object))
            }
            None => false,
        };
        // An object with a body that is being written to disk is removed from memory later, when the write has ended.
        let is_being_written = self.ending == StreamItem::End && streaming.is_written_to_disk();
        if !is_in_memory && !is_being_written && (parts.is_none() || self.pending_write.is_none()) {
            self.remove();
        }
        streaming.notify_end(&self.ending);
        if let Some(parts) = parts {
            let pending_write = self.pending_write.take().filter(|_| !is_in_memory);
            self.store_request
                .write_parts_to_disk(self.disk_copy.take(), parts, pending_write);
        }
    }
}
