//! The admin address: an HTTP/1.1 service for operators and their tools, on a Unix socket and, if configured, on TCP.
//!
//! [`operations`] lists what it offers and reads requests; [`service`] runs on an event loop of its own and answers
//! them; [`access`] checks tokens; [`admin_socket`] opens the Unix socket. [`commands`] are the commands of the
//! `lowroad` program that use it, over [`http_client`]. [`dashboard`] is a page for browsers, [`dashboard_relay`] the
//! command that brings them to it.

pub mod access;
mod actions;
mod admin_socket;
pub mod commands;
mod dashboard;
pub mod dashboard_relay;
mod event_streams;
mod http_client;
pub mod listeners;
mod operations;
mod problem;
mod relay_session;
pub mod service;

#[cfg_attr(
    not(feature = "softirq"),
    expect(unused_imports, reason = "the level's commands use some of them")
)]
pub use commands::{
    EVERY_SERVER, ServerFilter, explanation, print_explanation, print_status, reload,
    request_purge, statuses, stop,
};
