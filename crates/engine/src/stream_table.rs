//! The pending exchanges of a connection: requests with an incomplete body, response or tunnel. Holds data only.
//! Knows no protocol, and not how many exchanges one allows at a time.

use lowroad_http::protocol::StreamId;

use crate::body_stream::RequestBodyStream;
use crate::client_pace::ClientPace;
use crate::service::{Exchange, HttpService};
use crate::stream_body::RemainingBody;
use crate::tunnel::TunnelActivity;

/// The pending state of one exchange.
pub(crate) struct StreamState<V: HttpService> {
    pub stream: StreamId,
    /// The request's body, while it arrives.
    pub incoming: Option<RequestBodyStream>,
    /// The deferred request, while the service waits for an outcome.
    pub waiting: Option<DeferredRequest<V>>,
    /// The unsent rest of its response, if responses are interleaved.
    pub body: Option<Box<RemainingBody<V::Record>>>,
    /// The activity of the tunnel, if the protocol was changed.
    pub tunnel: Option<TunnelActivity>,
    next: StreamTable<V>,
}

/// A request that the service has deferred.
pub(crate) struct DeferredRequest<V: HttpService> {
    pub pending: V::Pending,
    /// The context that the service got, and gets back.
    pub exchange: Exchange,
    /// The event that resumes it.
    pub come: ResumeReason<V::Outcome>,
    /// Its work is cancelled when the client disconnects.
    pub gives_up: bool,
    /// Its framed interim responses that are unsent.
    pub interims: Vec<u8>,
}

/// The event that resumes a deferred request.
pub(crate) enum ResumeReason<O> {
    /// An outcome, which has not arrived.
    Nothing,
    /// The outcome; earlier responses may still be unsent.
    Outcome(O),
    /// The end of a body that is dropped.
    Body { is_over: bool },
    /// An outcome that will be dropped, as the client has reset the stream.
    Dead,
}

impl<V: HttpService> DeferredRequest<V> {
    /// Whether the event has occurred.
    pub fn is_over(&self) -> bool {
        match self.come {
            ResumeReason::Nothing | ResumeReason::Dead => false,
            ResumeReason::Outcome(_) => true,
            ResumeReason::Body { is_over } => is_over,
        }
    }
}

/// The pending exchanges, oldest first: a linked list, as there is mostly none or one.
pub(crate) struct StreamTable<V: HttpService>(Option<Box<StreamState<V>>>);

impl<V: HttpService> StreamState<V> {
    fn is_over(&self) -> bool {
        let is_answered = self.waiting.is_none() && self.body.is_none();
        self.incoming.is_none() && is_answered && self.tunnel.is_none()
    }
}

impl<V: HttpService> Default for StreamTable<V> {
    fn default() -> Self {
        StreamTable(None)
    }
}

impl<V: HttpService> StreamTable<V> {
    /// Whether no exchange is pending.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// All pending exchanges.
    pub fn iter(&self) -> impl Iterator<Item = &StreamState<V>> {
        std::iter::successors(self.0.as_deref(), |it| it.next.0.as_deref())
    }

    /// The exchange with this identifier.
    pub fn get(&mut self, stream: StreamId) -> Option<&mut StreamState<V>> {
        let mut at = self.0.as_deref_mut();
        while let Some(it) = at {
            if it.stream == stream {
                return Some(it);
            }
            at = it.next.0.as_deref_mut();
        }
        None
    }

    /// The exchange with this identifier, created if it does not exist.
    pub fn get_mut(&mut self, stream: StreamId) -> &mut StreamState<V> {
        let mut at = &mut self.0;
        while at.as_ref().is_some_and(|it| it.stream != stream) {
            match at {
                Some(it) => at = &mut it.next.0,
                None => break,
            }
        }
        // At the end of the list, as later streams have higher numbers.
        at.get_or_insert_with(|| {
            Box::new(StreamState {
                stream,
                incoming: None,
                waiting: None,
                body: None,
                tunnel: None,
                next: StreamTable(None),
            })
        })
    }

    /// The incoming body of an exchange.
    pub fn incoming(&mut self, stream: StreamId) -> Option<&mut RequestBodyStream> {
        self.get(stream)?.incoming.as_mut()
    }

    /// The deferred request of an exchange.
    pub fn waiting(&mut self, stream: StreamId) -> Option<&mut DeferredRequest<V>> {
        self.get(stream)?.waiting.as_mut()
    }

    /// Takes the deferred request of an exchange.
    pub fn take_waiting(&mut self, stream: StreamId) -> Option<DeferredRequest<V>> {
        self.get(stream)?.waiting.take()
    }

