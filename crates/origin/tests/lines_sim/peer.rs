//! The simulated server: greets and responds; truncates, stalls and closes at random.

use lowroad_engine_sim::SharedWorld;

use crate::line::{GREETING, answer};

/// The server's behavior, in chances per thousand.
#[derive(Clone, Debug, Default)]
pub struct Manners {
    /// For each connection: it gets no greeting.
    pub silent: u64,
    /// For each response: it is truncated in the middle, by a close or a reset.
    pub cut: u64,
    /// For each response: it stalls in the middle.
    pub stall: u64,
    /// For each response: it is up to 300 ms late.
    pub slow: u64,
    /// For each response: the connection is closed after it, immediately or up to 3 s later.
    pub close: u64,
    /// The number of connections that are served concurrently, as by server processes; others wait. 0: all.
    pub processes: usize,
}

/// The server.
pub struct Server {
    world: SharedWorld,
    manners: Manners,
    peers: Vec<Peer>,
    /// The number of connections so far.
    pub came: usize,
}

/// The server's end of a connection.
struct Peer {
    socket: usize,
    greeted: bool,
    input: Vec<u8>,
    /// The next output, and its time.
    next: Option<(u64, Vec<u8>)>,
    close_ms: Option<u64>,
    mute: bool,
}

impl Server {
    pub fn new(world: &SharedWorld, manners: Manners) -> Server {
        Server {
            world: world.clone(),
            manners,
            peers: Vec::new(),
            came: 0,
        }
    }

    /// Performs all due actions. Returns whether there were any.
    pub fn step(&mut self) -> bool {
        let dialed = self.world.dialed();
        let mut did = !dialed.is_empty();
        self.came += dialed.len();
        self.peers.extend(dialed.into_iter().map(Peer::new));
        let world = &self.world;
        self.peers.retain(|peer| !world.is_over(peer.socket));
        let busy = match self.manners.processes {
            0 => usize::MAX,
            processes => processes,
        };
        for peer in self.peers.iter_mut().take(busy) {
            did |= peer.step(world, &self.manners);
        }
        did
    }
}

impl Peer {
    fn new(socket: usize) -> Peer {
        Peer {
            socket,
            greeted: false,
            input: Vec::new(),
            next: None,
            close_ms: None,
            mute: false,
        }
    }

    fn step(&mut self, world: &SharedWorld, manners: &Manners) -> bool {
        let now_ms = world.now_ms();
        let chance = |chance: u64| world.random_below(1000) < chance;
        let mut did = !std::mem::replace(&mut self.greeted, true);
        if did {
            match chance(manners.silent) {
                true => self.mute = true,
                false => world.send(self.socket, GREETING),
            }
        }
        if self.close_ms.is_some_and(|close_ms| close_ms <= now_ms) {
            (self.close_ms, self.mute, did) = (None, true, true);
            world.close(self.socket);
        }
        let read = world.take_read(self.socket);
        did |= !read.is_empty();
        self.input.extend(read);
        if self.mute {
            return did;
        }
        if let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
            assert!(self.next.is_none(), "two requests at a time");
            let line: Vec<u8> = self.input.drain(..=end).collect();
            let delay_ms = if chance(manners.slow) {
                world.random_below(300)
            } else {
                0
            };
            self.next = Some((now_ms + delay_ms, reply(&line)));
            self.close_ms = None;
            world.alarm(now_ms + delay_ms);
        }
        if let Some((_, line)) = self.next.take_if(|(at_ms, _)| *at_ms <= now_ms) {
            did = true;
            self.send_line(line, world, manners);
        }
        did
    }

    fn send_line(&mut self, mut line: Vec<u8>, world: &SharedWorld, manners: &Manners) {
        let chance = |chance: u64| world.random_below(1000) < chance;
        let (cut, stall) = (chance(manners.cut), chance(manners.stall));
        if cut || stall {
            line.truncate(world.random_below(line.len() as u64) as usize);
        }
        world.send(self.socket, &line);
        if stall {
            self.mute = true;
        } else if cut {
            self.mute = true;
            match world.random_below(2) {
                0 => world.close(self.socket),
                _ => world.reset_after(self.socket),
            }
        } else if chance(manners.close) {
            let close_ms = world.now_ms() + world.random_below(2) * world.random_below(3_000);
            self.close_ms = Some(close_ms);
            world.alarm(close_ms);
        }
    }
}

/// The correct response to a request.
fn reply(line: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(line).expect("text").trim_end();
    let (number, len) = text.split_once(' ').expect("two numbers");
    let number_of = |text: &str| text.parse().expect("a number");
    answer(number_of(number), number_of(len))
}
