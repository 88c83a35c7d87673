//! `/v1/certificates`: the certificates in use, and the renewal of automatic ones.

use bytes::Bytes;
use lowroad_http::status::StatusCode;
use serde_json::{Value, json};

use crate::admin::call::AdminCall;
use crate::admin::problem::AdminProblem;
use crate::admin::service::{AdminOutcome, AdminReply};
use crate::metrics::certificates;
use crate::running_server::RunningServer;

/// `GET /v1/certificates`
pub fn list(running: &RunningServer) -> AdminReply {
    let certificates = certificates::list(running).into_iter().map(|it| {
        json!({
            // A name contains no space.
            "names": it.names.split(' ').collect::<Vec<_>>(),
            "source": it.source,
            "not_after_s": it.not_after_s,
            "renewal_s": it.renewal_s,
            "last_error": it.last_error,
        })
    });
    let list = json!({ "certificates": certificates.collect::<Vec<Value>>() });
    AdminReply::new("application/json", Bytes::from(list.to_string()))
}

/// `POST /v1/certificates/{name}/renew`. The order runs in the background: its result is in the list and in the log.
///
/// # Errors
/// No automatic certificate has the name.
pub fn renew(running: &RunningServer, call: &AdminCall) -> AdminOutcome {
    let name = call.request.segment(0);
    // Only automatic certificates are known there.
    if running.tls.renew(name) {
        return Ok(AdminReply {
            status: StatusCode::ACCEPTED,
            ..AdminReply::text(format!(
                "{name}: the renewal is due now; delays after failures of the authority apply\n"
            ))
        });
    }
    // The remedy differs: a certificate of a file is replaced by its owner.
    let is_from_file = certificates::list(running)
        .iter()
        .any(|it| it.names.split(' ').any(|known| known == name));
    Err(match is_from_file {
        true => AdminProblem::new(
            StatusCode::CONFLICT,
            format!("{name}: the server does not obtain this certificate itself; replace its file"),
        ),
        false => AdminProblem::not_found(format!("{name}: no certificate has this name")),
    })
}
