//! A blocking connection to a collector, with TLS for https, on which each operation has a deadline.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use lowroad_config::{OriginUrl, TracesConfig};

#[cfg(feature = "tls")]
use lowroad_tls::{ClientConnector, ServerTrust, TlsClient};

/// Connects to a collector.
pub struct CollectorConnector {
    host: String,
    port: u16,
    #[cfg(feature = "tls")]
    tls: Option<ClientConnector>,
}

/// A connection.
pub struct CollectorStream {
    socket: TcpStream,
    #[cfg(feature = "tls")]
    tls: Option<TlsStream>,
}

impl CollectorConnector {
    /// Prepares connections to the configured collector.
    ///
    /// # Errors
    /// The certificate authorities can't be used: a message with a remedy.
    pub fn new(config: &TracesConfig) -> Result<CollectorConnector, String> {
        let OriginUrl::Http { host, port, .. } = &config.endpoint.server else {
            return Err("[traces] endpoint is not a URL of HTTP".into());
        };
        Ok(CollectorConnector {
            host: host.clone(),
            port: *port,
            #[cfg(feature = "tls")]
            tls: match config.endpoint.server.is_encrypted() {
                true => Some(connector(config)?),
                false => None,
            },
        })
    }

    /// Connects to the first address of the host that accepts the connection.
    pub fn connect(&self, deadline: Instant) -> io::Result<CollectorStream> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, remaining(deadline)?) {
                Ok(socket) => return self.open(socket, deadline),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    #[cfg(feature = "tls")]
    fn open(&self, socket: TcpStream, deadline: Instant) -> io::Result<CollectorStream> {
        socket.set_nodelay(true)?;
        let mut stream = CollectorStream { socket, tls: None };
        if let Some(connector) = &self.tls {
            let mut to_send = Vec::new();
            let client = connector
                .connect(&self.host, &mut to_send)
                .map_err(io::Error::other)?;
            let mut tls = TlsStream {
                client,
                plain: Vec::new(),
            };
            stream.send_plain(&to_send, deadline)?;
            while !tls.client.is_established() {
                if tls.receive(&mut stream, deadline)? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            stream.tls = Some(tls);
        }
        Ok(stream)
    }

    #[cfg(not(feature = "tls"))]
    fn open(&self, socket: TcpStream, _: Instant) -> io::Result<CollectorStream> {
        socket.set_nodelay(true)?;
        Ok(CollectorStream { socket })
    }
}

impl CollectorStream {
    /// Sends all bytes.
    pub fn send(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            let mut records = Vec::new();
            tls.client
                .encrypt(&[bytes], &mut records, 0)
                .map_err(io::Error::other)?;
            return self.send_plain(&records, deadline);
        }
        self.send_plain(bytes, deadline)
    }

    /// Receives bytes; 0 at the end of the connection.
    pub fn receive(&mut self, chunk: &mut [u8], deadline: Instant) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(mut tls) = self.tls.take() {
            let received = tls.receive_plain(self, chunk, deadline);
            self.tls = Some(tls);
            return received;
        }
        self.receive_plain(chunk, deadline)
    }

    fn send_plain(&mut self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            self.socket.set_write_timeout(Some(remaining(deadline)?))?;
            match self.socket.write(bytes)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                len => bytes = &bytes[len..],
            }
        }
        Ok(())
    }

    fn receive_plain(&mut self, chunk: &mut [u8], deadline: Instant) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(remaining(deadline)?))?;
        self.socket.read(chunk)
    }
}

/// The time until a deadline.
fn remaining(deadline: Instant) -> io::Result<Duration> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    match remaining.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(remaining),
    }
}

#[cfg(feature = "tls")]
struct TlsStream {
    client: TlsClient,
    /// Decrypted bytes that were not read yet.
    plain: Vec<u8>,
}

#[cfg(feature = "tls")]
impl TlsStream {
    /// Receives records and answers them; returns the number of received bytes.
    fn receive(&mut self, stream: &mut CollectorStream, deadline: Instant) -> io::Result<usize> {
        let mut wire = [0; 16 * 1024];
        let len = stream.receive_plain(&mut wire, deadline)?;
        let mut to_send = Vec::new();
        let progress = self
            .client
            .receive(&mut wire[..len], &mut self.plain, &mut to_send);
        // After a failure, these bytes are the alert.
        stream.send_plain(&to_send, deadline)?;
        progress.map_err(io::Error::other)?;
        Ok(len)
    }

    fn receive_plain(
        &mut self,
        stream: &mut CollectorStream,
        chunk: &mut [u8],
        deadline: Instant,
    ) -> io::Result<usize> {
        while self.plain.is_empty() {
            if self.receive(stream, deadline)? == 0 {
                return Ok(0);
            }
        }
        let len = self.plain.len().min(chunk.len());
        chunk[..len].copy_from_slice(&self.plain[..len]);
        self.plain.drain(..len);
        Ok(len)
    }
}

#[cfg(feature = "tls")]
fn connector(config: &TracesConfig) -> Result<ClientConnector, String> {
    /// Maximum number of cached sessions: one, for the only connection.
    const SESSIONS_MAX: usize = 1;
    let trust = match &config.authorities {
        Some(file) => {
            let pem = std::fs::read(file)
                .map_err(|error| format!("[traces] ca: {}: {error}", file.display()))?;
            ServerTrust::from_pem(&pem)
                .map_err(|reason| format!("[traces] ca: {}: {reason}", file.display()))?
        }
        None => ServerTrust::system(),
    };
    ClientConnector::new(&trust, &["http/1.1"], None, SESSIONS_MAX, None).map_err(|_| {
        "[traces]: the system has no trusted certificate authorities: install ca-certificates, or set ca".into()
    })
}
