//! Metrics and the admin service over real sockets: the exposition formats, totals, tokens, and operations over TCP;
//! the documents for operators; a real Prometheus.

mod deny_list;
mod documents;
mod formats;
mod mutual_tls;
mod origin_states;
mod persistence;
mod prometheus;
mod scopes;
mod service;
mod slow_scrapes;
mod soak;
mod status_names;
mod support;
mod text_format;
mod top;
mod urls;
