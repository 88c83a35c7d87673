//! The connections of one worker. A turn of the caller: take all datagrams, call `advance`, process all events, then emit
//! the datagrams of the touched connections.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quinn_proto::{
    Connection, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint, Endpoint, EndpointConfig,
    Event, Incoming, ReadError, ServerConfig, StreamEvent, StreamId, Transmit, VarInt,
};

/// Identifies a connection of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionKey(pub usize);

/// A received datagram.
#[derive(Debug)]
pub struct IncomingDatagram {
    /// The sender.
    pub from: SocketAddr,
    /// The address that received it, if known.
    pub local_ip: Option<IpAddr>,
    /// The ECN bits.
    pub ecn: Option<EcnCodepoint>,
    /// The payload.
    pub bytes: BytesMut,
}

/// Datagrams to one receiver, as one piece of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingTrain {
    /// The receiver.
    pub to: SocketAddr,
    /// The local address to send from, if it matters.
    pub local_ip: Option<IpAddr>,
    /// The ECN bits.
    pub ecn: Option<EcnCodepoint>,
    /// The bytes of all datagrams.
    pub len: usize,
    /// The bytes of each datagram but the last, for segmentation by the kernel.
    pub segment_len: usize,
}

/// An event of a connection.
#[derive(Debug)]
pub enum QuicEvent {
    /// The handshake is complete.
    Opened,
    /// Bytes of a stream in their order; the stream ends after them if `is_end`.
    Bytes {
        /// The identifier of the stream.
        stream: u64,
        /// The bytes; empty only at the end.
        bytes: Bytes,
        /// Whether the stream ends.
        is_end: bool,
    },
    /// The peer has reset a stream.
    Reset {
        /// The identifier of the stream.
        stream: u64,
        /// The error code.
        code: u64,
    },
    /// The peer does not read a stream any more.
    Stopped {
        /// The identifier of the stream.
        stream: u64,
        /// The error code.
        code: u64,
    },
    /// A stream without window can be written again.
    Writable {
        /// The identifier of the stream.
        stream: u64,
    },
    /// The connection has ended; its key may be reused.
    Over,
}

/// The stream is closed, or has never been open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamClosed;

/// The connections.
#[derive(Debug)]
pub struct QuicEndpoint {
    endpoint: Endpoint,
    connections: BTreeMap<usize, Connection>,
    /// The zero of all times.
    epoch: Instant,
    /// Connections that may have events or output.
    touched: BTreeSet<usize>,
    events: VecDeque<(ConnectionKey, QuicEvent)>,
    /// Datagrams of the endpoint itself, such as version negotiation and resets.
    answers: VecDeque<(Transmit, Vec<u8>)>,
}

impl QuicEndpoint {
    /// An endpoint; with `server` it accepts connections. Times are microseconds since `epoch`.
    #[must_use]
    pub fn new(
        config: EndpointConfig,
        server: Option<Arc<ServerConfig>>,
        epoch: Instant,
    ) -> QuicEndpoint {
        QuicEndpoint {
            endpoint: Endpoint::new(Arc::new(config), server, true, None),
            connections: BTreeMap::new(),
            epoch,
            touched: BTreeSet::new(),
            events: VecDeque::new(),
            answers: VecDeque::new(),
        }
    }

    fn instant(&self, now_us: u64) -> Instant {
        self.epoch + Duration::from_micros(now_us)
    }

    /// Opens a connection, for tests and load generators.
    ///
    /// # Errors
    /// The address or the configuration is not valid.
    pub fn connect(
        &mut self,
        config: quinn_proto::ClientConfig,
        to: SocketAddr,
        server_name: &str,
        now_us: u64,
    ) -> Result<ConnectionKey, quinn_proto::ConnectError> {
        let now = self.instant(now_us);
        let (handle, connection) = self.endpoint.connect(now, config, to, server_name)?;
        Ok(self.add(handle, connection))
    }

    fn add(&mut self, handle: ConnectionHandle, connection: Connection) -> ConnectionKey {
        self.connections.insert(handle.0, connection);
        self.touched.insert(handle.0);
        ConnectionKey(handle.0)
    }

