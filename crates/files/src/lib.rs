//! Static files: opens files within a site's folders, loads them into the store with heads and content codings, lists
//! folders, and keeps error pages. Blocks on the disk, so it runs on helper threads (`file_fetcher`).

#![forbid(unsafe_code)]

pub mod compression;
pub mod error_pages;
pub mod etag;
pub mod file_fetcher;
pub mod file_headers;
pub mod file_loader;
pub mod folder;
mod listing;
pub mod mime;
