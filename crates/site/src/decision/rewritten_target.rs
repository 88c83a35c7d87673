//! A target inside the server, set by a rewrite or by a program's internal redirect.

use std::sync::Arc;

use lowroad_handler::ResponseFields;
use lowroad_http::method::Method;
use lowroad_response_cache::calls::InternalTarget;

/// A target in place of the requested one.
pub struct RewrittenTarget {
    /// Path and query, percent-encoded.
    pub(super) target: Vec<u8>,
    pub(super) path_len: usize,
    /// The decoded path that it replaces.
    pub(super) replaced_path: Box<[u8]>,
    pub(super) stage: RewriteStage,
    /// The number of internal redirects by programs so far.
    pub(super) redirect_count: u8,
    /// The method and path of the client.
    pub(super) client_target: Arc<ClientTarget>,
    /// Fields of the program's response that set this target.
    pub(super) redirect_fields: Option<ResponseFields>,
}

/// The method and path of the client.
pub(super) struct ClientTarget {
    pub(super) method: Method,
    /// The decoded path.
    pub(super) path: Box<[u8]>,
}

/// The rules that may still apply to a target.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RewriteStage {
    /// All rules, as for a client's target; internal aliases are refused.
    AsAsked,
    /// All rules; internal aliases are allowed.
    Named,
    /// Only rewrites for missing files.
    Rewritten,
    /// No rewrites.
    Last,
}

impl RewrittenTarget {
    /// The target for its handler.
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

    /// The query, without the `?`.
    pub fn query(&self) -> Option<&[u8]> {
        self.target.get(self.path_len + 1..)
    }

    /// The decoded path that led here.
    pub fn replaced_path(&self) -> &[u8] {
        &self.replaced_path
    }

    /// The client's method and decoded path.
    pub fn client_target(&self) -> (Method, &[u8]) {
        (self.client_target.method, &self.client_target.path)
    }

    /// Whether redirects and rewrites for client targets apply.
    pub fn allows_redirects(&self) -> bool {
        matches!(self.stage, RewriteStage::AsAsked | RewriteStage::Named)
    }

    /// Whether a program set this target.
    pub fn is_from_handler(&self) -> bool {
        self.redirect_count > 0
    }

    /// The path that the client requested and the program's fields, if a program set this target.
    pub fn redirect_fields(&self) -> Option<(&[u8], &ResponseFields)> {
        Some((&self.client_target.path, self.redirect_fields.as_ref()?))
    }
}
