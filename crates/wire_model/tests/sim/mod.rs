//! Simulates a client and the responder with a link between them that loses, delays and duplicates segments, in virtual
//! time. Faults that a test does not specify are random.

pub mod client;
pub mod world;

use std::collections::BTreeMap;

use lowroad_wire::{SegmentReason, SegmentView};
use lowroad_wire_model::connection::BoundedTable;
use lowroad_wire_model::reply::ModelReply;
use lowroad_wire_model::{ModelResponder, SegmentVerdict};

use client::{Client, Sent};
use world::Values;

const WAY_MS: u64 = 10;
const LIMIT_MS: u64 = 600_000;

/// Pseudo-random numbers (`SplitMix64`).
pub struct Draws(pub u64);

impl Draws {
    /// The next number.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// True in `share` percent of the calls.
    pub fn percent(&mut self, share: u64) -> bool {
        self.word() % 100 < share
    }
}

/// The faults of the link.
pub struct Link {
    /// The percentage of lost frames.
    pub loses: u64,
    /// The percentage of delayed frames.
    pub delays: u64,
    /// The percentage of duplicated frames.
    pub doubles: u64,
    /// The indexes of the server's data segments that are lost.
    pub lost: Vec<usize>,
    /// The indexes of the client's segments that are lost.
    pub lost_of_client: Vec<usize>,
    /// The random numbers.
    pub draws: Draws,
}

impl Link {
    /// A link without faults.
    pub fn good(seed: u64) -> Link {
        Link {
            loses: 0,
            delays: 0,
            doubles: 0,
            lost: Vec::new(),
            lost_of_client: Vec::new(),
            draws: Draws(seed),
        }
    }
}

/// The result of a run.
#[derive(Debug)]
pub struct Course {
    /// The duration.
    pub took_ms: u64,
    /// The number of the server's segments with data.
    pub sent: usize,
}

enum What {
    ToServer(Vec<u8>),
    ToClient(Vec<u8>),
}

/// A simulation: both ends, and the frames in transit.
pub struct Run {
    /// The client.
    pub client: Client,
    /// The context of the responder.
    pub world: Values,
    link: Link,
    responder: ModelResponder<BoundedTable>,
    on_way: BTreeMap<(u64, u64), What>,
    now_ms: u64,
    count: u64,
    sent: usize,
    asked: usize,
}

impl Run {
    /// Creates a simulation; [`Run::finish`] begins with the client's SYN.
    pub fn new(client: Client, world: Values, link: Link) -> Run {
        Run {
            client,
            world,
            link,
            responder: ModelResponder::new(BoundedTable::new(4)),
            on_way: BTreeMap::new(),
            now_ms: 0,
            count: 0,
            sent: 0,
            asked: 0,
        }
    }

    /// Runs until the client has received all data.
    ///
    /// # Errors
    /// A description of the failure.
    pub fn finish(&mut self) -> Result<Course, String> {
        let mut out = Vec::new();
        self.client.open(0, &mut out);
        self.send(out);
        while !self.client.is_done() {
            // A reset after the last byte is acceptable.
            if self.client.is_reset && self.client.has_all() {
                break;
            }
            if self.client.is_reset {
                return Err(format!("reset at {} ms", self.now_ms));
            }
            let next_frame = self.on_way.first_key_value().map(|((at, _), _)| *at);
            let next = [next_frame, self.client.next_ms()];
            let next = next.into_iter().flatten().min();
            let next = next.ok_or_else(|| format!("stuck at {} ms", self.now_ms))?;
            if next > LIMIT_MS {
                return Err(format!("it never ends: {} bytes", self.client.got.len()));
            }
            self.now_ms = self.now_ms.max(next);
            match next_frame == Some(next) {
                true => self.arrive()?,
                false => {
                    let mut out = Vec::new();
                    self.client.on_time(self.now_ms, &mut out);
                    self.send(out);
                }
            }
        }
        Ok(Course {
            took_ms: self.now_ms,
            sent: self.sent,
        })
    }

    fn arrive(&mut self) -> Result<(), String> {
        let (_, what) = self.on_way.pop_first().expect("it was seen");
        // The responder's clock does not begin at 0.
        self.world.now_ns = 1_000_000_000 + self.now_ms * 1_000_000;
        match what {
            What::ToClient(frame) => {
                let segment = SegmentView::parse(&frame).map_err(|_| "no segment".to_owned())?;
                if !segment.has_valid_checksum() {
                    return Err("a wrong sum".to_owned());
                }
                let mut out = Vec::new();
                self.client.on_segment(self.now_ms, &segment, &mut out);
                self.send(out);
            }
            What::ToServer(frame) => match self.responder.frame(&mut self.world, &frame) {
                SegmentVerdict::Reply(frame) => self.reply(frame),
                SegmentVerdict::Flight(frames) => {
                    frames.into_iter().for_each(|frame| self.reply(frame))
                }
                SegmentVerdict::Drop(_) => {}
                // The kernel would reset unknown connections.
                SegmentVerdict::Pass(SegmentReason::PassUnknown) => self.client.is_reset = true,
                other => return Err(format!("{other:?}")),
            },
        }
        Ok(())
    }

    fn reply(&mut self, frame: Vec<u8>) {
        let segment = SegmentView::parse(&frame).expect("as it was written");
        let has_data = !segment.payload.is_empty();
        let index = self.sent;
        self.sent += usize::from(has_data);
        let is_lost = has_data && self.link.lost.contains(&index);
        self.put(What::ToClient(frame), is_lost);
    }

    fn send(&mut self, all: Vec<Sent>) {
        for sent in all {
            let index = self.asked;
            self.asked += 1;
            let is_lost = self.link.lost_of_client.contains(&index);
            self.put(What::ToServer(frame_of(&sent)), is_lost);
        }
    }

    fn put(&mut self, what: What, is_lost: bool) {
        let link = &mut self.link;
        let draws = &mut link.draws;
        let is_lost = draws.percent(link.loses) || is_lost;
        let later_ms = if draws.percent(link.delays) {
            draws.word() % 30
        } else {
            0
        };
        let is_doubled = draws.percent(link.doubles);
        if is_lost {
            return;
        }
        let at_ms = self.now_ms + WAY_MS + later_ms;
        if is_doubled {
            let copy = match &what {
                What::ToServer(frame) => What::ToServer(frame.clone()),
                What::ToClient(frame) => What::ToClient(frame.clone()),
            };
            self.count += 1;
            self.on_way.insert((at_ms + 1, self.count), copy);
        }
        self.count += 1;
        self.on_way.insert((at_ms, self.count), what);
    }
}

/// Builds a frame of the client, as a reply to a frame of the server.
fn frame_of(sent: &Sent) -> Vec<u8> {
    let mut of_server = [0u8; 54];
    of_server[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    of_server[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6]);
    of_server[26..34].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    of_server[34..38].copy_from_slice(&[0, 80, 0x30, 0x39]);
    of_server[46] = 0x50;
    let to = SegmentView::parse(&of_server).expect("a segment");
    let reply = ModelReply {
        seq: sent.seq,
        ack: sent.ack,
        flags: sent.flags,
        window: 65_000,
        options: &sent.options,
        payload: &sent.payload,
    };
    reply.write(&to)
}