    /// Processes a received datagram.
    pub fn take(&mut self, datagram: IncomingDatagram, now_us: u64) {
        let (now, mut answer) = (self.instant(now_us), Vec::new());
        let IncomingDatagram {
            from,
            local_ip,
            ecn,
            bytes,
        } = datagram;
        let event = self
            .endpoint
            .handle(now, from, local_ip, ecn, bytes, &mut answer);
        match event {
            None => {}
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(connection) = self.connections.get_mut(&handle.0) {
                    connection.handle_event(event);
                    self.touched.insert(handle.0);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(incoming, now),
            Some(DatagramEvent::Response(transmit)) => self.answers.push_back((transmit, answer)),
        }
    }

    fn accept(&mut self, incoming: Incoming, now: Instant) {
        let mut answer = Vec::new();
        match self.endpoint.accept(incoming, now, &mut answer, None) {
            Ok((handle, connection)) => {
                self.add(handle, connection);
            }
            Err(fault) => {
                let response = fault.response.map(|transmit| (transmit, answer));
                self.answers.extend(response);
            }
        }
    }

    /// The time of the next timer.
    #[must_use]
    pub fn due_us(&mut self) -> Option<u64> {
        let timeouts = self
            .connections
            .values_mut()
            .filter_map(Connection::poll_timeout);
        let due = timeouts.min()?;
        // Rounded up, since a timer must not be handled before its time.
        Some(
            due.saturating_duration_since(self.epoch)
                .as_nanos()
                .div_ceil(1000) as u64,
        )
    }

    /// Handles timers that are due, and gathers the events of all touched connections.
    pub fn advance(&mut self, now_us: u64) {
        let now = self.instant(now_us);
        for (key, connection) in &mut self.connections {
            if connection.poll_timeout().is_some_and(|due| due <= now) {
                connection.handle_timeout(now);
                self.touched.insert(*key);
            }
        }
        for key in self.touched.iter().copied().collect::<Vec<_>>() {
            self.gather(key);
        }
    }

    fn gather(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(&key) else {
            self.touched.remove(&key);
            return;
        };
        while let Some(event) = connection.poll_endpoint_events() {
            let reply = self.endpoint.handle_event(ConnectionHandle(key), event);
            if let Some(reply) = reply {
                connection.handle_event(reply);
            }
        }
        let events = &mut self.events;
        let mut push = |event| events.push_back((ConnectionKey(key), event));
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected => push(QuicEvent::Opened),
                Event::ConnectionLost { .. } => push(QuicEvent::Over),
                Event::Stream(StreamEvent::Opened { dir }) => {
                    while let Some(id) = connection.streams().accept(dir) {
                        read(connection, id, &mut push);
                    }
                }
                Event::Stream(StreamEvent::Readable { id }) => read(connection, id, &mut push),
                Event::Stream(StreamEvent::Writable { id }) => {
                    push(QuicEvent::Writable { stream: id.into() })
                }
                Event::Stream(StreamEvent::Stopped { id, error_code }) => {
                    push(QuicEvent::Stopped {
                        stream: id.into(),
                        code: error_code.into_inner(),
                    });
                }
                _ => {}
            }
        }
        if connection.is_drained() {
            self.connections.remove(&key);
        }
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<(ConnectionKey, QuicEvent)> {
        self.events.pop_front()
    }

    /// Opens a stream.
    pub fn open(&mut self, connection: ConnectionKey, dir: Dir) -> Option<u64> {
        let id = self.connections.get_mut(&connection.0)?.streams().open(dir);
        id.map(u64::from)
    }

    /// Writes bytes to a stream, without copying them. Returns the number of bytes taken; the rest stays in `parts`.
    ///
    /// # Errors
    /// The stream is closed.
    pub fn write(
        &mut self,
        connection: ConnectionKey,
        stream: u64,
        parts: &mut [Bytes],
    ) -> Result<usize, StreamClosed> {
        self.touched.insert(connection.0);
        let connection = self
            .connections
            .get_mut(&connection.0)
            .ok_or(StreamClosed)?;
        match connection
            .send_stream(stream_id(stream)?)
            .write_chunks(parts)
        {
            Ok(written) => Ok(written.bytes),
            Err(quinn_proto::WriteError::Blocked) => Ok(0),
            Err(_) => Err(StreamClosed),
        }
    }

