//! Events from the programs: answers, and requests for responses that are not published.

use std::net::{IpAddr, Ipv6Addr};

use libbpf_rs::{RingBuffer, RingBufferBuilder};

use crate::error::LevelError;
use crate::layout::{self, answered_event, asked_event};
use crate::level::SoftirqLevel;

/// Maximum number of events in one batch.
const EVENT_BATCH_MAX: usize = 4096;

/// An event.
#[derive(Debug)]
pub enum LevelEvent<'a> {
    /// A repeated request for a response that is not published.
    RepeatedMiss {
        /// The hash of the request's key.
        hash: u64,
        /// The request's key.
        key: &'a [u8],
    },
    /// An answer sent on the fast path.
    Answered {
        /// Time of the answer, CLOCK_MONOTONIC.
        time_ns: u64,
        /// The client.
        client: IpAddr,
        /// The local port.
        port: u16,
        /// The response's status.
        status: u16,
        /// Length of the response's body.
        body_len: u16,
        /// The request's head, as received.
        head: &'a [u8],
    },
}

/// Reads events from the ring buffer.
pub struct EventRing<'a> {
    ring: RingBuffer<'a>,
}

impl<'a> EventRing<'a> {
    /// Opens the level's ring buffer. `EventRing::take` passes each event to `sink`.
    ///
    /// # Errors
    /// If the ring buffer can't be mapped.
    pub fn new(
        level: &'a SoftirqLevel,
        mut sink: impl FnMut(&LevelEvent<'_>) + 'a,
    ) -> Result<Self, LevelError> {
        let mut builder = RingBufferBuilder::new();
        builder
            .add(level.events(), move |bytes| {
                if let Some(event) = parse(bytes) {
                    sink(&event);
                }
                // A negative value would end the batch (ring_buffer__consume of libbpf).
                0
            })
            .map_err(LevelError::bpf("the ring of events"))?;
        let ring = builder
            .build()
            .map_err(LevelError::bpf("the ring of events"))?;
        Ok(Self { ring })
    }

    /// Passes pending events to the sink: a bounded number per call, so that the daemon's other work is not delayed.
    /// Returns whether there may be more.
    ///
    /// # Errors
    /// If the ring buffer can't be read.
    pub fn take(&self) -> Result<bool, LevelError> {
        match self.ring.consume_raw_n(EVENT_BATCH_MAX) {
            // A full batch: the ring buffer may hold more events.
            count @ 0.. => Ok(usize::try_from(count).is_ok_and(|count| count >= EVENT_BATCH_MAX)),
            status => Err(LevelError::system("reading events")(
                std::io::Error::from_raw_os_error(-status),
            )),
        }
    }
}

fn parse(bytes: &[u8]) -> Option<LevelEvent<'_>> {
    // `kind` has the same offset in both event structures.
    let kind = u16_at(bytes, std::mem::offset_of!(asked_event, kind))?;
    match u32::from(kind) {
        layout::EVENT_ASKED => {
            let len = u16_at(bytes, std::mem::offset_of!(asked_event, key_len))?;
            let key = bytes
                .get(size_of::<asked_event>()..)?
                .get(..usize::from(len))?;
            let hash = u64_at(bytes, std::mem::offset_of!(asked_event, hash))?;
            Some(LevelEvent::RepeatedMiss { hash, key })
        }
        layout::EVENT_ANSWERED => parse_answered(bytes),
        _ => None,
    }
}

fn parse_answered(bytes: &[u8]) -> Option<LevelEvent<'_>> {
    let tuple = std::mem::offset_of!(answered_event, tuple);
    let client: [u8; 16] = bytes
        .get(tuple + std::mem::offset_of!(layout::tuple, client_be)..)?
        .first_chunk()
        .copied()?;
    let port = u16_at(
        bytes,
        tuple + std::mem::offset_of!(layout::tuple, local_port_be),
    )?;
    let len = u16_at(bytes, std::mem::offset_of!(answered_event, head_len))?;
    Some(LevelEvent::Answered {
        time_ns: u64_at(bytes, std::mem::offset_of!(answered_event, when_ns))?,
        // The event holds IPv4 addresses as mapped ones.
        client: Ipv6Addr::from(client).to_canonical(),
        port: u16::from_be(port),
        status: u16_at(bytes, std::mem::offset_of!(answered_event, status))?,
        body_len: u16_at(bytes, std::mem::offset_of!(answered_event, body_len))?,
        head: bytes
            .get(size_of::<answered_event>()..)?
            .get(..usize::from(len))?,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u16::from_ne_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u64::from_ne_bytes(*bytes))
}
