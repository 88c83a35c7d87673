//! The PROXY protocol: on listeners that require it, a trusted proxy begins each connection with a header that contains
//! the client's address. The header precedes a TLS handshake. The format is in [`lowroad_http::proxy_protocol`].
//!
//! Until the header is complete, the limit per address does not apply to the connection; then it applies to the
//! client's address.

use lowroad_http::proxy_protocol::{ProxyAddresses, ProxyHeaderParse, parse};

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::driver::IoDriver;
use crate::service::{ConnectionRefusal, HttpService};

/// The header timeout elapsed.
const LATE: &str = "no complete PROXY header arrived in time";
/// The connection ended within a header.
const CUT: &str = "the connection ended within its PROXY header";

impl<D: IoDriver, V: HttpService> WorkerConnection<D, V> {
    /// Parses the header at the start of a connection. Returns the bytes that follow it, once it is complete.
    pub(crate) fn parse_proxy_header<'b>(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        bytes: &'b [u8],
    ) -> Option<&'b [u8]> {
        let mut buffered = self.input.take();
        let buffered_len = buffered.len();
        let parsed = match buffered_len {
            0 => parse(bytes),
            _ => {
                buffered.extend_from_slice(bytes);
                parse(&buffered)
            }
        };
        match parsed {
            ProxyHeaderParse::Header(header) => {
                // The header ends within `bytes`, as it was incomplete before.
                let rest = &bytes[header.len - buffered_len..];
                self.on_proxy_header(worker, header.addresses)
                    .then_some(rest)
            }
            ProxyHeaderParse::Incomplete => {
                // A header is short, so this buffer is bounded.
                self.input
                    .add(if buffered_len == 0 { bytes } else { &buffered });
                None
            }
            ProxyHeaderParse::Refused(refused) => {
                self.reject_proxy_header(worker, refused.reason());
                None
            }
        }
    }

    /// Applies the client's address. Returns whether the connection may continue.
    fn on_proxy_header(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        addresses: ProxyAddresses,
    ) -> bool {
        let timeout_ms = match self.transport.is_handshaking() {
            true => worker.settings.header_timeout_ms,
            false => worker.idle_timeout_ms(),
        };
        let deadline_ms = worker.driver.now_ms() + timeout_ms;
        self.transport.is_proxy_header_done = true;
        self.deadline_ms = deadline_ms;
        // The new deadline may be earlier than the timeout for the header.
        self.schedule_check(worker);
        // A header without an address (LOCAL, UNKNOWN) is from the proxy itself, such as a health check.
        let ProxyAddresses::Tcp { source, .. } = addresses else {
            return true;
        };
        let transport = &mut self.transport;
        let proxy = std::mem::replace(&mut transport.peer, source.ip().to_canonical());
        transport.peer_port = source.port();
        transport.proxy = Some(Box::new(proxy.to_canonical()));
        let settings = &worker.settings;
        // The limit per address now applies to the client.
        let admitted =
            worker
                .admission
                .transfer(proxy, transport.peer, settings.connections_per_address_max);
        if admitted.is_err() {
            worker.counters.over_address_max.bump();
            self.refuse(worker, ConnectionRefusal::Overload, &[]);
            return false;
        }
        // The accept has only checked the proxy.
        self.close_if_denied(worker);
        !self.is_closed()
    }

    /// Handles the end of input or, if `is_late`, the timeout for the header. Returns whether that closes the
    /// connection, as it has no complete header.
    pub(crate) fn close_without_proxy_header(
        &mut self,
        worker: &mut WorkerContext<D, V>,
        is_late: bool,
    ) -> bool {
        if self.transport.is_proxy_header_done {
            return false;
        }
        // A connection without any bytes is a TCP health check, and no error.
        let (is_silent, drains) = (self.input.is_empty(), worker.drain_until_ms.is_some());
        match is_late {
            _ if is_silent && (!is_late || drains) => self.close(),
            true => self.reject_proxy_header(worker, LATE),
            false => self.reject_proxy_header(worker, CUT),
        }
        true
    }

    fn reject_proxy_header(&mut self, worker: &mut WorkerContext<D, V>, reason: &'static str) {
        worker.counters.proxy_headers_refused.bump();
        let proxy = self.transport.peer;
        worker.service.proxy_header_rejected(proxy, reason);
        self.close();
    }
}
