//! The byte stream to a MySQL server: a socket, with or without TLS. This module is independent of the MySQL protocol.

use std::io;

use lowroad_tls::{ClientConnector, TlsClient};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::address::{MySqlAddress, MySqlEndpoint};
use crate::database::driver_error::DriverError;

/// The number of bytes per read: a server writes up to 16 KiB at a time.
const READ_LEN: usize = 16 << 10;

const CLOSED: &str = "the database server has closed the connection";

trait AnySocket: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> AnySocket for T {}

/// The byte stream of a connection to a server.
pub struct MySqlStream {
    wire: SocketBuffer,
    tls: Option<Box<TlsState>>,
}

/// A socket with its read buffer.
struct SocketBuffer {
    socket: Box<dyn AnySocket>,
    buffer: Box<[u8]>,
}

struct TlsState {
    client: TlsClient,
    /// Decrypted bytes that were received last.
    plain: Vec<u8>,
    /// Encrypted records that have not been sent.
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
                // Commands are sent in small writes, which Nagle's algorithm would delay until the previous ACK.
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

    /// Performs the TLS handshake; all later data is encrypted.
    ///
    /// # Errors
    /// The handshake failed, or the connection was lost.
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
        // The ClientHello is sent before the first read, since the server waits for it.
        tls.send_records(&mut self.wire).await?;
        while !tls.client.is_established() {
            tls.read(&mut self.wire).await?;
        }
        self.tls = Some(tls);
        Ok(())
    }

    /// Sends all bytes.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), DriverError> {
        let Some(tls) = &mut self.tls else {
            return self.wire.send(bytes).await;
        };
        // The constant time 0 disables small records after a pause, which would not help: the server processes only
        // complete commands.
        let encrypted = tls.client.encrypt(&[bytes], &mut tls.records, 0);
        encrypted.map_err(DriverError::lost)?;
        tls.send_records(&mut self.wire).await
    }

    /// The next received bytes, at least one.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn receive(&mut self) -> Result<&[u8], DriverError> {
        let Some(tls) = &mut self.tls else {
            return self.wire.read().await.map(|bytes| &*bytes);
        };
        tls.plain.clear();
        // A record may contain no data, for example a session ticket.
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
    /// Receives and decrypts the next bytes. After a failure, an alert is sent to the server.
    async fn read(&mut self, wire: &mut SocketBuffer) -> Result<(), DriverError> {
        let bytes = wire.read().await?;
        let progress = self
            .client
            .receive(bytes, &mut self.plain, &mut self.records);
        // The records are sent before the failure is returned, since they may contain the alert.
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
        // The buffer is freed, so that an idle connection keeps no memory for it.
        let records = std::mem::take(&mut self.records);
        wire.send(&records).await
    }
}
