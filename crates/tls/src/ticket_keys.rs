//! The keys of session tickets, derived from a secret and the time: processes that share the secret have the same keys
//! at the same time, without communicating.
//!
//! Key ratchet: time is divided into periods. Each period has a secret, from which its ticket key and the next period's
//! secret are derived. The derivation is one-way: a secret does not reveal the keys of earlier periods. Three keys are
//! in use: the current one encrypts and decrypts; the previous one decrypts older tickets; the next one decrypts
//! tickets from processes with clocks that are ahead.

use aws_lc_rs::hmac;
use aws_lc_rs::rand;
use rustls::Error;
use zeroize::Zeroize;

/// The longest period.
pub const PERIOD_S_MAX: u32 = 12 * 3600;
/// If the clock has advanced by more periods than this, new keys are created: deriving all of the keys in between would
/// cost more.
const PERIODS_AT_ONCE_MAX: u64 = 10_000;
/// The version of the serialized format.
const VERSION: u8 = 1;
const SERIALIZED_LEN: usize = 1 + 4 + 8 + 1 + 32 + 32;

/// Bytes of a secret.
pub(crate) type SecretBytes = [u8; 32];

/// The secret that processes share to accept each other's tickets.
#[derive(Clone)]
pub struct TicketKeys {
    period_s: u32,
    /// The period that `secret` belongs to.
    period: u64,
    secret: SecretBytes,
    /// The key of the previous period; `None` until the first period has ended.
    previous: Option<SecretBytes>,
}

impl TicketKeys {
    /// Creates keys that each encrypt for `period_s`, at most [`PERIOD_S_MAX`].
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new(period_s: u32, unix_s: u64) -> Result<TicketKeys, Error> {
        // A period of 0 would divide by zero.
        let period_s = period_s.clamp(1, PERIOD_S_MAX);
        Ok(TicketKeys {
            period_s,
            period: unix_s / u64::from(period_s),
            secret: random()?,
            previous: None,
        })
    }

    /// Seconds for which a key encrypts.
    pub fn period_s(&self) -> u32 {
        self.period_s
    }

    /// The period at a time.
    pub(crate) fn period_at(&self, unix_s: u64) -> u64 {
        unix_s / u64::from(self.period_s)
    }

    /// The period of the current key.
    pub(crate) fn period(&self) -> u64 {
        self.period
    }

    /// Advances to the period of `unix_s`. If the clock was set back, nothing changes.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn advance(&mut self, unix_s: u64) -> Result<(), Error> {
        let now = self.period_at(unix_s);
        // After a long pause, all tickets have expired, and new keys cost less than many steps of the ratchet.
        if now.saturating_sub(self.period) > PERIODS_AT_ONCE_MAX {
            *self = TicketKeys::new(self.period_s, unix_s)?;
        }
        // Each step of the ratchet derives a secret from the previous one.
        while self.period < now {
            // The old key is erased, so that a memory dump contains no expired keys.
            self.previous.zeroize();
            self.previous = Some(ticket_key(&self.secret));
            let mut next = next_secret(&self.secret);
            self.secret.copy_from_slice(&next);
            next.zeroize();
            self.period += 1;
        }
        Ok(())
    }

    /// The keys in use: current, previous and next.
    pub(crate) fn keys(&self) -> [Option<SecretBytes>; 3] {
        let next = ticket_key(&next_secret(&self.secret));
        [Some(ticket_key(&self.secret)), self.previous, Some(next)]
    }

    /// The serialized form, for another process; contains the secret.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SERIALIZED_LEN);
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.period_s.to_be_bytes());
        bytes.extend_from_slice(&self.period.to_be_bytes());
        bytes.push(u8::from(self.previous.is_some()));
        bytes.extend_from_slice(&self.previous.unwrap_or_default());
        bytes.extend_from_slice(&self.secret);
        bytes
    }

    /// Parses the serialized form. `None`: invalid or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Option<TicketKeys> {
        let bytes: &[u8; SERIALIZED_LEN] = bytes.try_into().ok()?;
        let [version, rest @ ..] = bytes;
        let (period_s, rest) = rest.split_first_chunk()?;
        let (period, rest) = rest.split_first_chunk()?;
        let ([has_previous], rest) = rest.split_first_chunk()?;
        let (previous, rest) = rest.split_first_chunk::<32>()?;
        let period_s = u32::from_be_bytes(*period_s);
        let is_known = *version == VERSION && (1..=PERIOD_S_MAX).contains(&period_s);
        (is_known && *has_previous <= 1).then_some(TicketKeys {
            period_s,
            period: u64::from_be_bytes(*period),
            secret: rest.try_into().ok()?,
            previous: (*has_previous == 1).then_some(*previous),
        })
    }
}

