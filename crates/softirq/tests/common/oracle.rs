//! An oracle for the programs' handling of requests: if a program answers, `lowroad-http` must parse the bytes as one
//! complete request with the same key, and the response must be the stored one for that key.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{MemberAttr, Struct};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use lowroad_http::{RequestLimits, RequestRefusal, h1};
use lowroad_softirq::layout::{REASONS, connection_bucket};
use lowroad_testkit::net::SERVER;
use lowroad_wire::key;
use lowroad_wire::segment_context::IgnoredFields;
use lowroad_wire::width::{index, len_of};

use super::bench::{Bench, DATE, FrameEffect};
use super::frames::{self, ACK, FIN, PSH, SYN, SentSegment};
use super::responses::{self, Prepared, TestPublisher};
use super::script::replies;

const CLIENT_PORT: u16 = 30_000;
const CLIENT_ISN: u32 = 0xffff_fe00;
const DAY_NS: u64 = 86_400_000_000_000;
/// Maximum length of a request that the program parses.
const REQUEST_MAX: usize = 1500;

/// The number of requests by outcome.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Answered from a stored response.
    pub answered: u64,
    /// Answered in several segments; included in `answered`.
    pub in_parts: u64,
    /// Looked up with the right key, but without a stored response.
    pub missed: u64,
    /// Punted, and also rejected by the other parser.
    pub punted: u64,
    /// Punted, although the other parser accepts the request; by the program's reason.
    pub punted_although_valid: BTreeMap<&'static str, u64>,
    /// Looked up, although the other parser rejects the request; by the reason, with an example.
    pub looked_up_although_invalid: BTreeMap<&'static str, (u64, String)>,
}

/// A connection with an entry that is reset before each request.
pub struct Oracle<'b> {
    bench: &'b Bench,
    shelf: TestPublisher,
    published: HashMap<Vec<u8>, Prepared>,
    scratch: MapHandle,
    places: Places,
    place: u32,
    fresh: connection_bucket,
    base: SentSegment,
    snd_nxt: u32,
    /// The server's address.
    local: SocketAddr,
    /// The counts.
    pub tally: Tally,
}

