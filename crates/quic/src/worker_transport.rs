//! An endpoint as the QUIC of a worker of the engine.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use lowroad_engine::datagrams::{DatagramTrain, Ecn};
use lowroad_engine::quic_transport::{
    ConnectionKey, ConnectionPermit, DatagramRoute, QuicCounters, QuicEvent, QuicStreamClosed,
    QuicTransport,
};
use lowroad_engine::tls_session::TlsInfo;
use lowroad_tls::quic::HandshakeSummary;

use crate::admission::Admission;
use crate::endpoint::QuicEndpoint;
use crate::event::{EcnBits, IncomingDatagram, OutgoingTrain};
use crate::steering::{QuicRoute, SteeringTable};

/// Datagrams of a train: as many as fit into one message to the kernel with the largest datagrams.
const TRAIN_MAX: usize = 44;

/// The QUIC of a worker.
pub struct WorkerTransport {
    endpoint: QuicEndpoint<ConnectionPermit>,
    steering: SteeringTable,
    /// Converts the negotiated values of TLS for the server's logs and conditions.
    describe: fn(&HandshakeSummary) -> TlsInfo,
}

impl WorkerTransport {
    /// The QUIC of an endpoint.
    #[must_use]
    pub fn new(
        endpoint: QuicEndpoint<ConnectionPermit>,
        steering: SteeringTable,
        describe: fn(&HandshakeSummary) -> TlsInfo,
    ) -> WorkerTransport {
        WorkerTransport {
            endpoint,
            steering,
            describe,
        }
    }
}

/// A train with the addresses of the engine.
fn train(outgoing: &OutgoingTrain) -> DatagramTrain {
    DatagramTrain {
        peer: outgoing.to,
        local: outgoing.local_ip,
        ecn: Ecn::from_bits(outgoing.ecn.0),
        segment_len: outgoing.segment_len,
        range: 0..outgoing.len,
    }
}

impl QuicTransport for WorkerTransport {
    fn route(&self, datagram: &[u8]) -> DatagramRoute {
        match self.steering.route(datagram) {
            QuicRoute::Worker(worker) => DatagramRoute::Worker(worker),
            QuicRoute::Process(to) => DatagramRoute::Process(to),
            QuicRoute::New(worker) if worker != self.steering.here.worker => {
                DatagramRoute::New(worker)
            }

            QuicRoute::Here | QuicRoute::New(_) | QuicRoute::Reset | QuicRoute::Invalid => {
                DatagramRoute::Here
            }
        }
    }

    fn take(
        &mut self,
        train: &DatagramTrain,
        datagram: &[u8],
        now_us: u64,
        admit: &mut dyn FnMut(SocketAddr) -> Option<ConnectionPermit>,
    ) {
        let incoming = IncomingDatagram {
            from: train.peer,
            local_ip: train.local,
            ecn: EcnBits(train.ecn.bits()),
            bytes: BytesMut::from(datagram),
        };
        self.endpoint.take(incoming, now_us, |attempt| {
            admit(attempt.from).map_or(Admission::Refuse, Admission::Accept)
        });
    }

    fn advance(&mut self, now_us: u64) {
        self.endpoint.advance(now_us);
    }

    fn due_us(&self) -> Option<u64> {
        self.endpoint.due_us()
    }

    fn next_touched(&mut self) -> Option<ConnectionKey> {
        self.endpoint.next_touched()
    }

    fn postpone(&mut self, key: ConnectionKey) {
        self.endpoint.postpone(key);
    }

    fn next_event(&mut self, key: ConnectionKey) -> Option<QuicEvent> {
        self.endpoint.next_event(key)
    }

    fn emit(
        &mut self,
        key: ConnectionKey,
        now_us: u64,
        out: &mut Vec<u8>,
    ) -> Option<DatagramTrain> {
        let outgoing = self.endpoint.emit(key, now_us, TRAIN_MAX, out);
        outgoing.as_ref().map(train)
    }

    fn emit_answer(&mut self, out: &mut Vec<u8>) -> Option<DatagramTrain> {
        self.endpoint.emit_answer(out).as_ref().map(train)
    }

    fn open(&mut self, key: ConnectionKey) -> Option<u64> {
        self.endpoint.open(key, false)
    }

    fn write(
        &mut self,
        key: ConnectionKey,
        stream: u64,
        parts: &mut [Bytes],
    ) -> Result<usize, QuicStreamClosed> {
        self.endpoint.write(key, stream, parts)
    }

    fn finish(&mut self, key: ConnectionKey, stream: u64) {
        _ = self.endpoint.finish(key, stream);
    }

    fn put_back(&mut self, key: ConnectionKey, stream: u64, bytes: Bytes, is_end: bool) {
        self.endpoint.put_back(key, stream, bytes, is_end);
    }

    fn resume_reading(&mut self, key: ConnectionKey, stream: u64) {
        self.endpoint.resume_reading(key, stream);
    }

    fn stop_reading(&mut self, key: ConnectionKey, stream: u64, code: u64) {
        _ = self.endpoint.stop_reading(key, stream, code);
    }

    fn reset(&mut self, key: ConnectionKey, stream: u64, code: u64) {
        _ = self.endpoint.reset(key, stream, code);
    }

    fn close(&mut self, key: ConnectionKey, code: u64, reason: &'static str, now_us: u64) {
        self.endpoint.close(key, code, reason, now_us);
    }

    fn peer_address(&mut self, key: ConnectionKey) -> Option<SocketAddr> {
        self.endpoint.peer_address(key)
    }

    fn tls_info(&mut self, key: ConnectionKey) -> Option<Arc<TlsInfo>> {
        let summary = self.endpoint.handshake_summary(key)?;
        Some(Arc::new((self.describe)(&summary)))
    }

    fn is_early(&mut self, key: ConnectionKey) -> bool {
        self.endpoint.is_early(key)
    }

    fn keep_alive(&mut self, key: ConnectionKey) {
        self.endpoint.keep_alive(key);
    }

    fn unfinished_streams(&mut self, key: ConnectionKey) -> usize {
        self.endpoint.unfinished_streams(key)
    }

    fn connection_count(&self) -> u32 {
        self.endpoint.connection_count()
    }

    fn handshakes(&self) -> u32 {
        self.endpoint.handshakes()
    }

    fn counters(&self) -> QuicCounters {
        self.endpoint.counters()
    }
}
