//! A connection to a compared server, with TLS for https.
//!
//! Certificates are not verified: the servers are given by their addresses, and one of them may not be public yet.

use std::io::{self, Read, Write};
use std::net::TcpStream;

#[cfg(feature = "tls")]
use lowroad_tls::{ClientConnector, ServerTrust, TlsClient};

/// A connection.
pub enum ServerStream {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS.
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream>),
}

impl ServerStream {
    /// Performs the handshake of TLS; `name` selects the certificate (SNI).
    ///
    /// # Errors
    /// The handshake failed, or this program has no TLS.
    #[cfg(feature = "tls")]
    pub fn encrypt(socket: TcpStream, name: &str) -> io::Result<ServerStream> {
        let trust = ServerTrust::any_certificate();
        let connector =
            ClientConnector::new(&trust, &["http/1.1"], None, 0, None).map_err(io::Error::other)?;
        let mut hello = Vec::new();
        let client = connector.connect(name, &mut hello);
        let mut stream = TlsStream {
            socket,
            client: client.map_err(io::Error::other)?,
            plain: Vec::new(),
        };
        stream.socket.write_all(&hello)?;
        while !stream.client.is_established() {
            if stream.receive()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(ServerStream::Tls(Box::new(stream)))
    }

    /// Performs the handshake of TLS.
    ///
    /// # Errors
    /// This program has no TLS.
    #[cfg(not(feature = "tls"))]
    pub fn encrypt(_: TcpStream, _: &str) -> io::Result<ServerStream> {
        let message = "this program was built without TLS";
        Err(io::Error::new(io::ErrorKind::Unsupported, message))
    }

    /// Sends all bytes.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            ServerStream::Plain(socket) => socket.write_all(bytes),
            #[cfg(feature = "tls")]
            ServerStream::Tls(stream) => {
                let mut records = Vec::new();
                let sent = stream.client.encrypt(&[bytes], &mut records, 0);
                sent.map_err(io::Error::other)?;
                stream.socket.write_all(&records)
            }
        }
    }

    /// Receives bytes; 0 at the end of the connection.
    ///
    /// # Errors
    /// Those of the connection, or a record that can't be decrypted.
    pub fn receive(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        match self {
            ServerStream::Plain(socket) => socket.read(chunk),
            #[cfg(feature = "tls")]
            ServerStream::Tls(stream) => {
                while stream.plain.is_empty() {
                    if stream.receive()? == 0 {
                        return Ok(0);
                    }
                }
                let len = stream.plain.len().min(chunk.len());
                chunk[..len].copy_from_slice(&stream.plain[..len]);
                stream.plain.drain(..len);
                Ok(len)
            }
        }
    }
}

/// A connection with TLS.
#[cfg(feature = "tls")]
pub struct TlsStream {
    socket: TcpStream,
    client: TlsClient,
    /// Decrypted bytes that were not read yet.
    plain: Vec<u8>,
}

#[cfg(feature = "tls")]
impl TlsStream {
    /// Receives records and answers them; returns the number of received bytes, 0 at the end.
    fn receive(&mut self) -> io::Result<usize> {
        let mut wire = [0; 16 * 1024];
        let len = self.socket.read(&mut wire)?;
        let mut to_send = Vec::new();
        let progress = self
            .client
            .receive(&mut wire[..len], &mut self.plain, &mut to_send);
        // After a failure, these bytes are the alert.
        self.socket.write_all(&to_send)?;
        let is_closed = progress.map_err(io::Error::other)?.closed;
        match is_closed && self.plain.is_empty() {
            true => Ok(0),
            false => Ok(len),
        }
    }
}
