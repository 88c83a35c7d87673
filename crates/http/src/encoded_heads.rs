//! The head of a stored response in the encodings of HTTP/2 and HTTP/3, each made at the first request that needs it.

use crate::h2::LazyBlock;
use crate::h3::LazySection;

/// The encoded heads of a stored response.
#[derive(Debug, Default)]
pub struct EncodedHeads {
    /// For HTTP/2.
    pub h2: LazyBlock,
    /// For HTTP/3.
    pub h3: LazySection,
}
