//! A simulated FastCGI server: it reads requests, and at random responds, truncates, stalls and closes.

use std::collections::{BTreeMap, VecDeque};

use lowroad_engine_sim::SharedWorld;

use crate::fastcgi_support::{ABORT, GET_VALUES, STDIN, STDOUT, VALUES, end, record};

const PARAMS: u8 = 4;
const STDERR: u8 = 7;

/// The behavior of a server, in chances per thousand responses unless noted otherwise.
#[derive(Clone, Debug, Default)]
pub struct ServerBehavior {
    /// The server multiplexes, and reports that.
    pub multiplexes: bool,
    /// The number of connections that are served concurrently, while others wait; 0 for all.
    pub processes: usize,
    /// The response is truncated, by a close or a reset.
    pub cut: u64,
    /// The response stalls.
    pub stall: u64,
    /// The server sends garbage.
    pub nonsense: u64,
    /// The response is slow.
    pub slow: u64,
    /// The response begins before the request body has arrived.
    pub early: u64,
    /// After the response the connection is closed: immediately, or up to 3 s later.
    pub close: u64,
    /// Chance per request: the server does not read for up to 2 s.
    pub deaf: u64,
    /// The response includes FCGI_STDERR.
    pub complain: u64,
}

/// The simulated server.
pub struct Server {
    world: SharedWorld,
    manners: ServerBehavior,
    /// The connections in the order of their arrival.
    peers: VecDeque<Peer>,
    /// The number of requests that have begun.
    pub asked: usize,
    /// The maximum number of concurrent connections so far.
    pub connections_max: usize,
}

/// The server's end of a connection.
struct Peer {
    socket: usize,
    input: Vec<u8>,
    requests: BTreeMap<u16, PendingRequest>,
    answers: Vec<Answer>,
    /// Whether the server has stopped sending.
    mute: bool,
    /// Whether the server has closed the connection.
    gone: bool,
    close_ms: Option<u64>,
    hear_ms: Option<u64>,
}

/// A request that is being received.
#[derive(Default)]
struct PendingRequest {
    params: Vec<u8>,
    body: Vec<u8>,
    answered: bool,
}

/// A response that is being sent.
struct Answer {
    id: u16,
    pieces: VecDeque<Vec<u8>>,
    /// The number of remaining pauses, limited so that no waiting client reaches its timeout.
    pauses: u32,
    next_ms: u64,
    then: AfterResponse,
}

/// The action of the server after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterResponse {
    Nothing,
    Close,
    CloseLater,
    Reset,
    Stall,
}

/// A request's number, and the lengths of its body and of the response body; sent as the query.
#[derive(Clone, Copy, Debug)]
pub struct RequestedBody {
    /// The number of the request.
    pub number: usize,
    /// The length of the response body.
    pub len: usize,
    /// The length of the request body.
    pub body_len: usize,
}

/// The body bytes that belong to a request.
pub fn pattern(number: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| b'a' + ((at + number) % 23) as u8)
        .collect()
}

/// The body of a correct response.
pub fn body_of(wanted: RequestedBody) -> Vec<u8> {
    let mut body = format!("{}|", wanted.number).into_bytes();
    body.extend(pattern(wanted.number, wanted.len));
    body
}

impl Server {
    pub fn new(world: &SharedWorld, manners: ServerBehavior) -> Server {
        Server {
            world: world.clone(),
            manners,
            peers: VecDeque::new(),
            asked: 0,
            connections_max: 0,
        }
    }

    /// Performs all actions that are due; returns whether there were any.
    pub fn step(&mut self) -> bool {
        let mut did = false;
        for socket in self.world.dialed() {
            did = true;
            self.peers.push_back(Peer::new(socket));
        }
        let world = &self.world;
        self.peers
            .retain(|peer| !peer.gone && !world.is_over(peer.socket));
        self.connections_max = self.connections_max.max(self.peers.len());
        let busy = match self.manners.processes {
            0 => usize::MAX,
            processes => processes,
        };
        for peer in self.peers.iter_mut().take(busy) {
            did |= peer.step(&self.world, &self.manners, &mut self.asked);
        }
        did
    }
}

impl Peer {
    fn new(socket: usize) -> Peer {
        Peer {
            socket,
            input: Vec::new(),
            requests: BTreeMap::new(),
            answers: Vec::new(),
            mute: false,
            gone: false,
            close_ms: None,
            hear_ms: None,
        }
    }

