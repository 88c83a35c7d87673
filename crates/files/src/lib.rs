//! Static files: opens files within a site's folders, loads them into the store with heads and content codings, lists
//! folders, and keeps error pages. Blocks on the disk, so it runs on helper threads (`file_fetcher`).

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
