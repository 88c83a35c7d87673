//! Server-sent events (WHATWG HTML §9.2) for dashboards.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use lowroad_engine::stream::{BodyReceiver, BodySender, stream};

/// Maximum number of open streams in a set.
const STREAM_COUNT_MAX: usize = 32;
/// Maximum bytes buffered for a slow client. A client with a full buffer misses snapshots.
const BUFFERED_LEN_MAX: usize = 256 * 1024;

/// The open streams.
#[derive(Default)]
pub struct EventStreams(Mutex<Vec<BodySender>>);

impl EventStreams {
    /// Whether no stream is open.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Opens a stream with its first event; `None` if too many are open.
    pub fn open(&self, first: &Bytes) -> Option<BodyReceiver> {
        let mut streams = self.lock();
        // Streams of clients that have left still count until here: `send` may not have run since.
        streams.retain(|stream| room(stream) != StreamRoom::Closed);
        if streams.len() == STREAM_COUNT_MAX {
            return None;
        }
        let (sender, receiver) = stream(BUFFERED_LEN_MAX);
        // `receiver` is still open, so the push does not fail.
        let _ = sender.push(event(first));
        streams.push(sender);
        Some(receiver)
    }

    /// Sends an event to each client with room in its buffer.
    pub fn send(&self, data: &Bytes) {
        let event = event(data);
        self.lock().retain(|stream| match room(stream) {
            StreamRoom::Closed => false,
            // A slow client misses this event; the next one has the same counters with later values.
            StreamRoom::Full => true,
            StreamRoom::Open => stream.push(event.clone()).is_ok(),
        });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<BodySender>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(PartialEq, Eq)]
enum StreamRoom {
    Open,
    Full,
    Closed,
}

fn room(stream: &BodySender) -> StreamRoom {
    // Polled again with the next event, so no wake-up is needed.
    match stream.poll_room(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(())) => StreamRoom::Open,
        Poll::Ready(Err(_)) => StreamRoom::Closed,
        Poll::Pending => StreamRoom::Full,
    }
}

/// Formats an event. Its data is a single line, since the JSON has no line breaks.
fn event(data: &Bytes) -> Bytes {
    [b"data: ", &**data, b"\n\n"].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_engine::stream::StreamItem;

    fn next(stream: &mut BodyReceiver) -> Option<Bytes> {
        match stream.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(StreamItem::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }

    #[test]
    fn slow_client_misses_events_and_closed_stream_is_removed() {
        let streams = EventStreams::default();
        let mut slow = streams.open(&"1".into()).expect("room");
        let closed = streams.open(&"1".into()).expect("room");
        drop(closed);
        let long = Bytes::from("x".repeat(BUFFERED_LEN_MAX));
        for _ in 0..100 {
            streams.send(&long);
        }
        assert_eq!(streams.lock().len(), 1);
        let mut received = 0;
        while next(&mut slow).is_some() {
            received += 1;
        }
        assert!(received < 5, "{received}");
        streams.send(&"2".into());
        assert_eq!(next(&mut slow).as_deref(), Some(&b"data: 2\n\n"[..]));
    }

    #[test]
    fn number_of_streams_is_limited() {
        let streams = EventStreams::default();
        let open = || streams.open(&"1".into());
        let mut all: Vec<_> = (0..STREAM_COUNT_MAX)
            .map(|_| open().expect("room"))
            .collect();
        assert!(open().is_none());
        all.pop();
        assert!(open().is_some());
    }
}
