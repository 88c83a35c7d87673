//! Fetches the response that unknown clients get: the request comes from a probe source address, which is not one of
//! this machine's. A response that only this machine gets, or that differs for this machine, is not published.
//! Independent of how connections are opened, and of storage.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use crate::fetch::{self, FetchLimits, ResponseFetcher};
use crate::response::FetchError;
use crate::response::fetched_response::{FetchedResponse, RevalidationFields};
use lowroad_wire::key::KeyParts;

/// The source address of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectSource {
    /// The same local address that the connection goes to.
    Machine,
    /// The probe source address, see `machine::probe_source`.
    ProbeSource,
}

/// Connects to the server at a local address: the one that the client requested.
pub type ServerConnector =
    Arc<dyn Fn(SocketAddr, ConnectSource) -> io::Result<TcpStream> + Send + Sync>;

/// Asks Lowroad as the server for its response at this address without a TCP connection. `None`: the response must be
/// fetched over TCP, as from other servers.
pub type OfferLookup = Arc<dyn Fn(SocketAddr, &[u8]) -> Option<Vec<u8>> + Send + Sync>;

type BoxedConnector = Box<dyn Fn(SocketAddr) -> io::Result<TcpStream> + Send>;

/// Fetches one response at a time over pooled connections.
pub struct AddressFetcher {
    machine: ResponseFetcher<BoxedConnector>,
    /// `None`: the server is Lowroad, which decides which of its responses are for all clients.
    probe: Option<ResponseFetcher<BoxedConnector>>,
    offer_lookup: Option<OfferLookup>,
}

impl AddressFetcher {
    /// Starts without connections. `with_probe` is false only if the server is Lowroad.
    #[must_use]
    pub fn new(connect: &ServerConnector, with_probe: bool) -> AddressFetcher {
        let fetcher = |source| {
            let connect = connect.clone();
            let connector: BoxedConnector = Box::new(move |to| connect(to, source));
            ResponseFetcher::new(connector, FetchLimits::default())
        };
        AddressFetcher {
            machine: fetcher(ConnectSource::Machine),
            probe: with_probe.then(|| fetcher(ConnectSource::ProbeSource)),
            offer_lookup: None,
        }
    }

    /// Uses offered responses instead of fetches. To be called only if the server is Lowroad.
    #[must_use]
    pub fn with_offer_lookup(self, offer_lookup: Option<OfferLookup>) -> AddressFetcher {
        AddressFetcher {
            offer_lookup,
            ..self
        }
    }

    /// Fetches the response that all clients get for the key.
    ///
    /// # Errors
    /// If there is no complete and unambiguous response, or the response is not for all clients.
    pub fn fetch(
        &mut self,
        key: &KeyParts<'_>,
        validators: &RevalidationFields,
    ) -> Result<FetchedResponse, FetchError> {
        // If Lowroad offers no usable response, the response is fetched over TCP.
        if let Some(offer_lookup) = &self.offer_lookup
            && let Some(bytes) = offer_lookup(key.local(), &fetch::request(key, validators))
            && let Ok(response) = fetch::read(&bytes)
        {
            return Ok(response);
        }
        let probe = match &mut self.probe {
            // Loopback addresses need no probe: only this machine itself can request them.
            Some(probe) if !key.address.is_loopback() => probe,
            _ => return self.machine.fetch(key, validators),
        };
        let probe_response = probe.fetch(key, validators)?;
        // A 304 confirms a response that was compared when it was first fetched; a server error is not published.
        let is_unchanged = probe_response.status == 304 && !key.is_conditional();
        if is_unchanged || probe_response.status >= 500 {
            return Ok(probe_response);
        }
        // The request has no validators, since a 304 could not be compared.
        let machine_response = self.machine.fetch(key, &RevalidationFields::default())?;
        match is_alike(&probe_response, &machine_response) {
            true => Ok(probe_response),
            false => Err(FetchError::DiffersBySource {
                machine: machine_response.status,
                probe: probe_response.status,
            }),
        }
    }
}

/// Whether both sources got the same response as far as status and Location tell. Bodies are not compared: pages may
/// contain the time or a request number.
fn is_alike(probe_response: &FetchedResponse, machine_response: &FetchedResponse) -> bool {
    probe_response.status == machine_response.status
        && probe_response.field("location") == machine_response.field("location")
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_wire::key;
    use lowroad_wire::segment_context::IgnoredFields;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    /// Starts a server that sends the same text on each connection.
    fn start_server(text: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut lines = BufReader::new(&stream).lines();
                while lines
                    .next()
                    .is_some_and(|line| line.is_ok_and(|l| !l.is_empty()))
                {}
                let _ = (&stream).write_all(text.as_bytes());
            }
        });
        address
    }

    fn fetched_status(
        machine: &'static str,
        outsider: Option<&'static str>,
    ) -> Result<u16, FetchError> {
        let servers = (start_server(machine), start_server(outsider.unwrap_or("")));
        let connect: ServerConnector = Arc::new(move |_, asks| {
            TcpStream::connect(match asks {
                ConnectSource::Machine => servers.0,
                ConnectSource::ProbeSource => servers.1,
            })
        });
        let head = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let local = ([192, 0, 2, 1], 80).into();
        let key = key::read(head, local, IgnoredFields::default())
            .expect("a key")
            .key;
        AddressFetcher::new(&connect, outsider.is_some())
            .fetch(&key.parts(), &RevalidationFields::default())
            .map(|told| told.status)
    }

    const YES: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    const NO: &str = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";

    #[test]
    fn response_that_differs_by_source_address_is_rejected() {
        assert_eq!(fetched_status(YES, Some(YES)), Ok(200));
        assert_eq!(fetched_status(NO, Some(NO)), Ok(403));
        let few = |machine, outsider| {
            Err(FetchError::DiffersBySource {
                machine,
                probe: outsider,
            })
        };
        assert_eq!(fetched_status(YES, Some(NO)), few(200, 403));
        assert_eq!(fetched_status(NO, Some(YES)), few(403, 200));
        let there = "HTTP/1.1 302 Found\r\nLocation: /a\r\nContent-Length: 0\r\n\r\n";
        let elsewhere = "HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(fetched_status(there, Some(elsewhere)), few(302, 302));
        assert_eq!(fetched_status(YES, None), Ok(200));
    }
}
