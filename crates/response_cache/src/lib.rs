//! The cache of responses around handlers (RFC 9111): `calls` puts a request to its handler, once for equal requests;
//! `reuse` says which stored responses answer which requests; `storing` stores responses, with `heads` and `validating`;
//! `purge` and `invalidating` choose the responses to forget; `objects` gives handlers the stored objects of their site. A
//! deferred request continues with an [`outcome::Outcome`]. Knows nothing of how a request came to its route.

#![forbid(unsafe_code)]

pub mod cache_status;
pub mod calls;
mod heads;
pub mod invalidating;
mod objects;
pub mod outcome;
pub mod purge;
pub mod reply;
pub mod reuse;
pub mod storing;
pub mod validating;
