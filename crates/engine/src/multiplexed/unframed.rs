//! Responses with copied bodies that are not framed yet.

use lowroad_http::protocol::StreamId;

/// Written responses with bodies in `OutputBuffer::body`, in the order of these bodies.
pub(crate) struct UnframedResponses<R> {
    pub list: Vec<UnframedResponse<R>>,
    /// The index of the response that is probably sent next.
    pub next: usize,
}

impl<R> Default for UnframedResponses<R> {
    fn default() -> UnframedResponses<R> {
        UnframedResponses {
            list: Vec::new(),
            next: 0,
        }
    }
}

impl<R> UnframedResponses<R> {
    /// The end of the last body.
    pub fn end(&self) -> usize {
        self.list.last().map_or(0, |unframed| unframed.end)
    }

    /// The index of a stream's response, if it was just written. Most responses are sent in order.
    pub fn find(&self, stream: StreamId) -> Option<usize> {
        match self.list.get(self.next) {
            Some(response) if response.stream == stream => Some(self.next),
            _ => self
                .list
                .iter()
                .position(|response| response.stream == stream),
        }
    }
}

/// A response with a body that was copied to the worker's buffer and is not framed yet.
pub(crate) struct UnframedResponse<R> {
    pub stream: StreamId,
    /// The offset in `OutputBuffer::body` of the bytes that are not framed yet.
    pub offset: usize,
    pub end: usize,
    /// Bytes that were framed.
    pub sent: u64,
    pub record: Option<R>,
}