impl Drop for TicketKeys {
    fn drop(&mut self) {
        self.secret.zeroize();
        self.previous.zeroize();
    }
}

impl std::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "TicketKeys(period {} of {} s)",
            self.period, self.period_s
        )
    }
}

fn random() -> Result<SecretBytes, Error> {
    let mut secret = [0; 32];
    rand::fill(&mut secret).map_err(|_| Error::FailedToGetRandomBytes)?;
    Ok(secret)
}

fn derived(secret: &SecretBytes, label: &[u8]) -> SecretBytes {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut derived = [0; 32];
    derived.copy_from_slice(hmac::sign(&key, label).as_ref());
    derived
}

fn next_secret(secret: &SecretBytes) -> SecretBytes {
    derived(secret, b"lowroad ticket secret of the next period")
}

fn ticket_key(secret: &SecretBytes) -> SecretBytes {
    derived(secret, b"lowroad ticket key")
}

/// The name of a key; tickets begin with the name of their key.
pub(crate) fn key_name(key: &SecretBytes) -> [u8; 8] {
    // The name is sent unencrypted, so it must not reveal the key.
    let mut name = [0; 8];
    name.copy_from_slice(&derived(key, b"lowroad ticket name")[..8]);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: u64 = 86_400;

    #[test]
    fn processes_sharing_a_secret_derive_the_same_keys() {
        let mut ours = TicketKeys::new(3600, 10 * DAY_S).unwrap();
        let mut theirs = TicketKeys::from_bytes(&ours.to_bytes()).unwrap();
        assert_eq!(ours.keys(), theirs.keys());
        for now_s in (10 * DAY_S..11 * DAY_S).step_by(1000) {
            ours.advance(now_s).unwrap();
        }
        theirs.advance(11 * DAY_S - 1).unwrap();
        assert_eq!(ours.keys(), theirs.keys());
        assert_eq!(ours.to_bytes(), theirs.to_bytes());
    }

    #[test]
    fn keys_rotate_from_next_to_current_to_previous() {
        let mut keys = TicketKeys::new(100, 1000).unwrap();
        let [current, previous, next] = keys.keys();
        assert_eq!(previous, None);
        keys.advance(1100).unwrap();
        assert_eq!(keys.keys()[..2], [next, current]);
        keys.advance(1200).unwrap();
        assert_eq!(keys.keys()[1], next);
        assert!(!keys.keys().contains(&current));
        // A clock that goes backward.
        let before = keys.keys();
        keys.advance(900).unwrap();
        assert_eq!(keys.keys(), before);
    }

    #[test]
    fn period_is_clamped_to_12_hours() {
        assert_eq!(TicketKeys::new(u32::MAX, 0).unwrap().period_s(), 43_200);
        assert_eq!(TicketKeys::new(0, 0).unwrap().period_s(), 1);
    }

    #[test]
    fn clock_jump_far_ahead_creates_new_keys() {
        let mut keys = TicketKeys::new(1, 0).unwrap();
        keys.advance(1 << 60).unwrap();
        assert_eq!(keys.period(), 1 << 60);
        assert_eq!(keys.keys()[1], None);
    }

    #[test]
    fn malformed_serialized_keys_are_rejected() {
        let good = TicketKeys::new(60, 60).unwrap().to_bytes();
        assert!(TicketKeys::from_bytes(&good).is_some());
        assert!(TicketKeys::from_bytes(&good[1..]).is_none());
        assert!(TicketKeys::from_bytes(&[]).is_none());
        for (offset, value) in [(0, 2), (1, 0xff), (13, 2)] {
            let mut bad = good.clone();
            bad[offset] = value;
            assert!(TicketKeys::from_bytes(&bad).is_none(), "{offset}");
        }
        let mut no_period = good;
        no_period[1..5].fill(0);
        assert!(TicketKeys::from_bytes(&no_period).is_none());
    }
}
