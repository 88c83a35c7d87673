//! Routes: selects the handler of a request (`routes`, `route_index`, `conditions`), and creates the handlers of a
//! configuration (`route_builder`): modules, gateways and pages, each of which a build may omit (`handler_kinds`).
//! `compression_handler` wraps the handler of a route; `lane_threads` are for handlers that block. The handlers
//! themselves are in the crates `handler`, `gateway`, `module_host` and `sql_pages`. Independent of stored responses.

#![forbid(unsafe_code)]

pub mod applications;
pub mod auth_routes;
pub mod cache_rules;
pub mod compression_handler;
mod conditions;
pub mod counts;
pub mod failure_log;
#[cfg(feature = "programs")]
pub mod gateway_handlers;
pub mod handler_kinds;
pub mod key_watch;
mod lane_threads;
#[cfg(feature = "modules")]
pub mod modules;
#[cfg(feature = "sql")]
mod pages;
mod request_dependences;
pub mod response_dependence;
pub mod response_redirect;
pub mod route_builder;
mod route_index;
pub mod routes;
