//! Where things are in the head of a stored response, as it was built for HTTP/1. Knows no object.

use lowroad_http::conditional::Validators;

/// Places in a prebuilt head, as offsets into it.
#[derive(Clone, Copy, Debug)]
pub struct HeadMap {
    /// After the status line and the date; fields that 304 has too follow.
    pub shared_at: usize,
    /// After those; fields about the bytes follow.
    pub content_at: usize,
    /// After those, before Content-Length.
    pub length_at: usize,
    /// After Content-Length: the end of the head but for the empty line.
    pub end: usize,
    /// The value of ETag; empty if there is none.
    pub etag: (usize, usize),
    /// The value of Content-Type.
    pub content_type: (usize, usize),
}

impl HeadMap {
    /// What conditional requests compare with, in a head of these bytes.
    pub fn validators<'b>(&self, bytes: &'b [u8], last_modified: Option<u64>) -> Validators<'b> {
        let (start, end) = self.etag;
        Validators {
            etag: &bytes[start..end],
            last_modified,
        }
    }
}
