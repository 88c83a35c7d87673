//! The context of a request with a known site, the result of the decision, and the state of a deferred request.

use std::sync::Arc;

use lowroad_access_control::AccessRule;
use lowroad_config::{CorsConfig, HSTS, RequestPath};
use lowroad_engine::{Exchange, FieldChanges};
use lowroad_http::request::OwnedRequest;
use lowroad_http::status::StatusCode;
use lowroad_request_conditions::ConditionInput;
use lowroad_routes::response_dependence::ResponseDependence;
use lowroad_routes::routes::Route;
use lowroad_site_rules::{PathMatches, SiteFields, add_cors_fields};

use super::access::AccessRefusal;
use super::cross_origin::request_origin;
use super::deferral::WaitReason;
use super::effects::{Effects, TraceEvent};
use super::facts::DecisionFacts;
use super::rewritten_target::RewrittenTarget;
use crate::access::RequestOutcome as Logged;
use crate::responder::RequestResponder;
use crate::sites::{Site, SitePath};

/// The result of a decision.
pub enum RequestDecision {
    /// The response was written; its status and its source for the log.
    Answered(StatusCode, Logged),
    /// The request is deferred and will be resumed.
    Deferred(Box<PendingRequest>),
}

/// A deferred request.
pub struct PendingRequest {
    /// The request head: when the request is resumed, its fields are needed to select the response.
    pub request: OwnedRequest,
    /// The result of the decision so far.
    pub wait_context: WaitContext,
}

/// The result of the decision so far about a deferred request.
pub struct WaitContext {
    pub site: Arc<Site>,
    /// See `RequestContext::host`.
    pub host: Box<[u8]>,
    /// The decoded path.
    pub path: Box<[u8]>,
    /// See `RequestContext::is_for_files`.
    pub is_for_files: bool,
    /// See `RequestContext::is_fallback`.
    pub is_fallback: bool,
    /// See `RequestContext::rewritten_target`.
    pub rewritten_target: Option<Arc<RewrittenTarget>>,
    /// The event that resumes the request.
    pub wait_reason: WaitReason,
}

/// A request with a known site.
pub struct RequestContext<'a> {
    pub site: &'a Arc<Site>,
    /// The normalized host name if each host of the site has its own folder; otherwise empty.
    pub host: &'a [u8],
    /// The decoded path.
    pub path: &'a [u8],
    /// The percent-encoded path.
    pub raw_path: &'a [u8],
    /// The patterns of the site that match the path.
    pub matches: PathMatches<'a>,
    /// The query as the client sent it.
    pub query: Option<&'a [u8]>,
    /// Whether a file may have this path: the target contained no encoded slash.
    pub is_for_files: bool,
    /// Whether the requested file is missing and this path replaces its path.
    pub is_fallback: bool,
    /// The rewrite or internal redirect that set this target; `None` if the client sent it.
    pub rewritten_target: Option<&'a Arc<RewrittenTarget>>,
}

/// A decoded path, and the route that handles it. The path may be that of a folder's index file.
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
    /// The patterns that match the path.
    pub matches: &'a PathMatches<'a>,
    /// The decoded path before an internal redirect or rewrite, which the rules have already admitted.
    pub previous_path: Option<&'a [u8]>,
}

impl<'a> RequestContext<'a> {
    /// The raw and decoded path, for rules that produce another path.
    pub fn request_path(&self) -> RequestPath<'a> {
        RequestPath::new(self.raw_path, self.path)
    }
}