    /// Ends a stream after the written bytes.
    ///
    /// # Errors
    /// The stream is closed.
    pub fn finish(&mut self, connection: ConnectionKey, stream: u64) -> Result<(), StreamClosed> {
        self.touched.insert(connection.0);
        let connection = self
            .connections
            .get_mut(&connection.0)
            .ok_or(StreamClosed)?;
        let finished = connection.send_stream(stream_id(stream)?).finish();
        finished.map_err(|_| StreamClosed)
    }

    /// Aborts both directions of a stream, as far as they are open and exist.
    pub fn abort(&mut self, connection: ConnectionKey, stream: u64, code: u64) {
        self.touched.insert(connection.0);
        if let Some(connection) = self.connections.get_mut(&connection.0)
            && let (Ok(id), Ok(code)) = (stream_id(stream), VarInt::from_u64(code))
        {
            let is_local = id.initiator() == connection.side();
            let is_bidirectional = id.dir() == Dir::Bi;
            // A direction that is closed already needs no abort.
            if is_bidirectional || is_local {
                _ = connection.send_stream(id).reset(code);
            }
            if is_bidirectional || !is_local {
                _ = connection.recv_stream(id).stop(code);
            }
        }
    }

    /// Closes a connection.
    pub fn close(
        &mut self,
        connection: ConnectionKey,
        code: u64,
        reason: &'static str,
        now_us: u64,
    ) {
        let now = self.instant(now_us);
        self.touched.insert(connection.0);
        if let Some(connection) = self.connections.get_mut(&connection.0)
            && let Ok(code) = VarInt::from_u64(code)
        {
            connection.close(now, code, Bytes::from_static(reason.as_bytes()));
        }
    }

    /// Appends datagrams to `out`, at most `datagrams_max` of one connection. `None` once all are emitted.
    pub fn emit(
        &mut self,
        datagrams_max: usize,
        now_us: u64,
        out: &mut Vec<u8>,
    ) -> Option<OutgoingTrain> {
        if let Some((transmit, bytes)) = self.answers.pop_front() {
            out.extend_from_slice(&bytes[..transmit.size]);
            return Some(train(&transmit));
        }
        let now = self.instant(now_us);
        while let Some(key) = self.touched.first().copied() {
            if let Some(connection) = self.connections.get_mut(&key)
                && let Some(transmit) = connection.poll_transmit(now, datagrams_max, out)
            {
                return Some(train(&transmit));
            }
            self.touched.remove(&key);
        }
        None
    }
}

fn stream_id(stream: u64) -> Result<StreamId, StreamClosed> {
    let id = VarInt::from_u64(stream).map_err(|_| StreamClosed)?;
    Ok(StreamId::from(id))
}

fn train(transmit: &Transmit) -> OutgoingTrain {
    OutgoingTrain {
        to: transmit.destination,
        local_ip: transmit.src_ip,
        ecn: transmit.ecn,
        len: transmit.size,
        segment_len: transmit.segment_size.unwrap_or(transmit.size),
    }
}

/// Reads all bytes of a stream that have arrived in order.
fn read(connection: &mut Connection, id: StreamId, push: &mut impl FnMut(QuicEvent)) {
    let mut stream = connection.recv_stream(id);
    let Ok(mut chunks) = stream.read(true) else {
        return;
    };
    let stream = u64::from(id);
    loop {
        match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => push(QuicEvent::Bytes {
                stream,
                bytes: chunk.bytes,
                is_end: false,
            }),
            Ok(None) => {
                push(QuicEvent::Bytes {
                    stream,
                    bytes: Bytes::new(),
                    is_end: true,
                });
                break;
            }
            Err(ReadError::Blocked) => break,
            Err(ReadError::Reset(code)) => {
                push(QuicEvent::Reset {
                    stream,
                    code: code.into_inner(),
                });
                break;
            }
        }
    }
    _ = chunks.finalize();
}