    /// Takes any deferred request.
    pub fn take_any_waiting(&mut self) -> Option<DeferredRequest<V>> {
        let mut at = self.0.as_deref_mut();
        while let Some(it) = at {
            if let Some(waiting) = it.waiting.take() {
                return Some(waiting);
            }
            at = it.next.0.as_deref_mut();
        }
        None
    }

    /// The oldest exchange after `before` with an incoming body.
    pub fn next_incoming(&self, before: Option<StreamId>) -> Option<StreamId> {
        let after = |it: &&StreamState<V>| before.is_none_or(|before| it.stream.0 > before.0);
        let mut those = self.iter().filter(|it| it.incoming.is_some());
        those.find(after).map(|it| it.stream)
    }

    /// Whether any body is incoming.
    pub fn has_incoming(&self) -> bool {
        self.iter().any(|it| it.incoming.is_some())
    }

    /// Whether any request is deferred.
    pub fn waits(&self) -> bool {
        self.iter().any(|it| it.waiting.is_some())
    }

    /// Whether the work for any of them is cancelled when the client disconnects.
    pub fn gives_up(&self) -> bool {
        let mut waiting = self.iter().filter_map(|it| it.waiting.as_ref());
        waiting.any(|waiting| waiting.gives_up)
    }

    /// Takes a deferred request with an outcome.
    pub fn take_due(&mut self) -> Option<DeferredRequest<V>> {
        let mut at = self.0.as_deref_mut();
        while let Some(it) = at {
            // A request with an outcome may be behind others that still wait.
            if let Some(waiting) = it.waiting.take_if(|waiting| waiting.is_over()) {
                return Some(waiting);
            }
            at = it.next.0.as_deref_mut();
        }
        None
    }

    /// Takes the interim responses of one deferred request.
    pub fn take_interims(&mut self) -> Option<Vec<u8>> {
        let mut at = self.0.as_deref_mut();
        while let Some(it) = at {
            match &mut it.waiting {
                Some(waiting) if !waiting.interims.is_empty() => {
                    return Some(std::mem::take(&mut waiting.interims));
                }
                _ => at = it.next.0.as_deref_mut(),
            }
        }
        None
    }

    /// Ends a body; a request that waits only for its end becomes due.
    pub fn end_incoming(&mut self, stream: StreamId) {
        let Some(it) = self.get(stream) else { return };
        it.incoming = None;
        if let Some(waiting) = &mut it.waiting
            && let ResumeReason::Body { is_over } = &mut waiting.come
        {
            *is_over = true;
        }
        // An exchange that lacked only the body's end is complete.
        self.tidy();
    }

    /// Restarts the pace of all incoming bodies.
    pub fn renew_pace(&mut self, now_ms: u64) {
        let mut at = self.0.as_deref_mut();
        while let Some(it) = at {
            if let Some(incoming) = &mut it.incoming {
                incoming.pace = ClientPace::new(now_ms);
            }
            at = it.next.0.as_deref_mut();
        }
    }

    /// Removes the exchanges that are complete.
    pub fn tidy(&mut self) {
        let mut at = &mut self.0;
        while let Some(mut it) = at.take() {
            match it.is_over() {
                true => *at = it.next.0.take(),
                false => at = &mut at.insert(it).next.0,
            }
        }
    }

    /// Removes an exchange.
    pub fn remove(&mut self, stream: StreamId) {
        let mut at = &mut self.0;
        while at.as_ref().is_some_and(|it| it.stream != stream) {
            match at {
                Some(it) => at = &mut it.next.0,
                None => return,
            }
        }
        if let Some(it) = at.take() {
            *at = it.next.0;
        }
    }

    /// The oldest exchange after `before` with an unsent response body.
    pub fn next_body(&self, before: Option<StreamId>) -> Option<StreamId> {
        let after = |it: &&StreamState<V>| before.is_none_or(|before| it.stream.0 > before.0);
        let mut those = self.iter().filter(|it| it.body.is_some());
        those.find(after).map(|it| it.stream)
    }

    /// Takes the records of interleaved responses, with the number of bytes sent of each.
    pub fn take_records(&mut self) -> Vec<(V::Record, u64)> {
        let mut records = Vec::new();
        let mut at = self.0.as_deref_mut();
        while let Some(it) = at {
            records.extend(it.body.take().and_then(|body| body.left()));
            at = it.next.0.as_deref_mut();
        }
        records
    }

    /// Removes all exchanges.
    pub fn clear(&mut self) {
        *self = StreamTable::default();
    }
}

#[cfg(test)]
pub(crate) mod tests;
