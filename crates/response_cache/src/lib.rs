//! The HTTP cache in front of handlers (RFC 9111): `calls` calls the handler, once for concurrent equal requests
//! (request coalescing); `reuse` decides which stored responses answer which requests; `storage` stores responses, with
//! `stored_heads` and `validation`; `purge` and `invalidation` select the responses to delete; `objects` gives handlers
//! access to their site's stored objects. A deferred request resumes with a `HandlerOutcome`. Routing is not part of
//! this crate.

#![forbid(unsafe_code)]

pub mod cache_status;
pub mod calls;
pub mod handler_outcome;
pub mod invalidation;
mod objects;
pub mod purge;
pub mod reply;
pub mod reuse;
pub mod storage;
mod stored_heads;
pub mod validation;