    fn step(&mut self, world: &SharedWorld, manners: &ServerBehavior, asked: &mut usize) -> bool {
        let now_ms = world.now_ms();
        if self.hear_ms.is_some_and(|hear_ms| hear_ms <= now_ms) {
            self.hear_ms = None;
            world.hold(self.socket, false);
        }
        if self.close_ms.is_some_and(|close_ms| close_ms <= now_ms) {
            self.close_ms = None;
            (self.mute, self.gone) = (true, true);
            world.close(self.socket);
        }
        let read = world.take_read(self.socket);
        let mut did = !read.is_empty();
        self.input.extend(read);
        while let Some((kind, id, content)) = self.record() {
            self.take(kind, id, content, world, manners, asked);
        }
        did |= self.answer(world);
        did
    }

    fn record(&mut self) -> Option<(u8, u16, Vec<u8>)> {
        let header = self.input.first_chunk::<8>()?;
        let [1, kind, id_high, id_low, len_high, len_low, padding, _] = *header else {
            panic!("no record: {}", header.escape_ascii());
        };
        let len = usize::from(u16::from_be_bytes([len_high, len_low]));
        let end = 8 + len + usize::from(padding);
        if self.input.len() < end {
            return None;
        }
        let content = self.input[8..8 + len].to_vec();
        self.input.drain(..end);
        Some((kind, u16::from_be_bytes([id_high, id_low]), content))
    }

    fn take(
        &mut self,
        kind: u8,
        id: u16,
        content: Vec<u8>,
        world: &SharedWorld,
        manners: &ServerBehavior,
        asked: &mut usize,
    ) {
        if self.mute {
            return;
        }
        let chance = |chance: u64| world.random_below(1000) < chance;
        match kind {
            GET_VALUES if manners.multiplexes => {
                let yes = b"\x0f\x01FCGI_MPXS_CONNS1";
                world.send(self.socket, &record(VALUES, 0, yes));
            }
            // php-fpm also closes the connection on FCGI_GET_VALUES.
            GET_VALUES => world.close(self.socket),
            1 => {
                assert!(
                    manners.multiplexes || self.requests.is_empty(),
                    "two requests at a time, and nobody said they may be"
                );
                *asked += 1;
                let before = self.requests.insert(id, PendingRequest::default());
                assert!(before.is_none(), "the number of one that is under way");
                self.close_ms = None;
                if chance(manners.deaf) {
                    let hear_ms = world.now_ms() + world.random_below(2_000);
                    self.hear_ms = Some(hear_ms);
                    world.hold(self.socket, true);
                    world.alarm(hear_ms);
                }
            }
            ABORT => {
                if self.requests.remove(&id).is_some() {
                    self.answers.retain(|answer| answer.id != id);
                    world.send(self.socket, &end(id, 0));
                }
            }
            PARAMS | STDIN => {
                // A request that was answered early may have been removed before its body arrives.
                let Some(request) = self.requests.get_mut(&id) else {
                    return;
                };
                let is_end = content.is_empty();
                match kind {
                    PARAMS => request.params.extend(content),
                    _ => request.body.extend(content),
                }
                let is_early = kind == PARAMS && is_end && chance(manners.early);
                if (kind == STDIN && is_end || is_early) && !request.answered {
                    request.answered = true;
                    let wanted = wanted(&request.params);
                    if !is_early {
                        let right = pattern(wanted.number, wanted.body_len);
                        assert!(request.body == right, "{wanted:?}: not its body");
                    }
                    self.answers
                        .push(random_response(id, wanted, world, manners));
                }
            }
            kind => panic!("a record of type {kind}"),
        }
    }

    /// Sends all output that is due; returns whether there was any.
    fn answer(&mut self, world: &SharedWorld) -> bool {
        let now_ms = world.now_ms();
        let mut did = false;
        let mut at = 0;
        while at < self.answers.len() && !self.mute {
            let answer = &mut self.answers[at];
            if answer.next_ms > now_ms {
                at += 1;
                continue;
            }
            did = true;
            let count = 1 + world.random_below(4) as usize;
            let count = count.min(answer.pieces.len());
            let bytes: Vec<u8> = answer.pieces.drain(..count).flatten().collect();
            world.send(self.socket, &bytes);
            if !answer.pieces.is_empty() {
                let pause_ms = if answer.pauses > 0 { 200 } else { 1 };
                answer.pauses = answer.pauses.saturating_sub(1);
                answer.next_ms = now_ms + 1 + world.random_below(pause_ms);
                world.alarm(answer.next_ms);
                at += 1;
                continue;
            }
            let answer = self.answers.remove(at);
            self.requests.remove(&answer.id);
            self.follow(answer.then, world);
        }
        did
    }

