//! Applies the access rules of a site to a request: identifies the client, then checks the rules in order. The
//! soft-interrupt level does not know the rules, so it gets no responses for paths with rules.

mod authentication;

use std::net::SocketAddr;
use std::sync::Arc;

use lowroad_access_control::{AccessPolicy, AccessRule, DirectPeer};
use lowroad_config::RuleAction;
use lowroad_http::status::StatusCode;
use lowroad_limits::RefusalReason;
use lowroad_site_rules::FormSet;

use authentication::{AuthCheck, has_admitted};
pub use authentication::{
    CheckedPassword, ServerAnswer, resume_after_password, resume_after_server,
};

use super::context::AccessCheck;
use super::effects::{Effects, TraceEvent};
use crate::answering_rule::AnsweringRule;
use crate::responder::{RETRY_AFTER, RequestResponder};
use crate::sites::{Site, SitePath};

/// Sets the client's address and the properties of the original request from the fields of a trusted proxy.
///
/// # Errors
/// The request was refused.
pub fn identify_client(
    access_policy: &AccessPolicy,
    effects: &impl Effects,
    site: &Site,
    responder: &mut RequestResponder<'_, '_>,
) -> Result<(), StatusCode> {
    if !access_policy.trusts_proxies() {
        return Ok(());
    }
    let peer = SocketAddr::new(responder.exchange.peer, responder.exchange.peer_port);
    let sender = DirectPeer {
        peer,
        proxy: responder.exchange.proxy,
    };
    let client = match access_policy.forwarded_client(sender, responder.request) {
        Ok(Some(client)) => client,
        Ok(None) => return Ok(()),
        Err(_) => {
            effects.trace(TraceEvent::BadTarget(
                "a proxy sent malformed fields about the client",
            ));
            return Err(
                responder.refuse(Some(SitePath { site, path: b"/" }), StatusCode::BAD_REQUEST)
            );
        }
    };
    // From here on, logs, rules and limits use the client's address.
    if client.address != peer {
        effects.trace(TraceEvent::Client(client.address.ip()));
        responder.exchange.peer = client.address.ip();
        responder.exchange.peer_port = client.address.port();
    }
    responder.exchange.forwarded = Some(Arc::new(client.request));
    Ok(())
}

/// Keeps the response to a request from the soft-interrupt level, which stores it for a path without access rules. Returns the
/// status of the refusal, if the level has sent the request.
pub fn exclude_level(
    effects: &impl Effects,
    site_path: SitePath<'_>,
    responder: &mut RequestResponder<'_, '_>,
) -> Option<StatusCode> {
    effects.trace(TraceEvent::HasAccessRules);
    responder.refuse_level(site_path)
}

/// Why a request is not admitted (yet).
pub enum AccessRefusal {
    /// The request was refused.
    Answered(StatusCode),
    /// A helper must first verify the password for the rule with this number.
    NeedsPassword(usize),
    /// The server of the rule with this number must first decide. Dropping the value cancels the request to the server.
    NeedsServer(usize, Box<dyn Send>),
}

