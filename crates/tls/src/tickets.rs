//! Stateless session resumption (RFC 5077, RFC 8446): a session is encrypted into a ticket, which the client stores and
//! presents in a later handshake.
//!
//! A ticket consists of the name of its key, a nonce, and the ciphertext. AES-256-GCM-SIV permits random nonces without
//! a practical limit. The rules of client verification are authenticated data, so a ticket issued under other rules is
//! rejected.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, Nonce, RandomizedNonceKey};
use rustls::Error;
use rustls::server::ProducesTickets;
use zeroize::Zeroize;

use crate::clock::TlsClock;
use crate::ticket_keys::{SecretBytes, TicketKeys, key_name};

const NAME_LEN: usize = 8;
const NONCE_LEN: usize = 12;

/// Encrypts and decrypts tickets, for all listeners and workers of a process.
#[derive(Clone)]
pub struct TicketService(Arc<TicketState>);

struct TicketState {
    clock: TlsClock,
    ring: RwLock<KeyRing>,
}

/// The ticket keys in use.
struct KeyRing {
    keys: TicketKeys,
    current: TicketKey,
    other_keys: [Option<TicketKey>; 2],
}

struct TicketKey {
    name: [u8; NAME_LEN],
    key: RandomizedNonceKey,
}

impl TicketService {
    /// Creates a service with new keys or with those of another process.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new(mut keys: TicketKeys, clock: TlsClock) -> Result<TicketService, Error> {
        keys.advance(clock.unix_s())?;
        let ring = RwLock::new(KeyRing::new(keys)?);
        Ok(TicketService(Arc::new(TicketState { clock, ring })))
    }

    /// The keys, for another process; see [`TicketKeys::to_bytes`].
    pub fn keys(&self) -> TicketKeys {
        self.with_ring(|ring| ring.keys.clone())
    }

    /// A ticketer for listeners that verify clients by `rules`.
    pub(crate) fn with_rules(&self, rules: Vec<u8>) -> Arc<dyn ProducesTickets> {
        Arc::new(ListenerTicketer {
            tickets: self.clone(),
            rules,
        })
    }

    fn with_ring<T>(&self, use_ring: impl FnOnce(&KeyRing) -> T) -> T {
        let unix_s = self.0.clock.unix_s();
        let ring = self.0.ring.read().unwrap_or_else(PoisonError::into_inner);
        // Usually the period has not changed, and a read lock suffices.
        if ring.keys.period_at(unix_s) <= ring.keys.period() {
            return use_ring(&ring);
        }
        // If another thread has advanced the keys between the two locks, `advance` changes nothing.
        drop(ring);
        let mut ring = self.0.ring.write().unwrap_or_else(PoisonError::into_inner);
        // Without random bytes the old keys stay in use; the next handshake retries.
        if ring.keys.advance(unix_s).is_ok()
            && let Ok(new) = KeyRing::new(ring.keys.clone())
        {
            *ring = new;
        }
        use_ring(&ring)
    }
}

impl fmt::Debug for TicketService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_ring(|ring| write!(f, "Tickets({:?})", ring.keys))
    }
}

impl KeyRing {
    fn new(keys: TicketKeys) -> Result<KeyRing, Error> {
        let [current, previous, next] = keys.keys().map(|secret| secret.map(TicketKey::new));
        Ok(KeyRing {
            keys,
            current: current.ok_or(Error::General("no current key".into()))??,
            other_keys: [previous.transpose()?, next.transpose()?],
        })
    }

    fn find(&self, name: &[u8]) -> Option<&TicketKey> {
        let other_keys = self.other_keys.iter().flatten();
        std::iter::once(&self.current)
            // An unknown key is not an error: the client does a full handshake.
            .chain(other_keys)
            .find(|key| key.name == name)
    }
}

impl TicketKey {
    fn new(mut secret: SecretBytes) -> Result<TicketKey, Error> {
        let key = RandomizedNonceKey::new(&AES_256_GCM_SIV, &secret);
        let name = key_name(&secret);
        secret.zeroize();
        let key = key.map_err(|_| Error::General("a ticket key has the wrong length".into()))?;
        Ok(TicketKey { name, key })
    }

    fn seal(&self, rules: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        let mut sealed = plain.to_vec();
        let nonce = self
            .key
            .seal_in_place_append_tag(Aad::from(rules), &mut sealed)
            .ok()?;
        Some([&self.name[..], nonce.as_ref(), &sealed].concat())
    }

    fn open(&self, rules: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut plain = sealed.to_vec();
        let nonce = Nonce::from(nonce);
        let opened = self
            .key
            .open_in_place(nonce, Aad::from(rules), &mut plain)
            .ok()?;
        let len = opened.len();
        plain.truncate(len);
        Some(plain)
    }
}

/// The ticketer of listeners with the same client verification rules.
#[derive(Debug)]
struct ListenerTicketer {
    tickets: TicketService,
    rules: Vec<u8>,
}

impl ProducesTickets for ListenerTicketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        // A ticket from the end of a period is still accepted for exactly one more period.
        self.tickets.with_ring(|ring| ring.keys.period_s())
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.tickets
            .with_ring(|ring| ring.current.seal(&self.rules, plain))
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, sealed) = ticket.split_at_checked(NAME_LEN)?;
        self.tickets
            .with_ring(|ring| ring.find(name)?.open(&self.rules, sealed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(clock: &TlsClock) -> TicketService {
        let keys = TicketKeys::new(100, clock.unix_s()).unwrap();
        TicketService::new(keys, clock.clone()).unwrap()
    }

    #[test]
    fn ticket_is_accepted_in_its_period_and_the_next() {
        let clock = TlsClock::new(1050);
        let ticketer = tickets(&clock).with_rules(Vec::new());
        let ticket = ticketer.encrypt(b"session").unwrap();
        for (now_s, opens) in [(1050, true), (1199, true), (1200, false)] {
            clock.set(now_s);
            assert_eq!(ticketer.decrypt(&ticket).is_some(), opens, "{now_s}");
        }
        assert_eq!(ticketer.lifetime(), 100);
    }

    #[test]
    fn process_with_slower_clock_accepts_ticket() {
        let (fast, slow) = (TlsClock::new(1101), TlsClock::new(1099));
        let slow_service = tickets(&slow);
        let bytes = slow_service.keys().to_bytes();
        let fast_service =
            TicketService::new(TicketKeys::from_bytes(&bytes).unwrap(), fast).unwrap();
        let ticket = fast_service
            .with_rules(Vec::new())
            .encrypt(b"session")
            .unwrap();
        assert_eq!(
            slow_service
                .with_rules(Vec::new())
                .decrypt(&ticket)
                .as_deref(),
            Some(&b"session"[..])
        );
    }

    #[test]
    fn ticket_modified_or_from_other_rules_is_rejected() {
        let clock = TlsClock::new(1000);
        let tickets = tickets(&clock);
        let ticketer = tickets.with_rules(b"rules".to_vec());
        let ticket = ticketer.encrypt(b"session").unwrap();
        assert!(ticketer.decrypt(&ticket).is_some());
        assert!(
            tickets
                .with_rules(b"others".to_vec())
                .decrypt(&ticket)
                .is_none()
        );
        for offset in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[offset] ^= 1;
            assert!(ticketer.decrypt(&changed).is_none(), "{offset}");
            assert!(ticketer.decrypt(&ticket[..offset]).is_none(), "{offset}");
        }
    }
}
