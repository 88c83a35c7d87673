//! The admin service: HTTP/1.1 for operators and their tools, on a Unix socket and, if configured, on TCP.
//!
//! [`operations`] lists the operations and parses requests for them; [`service`] answers requests on its own event
//! loop; [`access`] checks tokens; [`admin_socket`] opens the Unix socket. [`commands`] implements the commands of the
//! `lowroad` program that use the service, with [`http_client`]; [`server_search`] finds running servers. [`dashboard`] is a page for browsers, [`dashboard_relay`] the
//! command that brings them to it.

pub mod access;
mod actions;
mod admin_socket;
mod audit;
mod call;
pub mod commands;
mod counters;
mod dashboard;
pub mod dashboard_relay;
pub mod deny_commands;
mod event_streams;
pub mod http_client;
pub mod listeners;
mod operations;
pub mod origin_commands;
mod persistence;
mod problem;
mod relay_session;
mod request_body;
mod resources;
pub mod server_search;
pub mod service;
pub mod upgrade_command;

pub use counters::AdminCounters;

#[cfg_attr(
    not(feature = "softirq"),
    expect(unused_imports, reason = "the level's commands use some of them")
)]
pub use commands::{
    EVERY_SERVER, PurgeFailure, ServerFilter, explanation, maintenance, print_explanation,
    print_status, reload, request_purge, running_config, status_values, statuses, stop,
};
