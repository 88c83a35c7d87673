//! Content that is made for each request: modules, CGI and FastCGI programs, SQL pages.
//!
//! Each of them is a [`Handler`]: it gets a [`Request`] whose body streams in, and gives a
//! [`Response`] whose body may stream out; who is slow at either waits in [`spool`]s. What computes or
//! needs tokio's I/O runs beside the workers, what only waits for sockets on them ([`executor`]); how
//! a request gets here and an answer back is the server's affair. Nothing here knows sites,
//! connections or caches.
//!
//! Each kind of content is a cargo feature: `modules`, `wasm`, `programs` (CGI, FastCGI) and `sql`.

#[cfg(feature = "programs")]
mod address;
pub mod allocator;
#[cfg(feature = "programs")]
pub mod cgi;
pub mod collect;
pub mod descriptors;
pub mod executor;
#[cfg(feature = "programs")]
pub mod fastcgi;
pub mod fields;
pub mod handler;
#[cfg(feature = "programs")]
pub mod head;
pub mod interims;
pub mod limited;
pub mod memory;
#[cfg(feature = "modules")]
pub mod module;
pub mod notice;
#[cfg(feature = "sql")]
pub mod pages;
#[cfg(feature = "programs")]
pub mod proxy;
pub mod request;
pub mod response;
#[cfg(feature = "programs")]
pub mod script;
pub mod secrets;
pub mod spool;
#[cfg(feature = "programs")]
pub mod supervise;
#[cfg(feature = "wasm")]
pub mod wasm;

pub use fields::Fields;
pub use handler::{Answering, Begun, Failure, Handler, Outline};
pub use request::{Body, Loading, Objects, Request};
pub use response::{Around, Content, Response, Upgrade};
