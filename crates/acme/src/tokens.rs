//! What is answered to `http-01`: a table from tokens to key authorisations (RFC 8555, section 8.3). Workers look
//! here for each request below [`PATH_PREFIX`]; at other times it is empty.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Below this path, over plain HTTP, a CA asks for tokens.
pub const PATH_PREFIX: &str = "/.well-known/acme-challenge/";

/// The table. All copies are one.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Arc<Table>);

#[derive(Debug, Default)]
struct Table {
    /// Of `answers`: a worker need not wait for the lock to see that there is nothing.
    len: AtomicUsize,
    answers: RwLock<HashMap<String, Arc<str>>>,
}

impl Tokens {
    /// The content of the answer, of type `application/octet-stream`. `None`: it is nothing of ours.
    pub fn find(&self, token: &str) -> Option<Arc<str>> {
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
        self.0.len.store(answers.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_copies_are_one() {
        let (tokens, workers) = (Tokens::default(), Tokens::default());
        let same = tokens.clone();
        tokens.insert("token", "token.thumb");
        assert_eq!(same.find("token").as_deref(), Some("token.thumb"));
        assert_eq!(same.find("other"), None);
        assert_eq!(workers.find("token"), None);
        tokens.remove("token");
        assert_eq!(same.find("token"), None);
    }
}
