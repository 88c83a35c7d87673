//! The pending exchanges of a connection: requests with an incomplete body or response, and tunnels. The same table
//! serves HTTP/1, which has one exchange at a time, and HTTP/2.

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
    pub deferred: Option<DeferredRequest<V>>,
    /// The unsent rest of the response, if responses are interleaved.
    pub body: Option<Box<RemainingBody<V::Record>>>,
    /// The activity of the tunnel, if the protocol was changed.
    pub tunnel: Option<TunnelActivity>,
    next: StreamTable<V>,
}

/// A request that the service has deferred.
pub(crate) struct DeferredRequest<V: HttpService> {
    pub pending: V::Pending,
    /// The context of the request, which the service gets again when it resumes.
    pub exchange: Exchange,
    /// The event that resumes the request.
    pub resume_reason: ResumeReason<V::Outcome>,
    /// The work for the request is cancelled when the client disconnects.
    pub cancel_on_disconnect: bool,
    /// Unsent interim responses, framed.
    pub interims: Vec<u8>,
}

/// The event that resumes a deferred request.
pub(crate) enum ResumeReason<O> {
    /// An outcome that has not arrived.
    Pending,
    /// The outcome has arrived; earlier responses may still be unsent.
    Outcome(O),
    /// The end of a request body that is dropped.
    Body { is_complete: bool },
    /// An outcome that will be dropped, as the client has reset the stream.
    Dead,
}

impl<V: HttpService> DeferredRequest<V> {
    /// Whether the event has occurred.
    pub fn is_due(&self) -> bool {
        match self.resume_reason {
            ResumeReason::Pending | ResumeReason::Dead => false,
            ResumeReason::Outcome(_) => true,
            ResumeReason::Body { is_complete } => is_complete,
        }
    }
}

/// The pending exchanges, oldest first: a linked list, as most connections have one or none.
pub(crate) struct StreamTable<V: HttpService>(Option<Box<StreamState<V>>>);

impl<V: HttpService> StreamState<V> {
    fn is_finished(&self) -> bool {
        let is_answered = self.deferred.is_none() && self.body.is_none();
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
        std::iter::successors(self.0.as_deref(), |state| state.next.0.as_deref())
    }

    /// The exchange with this identifier.
    pub fn get(&mut self, stream: StreamId) -> Option<&mut StreamState<V>> {
        let mut cursor = self.0.as_deref_mut();
        while let Some(state) = cursor {
            if state.stream == stream {
                return Some(state);
            }
            cursor = state.next.0.as_deref_mut();
        }
        None
    }