impl<'b> Oracle<'b> {
    /// Opens the connection. To be called in the bench's namespace.
    pub fn new(bench: &'b Bench, is_v6: bool) -> Oracle<'b> {
        let mut shelf = TestPublisher::new(&bench.level);
        let first = responses::RESPONSES[0].prepare(0);
        let address = if is_v6 {
            SERVER.1.into()
        } else {
            SERVER.0.into()
        };
        let key = responses::RESPONSES[0].key_at(address);
        shelf.publish(&bench.level, &key, &first, DAY_NS);
        bench.beat(0);
        let mut base = SentSegment {
            is_v6,
            port: CLIENT_PORT,
            seq: CLIENT_ISN,
            flags: SYN,
            window: 64_000,
            ..SentSegment::default()
        };
        base.options = vec![2, 4, 5, 0xb4];
        let syn = base.frame();
        let FrameEffect::Reply(reply) = bench.run(&syn) else {
            panic!("no SYN-ACK")
        };
        base.options.clear();
        base.ack = frames::receive(&reply, &syn)
            .expect("a right answer")
            .seq
            .wrapping_add(1);
        base.seq = CLIENT_ISN.wrapping_add(1);
        base.flags = ACK;
        // The program consumes the ACK that opens the connection.
        assert_eq!(bench.run(&base.frame()), FrameEffect::Drop);
        base.flags = ACK | PSH;
        let (place, _, connection) = bench.connection(is_v6, CLIENT_PORT).expect("open");
        Oracle {
            shelf,
            places: Places::of(bench),
            published: HashMap::from([(key, first)]),
            scratch: MapHandle::from_pinned_path(bench.level.folder().join("scratch"))
                .expect("a map"),
            place,
            fresh: bench.bucket(place),
            snd_nxt: connection.snd_nxt,
            local: SocketAddr::new(address, frames::PORT),
            base,
            bench,
            tally: Tally::default(),
        }
    }

    /// Sends a request and compares the reaction with the other parser.
    ///
    /// # Errors
    /// If the program has reacted wrongly: a description.
    pub fn try_request(&mut self, request: &[u8]) -> Result<(), String> {
        self.bench.set_bucket(self.place, &self.fresh);
        self.base.payload.clear();
        self.base.payload.extend_from_slice(request);
        let frame = self.base.frame();
        let did = self.bench.run(&frame);
        let read = key::read(request, self.local, IgnoredFields::default());
        match did {
            FrameEffect::Reply(_) | FrameEffect::Flight(_) => {
                let reading = read.map_err(|reason| format!("answered, but {}", reason.name()))?;
                let frames = replies(&did).unwrap_or_default();
                self.check_answer(&reading, &frame, frames)?;
                self.tally.answered += 1;
                self.tally.in_parts += u64::from(frames.len() > 1);
                Ok(())
            }
            // A test run at TC can't migrate.
            FrameEffect::Up | FrameEffect::PassedToTc | FrameEffect::Pass => {
                self.check_handed(request, read)
            }
            FrameEffect::UpInstead(_) => Err("another goes up".to_owned()),
            FrameEffect::Drop => Err("dropped".to_owned()),
        }
    }

    fn check_answer(
        &self,
        reading: &key::AnswerableRequest,
        frame: &[u8],
        replies: &[Vec<u8>],
    ) -> Result<(), String> {
        let payload = self.payload_of(reading, frame, replies)?;
        let stored = self
            .published
            .get(reading.key.as_bytes())
            .ok_or("answered with what is under no such key")?;
        let mut wanted = stored.bytes.clone();
        wanted[stored.date_at..stored.date_at + 29].copy_from_slice(DATE);
        // The age depends on the time of the run.
        let age = stored.age_at..stored.age_at + 5;
        wanted[age.clone()].copy_from_slice(payload.get(age).ok_or("a short answer")?);
        if reading.is_head {
            wanted.truncate(stored.head_len);
        }
        match payload == wanted {
            true => Ok(()),
            false => Err(format!("another response: {}", payload.escape_ascii())),
        }
    }

    /// Concatenates the payload of consecutive segments. If there are several segments, they must acknowledge all of
    /// the request except its last byte.
    fn payload_of(
        &self,
        reading: &key::AnswerableRequest,
        frame: &[u8],
        replies: &[Vec<u8>],
    ) -> Result<Vec<u8>, String> {
        let len_of = |bytes: &[u8]| u32::try_from(bytes.len()).expect("short");
        let end = self.base.seq.wrapping_add(len_of(&self.base.payload));
        let ack = end.wrapping_sub(u32::from(replies.len() > 1));
        let fin = if reading.closes { FIN } else { 0 };
        let mut payload = Vec::new();
        for (at, reply) in replies.iter().enumerate() {
            let got = frames::receive(reply, frame)?;
            let is_last = at + 1 == replies.len();
            let flags = ACK | if is_last { PSH | fin } else { 0 };
            let seq = self.snd_nxt.wrapping_add(len_of(&payload));
            if (got.flags, got.seq, got.ack) != (flags, seq, ack) {
                let (flags, seq, ack) = (got.flags, got.seq, got.ack);
                return Err(format!(
                    "segment {at}: flags {flags:02x}, seq {seq}, ack {ack}"
                ));
            }
            payload.extend(got.payload);
        }
        Ok(payload)
    }

    fn check_handed(
        &mut self,
        request: &[u8],
        read: Result<key::AnswerableRequest, lowroad_wire::SegmentReason>,
    ) -> Result<(), String> {
        let program = self.program_read(request);
        match (program, read) {
            (Some(Ok(key)), Ok(reading)) if key == reading.key.as_bytes() => {
                if self.published.contains_key(&key) {
                    return Err("not found, but it is there".to_owned());
                }
                self.tally.missed += 1;
                self.publish(key);
                Ok(())
            }
            (Some(Ok(key)), Ok(reading)) => Err(format!(
                "the keys differ: {} and {}",
                key.escape_ascii(),
                reading.key.as_bytes().escape_ascii()
            )),
            (Some(Ok(_)), Err(reason)) => {
                // The program does not validate hosts and targets, since no response is published for an invalid one.
                // It must detect all other errors.
                let seen = match h1::parse(request, &RequestLimits::default()) {
                    Err(RequestRefusal::HostInvalid) => self
                        .tally
                        .looked_up_although_invalid
                        .entry("host")
                        .or_default(),
                    Err(RequestRefusal::TargetInvalid) => self
                        .tally
                        .looked_up_although_invalid
                        .entry("target")
                        .or_default(),
                    other => return Err(format!("looked up, but {}: {other:?}", reason.name())),
                };
                seen.0 += 1;
                seen.1 = request.escape_ascii().to_string();
                Ok(())
            }
            (Some(Err(reason)), Ok(_)) => {
                *self.tally.punted_although_valid.entry(reason).or_default() += 1;
                Ok(())
            }
            (None, _) if request.len() <= REQUEST_MAX => Err("not read".to_owned()),
            (Some(Err(_)) | None, _) => {
                self.tally.punted += 1;
                Ok(())
            }
        }
    }

    /// Publishes a response for later requests; so few that no bucket of the index is ever full.
    fn publish(&mut self, key: Vec<u8>) {
        if self.published.len() >= 400 {
            return;
        }
        let mut what = responses::RESPONSES[0].prepare(0);
        // All responses differ, also in length; some have two or three segments.
        let number = self.published.len();
        let more = [0, 2000, 3000, 0][number % 4];
        what.bytes.resize(what.bytes.len() + more + number, b'x');
        let mark = format!("{number:04}");
        let at = what.head_len;
        what.bytes[at..at + 4].copy_from_slice(mark.as_bytes());
        self.shelf.publish(&self.bench.level, &key, &what, DAY_NS);
        self.published.insert(key, what);
    }

    /// The result of the program's parser, if it has parsed the request.
    fn program_read(&self, request: &[u8]) -> Option<Result<Vec<u8>, &'static str>> {
        let places = &self.places;
        let word = |bytes: &[u8], at: usize| {
            index(u32::from_ne_bytes(
                bytes[at..at + 4].try_into().expect("four bytes"),
            ))
        };
        let each = self
            .scratch
            .lookup_percpu(&[0; 4], MapFlags::ANY)
            .expect("a map")
            .expect("an array");
        // The request is in the element of the processor on which the program ran.
        let ours = each.iter().find(|bytes| {
            bytes[places.head..].starts_with(request) && word(bytes, places.len) == request.len()
        })?;
        Some(match REASONS.get(word(ours, places.reason)) {
            Some((reason, _)) => Err(reason),
            None => {
                let key = &ours[places.key..];
                Ok(key[..word(ours, places.key_len)].to_vec())
            }
        })
    }
}

