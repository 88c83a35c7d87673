//! Translates configurations of other web servers.
//!
//! [`nginx::import`] and [`caddy::import`] read a configuration with its includes and return a configuration of Lowroad
//! and a report, in which each directive is translated, not needed or left to do by hand.
//!
//! That of nginx has four steps: a tree of directives (`nginx::tree`), settings by nginx' rules of inheritance
//! (`nginx::level`, with a table from directive to translator in `nginx::directives`), locations with globs in place of
//! expressions (`path_globs`), and the tables of the new configuration (`nginx::output`). That of Caddy makes a list of steps
//! from the tree (`caddy::site`), each with the requests that it concerns (`request_selector`), and tables from these
//! (`caddy::output`). Both end in `checked`: the result has passed the configuration parser.
//!
//! The crate reads files, and writes none.

#![forbid(unsafe_code)]

pub mod caddy;
mod checked;
mod common_globs;
mod document;
mod look_ahead;
pub mod nginx;
mod origin_tables;
mod path_globs;
mod path_overlap;
mod report;
mod request_selector;
mod request_text;
mod toml_values;

pub use report::{DirectiveOutcome, ImportReport, OutcomeCounts, ReportEntry};

use lowroad_config::ConfigProblem;

/// The result of an import.
#[derive(Clone, Debug)]
pub struct ConfigImport {
    /// The configuration, in TOML.
    pub text: String,
    /// The outcome of each directive.
    pub report: ImportReport,
    /// Problems of the configuration that could not be commented out; mostly empty.
    pub problems: Vec<ConfigProblem>,
    /// Servers of the configuration that was read.
    pub site_count: usize,
}