    /// The exchange with this identifier, created if it does not exist.
    pub fn get_or_insert(&mut self, stream: StreamId) -> &mut StreamState<V> {
        let mut cursor = &mut self.0;
        while cursor.as_ref().is_some_and(|state| state.stream != stream) {
            match cursor {
                Some(state) => cursor = &mut state.next.0,
                None => break,
            }
        }
        // Appended, as later streams have higher numbers.
        cursor.get_or_insert_with(|| {
            Box::new(StreamState {
                stream,
                incoming: None,
                deferred: None,
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
    pub fn deferred(&mut self, stream: StreamId) -> Option<&mut DeferredRequest<V>> {
        self.get(stream)?.deferred.as_mut()
    }

    /// Takes the deferred request of an exchange.
    pub fn take_deferred(&mut self, stream: StreamId) -> Option<DeferredRequest<V>> {
        self.get(stream)?.deferred.take()
    }

    /// Takes any deferred request.
    pub fn take_any_deferred(&mut self) -> Option<DeferredRequest<V>> {
        let mut cursor = self.0.as_deref_mut();
        while let Some(state) = cursor {
            if let Some(deferred) = state.deferred.take() {
                return Some(deferred);
            }
            cursor = state.next.0.as_deref_mut();
        }
        None
    }

    /// The oldest exchange after `previous` with an incoming body.
    pub fn next_incoming(&self, previous: Option<StreamId>) -> Option<StreamId> {
        let is_after =
            |state: &&StreamState<V>| previous.is_none_or(|previous| state.stream.0 > previous.0);
        let mut candidates = self.iter().filter(|state| state.incoming.is_some());
        candidates.find(is_after).map(|state| state.stream)
    }

    /// Whether any body is incoming.
    pub fn has_incoming(&self) -> bool {
        self.iter().any(|state| state.incoming.is_some())
    }

    /// Whether any request is deferred.
    pub fn has_deferred(&self) -> bool {
        self.iter().any(|state| state.deferred.is_some())
    }

    /// Whether work for any exchange is cancelled when the client disconnects.
    pub fn has_cancellable(&self) -> bool {
        let mut deferred = self.iter().filter_map(|state| state.deferred.as_ref());
        deferred.any(|deferred| deferred.cancel_on_disconnect)
    }

    /// Takes a deferred request with an outcome.
    pub fn take_due(&mut self) -> Option<DeferredRequest<V>> {
        let mut cursor = self.0.as_deref_mut();
        while let Some(state) = cursor {
            // Earlier requests in the list may still wait.
            if let Some(deferred) = state.deferred.take_if(|deferred| deferred.is_due()) {
                return Some(deferred);
            }
            cursor = state.next.0.as_deref_mut();
        }
        None
    }

    /// Takes the interim responses of one deferred request.
    pub fn take_interims(&mut self) -> Option<Vec<u8>> {
        let mut cursor = self.0.as_deref_mut();
        while let Some(state) = cursor {
            match &mut state.deferred {
                Some(deferred) if !deferred.interims.is_empty() => {
                    return Some(std::mem::take(&mut deferred.interims));
                }
                _ => cursor = state.next.0.as_deref_mut(),
            }
        }
        None
    }

    /// Ends a request body; a request that waited for this end becomes due.
    pub fn end_incoming(&mut self, stream: StreamId) {
        let Some(state) = self.get(stream) else {
            return;
        };
        state.incoming = None;
        if let Some(deferred) = &mut state.deferred
            && let ResumeReason::Body { is_complete } = &mut deferred.resume_reason
        {
            *is_complete = true;
        }
        // The exchange may be complete now.
        self.tidy();
    }

    /// Restarts the pace of all incoming bodies.
    pub fn renew_pace(&mut self, now_ms: u64) {
        let mut cursor = self.0.as_deref_mut();
        while let Some(state) = cursor {
            if let Some(incoming) = &mut state.incoming {
                incoming.pace = ClientPace::new(now_ms);
            }
            cursor = state.next.0.as_deref_mut();
        }
    }

    /// Removes the exchanges that are complete.
    pub fn tidy(&mut self) {
        let mut cursor = &mut self.0;
        while let Some(mut state) = cursor.take() {
            match state.is_finished() {
                true => *cursor = state.next.0.take(),
                false => cursor = &mut cursor.insert(state).next.0,
            }
        }
    }

    /// Removes an exchange.
    pub fn remove(&mut self, stream: StreamId) {
        let mut cursor = &mut self.0;
        while cursor.as_ref().is_some_and(|state| state.stream != stream) {
            match cursor {
                Some(state) => cursor = &mut state.next.0,
                None => return,
            }
        }
        if let Some(state) = cursor.take() {
            *cursor = state.next.0;
        }
    }

    /// The oldest exchange after `previous` with an unsent response body.
    pub fn next_body(&self, previous: Option<StreamId>) -> Option<StreamId> {
        let is_after =
            |state: &&StreamState<V>| previous.is_none_or(|previous| state.stream.0 > previous.0);
        let mut candidates = self.iter().filter(|state| state.body.is_some());
        candidates.find(is_after).map(|state| state.stream)
    }

    /// The highest limit of the rate of a response body in bytes per second; `None` if one has no limit, or there is none.
    pub fn own_rate(&self) -> Option<u64> {
        let bodies = self.iter().filter_map(|state| state.body.as_deref());
        let rates = bodies.map(|body| body.own_rate);
        let highest = rates.reduce(|one, other| Some(one?.max(other?)));
        highest.flatten()
    }

    /// Takes the records of interleaved responses, with the number of bytes sent of each.
    pub fn take_records(&mut self) -> Vec<(V::Record, u64)> {
        let mut records = Vec::new();
        let mut cursor = self.0.as_deref_mut();
        while let Some(state) = cursor {
            records.extend(state.body.take().and_then(|body| body.into_record()));
            cursor = state.next.0.as_deref_mut();
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
