//! A bounded queue of bytes from a producer to a consumer.
//!
//! Request bodies reach handlers through such queues, and response bodies return through them. Both ends are polled
//! with any [`Waker`], so a worker, a task of any executor and a plain thread can use either end. Trailers may follow
//! the bytes.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use lowroad_http::fields::ResponseFields;

/// Creates a queue, which has room while it contains fewer than `len_max` bytes.
pub fn stream(len_max: usize) -> (BodySender, BodyReceiver) {
    let state = BodyQueueState {
        len_max,
        ..BodyQueueState::default()
    };
    let shared = Arc::new(Mutex::new(state));
    (BodySender(shared.clone()), BodyReceiver(shared))
}

/// The producer's end. If it is dropped without [`BodySender::end`], the stream counts as cut.
pub struct BodySender(Arc<Mutex<BodyQueueState>>);

/// The consumer's end. When it is dropped, the sender finds the stream closed.
pub struct BodyReceiver(Arc<Mutex<BodyQueueState>>);

/// An item of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamItem {
    /// Bytes, at least one.
    Bytes(Bytes),
    /// The end of a complete stream.
    End,
    /// The end of an incomplete stream.
    Cut,
}

/// The receiver has been dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamClosed;

impl std::fmt::Display for StreamClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the receiver has closed the stream")
    }
}

impl std::error::Error for StreamClosed {}

#[derive(Default)]
struct BodyQueueState {
    chunks: VecDeque<Bytes>,
    len: usize,
    len_max: usize,
    end: Option<StreamItem>,
    trailers: Option<Box<ResponseFields>>,
    /// The names of trailers that the receiver does not want.
    omitted_trailers: Box<[Box<str>]>,
    closed: bool,
    sender: Option<Waker>,
    receiver: Option<Waker>,
}

impl BodySender {
    /// Adds bytes, even if the queue is full: some producers can pause only afterwards. Returns whether there is room
    /// for more.
    ///
    /// # Errors
    /// [`StreamClosed`] if the receiver was dropped.
    pub fn push(&self, bytes: Bytes) -> Result<bool, StreamClosed> {
        let mut state = lock(&self.0);
        if state.closed {
            return Err(StreamClosed);
        }
        if !bytes.is_empty() {
            state.len += bytes.len();
            state.chunks.push_back(bytes);
            wake(state.receiver.take());
        }
        Ok(state.len < state.len_max)
    }

    /// Ready when there is room, or when the receiver was dropped.
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<Result<(), StreamClosed>> {
        let mut state = lock(&self.0);
        if state.closed {
            return Poll::Ready(Err(StreamClosed));
        }
        if state.len < state.len_max {
            return Poll::Ready(Ok(()));
        }
        store_waker(&mut state.sender, context);
        Poll::Pending
    }

    /// Ready when the receiver was dropped. Uses the same waker as [`BodySender::poll_room`], so both must be called by
    /// one task.
    pub fn poll_closed(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.0);
        if state.closed {
            return Poll::Ready(());
        }
        store_waker(&mut state.sender, context);
        Poll::Pending
    }

    /// Waits for room, then adds bytes.
    ///
    /// # Errors
    /// [`StreamClosed`] if the receiver was dropped.
    pub async fn send(&self, bytes: Bytes) -> Result<(), StreamClosed> {
        poll_fn(|context| self.poll_room(context)).await?;
        self.push(bytes).map(drop)
    }

    /// Ends a complete stream.
    pub fn end(self) {
        lock(&self.0).end = Some(StreamItem::End);
    }

    /// Ends a complete stream with these trailers, if there are any.
    pub fn end_with(self, trailers: Option<Box<ResponseFields>>) {
        self.announce(trailers);
        self.end();
    }

    /// Sets the trailers, if there are any, before the end.
    pub fn announce(&self, trailers: Option<Box<ResponseFields>>) {
        lock(&self.0).trailers = trailers.filter(|trailers| !trailers.is_empty());
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        // A stream that was ended before stays complete.
        state.end.get_or_insert(StreamItem::Cut);
        wake(state.receiver.take());
    }
}

impl BodyReceiver {
    /// The next item.
    pub fn poll_next(&self, context: &mut Context<'_>) -> Poll<StreamItem> {
        let mut state = lock(&self.0);
        if let Some(bytes) = state.chunks.pop_front() {
            state.len -= bytes.len();
            if state.len < state.len_max {
                wake(state.sender.take());
            }
            return Poll::Ready(StreamItem::Bytes(bytes));
        }
        match &state.end {
            // The end remains: later polls return it too.
            Some(end) => Poll::Ready(end.clone()),
            None => {
                store_waker(&mut state.receiver, context);
                Poll::Pending
            }
        }
    }

    /// Whether bytes are available immediately.
    pub fn has_bytes(&self) -> bool {
        !lock(&self.0).chunks.is_empty()
    }

