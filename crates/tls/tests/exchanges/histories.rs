//! Randomized tests: both sides send and receive bytes, split at random positions, and optionally one bit is flipped in
//! transit. The received bytes must always be a prefix of the sent bytes. `LOWROAD_SEED` runs a single case; a failure
//! prints its seed.

use lowroad_tls::{TlsAcceptor, TlsClock};

use crate::pair::{Exchange, connector, settings, tickets};

const CASES: u64 = 300;
const STEPS: u32 = 60;

/// xorshift64*
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let random_number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        random_number as usize % end.max(1)
    }
}

/// One direction: the bytes that were sent, are in transit, and were received.
#[derive(Default)]
struct Direction {
    sent_bytes: Vec<u8>,
    wire: Vec<u8>,
    received_bytes: Vec<u8>,
}

impl Direction {
    fn take(&mut self, random: &mut Random) -> Vec<u8> {
        let len = match random.below(3) {
            // Often less than a record's header.
            0 => random.below(8),
            1 => random.below(3000),
            _ => self.wire.len(),
        };
        self.wire.drain(..len.min(self.wire.len())).collect()
    }

    fn check(&self, seed: u64) {
        assert!(
            self.sent_bytes.starts_with(&self.received_bytes),
            "seed {seed}"
        );
    }
}

/// Appends random bytes to those that were sent, and returns them.
fn random_text(random: &mut Random, dir: &mut Direction) -> Vec<u8> {
    let len = match random.below(4) {
        0 => random.below(50_000),
        _ => random.below(2000),
    };
    let start = dir.sent_bytes.len();
    dir.sent_bytes
        .extend((0..len).map(|position| (start + position * 7) as u8));
    dir.sent_bytes[start..].to_vec()
}

fn run_case(acceptor: &TlsAcceptor, seed: u64, changed: bool) {
    let mut random = Random(seed + 1);
    let exchange = Exchange::new(acceptor, &connector(), "localhost");
    let (mut server, mut client) = (exchange.server, exchange.client);
    let (mut to_server, mut to_client) = (Direction::default(), Direction::default());
    to_server.wire = exchange.to_server;
    let (mut now_ms, mut is_changed) = (0, false);
    // In half of the cases, `settle` is called once the handshake is complete.
    let mut settles = seed.is_multiple_of(2);
    for step in 0..STEPS * 4 {
        now_ms += random.below(400) as u64;
        if changed
            && !is_changed
            && step > 20
            && random.below(20) == 0
            && !to_server.wire.is_empty()
        {
            let position = random.below(to_server.wire.len());
            to_server.wire[position] ^= 1 << random.below(8);
            is_changed = true;
        }
        // The remaining steps deliver the bytes in transit.
        let is_over = step > STEPS;
        if settles && server.is_established() {
            settles = false;
            let done = server.settle();
            done.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        }
        match random.below(4) {
            0 if client.is_established() && !is_over => {
                let text = random_text(&mut random, &mut to_server);
                let (one, other) = text.split_at(random.below(text.len()));
                let sealed = client.encrypt(&[one, other], &mut to_server.wire, now_ms);
                if sealed.is_err() {
                    return;
                }
            }
            1 if server.is_established() && !is_over => {
                let text = random_text(&mut random, &mut to_client);
                let pieces: Vec<&[u8]> = text.chunks(1 + random.below(3000)).collect();
                let sealed = server.encrypt(&pieces, &mut to_client.wire, now_ms);
                sealed.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
            }
            2 => {
                let mut wire = to_server.take(&mut random);
                let received = server.receive(
                    &mut wire,
                    &mut to_server.received_bytes,
                    &mut to_client.wire,
                );
                to_server.check(seed);
                match received {
                    Ok(_) => {}
                    // A flipped bit must end the connection, at the latest when its record is decrypted.
                    Err(_) if is_changed => return,
                    Err(failure) => panic!("seed {seed}: {failure}"),
                }
            }
            _ => {
                let mut wire = to_client.take(&mut random);
                let received = client.receive(
                    &mut wire,
                    &mut to_client.received_bytes,
                    &mut to_server.wire,
                );
                to_client.check(seed);
                match received {
                    Ok(_) => {}
                    Err(_) if is_changed => return,
                    Err(failure) => panic!("seed {seed}: {failure}"),
                }
            }
        }
    }
    if !is_changed {
        assert!(
            server.is_established() && client.is_established(),
            "seed {seed}"
        );
        // Several rounds: key updates and tickets cause further bytes in the other direction.
        for _ in 0..4 {
            let (received_bytes, out) = (&mut to_server.received_bytes, &mut to_client.wire);
            server
                .receive(
                    &mut std::mem::take(&mut to_server.wire),
                    received_bytes,
                    out,
                )
                .unwrap();
            let (received_bytes, out) = (&mut to_client.received_bytes, &mut to_server.wire);
            client
                .receive(
                    &mut std::mem::take(&mut to_client.wire),
                    received_bytes,
                    out,
                )
                .unwrap();
        }
        assert!(
            to_server.received_bytes == to_server.sent_bytes,
            "seed {seed}"
        );
        assert!(
            to_client.received_bytes == to_client.sent_bytes,
            "seed {seed}"
        );
    }
}

fn run(changed: bool) {
    let mut settings = settings();
    settings.tickets = Some(tickets(&TlsClock::new(crate::pair::NOW_S)));
    let acceptor = TlsAcceptor::new(&settings).unwrap();
    if let Ok(seed) = std::env::var("LOWROAD_SEED") {
        return run_case(&acceptor, seed.parse().expect("a seed"), changed);
    }
    (0..CASES).for_each(|seed| run_case(&acceptor, seed, changed));
}

#[test]
fn received_bytes_equal_sent_bytes() {
    run(false);
}

#[test]
fn flipped_bit_is_detected() {
    run(true);
}