/// Offsets in `struct scratch`, from the program's BTF types in the kernel.
struct Places {
    head: usize,
    key: usize,
    len: usize,
    key_len: usize,
    reason: usize,
}

impl Places {
    fn of(bench: &Bench) -> Places {
        let btf = Btf::from_prog_id(program_id(bench.answering())).expect("types");
        let at = |owner: &str, member: &str| {
            let is_owner = |one: &Struct<'_>| one.name().is_some_and(|name| name == owner);
            let owner = btf.type_by_kind::<Struct<'_>>().find(is_owner);
            let owner = owner.expect("the struct");
            let found = owner
                .iter()
                .find(|one| one.name.is_some_and(|name| name == member));
            match found.map(|one| one.attr) {
                Some(MemberAttr::Normal { offset } | MemberAttr::BitField { offset, .. }) => {
                    index(offset / 8)
                }
                None => panic!("no {member}"),
            }
        };
        let request = at("scratch", "request");
        Places {
            head: at("scratch", "head"),
            key: at("scratch", "key"),
            len: request + at("request", "len"),
            key_len: request + at("request", "key_len"),
            reason: request + at("request", "reason"),
        }
    }
}

fn program_id(program: BorrowedFd<'_>) -> u32 {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = len_of::<libbpf_sys::bpf_prog_info>();
    let pointer = std::ptr::from_mut(&mut info).cast();
    // SAFETY: the pointer is to a buffer of the given length, which outlives the call.
    let status =
        unsafe { libbpf_sys::bpf_obj_get_info_by_fd(program.as_raw_fd(), pointer, &mut len) };
    assert_eq!(status, 0, "BPF_OBJ_GET_INFO_BY_FD");
    info.id
}