    /// The number of remaining bytes, if the sender has ended the stream.
    pub fn remaining_len(&self) -> Option<usize> {
        let state = lock(&self.0);
        (state.end == Some(StreamItem::End)).then_some(state.len)
    }

    /// Whether the sender has announced trailers so far.
    pub fn has_trailers(&self) -> bool {
        lock(&self.0).trailers.is_some()
    }

    /// Omits trailers with these names.
    pub fn omit_trailers<'n>(&self, names: impl Iterator<Item = &'n str>) {
        lock(&self.0).omitted_trailers = names.map(Box::from).collect();
    }

    /// Takes the trailers. They are final once the [end](StreamItem::End) was received.
    pub fn take_trailers(&self) -> Option<Box<ResponseFields>> {
        let mut state = lock(&self.0);
        let trailers = state.trailers.take()?;
        let omitted = &state.omitted_trailers;
        if omitted.is_empty() {
            return Some(trailers);
        }
        let is_forwarded = |name: &str| !omitted.iter().any(|it| it.eq_ignore_ascii_case(name));
        let forwarded: ResponseFields = trailers
            .iter()
            .filter(|(name, _)| is_forwarded(name))
            .collect();
        (!forwarded.is_empty()).then(|| Box::new(forwarded))
    }

    /// Waits for the next item.
    pub async fn next(&self) -> StreamItem {
        poll_fn(|context| self.poll_next(context)).await
    }
}

impl Drop for BodyReceiver {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.closed = true;
        // Unread bytes are freed now, as the sender may exist for longer.
        state.chunks.clear();
        wake(state.sender.take());
    }
}

/// Stores the waker of a poll, unless it is stored already.
fn store_waker(waker: &mut Option<Waker>, context: &Context<'_>) {
    match waker {
        Some(stored) if stored.will_wake(context.waker()) => {}
        slot => *slot = Some(context.waker().clone()),
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

fn lock(state: &Mutex<BodyQueueState>) -> MutexGuard<'_, BodyQueueState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn chunks_arrive_in_order_followed_by_the_end() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut context = Context::from_waker(&waker);
        let (sender, receiver) = stream(4);
        assert!(receiver.poll_next(&mut context).is_pending());
        assert_eq!(sender.push(Bytes::from_static(b"abc")), Ok(true));
        assert_eq!(sender.push(Bytes::from_static(b"de")), Ok(false));
        assert_eq!(receiver.remaining_len(), None);
        assert_eq!(count.0.load(SeqCst), 1);
        assert!(sender.poll_room(&mut context).is_pending());
        let next = StreamItem::Bytes(Bytes::from_static(b"abc"));
        assert_eq!(receiver.poll_next(&mut context), Poll::Ready(next));
        assert_eq!(count.0.load(SeqCst), 2, "there is room again");
        sender.end();
        assert_eq!(receiver.remaining_len(), Some(2));
        let next = StreamItem::Bytes(Bytes::from_static(b"de"));
        assert_eq!(receiver.poll_next(&mut context), Poll::Ready(next));
        assert_eq!(
            receiver.poll_next(&mut context),
            Poll::Ready(StreamItem::End)
        );
    }

    #[test]
    fn trailers_may_follow_the_bytes() {
        let mut context = Context::from_waker(Waker::noop());
        let (sender, receiver) = stream(4);
        let mut fields = ResponseFields::new();
        fields.push("X-Sum", b"1");
        assert_eq!(receiver.take_trailers(), None);
        sender.announce(Some(Box::new(fields.clone())));
        assert!(receiver.has_trailers());
        sender.end();
        assert_eq!(
            receiver.poll_next(&mut context),
            Poll::Ready(StreamItem::End)
        );
        assert_eq!(receiver.take_trailers().as_deref(), Some(&fields));
        let (sender, receiver) = stream(4);
        sender.end_with(Some(Box::default()));
        assert_eq!(receiver.remaining_len(), Some(0));
        assert_eq!(receiver.take_trailers(), None, "none are none");
    }

    #[test]
    fn dropped_sender_cuts_the_stream() {
        let mut context = Context::from_waker(Waker::noop());
        let (sender, receiver) = stream(4);
        drop(sender);
        assert_eq!(
            receiver.poll_next(&mut context),
            Poll::Ready(StreamItem::Cut)
        );
    }

    #[test]
    fn dropped_receiver_closes_the_stream() {
        let mut context = Context::from_waker(Waker::noop());
        let (sender, receiver) = stream(1);
        assert_eq!(sender.push(Bytes::from_static(b"abc")), Ok(false));
        assert!(sender.poll_room(&mut context).is_pending());
        assert!(sender.poll_closed(&mut context).is_pending());
        drop(receiver);
        assert_eq!(sender.poll_closed(&mut context), Poll::Ready(()));
        assert_eq!(
            sender.poll_room(&mut context),
            Poll::Ready(Err(StreamClosed))
        );
        assert_eq!(sender.push(Bytes::from_static(b"abc")), Err(StreamClosed));
    }
}