/// Applies the rules of a site from number `first_rule` on. For each form of the path, the first rule that allows or
/// refuses the form decides. The request is refused if any form of its path is refused.
///
/// # Errors
/// The request was refused, or must wait.
#[inline(never)]
pub fn apply_rules(
    access_policy: &AccessPolicy,
    first_rule: usize,
    effects: &impl Effects,
    access_check: AccessCheck<'_>,
    responder: &mut RequestResponder<'_, '_>,
) -> Result<(), AccessRefusal> {
    let AccessCheck {
        site_path,
        matches,
        previous_path,
    } = access_check;
    let facts = responder.condition_input();
    let candidates = access_policy.candidates(matches, &facts);
    // The soft-interrupt level would send its copy to other clients without applying the rules.
    if candidates.is_for_some_client
        && let Some(status) = exclude_level(effects, site_path, responder)
    {
        return Err(AccessRefusal::Answered(status));
    }
    // Most paths match no rule, or only rules for other clients.
    if candidates.numbers.is_empty() {
        return Ok(());
    }
    // The matches of the previous path are computed once for all rate limits.
    let previous_matches = previous_path.map(|path| matches.of_path(path));
    let was_counted = |number| {
        let previous_matches = previous_matches.as_ref();
        previous_matches.is_some_and(|it| access_policy.has_pattern(number, it))
    };
    let mut allowed = FormSet::default();
    for number in candidates.numbers {
        let Some(rule) = access_policy.met_rule(number, &facts) else {
            continue;
        };
        let forms = access_policy.matched_forms(number, matches);
        let refusable = forms.without(allowed);
        // Earlier rules have allowed all forms that this rule would refuse.
        if rule.action().refuses() && refusable.is_empty() {
            continue;
        }
        if number < first_rule {
            // The rule was applied before the wait; forms that it allowed remain allowed.
            if matches!(rule.action(), RuleAction::Allow) {
                allowed = allowed.with(forms);
            }
            continue;
        }
        match rule.action() {
            // Fallbacks are applied later, if the file is missing.
            RuleAction::Fallback(_) => continue,
            _ => effects.trace(TraceEvent::Rule(rule)),
        }
        if rule.action().refuses() && !allowed.is_empty() {
            effects.trace(TraceEvent::RuleLimitedToForms(matches, refusable));
        }
        match rule.action() {
            RuleAction::Fallback(_) => {}
            RuleAction::Allow => allowed = allowed.with(forms),
            RuleAction::Log(is_logged) => responder.exchange.is_unlogged = !is_logged,
            RuleAction::Bandwidth(limit) => {
                responder.exchange.is_rate_by_rule = true;
                responder.limit_rate(*limit);
            }
            RuleAction::Deny(status) => {
                AnsweringRule::Deny.note(responder.exchange);
                let status = StatusCode::new(*status).unwrap_or(StatusCode::FORBIDDEN);
                return Err(refuse(rule, status, &[], effects, site_path, responder));
            }
            RuleAction::Respond(response) => {
                AnsweringRule::Respond.note(responder.exchange);
                return Err(AccessRefusal::Answered(
                    responder.respond(site_path, response),
                ));
            }
            RuleAction::Close => {
                AnsweringRule::Close.note(responder.exchange);
                effects.trace(TraceEvent::Refused(rule));
                return Err(AccessRefusal::Answered(responder.close_unanswered()));
            }
            // The limit has already counted this request, under the path before the rewrite or redirect.
            RuleAction::Limit(_) if was_counted(number) => {}
            RuleAction::Limit(_) => check_rate(rule, effects, site_path, responder)?,
            // The rule has admitted this request, under the path before the rewrite or redirect.
            RuleAction::Auth(_) if has_admitted(number, responder) => {}
            RuleAction::Auth(auth) => {
                let check = AuthCheck {
                    number,
                    rule,
                    auth,
                    site_path,
                };
                check.run(effects, responder)?;
            }
        }
    }
    Ok(())
}

fn check_rate(
    rule: &AccessRule,
    effects: &impl Effects,
    site_path: SitePath<'_>,
    responder: &mut RequestResponder<'_, '_>,
) -> Result<(), AccessRefusal> {
    let now_ms = responder.exchange.now_ms;
    // The rate is per client as reported by trusted proxies, not per proxy.
    let limit = rule.limit();
    let result =
        limit.map(|limit| effects.take_client_rate(limit, responder.exchange.peer, now_ms));
    match result {
        Some(Err(wait_s)) => {
            responder.exchange.refusal_reason = Some(RefusalReason::Rate);
            Err(refuse_rate_limited(
                rule, wait_s, effects, site_path, responder,
            ))
        }
        _ => Ok(()),
    }
}

fn refuse_rate_limited(
    rule: &AccessRule,
    wait_s: u64,
    effects: &impl Effects,
    site_path: SitePath<'_>,
    responder: &mut RequestResponder<'_, '_>,
) -> AccessRefusal {
    // Retry-After is in whole seconds (RFC 9110 §10.2.3).
    let seconds = wait_s.to_string();
    let fields = [(RETRY_AFTER, seconds.as_bytes())];
    refuse(
        rule,
        StatusCode::TOO_MANY_REQUESTS,
        &fields,
        effects,
        site_path,
        responder,
    )
}

fn refuse(
    rule: &AccessRule,
    status: StatusCode,
    fields: &[(&str, &[u8])],
    effects: &impl Effects,
    site_path: SitePath<'_>,
    responder: &mut RequestResponder<'_, '_>,
) -> AccessRefusal {
    effects.trace(TraceEvent::Refused(rule));
    AccessRefusal::Answered(responder.refuse_by_rule(site_path, status, fields))
}
