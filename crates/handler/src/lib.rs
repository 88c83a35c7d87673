//! Handlers: the interface of all code that generates content for a request.
//!
//! A [`Handler`] gets a `HandlerRequest` with a body stream, and returns a `HandlerResponse` with bytes or a stream.
//! Buffering ([`spool`]) decouples applications from slow clients in both directions. Handlers that compute or need
//! tokio's I/O run on a tokio runtime, those that only wait for sockets run on the workers ([`executor`]). The kinds of
//! handlers are in the crates `gateway`, `module_host` and `sql_pages`.

pub mod active_span;
pub mod allocator;
pub mod concurrency_bound;
pub mod executor;
pub mod fields;
pub mod handler;
pub mod interim_responses;
pub mod memory;
pub mod operator_notice;
pub mod origin_control;
pub mod request;
pub mod request_body;
pub mod request_facts;
pub mod request_label;
pub mod response;
pub mod secrets;
pub mod spool;
pub mod upstream_status;

pub use fields::ResponseFields;
pub use handler::{Handler, HandlerFailure, HandlerResult, PendingResponse, RouteProbe};
pub use request::{HandlerRequest, RequestBody, SubrequestLoad, SubrequestSource};
pub use response::{HandlerResponse, ResponseContent, UpgradedConnection, WrappedObject};
