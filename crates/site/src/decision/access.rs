//! Applies a site's access rules to a request: identifies the client, then checks the rules in order. The level below
//! does not know the rules, so paths with rules are withheld from it.

use std::net::SocketAddr;
use std::sync::Arc;

use lowroad_access_control::passwords::{BasicCredentials, PasswordOutcome};
use lowroad_access_control::{AccessPolicy, AccessRule, DirectPeer, RuleInput};
use lowroad_config::RuleAction;
use lowroad_http::status::StatusCode;
use lowroad_site_rules::FormSet;

use super::context::AccessCheck;
use super::effects::{Effects, TraceEvent};
use crate::is_from_daemon;
use crate::responder::{RETRY_AFTER, RequestResponder};
use crate::sites::{Site, SitePath};

/// Takes the client's address, and the original request's facts, from the reports of a trusted proxy.
///
/// # Errors
/// The request was refused.
pub fn identify_client(
    guard: &AccessPolicy,
    world: &impl Effects,
    site: &Site,
    to: &mut RequestResponder<'_, '_>,
) -> Result<(), StatusCode> {
    let peer = SocketAddr::new(to.exchange.peer, to.exchange.peer_port);
    let sender = DirectPeer {
        peer,
        proxy: to.exchange.proxy,
    };
    let client = match guard.forwarded_client(sender, to.request) {
        Ok(Some(client)) => client,
        Ok(None) => return Ok(()),
        Err(_) => {
            world.trace(TraceEvent::BadTarget(
                "a proxy sent malformed fields about the client",
            ));
            return Err(to.refuse(Some(SitePath { site, path: b"/" }), StatusCode::BAD_REQUEST));
        }
    };
    // Logs, rules and limits use the client from here on.
    if client.address != peer {
        world.trace(TraceEvent::Client(client.address.ip()));
        to.exchange.peer = client.address.ip();
        to.exchange.peer_port = client.address.port();
    }
    to.exchange.forwarded = Some(Arc::new(client.request));
    Ok(())
}

/// The reason why a request is not admitted.
pub enum AccessRefusal {
    /// It was refused.
    Answered(StatusCode),
    /// A helper must verify its password first, for the rule with this number.
    Waits(usize),
}

/// Applies the rules of a site, starting at number `from`. For each form of the path, the first rule that allows or
/// refuses it decides; the request is refused if any of its forms is.
///
/// # Errors
/// The request is refused, or must wait.
#[inline(never)]
pub fn pass(
    guard: &AccessPolicy,
    from: usize,
    world: &impl Effects,
    passing: AccessCheck<'_>,
    to: &mut RequestResponder<'_, '_>,
) -> Result<(), AccessRefusal> {
    let AccessCheck {
        at,
        matches,
        before,
    } = passing;
    // Once for all limits.
    let before = before.map(|path| at.site.rules.match_path(path));
    let has_counted = |number| {
        let before = before.as_ref();
        before.is_some_and(|it| guard.has_pattern(number, it))
    };
    // The level below would send its copy to other clients without applying the rules.
    if guard.concerns(matches) {
        world.trace(TraceEvent::Ruled);
        if is_from_daemon(to.request.user_agent(), to.exchange.peer) {
            let status = to.refuse_by_rule(at, StatusCode::FORBIDDEN, &[]);
            return Err(AccessRefusal::Answered(status));
        }
    }
    let input = RuleInput {
        method: to.request.method,
        peer: to.exchange.peer,
    };
    let mut allowed = FormSet::default();
    for (number, rule) in guard.rules_for(matches, input) {
        let forms = guard.matched_forms(number, matches);
        let refusable = forms.without(allowed);
        // An earlier rule has allowed all forms that this one would refuse.
        if rule.action().refuses() && refusable.is_empty() {
            continue;
        }
        if number < from {
            // The rule was applied before the wait; the forms that it allowed stay allowed.
            if matches!(rule.action(), RuleAction::Allow) {
                allowed = allowed.with(forms);
            }
            continue;
        }
        match rule.action() {
            // Applied later, if the file is missing.
            RuleAction::Fallback(_) => continue,
            _ => world.trace(TraceEvent::Rule(rule)),
        }
        if rule.action().refuses() && !allowed.is_empty() {
            world.trace(TraceEvent::NotAllowedForms(matches, refusable));
        }
        match rule.action() {
            RuleAction::Fallback(_) => {}
            RuleAction::Allow => allowed = allowed.with(forms),
            RuleAction::Deny(status) => {
                let status = StatusCode::new(*status).unwrap_or(StatusCode::FORBIDDEN);
                return Err(refuse(rule, status, &[], world, at, to));
            }
            // The limit already counted this request under the path that led here.
            RuleAction::Limit(_) if has_counted(number) => {}
            RuleAction::Limit(_) => within(rule, input, world, at, to)?,
            RuleAction::Auth(_) => match shown(rule, world, to) {
                Some(checked) => {
                    judge(rule, checked, world, at, to)?;
                    to.exchange.is_user = true;
                }
                None => return Err(AccessRefusal::Waits(number)),
            },
        }
    }
    Ok(())
}

