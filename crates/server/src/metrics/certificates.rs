//! Metrics of TLS certificates and of failed TLS connections.

use lowroad_metrics::{MetricKind, MetricSnapshot};
use lowroad_tls_listener::certificate_status::CertificateStatus;

use crate::running_server::RunningServer;

/// The certificates in use, and those that have not been obtained yet.
pub fn list(running: &RunningServer) -> Vec<CertificateStatus> {
    let mut certificates = running.tls.certificates();
    // Several sites may have the same certificate with different keys or OCSP staples.
    certificates
        .sort_by(|one, other| (&one.names, &one.source).cmp(&(&other.names, &other.source)));
    certificates.dedup_by(|one, other| (&one.names, &one.source) == (&other.names, &other.source));
    certificates
}

/// Adds the metrics of certificates.
pub fn add(running: &RunningServer, out: &mut MetricSnapshot) {
    let certificates = list(running);
    let expiry = out.family(
        MetricKind::Gauge,
        "lowroad_certificate_expiry_timestamp_seconds",
        "The last valid second of a certificate, 0 before there is one.",
    );
    for it in &certificates {
        let labels = [("names", &*it.names), ("source", &*it.source)];
        expiry.whole(&labels, it.not_after_s.unwrap_or(0));
    }
    let renewal = out.family(
        MetricKind::Gauge,
        "lowroad_certificate_renewal_timestamp_seconds",
        "When the server renews a certificate next.",
    );
    for it in &certificates {
        if let Some(at_s) = it.renewal_s {
            renewal.whole(&[("names", &*it.names), ("source", &*it.source)], at_s);
        }
    }
    let failing = out.family(
        MetricKind::Gauge,
        "lowroad_certificate_renewal_failing",
        "Whether the last renewal of a certificate failed.",
    );
    for it in certificates.iter().filter(|it| it.renewal_s.is_some()) {
        let labels = [("names", &*it.names), ("source", &*it.source)];
        failing.whole(&labels, it.last_error.is_some().into());
    }
    let faults = out.family(
        MetricKind::Counter,
        "lowroad_tls_client_errors",
        "Failed TLS connections by reason.",
    );
    for (reason, count) in running.tls.counters() {
        // `lowroad status` has these counters under `tls.`, such as `tls.alerts`.
        let reason = reason.strip_prefix("tls.").unwrap_or(reason);
        faults.whole(&[("reason", reason)], count);
    }
}
