//! Handlers make content for each request: a [`Handler`] gets a [`Request`] whose body streams in, and gives a
//! [`Response`] whose body may stream out. A client that is slow at either is decoupled by [`spool`]s. Handlers that compute or
//! need tokio's I/O run beside the workers, those that only wait for sockets on them ([`executor`]). Knows no sites,
//! connections or caches; kinds of handlers are in the crates `gateway`, `module_host` and `sql_pages`.

pub mod allocator;
pub mod collect;
pub mod executor;
pub mod fields;
pub mod handler;
pub mod interims;
pub mod limited;
pub mod memory;
pub mod notice;
pub mod request;
pub mod response;
pub mod secrets;
pub mod spool;

pub use fields::Fields;
pub use handler::{Answering, Begun, Failure, Handler, Outline};
pub use request::{Body, Loading, Objects, Request};
pub use response::{Around, Content, Response, Upgrade};
