//! A buffer for received bytes that a protocol could not use yet.

/// Received bytes that are not parsed yet. It is one pointer, as the buffers of most connections are empty.
#[derive(Default)]
#[expect(clippy::box_collection, reason = "a connection is small")]
pub(crate) struct InputBuffer(Option<Box<Vec<u8>>>);

impl InputBuffer {
    /// Whether the buffer is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Appends bytes.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.0.get_or_insert_default().extend_from_slice(bytes);
        }
    }

    /// Takes all bytes.
    pub fn take(&mut self) -> Vec<u8> {
        self.0.take().map_or_else(Vec::new, |bytes| *bytes)
    }

    /// Puts the bytes back, without the first `used` bytes.
    pub fn put_back(&mut self, mut bytes: Vec<u8>, used: usize) {
        if used < bytes.len() {
            bytes.drain(..used);
            self.0 = Some(Box::new(bytes));
        }
    }

    /// Drops all bytes.
    pub fn clear(&mut self) {
        self.0 = None;
    }
}
