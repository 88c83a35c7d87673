//! The byte stream to a database server: a socket with or without TLS. Independent of MySQL messages.

use std::io;

use lowroad_tls::{ClientConnector, TlsClient};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::address::{MySqlAddress, MySqlEndpoint};
use crate::database::trouble::DriverError;

/// Bytes per read: a server writes 16 KiB at a time.
const READ_LEN: usize = 16 << 10;

const CLOSED: &str = "the database server has closed the connection";

trait AnySocket: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> AnySocket for T {}

/// The byte stream of a connection.
pub struct MySqlStream {
    wire: SocketBuffer,
    tls: Option<Box<TlsState>>,
}

/// A socket and its read buffer.
struct SocketBuffer {
    socket: Box<dyn AnySocket>,
    buffer: Box<[u8]>,
}

struct TlsState {
    client: TlsClient,
    /// Decrypted bytes.
    plain: Vec<u8>,
    /// Encrypted records to send.
    records: Vec<u8>,
}

impl MySqlStream {
    /// Connects to a server.
    ///
    /// # Errors
    /// The server is unreachable.
    pub async fn connect(address: &MySqlAddress) -> io::Result<MySqlStream> {
        let socket: Box<dyn AnySocket> = match &address.endpoint {
            MySqlEndpoint::Socket(path) => Box::new(UnixStream::connect(path).await?),
            MySqlEndpoint::Host(port) => {
                let stream = TcpStream::connect((&*address.host, *port)).await?;
                // Commands are single small writes, for which Nagle's algorithm would wait for an ACK.
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        };
        let wire = SocketBuffer {
            socket,
            buffer: vec![0; READ_LEN].into(),
        };
        Ok(MySqlStream { wire, tls: None })
    }

    /// Performs the TLS handshake; all later bytes are encrypted.
    ///
    /// # Errors
    /// One side refuses the other, or the connection is lost.
    pub async fn start_tls(
        &mut self,
        connector: &ClientConnector,
        host: &str,
    ) -> Result<(), DriverError> {
        let mut records = Vec::new();
        let client = connector.connect(host, &mut records);
        let mut tls = Box::new(TlsState {
            client: client.map_err(DriverError::lost)?,
            plain: Vec::new(),
            records,
        });
        // The ClientHello goes out before the first read: the server waits for it.
        tls.send_records(&mut self.wire).await?;
        while !tls.client.is_established() {
            tls.read(&mut self.wire).await?;
        }
        self.tls = Some(tls);
        Ok(())
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), DriverError> {
        let Some(tls) = &mut self.tls else {
            return self.wire.send(bytes).await;
        };
        // Constant time 0: small records after a pause would not help, since a server waits for the whole command.
        let encrypted = tls.client.encrypt(&[bytes], &mut tls.records, 0);
        encrypted.map_err(DriverError::lost)?;
        tls.send_records(&mut self.wire).await
    }

    /// The next received bytes, at least one.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn receive(&mut self) -> Result<&[u8], DriverError> {
        let Some(tls) = &mut self.tls else {
            return self.wire.read().await.map(|bytes| &*bytes);
        };
        tls.plain.clear();
        // A record may hold no data, such as a session ticket.
        while tls.plain.is_empty() {
            tls.read(&mut self.wire).await?;
        }
        Ok(&tls.plain)
    }
}

impl SocketBuffer {
    async fn send(&mut self, bytes: &[u8]) -> Result<(), DriverError> {
        self.socket
            .write_all(bytes)
            .await
            .map_err(DriverError::lost)
    }

    async fn read(&mut self) -> Result<&mut [u8], DriverError> {
        match self.socket.read(&mut self.buffer).await {
            Ok(0) => Err(DriverError::lost(CLOSED)),
            Ok(len) => Ok(&mut self.buffer[..len]),
            Err(error) => Err(DriverError::lost(error)),
        }
    }
}

impl TlsState {
    /// Decrypts the next bytes. After a failure the server gets an alert.
    async fn read(&mut self, wire: &mut SocketBuffer) -> Result<(), DriverError> {
        let bytes = wire.read().await?;
        let progress = self
            .client
            .receive(bytes, &mut self.plain, &mut self.records);
        // Before the failure is returned, since the records may hold the alert that explains it to the server.
        let sent = self.send_records(wire).await;
        let progress = progress.map_err(DriverError::lost)?;
        // Data before close_notify is still a valid reply.
        match progress.closed && self.plain.is_empty() {
            true => Err(DriverError::lost(CLOSED)),
            false => sent,
        }
    }

    async fn send_records(&mut self, wire: &mut SocketBuffer) -> Result<(), DriverError> {
        if self.records.is_empty() {
            return Ok(());
        }
        // An idle connection keeps no memory for sent bytes.
        let records = std::mem::take(&mut self.records);
        wire.send(&records).await
    }
}
