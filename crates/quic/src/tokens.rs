//! Tokens that a client gets for its next connection (NEW_TOKEN, RFC 9000 §8.1.3): each is accepted
//! once, unless a bounded memory of used tokens has lost it.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use lowroad_tls::TlsClock;
use quinn_proto::{TimeSource, TokenLog, TokenReuseError};

/// Tokens of a generation of the memory.
const TOKENS_MAX: usize = 8192;
/// How long tokens of NEW_TOKEN are valid.
pub(crate) const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// The tokens that were used last, shared by the workers. Cost: at most 16 bytes for each of 16,384 tokens, and the
/// table's overhead. Older ones could be used again within their lifetime: that saves a client one round trip, and
/// lets it receive three times the bytes it sends to its own address only.
#[derive(Debug, Default)]
pub struct UsedTokens(Mutex<TokenGenerations>);

#[derive(Debug, Default)]
struct TokenGenerations {
    current: HashSet<u128>,
    previous: HashSet<u128>,
}

impl TokenGenerations {
    /// Whether the token is new.
    fn insert(&mut self, nonce: u128) -> bool {
        // A token of the previous generation stays there, so that it is forgotten with it.
        if self.previous.contains(&nonce) || !self.current.insert(nonce) {
            return false;
        }
        if self.current.len() == TOKENS_MAX {
            self.previous = std::mem::take(&mut self.current);
        }
        true
    }
}

impl TokenLog for UsedTokens {
    fn check_and_insert(
        &self,
        nonce: u128,
        _: SystemTime,
        _: Duration,
    ) -> Result<(), TokenReuseError> {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match tokens.insert(nonce) {
            true => Ok(()),
            false => Err(TokenReuseError),
        }
    }
}

/// The time of day for tokens.
pub(crate) struct TokenClock(pub TlsClock);

impl TimeSource for TokenClock {
    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.0.unix_s())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_accepted_once_and_memory_is_bounded() {
        let mut tokens = TokenGenerations::default();
        assert!(tokens.insert(1));
        assert!(!tokens.insert(1));
        for nonce in 2..=20_000 {
            assert!(tokens.insert(nonce));
            assert!(!tokens.insert(nonce));
        }
        assert!(tokens.current.len() + tokens.previous.len() <= 2 * TOKENS_MAX);
        // The latest ones are still known.
        assert!((20_000 - TOKENS_MAX as u128..=20_000).all(|nonce| !tokens.insert(nonce)));
    }
}
