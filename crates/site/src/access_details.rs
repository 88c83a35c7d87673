//! The properties of a request that only formats with variables need, kept until the response is complete.

use std::sync::Arc;

use lowroad_engine::Exchange;
use lowroad_http::request::Request;
use lowroad_log::variable::is_field;
use lowroad_log::{EntryDetails, FieldValues};
use lowroad_metrics::{MetricScope, ScopeLabels, ScopeRegistry};

/// The properties of one request.
#[derive(Default)]
pub(crate) struct RecordDetails {
    peer_port: u16,
    is_https: bool,
    scope: MetricScope,
    /// The values of the request fields that the formats of all logs name, adjacent.
    fields: Vec<u8>,
    /// The start of the first value in `fields`, and the end of each value.
    bounds: Vec<usize>,
}

impl RecordDetails {
    /// The memory of the texts.
    pub(crate) fn capacity(&self) -> usize {
        self.fields.capacity() + self.bounds.capacity() * size_of::<usize>()
    }

    fn set(&mut self, exchange: &Exchange, request: Option<&Request<'_>>, names: &[String]) {
        self.peer_port = exchange.peer_port;
        self.is_https = exchange.is_https();
        self.scope = MetricScope::from_number(exchange.metric_scope);
        self.fields.clear();
        self.bounds.clear();
        self.bounds.push(0);
        for name in names {
            if let Some(request) = request {
                self.push_field(request, name);
            }
            self.bounds.push(self.fields.len());
        }
    }

    /// Appends the combined value of a field (RFC 9110 §5.3).
    fn push_field(&mut self, request: &Request<'_>, name: &str) {
        let start = self.fields.len();
        // Cookies are combined differently (RFC 9113 §8.2.3).
        let separator: &[u8] = if name == "cookie" { b"; " } else { b", " };
        let lines = request.fields();
        for (_, value) in lines.filter(|(received, _)| is_field(received, name)) {
            if self.fields.len() > start {
                self.fields.extend_from_slice(separator);
            }
            self.fields.extend_from_slice(value);
        }
    }
}

/// The properties that the logs of a worker need.
pub(crate) struct NeededDetails {
    /// The request fields that the formats name, one log after the other.
    names: Vec<String>,
    scopes: Arc<ScopeRegistry>,
    labels: Vec<ScopeLabels>,
}

impl NeededDetails {
    /// The details for these request fields.
    pub(crate) fn new(names: Vec<String>, scopes: Arc<ScopeRegistry>) -> NeededDetails {
        NeededDetails {
            names,
            labels: scopes.labels(),
            scopes,
        }
    }

    /// Records the details of a request; `None` for a request that was refused before it was complete.
    pub(crate) fn record(
        &mut self,
        details: &mut RecordDetails,
        exchange: &Exchange,
        request: Option<&Request<'_>>,
    ) {
        details.set(exchange, request, &self.names);
        // Scopes are only added, so old labels stay valid after a reload.
        if details.scope.index() >= self.labels.len() {
            self.labels = self.scopes.labels();
        }
    }

    /// The details for a log of which the first field has this index.
    pub(crate) fn entry<'a>(
        &'a self,
        details: &'a RecordDetails,
        first_field: usize,
    ) -> EntryDetails<'a> {
        let labels = self.labels.get(details.scope.index());
        EntryDetails {
            peer_port: details.peer_port,
            scheme: if details.is_https { "https" } else { "http" },
            site: labels.map_or("", |labels| &labels.site),
            route: labels.map_or("", |labels| &labels.route),
            fields: FieldValues {
                bytes: &details.fields,
                bounds: details.bounds.get(first_field..).unwrap_or_default(),
            },
        }
    }
}
