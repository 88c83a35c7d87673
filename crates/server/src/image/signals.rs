//! Being told to stop.

use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGINT, SIGTERM};

/// From now on a byte can be read here for each SIGINT or SIGTERM; reading never waits.
///
/// # Errors
/// When there are no descriptors left: a text for the operator.
pub fn stops() -> Result<UnixStream, String> {
    let registered = UnixStream::pair().and_then(|(read, write)| {
        read.set_nonblocking(true)?;
        for signal in [SIGINT, SIGTERM] {
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        Ok(read)
    });
    registered.map_err(|error| format!("signals: {error}"))
}