/// The outcome of a password check for a rule.
pub struct CheckedPassword {
    /// The number of the rule.
    pub rule: usize,
    pub outcome: PasswordOutcome,
}

/// Continues with the rules after one that required a password.
///
/// # Errors
/// The request is refused, or must wait.
pub fn go_on(
    guard: &AccessPolicy,
    checked: CheckedPassword,
    world: &impl Effects,
    passing: AccessCheck<'_>,
    to: &mut RequestResponder<'_, '_>,
) -> Result<(), AccessRefusal> {
    let at = passing.at;
    // The rule exists: a waiting request keeps the site that it started with across reloads.
    let Some(rule) = guard.rule(checked.rule) else {
        let status = to.refuse(Some(at), StatusCode::INTERNAL_ERROR);
        return Err(AccessRefusal::Answered(status));
    };
    judge(rule, checked.outcome, world, at, to)?;
    to.exchange.is_user = true;
    pass(guard, checked.rule + 1, world, passing, to)
}

fn within(
    rule: &AccessRule,
    input: RuleInput,
    world: &impl Effects,
    at: SitePath<'_>,
    to: &mut RequestResponder<'_, '_>,
) -> Result<(), AccessRefusal> {
    let now_ms = to.exchange.now_ms;
    // Keyed by the client that trusted proxies report, not by the proxy.
    let limit = rule.limit();
    let taken = limit.map(|limit| world.take_within(limit, input.peer, now_ms));
    match taken {
        Some(Err(wait_s)) => Err(refuse_often(rule, wait_s, world, at, to)),
        _ => Ok(()),
    }
}

/// The outcome for the password of a request; `None` if a helper must verify it first.
fn shown(
    rule: &AccessRule,
    world: &impl Effects,
    to: &RequestResponder<'_, '_>,
) -> Option<PasswordOutcome> {
    let credentials = BasicCredentials::from_request(to.request);
    // Without credentials, a 401 requests them.
    let (Some(credentials), Some(passwords)) = (credentials, rule.passwords()) else {
        return Some(PasswordOutcome::Wrong);
    };
    world.check(passwords, credentials, to.exchange.peer, to.exchange.id)
}

fn judge(
    rule: &AccessRule,
    checked: PasswordOutcome,
    world: &impl Effects,
    at: SitePath<'_>,
    to: &mut RequestResponder<'_, '_>,
) -> Result<(), AccessRefusal> {
    match checked {
        PasswordOutcome::Right => Ok(()),
        PasswordOutcome::Wrong => {
            let realm = rule
                .passwords()
                .map_or("", |passwords| passwords.realm.as_str());
            let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
            let fields = [("WWW-Authenticate", challenge.as_bytes())];
            let status = StatusCode::UNAUTHORIZED;
            Err(refuse(rule, status, &fields, world, at, to))
        }
        PasswordOutcome::TooOften(wait_s) => Err(refuse_often(rule, wait_s, world, at, to)),
        PasswordOutcome::Busy => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            Err(refuse(rule, status, &[], world, at, to))
        }
    }
}

fn refuse_often(
    rule: &AccessRule,
    wait_s: u64,
    world: &impl Effects,
    at: SitePath<'_>,
    to: &mut RequestResponder<'_, '_>,
) -> AccessRefusal {
    // Retry-After is in whole seconds (RFC 9110 §10.2.3).
    let seconds = wait_s.to_string();
    let fields = [(RETRY_AFTER, seconds.as_bytes())];
    refuse(rule, StatusCode::TOO_MANY_REQUESTS, &fields, world, at, to)
}

fn refuse(
    rule: &AccessRule,
    status: StatusCode,
    fields: &[(&str, &[u8])],
    world: &impl Effects,
    at: SitePath<'_>,
    to: &mut RequestResponder<'_, '_>,
) -> AccessRefusal {
    world.trace(TraceEvent::Refused(rule));
    AccessRefusal::Answered(to.refuse_by_rule(at, status, fields))
}
