//! What a proxy says of its client before the first byte of a connection (the PROXY protocol), where a listener has it from
//! proxies that may say so. It is read off the socket before anything else is spoken there, encrypted or not. What it
//! looks like is told in [`lowroad_http::proxy_protocol`].
//!
//! Until it is there the connection is the proxy's and counts for no limit by address; then it is the client's.

use lowroad_http::proxy_protocol::{ProxyAddresses, ProxyHeaderParse, parse};

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::service::{ConnectionRefusal, HttpService};

/// No header came in time.
const LATE: &str = "no whole PROXY header came in time";
/// The connection ended within a header.
const CUT: &str = "the connection ended within its PROXY header";

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Takes the header that a connection has to begin with. Gives what of the bytes follows it, once it is there.
    pub(crate) fn introduction<'b>(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        bytes: &'b [u8],
    ) -> Option<&'b [u8]> {
        let mut came = self.input.take();
        let had = came.len();
        let parsed = match had {
            0 => parse(bytes),
            _ => {
                came.extend_from_slice(bytes);
                parse(&came)
            }
        };
        match parsed {
            ProxyHeaderParse::Header(header) => {
                // It was not whole without these bytes.
                let rest = &bytes[header.len - had..];
                self.on_proxy_header(worker, header.ends).then_some(rest)
            }
            ProxyHeaderParse::Incomplete => {
                // A header is short, so what waits is.
                self.input.add(if had == 0 { bytes } else { &came });
                None
            }
            ProxyHeaderParse::Refused(refused) => {
                self.reject_proxy_header(worker, refused.reason());
                None
            }
        }
    }

    /// Whose connection it is, is known. Whether it may go on.
    fn on_proxy_header(&mut self, worker: &mut WorkerContext<D, V>, ends: ProxyAddresses) -> bool {
        let timeout_ms = match self.transport.is_handshaking() {
            true => worker.settings.header_timeout_ms,
            false => worker.idle_timeout_ms(),
        };
        let deadline_ms = worker.driver.now_ms() + timeout_ms;
        self.transport.is_introduced = true;
        self.deadline_ms = deadline_ms;
        self.schedule_check(worker);
        // Of whom it says nothing is the proxy itself.
        let ProxyAddresses::Tcp { source, .. } = ends else {
            return true;
        };
        let transport = &mut self.transport;
        let proxy = std::mem::replace(&mut transport.peer, source.ip().to_canonical());
        transport.peer_port = source.port();
        transport.proxy = Some(Box::new(proxy.to_canonical()));
        let settings = &worker.settings;
        let moved =
            worker
                .admission
                .pass_on(proxy, transport.peer, settings.connections_per_address_max);
        if moved.is_err() {
            worker.counters.over_address_max.bump();
            self.refuse(worker, ConnectionRefusal::Overload, &[]);
        }
        moved.is_ok()
    }

    /// The end of a connection's bytes, or of the time for its header. Whether it is closed by that.
    pub(crate) fn ended_unintroduced(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        is_late: bool,
    ) -> bool {
        if self.transport.is_introduced {
            return false;
        }
        // A connection without a word is how some look whether we are there.
        let (is_silent, drains) = (self.input.is_empty(), worker.drain_until_ms.is_some());
        match is_late {
            _ if is_silent && (!is_late || drains) => self.close(),
            true => self.reject_proxy_header(worker, LATE),
            false => self.reject_proxy_header(worker, CUT),
        }
        true
    }

    fn reject_proxy_header(&mut self, worker: &mut WorkerContext<D, V>, why: &'static str) {
        worker.counters.proxy_headers_refused.bump();
        let proxy = self.transport.peer;
        worker.service.proxy_header_rejected(proxy, why);
        self.close();
    }
}
