//! Routes of sites: which handler answers a request (`routes`, `route_index`, `conditions`), and the handlers of a
//! configuration (`route_builder`): modules, scripts and pages, each of which a build may omit (`handler_kinds`).
//! `compression_handler` wraps a route's handler; `lane_threads` run handlers that block. The handlers are in the
//! crates `handler`, `gateway`, `module_host` and `sql_pages`. Independent of stored responses.

#![forbid(unsafe_code)]

pub mod applications;
pub mod compression_handler;
mod conditions;
pub mod counts;
pub mod failure_log;
#[cfg(feature = "programs")]
pub mod gateway_handlers;
pub mod handler_kinds;
mod lane_threads;
#[cfg(feature = "modules")]
pub mod modules;
#[cfg(feature = "sql")]
mod pages;
pub mod response_redirect;
pub mod route_builder;
mod route_index;
pub mod routes;
