//! What the programs tell: what is asked for and not here, and what was answered.

use std::net::{IpAddr, Ipv6Addr};

use libbpf_rs::{RingBuffer, RingBufferBuilder};

use crate::error::Error;
use crate::layout::{self, answered_event, asked_event};
use crate::level::Level;

/// Events taken in one turn.
const TURN_MAX: usize = 4096;

/// One event.
#[derive(Debug)]
pub enum Event<'a> {
    /// A response that is asked for again and is not here.
    Asked {
        /// The hash of its key.
        hash: u64,
        /// Its key.
        key: &'a [u8],
    },
    /// An answer.
    Answered {
        /// CLOCK_MONOTONIC.
        when_ns: u64,
        /// The client.
        client: IpAddr,
        /// The port that it asked.
        port: u16,
        /// The answer's status.
        status: u16,
        /// Bytes of the answer's body.
        body_len: u16,
        /// The request's head, as it came.
        head: &'a [u8],
    },
}

/// Where events come from.
pub struct Events<'a> {
    ring: RingBuffer<'a>,
}

impl<'a> Events<'a> {
    /// From the ring of a level; each event goes to `sink` when [`Events::take`] is called.
    ///
    /// # Errors
    /// When the ring can't be mapped.
    pub fn new(level: &'a Level, mut sink: impl FnMut(&Event<'_>) + 'a) -> Result<Self, Error> {
        let mut builder = RingBufferBuilder::new();
        builder
            .add(level.events(), move |bytes| {
                if let Some(event) = parse(bytes) {
                    sink(&event);
                }
                0
            })
            .map_err(Error::bpf("the ring of events"))?;
        let ring = builder.build().map_err(Error::bpf("the ring of events"))?;
        Ok(Self { ring })
    }

    /// Gives what is there to the sink, and a bounded number at a time: the daemon has more to do.
    /// Whether there may be more.
    ///
    /// # Errors
    /// When the ring can't be read.
    pub fn take(&self) -> Result<bool, Error> {
        match self.ring.consume_raw_n(TURN_MAX) {
            taken @ 0.. => Ok(usize::try_from(taken).is_ok_and(|taken| taken >= TURN_MAX)),
            status => Err(Error::system("reading events")(
                std::io::Error::from_raw_os_error(-status),
            )),
        }
    }
}

fn parse(bytes: &[u8]) -> Option<Event<'_>> {
    // Both kinds have theirs at the same place.
    let kind = u16_at(bytes, std::mem::offset_of!(asked_event, kind))?;
    match u32::from(kind) {
        layout::EVENT_ASKED => {
            let len = u16_at(bytes, std::mem::offset_of!(asked_event, key_len))?;
            let key = bytes
                .get(size_of::<asked_event>()..)?
                .get(..usize::from(len))?;
            let hash = u64_at(bytes, std::mem::offset_of!(asked_event, hash))?;
            Some(Event::Asked { hash, key })
        }
        layout::EVENT_ANSWERED => answered(bytes),
        _ => None,
    }
}

fn answered(bytes: &[u8]) -> Option<Event<'_>> {
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
    Some(Event::Answered {
        when_ns: u64_at(bytes, std::mem::offset_of!(answered_event, when_ns))?,
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
