//! Texts about missing connections to an origin.

use std::io;

use lowroad_origin::{AcquireTimeouts, PoolUnavailable};

/// The reason as a text. `to_server` names the server, with a space in front, unless the context does.
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
