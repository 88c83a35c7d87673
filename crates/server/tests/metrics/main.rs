//! Metrics and the admin service over real sockets: the three formats, totals, tokens, commands over TCP; the documents
//! for operators; Prometheus itself.

mod documents;
mod formats;
mod prometheus;
mod scopes;
mod service;
mod slow_scrapes;
mod support;
mod text_format;