    fn follow(&mut self, then: AfterResponse, world: &SharedWorld) {
        match then {
            AfterResponse::Nothing => {}
            AfterResponse::Close => {
                (self.mute, self.gone) = (true, true);
                world.close(self.socket);
            }
            AfterResponse::CloseLater => {
                let close_ms = world.now_ms() + world.random_below(3_000);
                self.close_ms = Some(close_ms);
                world.alarm(close_ms);
            }
            AfterResponse::Reset => {
                (self.mute, self.gone) = (true, true);
                world.reset_after(self.socket);
            }
            AfterResponse::Stall => self.mute = true,
        }
    }
}

/// A random response, correct or not.
fn random_response(
    id: u16,
    wanted: RequestedBody,
    world: &SharedWorld,
    manners: &ServerBehavior,
) -> Answer {
    let chance = |chance: u64| world.random_below(1000) < chance;
    let mut pieces = pieces_of(id, wanted, world, chance(manners.complain));
    let mut then = match chance(manners.close) {
        true if world.random_below(2) == 0 => AfterResponse::Close,
        true => AfterResponse::CloseLater,
        false => AfterResponse::Nothing,
    };
    if chance(manners.nonsense) {
        let at = world.random_below(pieces.len() as u64) as usize;
        match world.random_below(5) {
            0 => pieces.insert(at, b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
            kind @ 1..=2 => {
                pieces.truncate(at);
                pieces.push_back(end(id, kind as u8));
            }
            3 => pieces.insert(at, record(STDOUT, id ^ 0x4000, b"x")),
            _ => pieces.push_front(record(STDOUT, id, b"no head\r\n\r\n")),
        }
    }
    let (cut, stall) = (chance(manners.cut), chance(manners.stall));
    if cut || stall {
        let mut all: Vec<u8> = pieces.drain(..).flatten().collect();
        // Truncated at any byte, in half of the cases near the start.
        let most = if world.random_below(2) == 0 {
            60
        } else {
            all.len()
        };
        all.truncate(world.random_below(most as u64) as usize);
        // In one piece: records of other responses must not be inserted within a record.
        pieces.push_back(all);
        then = match (stall, world.random_below(2)) {
            (true, _) => AfterResponse::Stall,
            (false, 0) => AfterResponse::Close,
            (false, _) => AfterResponse::Reset,
        };
    }
    Answer {
        id,
        pieces,
        pauses: if chance(manners.slow) { 15 } else { 0 },
        next_ms: world.now_ms(),
        then,
    }
}

/// The records of a correct response.
fn pieces_of(
    id: u16,
    wanted: RequestedBody,
    world: &SharedWorld,
    complain: bool,
) -> VecDeque<Vec<u8>> {
    let body = body_of(wanted);
    let mut text = b"Content-Type: text/plain\r\n".to_vec();
    if world.random_below(2) == 0 {
        text.extend(format!("Content-Length: {}\r\n", body.len()).bytes());
    }
    text.extend(b"\r\n");
    text.extend(body);
    let len_max = 1 + world.random_below(if text.len() > 20_000 { 40_000 } else { 2_000 }) as usize;
    let mut pieces: VecDeque<Vec<u8>> = text
        .chunks(len_max)
        .map(|part| record(STDOUT, id, part))
        .collect();
    if complain {
        let at = world.random_below(pieces.len() as u64 + 1) as usize;
        pieces.insert(at, record(STDERR, id, b"oh dear\n"));
    }
    if world.random_below(2) == 0 {
        pieces.push_back(record(STDOUT, id, b""));
    }
    pieces.push_back(end(id, 0));
    pieces
}

/// Parses the query: `n=1&len=2&body=3`.
fn wanted(params: &[u8]) -> RequestedBody {
    let name = b"QUERY_STRING";
    let at = params.windows(name.len()).position(|part| part == name);
    let query = &params[at.expect("a query") + name.len()..];
    let query = query.split(|b| !b"n=&lenbody0123456789".contains(b)).next();
    let query = std::str::from_utf8(query.expect("a part")).expect("text");
    let number = |name: &str| {
        let value = query.split('&').find_map(|part| part.strip_prefix(name));
        value.and_then(|value| value.parse().ok())
    };
    RequestedBody {
        number: number("n=").expect("a number"),
        len: number("len=").expect("a length"),
        body_len: number("body=").expect("a body's length"),
    }
}
