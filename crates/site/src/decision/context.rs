//! The context of a request with a known site, the decision about it, and the state of a request that waits.

use std::sync::Arc;

use lowroad_access_control::{AccessRule, RuleInput};
use lowroad_config::RequestPath;
use lowroad_http::request::OwnedRequest;
use lowroad_http::status::StatusCode;
use lowroad_routes::routes::Route;
use lowroad_site_rules::PathMatches;

use super::deferral::WaitReason;
use super::rewritten_target::RewrittenTarget;
use crate::access::RequestOutcome as Logged;
use crate::responder::RequestResponder;
use crate::sites::{Site, SitePath};

/// The result of a decision.
pub enum RequestDecision {
    /// The response was written.
    Answered(StatusCode, Logged),
    /// The request waits and resumes later.
    Deferred(Box<PendingRequest>),
}

/// A request that waits.
pub struct PendingRequest {
    /// Its head: the fields select the response when the request resumes.
    pub request: OwnedRequest,
    /// The decisions made so far.
    pub wait_context: WaitContext,
}

/// The decisions made so far about a request that waits.
pub struct WaitContext {
    pub site: Arc<Site>,
    /// As in `RequestContext`.
    pub host: Box<[u8]>,
    /// The decoded path.
    pub path: Box<[u8]>,
    /// As in `RequestContext`.
    pub is_for_files: bool,
    /// As in `RequestContext`.
    pub is_fallback: bool,
    /// As in `RequestContext`.
    pub rewritten_target: Option<Arc<RewrittenTarget>>,
    /// The event that resumes the request.
    pub wait_reason: WaitReason,
}

/// A request with a known site.
pub struct RequestContext<'a> {
    pub site: &'a Arc<Site>,
    /// The normalised host name, if each host of the site has its own folder; else empty.
    pub host: &'a [u8],
    /// The decoded path.
    pub path: &'a [u8],
    /// The percent-encoded path.
    pub raw_path: &'a [u8],
    /// The patterns of the site that the path matches.
    pub matches: PathMatches<'a>,
    /// The query as the client sent it.
    pub query: Option<&'a [u8]>,
    /// A file may have this path: the target had no encoded slash.
    pub is_for_files: bool,
    /// The requested file is missing and this path replaces it.
    pub is_fallback: bool,
    /// The rewrite or internal redirect that led to this target; `None` for the target that the client sent.
    pub rewritten_target: Option<&'a Arc<RewrittenTarget>>,
}

/// A decoded path and the route that answers for it. The path may be that of a folder's index file.
#[derive(Clone, Copy)]
pub struct RoutedPath<'a> {
    pub path: &'a [u8],
    pub route: &'a Arc<Route>,
}

/// The input of a site's access rules.
#[derive(Clone, Copy)]
pub struct AccessCheck<'a> {
    /// The site and the path.
    pub site_path: SitePath<'a>,
    /// The patterns that the path matches.
    pub matches: &'a PathMatches<'a>,
    /// The decoded path before an internal redirect or rewrite; the rules have already admitted it.
    pub previous_path: Option<&'a [u8]>,
}

impl<'a> RequestContext<'a> {
    /// Both forms of the path, for rules that lead to another path.
    pub fn request_path(&self) -> RequestPath<'a> {
        RequestPath::new(self.raw_path, self.path)
    }
}

impl RequestContext<'_> {
    /// The site and path, for their rules.
    pub fn site_path(&self) -> SitePath<'_> {
        SitePath {
            site: self.site,
            path: self.path,
        }
    }

    /// The input of the access rules.
    pub fn access_check(&self) -> AccessCheck<'_> {
        AccessCheck {
            site_path: self.site_path(),
            matches: &self.matches,
            previous_path: self
                .rewritten_target
                .map(|rewritten| rewritten.replaced_path()),
        }
    }

    /// The site's rule for missing files and the path that replaces the requested one.
    pub fn fallback(&self, responder: &RequestResponder<'_, '_>) -> Option<(&AccessRule, &str)> {
        // A replacement that is missing, too, is not replaced again.
        let access_policy = self
            .site
            .access_policy
            .as_ref()
            .filter(|_| !self.is_fallback)?;
        let input = RuleInput {
            method: responder.request.method,
            peer: responder.exchange.peer,
        };
        access_policy.fallback(&self.matches, input)
    }

    /// Keeps the decisions made so far until the event arrives.
    pub fn wait(
        &self,
        responder: &RequestResponder<'_, '_>,
        wait_reason: WaitReason,
    ) -> RequestDecision {
        let wait_context = WaitContext {
            site: self.site.clone(),
            host: self.host.into(),
            path: self.path.into(),
            is_for_files: self.is_for_files,
            is_fallback: self.is_fallback,
            rewritten_target: self.rewritten_target.cloned(),
            wait_reason,
        };
        RequestDecision::Deferred(Box::new(PendingRequest {
            // Copied: the connection's buffer is used for its next bytes.
            request: OwnedRequest::from_request(responder.request),
            wait_context,
        }))
    }

    /// Waits until a helper has verified the password for the rule with this number.
    pub fn wait_for_password(
        &self,
        responder: &mut RequestResponder<'_, '_>,
        rule: usize,
    ) -> RequestDecision {
        let body = responder.exchange.body.take();
        // The body stays unread until the decision: no 100 (Continue) is sent yet.
        responder.exchange.is_body_undecided = true;
        self.wait(responder, WaitReason::Password { body, rule })
    }

    /// Waits for the response of a handler.
    pub fn wait_for_program(
        &self,
        responder: &RequestResponder<'_, '_>,
        call_guard: Box<dyn Send>,
        is_variant: bool,
        routed: RoutedPath<'_>,
    ) -> RequestDecision {
        let wait_reason = WaitReason::Program {
            _call_guard: call_guard,
            is_variant,
            route: routed.route.clone(),
            path: routed.path.into(),
        };
        self.wait(responder, wait_reason)
    }
}

/// A decision with a response generated for this request.
pub fn generated_response(status: StatusCode) -> RequestDecision {
    RequestDecision::Answered(status, Logged::Made)
}
