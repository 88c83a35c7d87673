//! A target that the server has set: by a rewrite, or by an internal redirect of a handler.

use std::sync::Arc;

use lowroad_handler::ResponseFields;
use lowroad_http::method::Method;
use lowroad_response_cache::calls::InternalTarget;
use lowroad_routes::response_dependence::ResponseDependence;

/// A target that replaces the requested one.
pub struct RewrittenTarget {
    /// The path and query, percent-encoded.
    pub(super) target: Vec<u8>,
    pub(super) path_len: usize,
    /// The decoded path that this target replaces.
    pub(super) replaced_path: Box<[u8]>,
    pub(super) stage: RewriteStage,
    /// Whether it depends on conditions on the request other than its path.
    pub(super) is_conditional: bool,
    /// The dependence of responses on these conditions.
    pub(super) dependence: ResponseDependence,
    /// The number of internal redirects by handlers so far.
    pub(super) redirect_count: u8,
    /// The method and path that the client sent.
    pub(super) client_target: Arc<ClientTarget>,
    /// The fields of the handler's response that set this target.
    pub(super) redirect_fields: Option<ResponseFields>,
}

/// The method and path that the client sent.
pub(super) struct ClientTarget {
    pub(super) method: Method,
    /// The decoded path.
    pub(super) path: Box<[u8]>,
}

/// The rules that still apply to a target.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RewriteStage {
    /// All rules, as for a target sent by the client; internal aliases are refused.
    Unrewritten,
    /// All rules; internal aliases are allowed.
    SetByHandler,
    /// Rewrites for missing files only.
    Rewritten,
    /// No rewrites.
    Final,
}

impl RewrittenTarget {
    /// The target in the form for handlers.
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

    /// The decoded path that this target replaces.
    pub fn replaced_path(&self) -> &[u8] {
        &self.replaced_path
    }

    /// The method and decoded path that the client sent.
    pub fn client_target(&self) -> (Method, &[u8]) {
        (self.client_target.method, &self.client_target.path)
    }

    /// Whether redirects and ordinary rewrites apply to this target.
    pub fn allows_redirects(&self) -> bool {
        matches!(
            self.stage,
            RewriteStage::Unrewritten | RewriteStage::SetByHandler
        )
    }

    /// Whether a handler's response has set this target.
    pub fn is_from_handler(&self) -> bool {
        self.redirect_count > 0
    }

    /// The path that the client requested and the fields of the handler's response, if such a response set this target.
    pub fn redirect_fields(&self) -> Option<(&[u8], &ResponseFields)> {
        Some((&self.client_target.path, self.redirect_fields.as_ref()?))
    }
}
