//! The responses for `http-01`: a map from tokens to key authorizations (RFC 8555, section 8.3). Workers look up
//! requests below [`PATH_PREFIX`] in it. The map is usually empty.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The path prefix of validation requests, which authorities send over plain HTTP.
pub const PATH_PREFIX: &str = "/.well-known/acme-challenge/";

/// The map from tokens to key authorizations. All clones share it.
#[derive(Clone, Debug, Default)]
pub struct ChallengeTokens(Arc<TokenTable>);

#[derive(Debug, Default)]
struct TokenTable {
    /// The number of entries in `responses`: workers check it without taking the lock.
    len: AtomicUsize,
    responses: RwLock<HashMap<String, Arc<str>>>,
}

impl ChallengeTokens {
    /// The response content, of type `application/octet-stream`. `None` for unknown tokens.
    pub fn find(&self, token: &str) -> Option<Arc<str>> {
        // The map is usually empty; then workers take no lock.
        if self.0.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let answers = self.0.responses.read();
        let answers = answers.unwrap_or_else(PoisonError::into_inner);
        answers.get(token).cloned()
    }

    pub(crate) fn insert(&self, token: &str, answer: &str) {
        self.change(|answers| {
            answers.insert(token.into(), answer.into());
        });
    }

    pub(crate) fn remove(&self, token: &str) {
        self.change(|answers| {
            answers.remove(token);
        });
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<String, Arc<str>>)) {
        let answers = self.0.responses.write();
        let mut answers = answers.unwrap_or_else(PoisonError::into_inner);
        change(&mut answers);
        // The length is stored while the write lock is held, so that it always matches the map when the lock is free.
        self.0.len.store(answers.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_their_tokens() {
        let (tokens, workers) = (ChallengeTokens::default(), ChallengeTokens::default());
        let same = tokens.clone();
        tokens.insert("token", "token.thumb");
        assert_eq!(same.find("token").as_deref(), Some("token.thumb"));
        assert_eq!(same.find("other"), None);
        assert_eq!(workers.find("token"), None);
        tokens.remove("token");
        assert_eq!(same.find("token"), None);
    }
}
