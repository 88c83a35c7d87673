//! Error messages for failures to get a connection to an origin.

use std::io;

use lowroad_http::status::StatusCode;
use lowroad_limits::RefusalReason;
use lowroad_origin::group::NoMember;
use lowroad_origin::{AcquireTimeouts, PoolUnavailable};

/// Describes why no connection was available. `to_server` names the server, preceded by a space; empty if the context
/// names it.
pub fn unavailable_text(
    unavailable: &PoolUnavailable,
    timeouts: AcquireTimeouts,
    to_server: &str,
) -> String {
    match unavailable {
        PoolUnavailable::TooManyWait | PoolUnavailable::NoneFree => {
            format!(
                "no connection{to_server} was free within {} ms",
                timeouts.total.as_millis()
            )
        }
        PoolUnavailable::ConnectTimeout => {
            let ms = timeouts.connecting.as_millis();
            format!("connecting{to_server} took longer than {ms} ms")
        }
        PoolUnavailable::Failed(error) => {
            let hint = match error.kind() {
                io::ErrorKind::PermissionDenied => "; check that this user may write to the socket",
                io::ErrorKind::InvalidData => "",
                _ => "; check that it runs and listens there",
            };
            format!("can't connect{to_server}: {error}{hint}")
        }
    }
}

/// The status of a request without a connection. The client can distinguish overload from a timeout (RFC 9110 §15.6.4,
/// §15.6.5).
pub fn unavailable_status(unavailable: &PoolUnavailable) -> StatusCode {
    match unavailable {
        PoolUnavailable::TooManyWait | PoolUnavailable::NoneFree => StatusCode::SERVICE_UNAVAILABLE,
        PoolUnavailable::ConnectTimeout => StatusCode::GATEWAY_TIMEOUT,
        PoolUnavailable::Failed(_) => StatusCode::BAD_GATEWAY,
    }
}

/// The limit that was hit, if that is why there is no connection.
pub fn pool_refusal(unavailable: &PoolUnavailable) -> Option<RefusalReason> {
    match unavailable {
        PoolUnavailable::TooManyWait => Some(RefusalReason::Queue),
        PoolUnavailable::NoneFree => Some(RefusalReason::QueueTimeout),
        PoolUnavailable::ConnectTimeout => Some(RefusalReason::ConnectTimeout),
        PoolUnavailable::Failed(_) => None,
    }
}

/// The limit that was hit, if that is why no member of a group was chosen.
pub fn group_refusal(no_member: NoMember) -> Option<RefusalReason> {
    (no_member == NoMember::AllFull).then_some(RefusalReason::ServerConnections)
}
