//! Connection identifiers that name the worker of a connection, so that a datagram finds it after its sender has got
//! another address. Read RFC 9000 §5.1.
//!
//! ```text
//!  byte 0: worker, masked    byte 1: generation, masked    bytes 2 and 3: check    bytes 4 to 7: random
//! ```
//!
//! Masks and check are a keyed hash of the random bytes. The masks hide the worker: identifiers of a
//! connection have nothing in common for an observer (RFC 9000 §9.5). The check recognizes own identifiers: those that
//! clients choose for first packets pass with a probability of 1/65,536. The hash uses additions, multiplications and
//! shifts of 32 bits only, so that classic BPF can compute it ([`crate::steering`]). It needs no more strength: an
//! attack on it reveals only the numbers of workers.
//!
//! The generation distinguishes processes that share sockets while one replaces another. With 8 bits, several upgrades
//! may follow each other before the first process has drained.

use std::time::Duration;

use aws_lc_rs::hmac;
use lowroad_engine::datagram_relay::ProcessWorker;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};

/// The length of an identifier in bytes.
pub const CONNECTION_ID_LEN: usize = 8;
/// Workers of a process with QUIC.
pub const WORKERS_MAX: u8 = 128;
/// Random bytes of an identifier.
pub(crate) const RANDOM_LEN: usize = 4;

/// The secret of mask and check, common to all workers of all generations.
#[derive(Clone, Copy)]
pub struct ConnectionIdKey {
    /// Added to the first word.
    pub(crate) start: u32,
    /// Odd factors.
    pub(crate) factors: [u32; 3],
}

impl std::fmt::Debug for ConnectionIdKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConnectionIdKey")
    }
}

impl ConnectionIdKey {
    /// A key from secret bytes.
    pub(crate) fn new(secret: [u8; 16]) -> ConnectionIdKey {
        let (words, _) = secret.as_chunks::<4>();
        let word = |index: usize| u32::from_be_bytes(words[index]);
        ConnectionIdKey {
            start: word(0),
            // Multiplication by an odd number is a permutation.
            factors: [word(1) | 1, word(2) | 1, word(3) | 1],
        }
    }

    /// The hash of the random bytes: two masks in the higher bytes, the check in the lower ones.
    pub(crate) fn hash(&self, random: [u8; RANDOM_LEN]) -> u32 {
        let mut hash = u32::from_be_bytes(random).wrapping_add(self.start);
        // A multiplication moves differences up, a shift down: after three rounds each bit depends on all others.
        hash ^= hash >> 15;
        hash = hash.wrapping_mul(self.factors[0]);
        hash ^= hash >> 13;
        hash = hash.wrapping_mul(self.factors[1]);
        hash ^= hash >> 16;
        hash.wrapping_mul(self.factors[2])
    }

    /// An identifier of a worker.
    #[must_use]
    pub fn encode(
        &self,
        place: ProcessWorker,
        random: [u8; RANDOM_LEN],
    ) -> [u8; CONNECTION_ID_LEN] {
        let [worker_mask, generation_mask, check @ ..] = self.hash(random).to_be_bytes();
        let (worker, generation) = (
            place.worker ^ worker_mask,
            place.generation ^ generation_mask,
        );
        let ([check, check_low], [a, b, c, d]) = (check, random);
        [worker, generation, check, check_low, a, b, c, d]
    }

    /// The worker of an identifier; `None` if this key has not made it.
    #[must_use]
    pub fn decode(&self, id: &[u8]) -> Option<ProcessWorker> {
        let [worker, generation, check, check_low, random @ ..] =
            *<&[u8; CONNECTION_ID_LEN]>::try_from(id).ok()?;
        let [worker_mask, generation_mask, wanted @ ..] = self.hash(random).to_be_bytes();
        ([check, check_low] == wanted).then_some(ProcessWorker {
            generation: generation ^ generation_mask,
            worker: worker ^ worker_mask,
        })
    }
}

/// Creates the identifiers of a worker: the random bytes are a pseudorandom function (HMAC) of a counter, so that a
/// seed determines them.
pub(crate) struct WorkerIds {
    key: ConnectionIdKey,
    place: ProcessWorker,
    seed: hmac::Key,
    counter: u64,
    /// Unused output of the function.
    output: Vec<[u8; RANDOM_LEN]>,
}

impl WorkerIds {
    pub fn new(key: ConnectionIdKey, place: ProcessWorker, seed: hmac::Key) -> WorkerIds {
        WorkerIds {
            key,
            place,
            seed,
            counter: 0,
            output: Vec::new(),
        }
    }

    fn random(&mut self) -> [u8; RANDOM_LEN] {
        loop {
            if let Some(random) = self.output.pop() {
                return random;
            }
            // One tag of 32 bytes has the random bytes of eight identifiers, more than a handshake needs.
            let tag = hmac::sign(&self.seed, &self.counter.to_be_bytes());
            self.counter += 1;
            let (parts, _) = tag.as_ref().as_chunks();
            self.output.extend_from_slice(parts);
        }
    }
}

impl ConnectionIdGenerator for WorkerIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let random = self.random();
        ConnectionId::new(&self.key.encode(self.place, random))
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        // Identifiers of other workers and processes are valid, since any worker may reset connections that are gone.
        match self.key.decode(id) {
            Some(_) => Ok(()),
            None => Err(InvalidCid),
        }
    }

    fn cid_len(&self) -> usize {
        CONNECTION_ID_LEN
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn ids(worker: u8, seed: &[u8]) -> WorkerIds {
        let place = ProcessWorker {
            generation: worker ^ 0xa5,
            worker,
        };
        let seed = hmac::Key::new(hmac::HMAC_SHA256, seed);
        WorkerIds::new(ConnectionIdKey::new(*b"a sixteen bytes!"), place, seed)
    }

    #[test]
    fn identifiers_name_their_worker() {
        let mut seen = HashSet::new();
        for worker in 0..WORKERS_MAX {
            let mut ids = ids(worker, &[worker]);
            for _ in 0..20 {
                let id = ids.generate_cid();
                assert!(ids.validate(&id).is_ok());
                assert_eq!(ids.key.decode(&id), Some(ids.place));
                assert!(seen.insert(id));
            }
        }
    }

    #[test]
    fn a_seed_determines_the_identifiers() {
        let (mut first, mut same, mut other) = (ids(1, b"x"), ids(1, b"x"), ids(1, b"y"));
        let id = first.generate_cid();
        assert_eq!(id, same.generate_cid());
        assert_ne!(id, other.generate_cid());
    }

    #[test]
    fn masked_bytes_of_a_worker_are_spread() {
        let mut ids = ids(5, b"spread");
        let first: HashSet<u8> = (0..2000).map(|_| ids.generate_cid()[0]).collect();
        // Of 256 values each is missing with a probability of 0.0004.
        assert!(first.len() > 245, "{}", first.len());
    }

    #[test]
    fn few_foreign_identifiers_pass_the_check() {
        let key = ConnectionIdKey::new(*b"a sixteen bytes!");
        let mut random = 1_u64;
        let passed = (0..1_000_000)
            .filter(|_| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                key.decode(&(random ^ random >> 29).to_be_bytes()).is_some()
            })
            .count();
        // 15 are expected.
        assert!((1..60).contains(&passed), "{passed}");
        assert_eq!(key.decode(&[0; 7]), None);
        assert_eq!(key.decode(&[0; 9]), None);
    }
}
