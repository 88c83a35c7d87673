//! A target inside the server, to which a rewrite or a program's response leads a request.

use std::sync::Arc;

use lowroad_handler::Fields;
use lowroad_http::method::Method;
use lowroad_response_cache::calls::InternalTarget;

/// A target in place of the requested one.
pub struct Inner {
    /// Path and query, percent-encoded.
    pub(super) target: Vec<u8>,
    pub(super) path_len: usize,
    /// The decoded path before.
    pub(super) before: Box<[u8]>,
    pub(super) stage: Stage,
    /// How many programs have led here.
    pub(super) programs: u8,
    /// What the client asked for, and how.
    pub(super) asked: Arc<First>,
    /// Fields of the program's response that named this target.
    pub(super) kept: Option<Fields>,
}

/// What the client asked for.
pub(super) struct First {
    pub(super) method: Method,
    /// Decoded.
    pub(super) path: Box<[u8]>,
}

/// The rules that may still apply to a target.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// What counts for a client's; internal aliases are not for it.
    AsAsked,
    /// The same, but that internal aliases are for it.
    Named,
    /// Rewrites where there is nothing.
    Rewritten,
    /// No rewrite.
    Last,
}

impl Inner {
    /// The target that its program gets.
    pub fn target(&self) -> InternalTarget<'_> {
        InternalTarget {
            path: self.path(),
            query: self.query(),
        }
    }

    /// The path, percent-encoded.
    pub fn path(&self) -> &[u8] {
        &self.target[..self.path_len]
    }

    /// What follows the `?`.
    pub fn query(&self) -> Option<&[u8]> {
        self.target.get(self.path_len + 1..)
    }

    /// The decoded path that led here.
    pub fn before(&self) -> &[u8] {
        &self.before
    }

    /// What the client asked for: the method and the decoded path.
    pub fn asked(&self) -> (Method, &[u8]) {
        (self.asked.method, &self.asked.path)
    }

    /// Whether all rules count that are for what clients ask for.
    pub fn is_fresh(&self) -> bool {
        matches!(self.stage, Stage::AsAsked | Stage::Named)
    }

    /// Whether a program led here.
    pub fn is_of_program(&self) -> bool {
        self.programs > 0
    }

    /// If a program named this target: the path that the client asked for, and the fields of the program.
    pub fn kept(&self) -> Option<(&[u8], &Fields)> {
        Some((&self.asked.path, self.kept.as_ref()?))
    }
}
