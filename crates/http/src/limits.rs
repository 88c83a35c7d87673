//! Size limits of a request. Time limits belong to the engine. Read RFC 9112 §3 (target), RFC 9110 §5.4 (fields) and
//! RFC 9112 §7.1.1 (chunk extensions).

/// The size limits of one request. A size equal to its limit is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Bytes of the head, from its first byte (including a skipped empty line) to the end of the empty line after the
    /// fields. Default 16 KiB. Cost: a connection's input buffer may grow to this size.
    pub head_len_max: usize,
    /// Bytes of the request target. Default 8 KiB.
    pub target_len_max: usize,
    /// Field lines in the head. Default 100.
    pub fields_max: u16,
    /// Bytes of the decoded body. Default 1 MiB.
    pub body_len_max: u64,
    /// Bytes between a chunk's size and its CRLF, for each chunk. Default 256, at most 2^32-1.
    pub chunk_extension_len_max: usize,
    /// Bytes of the trailer lines with their CRLFs. Default 4 KiB, at most 2^32-1.
    pub trailers_len_max: usize,
}

impl Default for RequestLimits {
    fn default() -> RequestLimits {
        RequestLimits {
            head_len_max: 16 << 10,
            target_len_max: 8 << 10,
            fields_max: 100,
            body_len_max: 1 << 20,
            chunk_extension_len_max: 256,
            trailers_len_max: 4 << 10,
        }
    }
}
