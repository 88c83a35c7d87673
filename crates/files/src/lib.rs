//! Static content: opens files within a site's folders, reads them into the store with their heads and encodings, lists
//! folders, and keeps error pages. Blocks on the disk, so it runs on helper threads ([`fetch`]). Knows nothing of requests.

#![forbid(unsafe_code)]

pub mod compress;
pub mod error_pages;
pub mod etag;
pub mod fetch;
pub mod folder;
pub mod heads;
mod listing;
pub mod load;
pub mod mime;