impl RequestContext<'_> {
    /// The properties of the request for variables.
    pub fn facts<'f>(&'f self, responder: &'f RequestResponder<'_, '_>) -> DecisionFacts<'f> {
        DecisionFacts {
            request: responder.request,
            exchange: responder.exchange,
            path: self.path,
            query: self.query,
            protected_fields: match &self.site.access_policy {
                Some(access_policy) => access_policy.protected_fields(),
                None => &[],
            },
        }
    }

    /// Whether [`RequestContext::set_request_fields`] is needed.
    #[inline]
    pub fn has_request_fields(&self, exchange: &Exchange) -> bool {
        // Most paths match no such pattern. `matches` is for the path after a rewrite; the rules of other paths may apply, too.
        let has_rules = || self.rewritten_target.is_some() || self.matches.may_change_fields();
        self.site.has_request_fields() && has_rules()
            || self.site.omits_hsts(exchange)
            || exchange.authentication.is_some()
    }

    /// Sets the fields of the response that depend on the request: those with variables, and those that
    /// describe the conditions of redirects and rewrites to caches. Returns whether rules with variables apply.
    #[inline(never)]
    pub fn set_request_fields(
        &self,
        effects: &impl Effects,
        responder: &mut RequestResponder<'_, '_>,
    ) -> bool {
        let redirect = self
            .rewritten_target
            .and_then(|rewritten| rewritten.redirect_fields());
        // The rules of the path that the client requested apply to a response that a handler has redirected.
        let path = redirect.map_or(self.path, |(path, _)| path);
        // Only conditions of redirects may have led here; then no rule for fields is compared.
        let (rules, cors) = match self.may_have_request_fields() {
            true => (
                SiteFields::new(&self.site.rules, path, StatusCode::OK),
                self.cors_rule()
                    .filter(|rule| self.site.rules.config.cors.len() > 1 || !rule.is_for_all()),
            ),
            false => (SiteFields::default(), None),
        };
        let mut dependence = self.response_dependence();
        // Unlike with Authorization, caches in front may share the response to a request with a cookie.
        dependence.is_private |= responder.exchange.authentication.is_some();
        let omits_hsts = self.site.omits_hsts(responder.exchange);
        if !rules.depends_on_request() && cors.is_none() {
            let mut changes = FieldChanges {
                is_private: dependence.is_private,
                ..FieldChanges::default()
            };
            dependence.write_vary(&mut changes.lines);
            if omits_hsts {
                changes.omitted.push(HSTS.into());
                effects.trace(TraceEvent::Fields(&changes));
            }
            responder.response.set_field_changes(changes);
            return false;
        }
        // The conditions see the client's request, even if a rewrite has changed the path.
        let input = responder.condition_input();
        let conditions = self.site.path_conditions.as_ref();
        let is_met =
            |number| conditions.is_none_or(|conditions| conditions.header_is_met(number, &input));
        // CORS comes last, so that no rule for fields can allow more than its table.
        let mut fields = rules.request_fields(path, &self.facts(responder), &is_met);
        if let Some(rule) = cors {
            add_cors_fields(rule, request_origin(responder.request), &mut fields);
        }
        if omits_hsts {
            fields.remove(HSTS);
        }
        let mut changes = FieldChanges {
            lines: fields.encoded_lines(),
            omitted: fields.omitted.iter().map(|name| (*name).into()).collect(),
            is_private: fields.is_private || dependence.is_private,
        };
        dependence.write_vary(&mut changes.lines);
        effects.trace(TraceEvent::Fields(&changes));
        responder.response.set_field_changes(changes);
        true
    }

    /// Whether a rule for fields that depend on the request may apply to the response.
    fn may_have_request_fields(&self) -> bool {
        self.site.rules.header_patterns.depend_on_request()
            && (self.rewritten_target.is_some() || self.matches.may_have_request_fields())
    }

    /// The dependence of the response on conditions of redirects and rewrites.
    pub fn response_dependence(&self) -> ResponseDependence {
        let conditions = self.site.path_conditions.as_ref();
        let mut found = conditions.map_or_else(ResponseDependence::default, |conditions| {
            conditions.dependence(&self.matches)
        });
        if let Some(rewritten) = self.rewritten_target {
            found.add(&rewritten.dependence);
        }
        found
    }

    /// The CORS rule for the path that the client requested.
    pub fn cors_rule(&self) -> Option<&CorsConfig> {
        let number = match self.rewritten_target {
            None => self.matches.cors(),
            // A preflight has only the client's path, and both must have the same rule.
            Some(rewritten) => self.matches.of_path(rewritten.client_target().1).cors(),
        };
        self.site.rules.config.cors.get(number?)
    }

    /// The site and the path with the rules that apply to the response.
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

    /// The fallback rule for a missing file, and the path that replaces the requested one.
    pub fn fallback(&self, responder: &RequestResponder<'_, '_>) -> Option<(&AccessRule, &str)> {
        // If the replacement is missing as well, it is not replaced again.
        let access_policy = self
            .site
            .access_policy
            .as_ref()
            .filter(|_| !self.is_fallback)?;
        access_policy.fallback(&self.matches, responder.condition_input())
    }

    /// Whether conditions may have changed the target: then another request for the same URL may lead to another
    /// response.
    pub fn has_conditional_target(&self) -> bool {
        let conditions = self.site.path_conditions.as_ref();
        conditions.is_some_and(|conditions| conditions.may_rewrite(&self.matches))
            || self
                .rewritten_target
                .is_some_and(|rewritten| rewritten.is_conditional)
    }

    /// Whether the conditions of redirect `number` hold.
    pub fn redirect_is_met(&self, number: usize, facts: &ConditionInput<'_>) -> bool {
        let conditions = self.site.path_conditions.as_ref();
        conditions.is_none_or(|conditions| conditions.redirect_is_met(number, facts))
    }

    /// Whether the conditions of rewrite `number` hold.
    pub fn rewrite_is_met(&self, number: usize, facts: &ConditionInput<'_>) -> bool {
        let conditions = self.site.path_conditions.as_ref();
        conditions.is_none_or(|conditions| conditions.rewrite_is_met(number, facts))
    }

    /// Defers the request: keeps the decision so far until the event occurs.
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
            // The request is copied, because the connection's buffer is reused for the next bytes.
            request: OwnedRequest::from_request(responder.request),
            wait_context,
        }))
    }

    /// Carries out the result of the access rules: refuses the request, or defers it.
    pub fn refuse_or_wait(
        &self,
        responder: &mut RequestResponder<'_, '_>,
        refusal: AccessRefusal,
    ) -> RequestDecision {
        let wait_reason = match refusal {
            AccessRefusal::Answered(status) => return generated_response(status),
            AccessRefusal::NeedsPassword(rule) => WaitReason::Password {
                body: responder.exchange.body.take(),
                rule,
            },
            AccessRefusal::NeedsServer(rule, call_guard) => WaitReason::Auth {
                _call_guard: call_guard,
                body: responder.exchange.body.take(),
                rule,
            },
        };
        // Whether the body is needed is undecided, so no 100 (Continue) is sent yet.
        responder.exchange.is_body_undecided = true;
        self.wait(responder, wait_reason)
    }

    /// Defers the request until a handler has responded.
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

/// The decision for a response that was generated for this request.
pub fn generated_response(status: StatusCode) -> RequestDecision {
    RequestDecision::Answered(status, Logged::Generated)
}
