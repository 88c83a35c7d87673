//! HTTP/2 to origins: concurrent requests share a connection.
//!
//! ```text
//!  ProxyExchange ── H2Exchange ─┐  locks                    ┌─ reads and writes the socket
//!  ProxyExchange ── H2Exchange ─┼───────► H2Link (state) ◄──┤  LinkDriver, a task of the connection's worker
//!  ProxyExchange ── H2Exchange ─┘  wakes the driver         └─ wakes the exchanges
//! ```
//!
//! **Flow control.** The window of a stream is returned when its exchange takes the bytes, so a slow client stops the
//! origin, and at most a window is buffered for it. The connection's window is returned on receipt, so a slow client
//! stops no other. Upwards, an exchange offers at most [`UPLOAD_LEN_MAX`] bytes that the origin's windows do not admit.
//!
//! **Errors.** A violation of the protocol ends the connection and fails its exchanges. A stream error fails one
//! exchange. A request that the origin has certainly not processed (REFUSED_STREAM, above the last stream of GOAWAY, or
//! never sent) may be repeated whatever its method.

mod driver;
mod exchange;
mod link;
mod slots;

pub use self::driver::LinkOwner;
pub use self::exchange::H2Exchange;
pub use self::link::H2Link;
pub use self::slots::RequestHead;

use std::sync::LazyLock;
use std::time::Duration;

use lowroad_http::h2::H2Settings;
use lowroad_limits::{CellRate, RequestRate};

/// The maximum number of concurrent requests on a connection, if the origin allows as many.
pub const STREAMS_MAX: usize = 100;
/// The maximum number of requests while the origin's settings are unknown for longer than [`SETTLE_TIME_MAX`].
const UNSETTLED_STREAMS_MAX: usize = 16;
/// How long requests wait for the origin's settings. Most origins send them as soon as the connection is open; a request that
/// is sent earlier may exceed the origin's limit, and is refused.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(1);
/// The length of a request body's part that waits for windows, from which on no more is accepted.
const UPLOAD_LEN_MAX: usize = 64 << 10;
/// The length of unsent output, from which on neither bodies are added nor input is read.
const OUTPUT_LEN_MAX: usize = 64 << 10;
/// The time for which a connection is kept without requests.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// How often the connection is checked for idleness and for the answer to a PING.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The limits of a connection. An origin is trusted more than a client: it may reset many streams, and gRPC servers send
/// a PING for each message.
static SETTINGS: LazyLock<H2Settings> = LazyLock::new(|| H2Settings {
    window_len_max: 256 << 10,
    resets: rate(1_000, 10_000),
    glitches: rate(10_000, 50_000),
    ..H2Settings::default()
});

fn rate(per_s: u64, burst: u64) -> CellRate {
    CellRate::new(RequestRate {
        requests: per_s,
        period_ms: 1_000,
        burst,
    })
}
