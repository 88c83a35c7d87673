//! Texts about missing connections to an origin.

use std::io;

use lowroad_origin::{AcquireTimeouts, PoolUnavailable};

/// The reason as a text. `to` names the server, with a space in front, unless the context does.
pub fn unavailable_text(why: &PoolUnavailable, patience: AcquireTimeouts, to: &str) -> String {
    match why {
        PoolUnavailable::TooManyWait | PoolUnavailable::NoneFree => {
            format!(
                "no connection{to} was free within {} ms",
                patience.total.as_millis()
            )
        }
        PoolUnavailable::ConnectTimeout => {
            let ms = patience.connecting.as_millis();
            format!("connecting{to} took longer than {ms} ms")
        }
        PoolUnavailable::Failed(error) => {
            let hint = match error.kind() {
                io::ErrorKind::PermissionDenied => "; check that this user may write to the socket",
                io::ErrorKind::InvalidData => "",
                _ => "; check that it runs and listens there",
            };
            format!("can't connect{to}: {error}{hint}")
        }
    }
}
