//! The HTTP cache around handlers (RFC 9111): `calls` calls the handler, once for equal requests; `reuse` decides
//! which stored responses answer which requests; `storage` stores responses, with `stored_heads` and `validation`;
//! `purge` and `invalidation` select the responses to delete; `objects` gives handlers access to their site's stored
//! objects. A deferred request resumes with a `HandlerOutcome`. Independent of routing.

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
