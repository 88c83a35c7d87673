//! What a connection has under way: its exchanges, each a request and its response, of which something is waited for.
//! Holds data only. Knows no protocol, and not how many exchanges it allows at a time.

use lowroad_http::protocol::StreamId;

use crate::body_stream::RequestBodyStream;
use crate::client_pace::ClientPace;
use crate::service::{Exchange, HttpService};
use crate::stream_body::RemainingBody;
use crate::tunnel::TunnelActivity;

/// What is waited for of one exchange.
pub(crate) struct StreamState<V: HttpService> {
    pub stream: StreamId,
    /// The request's body, while it comes.
    pub incoming: Option<RequestBodyStream>,
    /// Its response, while the service waits for something.
    pub waiting: Option<DeferredRequest<V>>,
    /// What has not left of its response, where several leave by turns.
    pub body: Option<Box<RemainingBody<V::Record>>>,
    /// Whether anything moves, if the protocol was changed.
    pub tunnel: Option<TunnelActivity>,
    next: StreamTable<V>,
}

/// A request that the service has deferred.
pub(crate) struct DeferredRequest<V: HttpService> {
    pub pending: V::Pending,
    /// The facts that the service was given, and gets back.
    pub exchange: Exchange,
    /// What it waits for.
    pub come: ResumeReason<V::Outcome>,
    /// Somebody works for it alone.
    pub gives_up: bool,
    /// Its interim responses that have not left, as they are sent.
    pub interims: Vec<u8>,
}

/// What a request waits for, and whether it has come.
pub(crate) enum ResumeReason<O> {
    /// An outcome, which has not come.
    Nothing,
    /// The outcome; earlier responses may still be being sent.
    Outcome(O),
    /// The end of a body that is dropped.
    Body { is_over: bool },
    /// An outcome that nobody wants any more.
    Dead,
}

impl<V: HttpService> DeferredRequest<V> {
    /// Whether what it waits for has come.
    pub fn is_over(&self) -> bool {
        match self.come {
            ResumeReason::Nothing | ResumeReason::Dead => false,
            ResumeReason::Outcome(_) => true,
            ResumeReason::Body { is_over } => is_over,
        }
    }
}

/// The exchanges under way, oldest first: a list, as there is mostly none or one.
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
    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &StreamState<V>> {
        std::iter::successors(self.0.as_deref(), |it| it.next.0.as_deref())
    }

    /// The exchange of this name.
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

    /// The exchange of this name, which begins with that if it is not there.
    pub fn get_mut(&mut self, stream: StreamId) -> &mut StreamState<V> {
        let mut at = &mut self.0;
        while at.as_ref().is_some_and(|it| it.stream != stream) {
            match at {
                Some(it) => at = &mut it.next.0,
                None => break,
            }
        }
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

    /// The body that comes for an exchange.
    pub fn incoming(&mut self, stream: StreamId) -> Option<&mut RequestBodyStream> {
        self.get(stream)?.incoming.as_mut()
    }

    /// The request of an exchange that the service has deferred.
    pub fn waiting(&mut self, stream: StreamId) -> Option<&mut DeferredRequest<V>> {
        self.get(stream)?.waiting.as_mut()
    }

    /// Takes what an exchange waits for, if it does.
    pub fn take_waiting(&mut self, stream: StreamId) -> Option<DeferredRequest<V>> {
        self.get(stream)?.waiting.take()
    }

    /// Takes what any of them waits for.
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

    /// The oldest exchange whose body comes, after `before`.
    pub fn next_incoming(&self, before: Option<StreamId>) -> Option<StreamId> {
        let after = |it: &&StreamState<V>| before.is_none_or(|before| it.stream.0 > before.0);
        let mut those = self.iter().filter(|it| it.incoming.is_some());
        those.find(after).map(|it| it.stream)
    }

    /// Whether a body comes.
    pub fn has_incoming(&self) -> bool {
        self.iter().any(|it| it.incoming.is_some())
    }

    /// Whether a request waits for the service.
    pub fn waits(&self) -> bool {
        self.iter().any(|it| it.waiting.is_some())
    }

    /// Whether somebody works for one of them alone.
    pub fn gives_up(&self) -> bool {
        let mut waiting = self.iter().filter_map(|it| it.waiting.as_ref());
        waiting.any(|waiting| waiting.gives_up)
    }

    /// Takes a request of which has come what it waited for.
    pub fn take_due(&mut self) -> Option<DeferredRequest<V>> {
        let mut at = self.0.as_deref_mut();
        while let Some(it) = at {
            if let Some(waiting) = it.waiting.take_if(|waiting| waiting.is_over()) {
                return Some(waiting);
            }
            at = it.next.0.as_deref_mut();
        }
        None
    }

    /// Takes the interim responses of those that wait.
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

    /// No more comes of a body; a request that waits only for its end can go on.
    pub fn end_incoming(&mut self, stream: StreamId) {
        let Some(it) = self.get(stream) else { return };
        it.incoming = None;
        if let Some(waiting) = &mut it.waiting
            && let ResumeReason::Body { is_over } = &mut waiting.come
        {
            *is_over = true;
        }
        self.tidy();
    }

    /// What comes next of the bodies has its full time.
    pub fn renew_pace(&mut self, now_ms: u64) {
        let mut at = self.0.as_deref_mut();
        while let Some(it) = at {
            if let Some(incoming) = &mut it.incoming {
                incoming.pace = ClientPace::new(now_ms);
            }
            at = it.next.0.as_deref_mut();
        }
    }

    /// Forgets those of which nothing is waited for any more.
    pub fn tidy(&mut self) {
        let mut at = &mut self.0;
        while let Some(mut it) = at.take() {
            match it.is_over() {
                true => *at = it.next.0.take(),
                false => at = &mut at.insert(it).next.0,
            }
        }
    }

    /// Forgets one.
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

    /// The oldest exchange of whose response something has not left, after `before`.
    pub fn next_body(&self, before: Option<StreamId>) -> Option<StreamId> {
        let after = |it: &&StreamState<V>| before.is_none_or(|before| it.stream.0 > before.0);
        let mut those = self.iter().filter(|it| it.body.is_some());
        those.find(after).map(|it| it.stream)
    }

    /// Takes the records of responses that leave by turns, with how many bytes of each have left.
    pub fn take_records(&mut self) -> Vec<(V::Record, u64)> {
        let mut records = Vec::new();
        let mut at = self.0.as_deref_mut();
        while let Some(it) = at {
            records.extend(it.body.take().and_then(|body| body.left()));
            at = it.next.0.as_deref_mut();
        }
        records
    }

    /// Gives all of them up.
    pub fn clear(&mut self) {
        *self = StreamTable::default();
    }
}

#[cfg(test)]
pub(crate) mod tests;
