//! Handlers: make content for each request.
//!
//! A [`Handler`] gets a `HandlerRequest` whose body is a stream, and returns a `HandlerResponse` whose body may be a
//! stream. [`spool`]s decouple slow clients on both sides. Handlers that compute or need tokio's I/O run on a runtime
//! beside the workers, those that only wait for sockets run on the workers ([`executor`]). The kinds of handlers are
//! in the crates `gateway`, `module_host` and `sql_pages`.

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
