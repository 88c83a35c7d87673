//! Responses for `http-01`: a table from tokens to key authorizations (RFC 8555, section 8.3). Workers look up requests
//! below [`PATH_PREFIX`]; mostly the table is empty.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The path prefix of an authority's validation requests, over plain HTTP.
pub const PATH_PREFIX: &str = "/.well-known/acme-challenge/";

/// The table. All clones share it.
#[derive(Clone, Debug, Default)]
pub struct ChallengeTokens(Arc<TokenTable>);

#[derive(Debug, Default)]
struct TokenTable {
    /// The length of `answers`: workers check it without the lock.
    len: AtomicUsize,
    answers: RwLock<HashMap<String, Arc<str>>>,
}

impl ChallengeTokens {
    /// The content of the response, of type `application/octet-stream`. `None` for unknown tokens.
    pub fn find(&self, token: &str) -> Option<Arc<str>> {
        // The usual case, in which workers take no lock.
        if self.0.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let answers = self.0.answers.read();
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
        let answers = self.0.answers.write();
        let mut answers = answers.unwrap_or_else(PoisonError::into_inner);
        change(&mut answers);
        // Stored with the write lock held, so that the length never lags behind a finished change.
        self.0.len.store(answers.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_copies_are_one() {
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
