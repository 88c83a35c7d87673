//! Applies a site's access rules to a request: identifies the client, then checks the rules in order. The level below
//! does not know the rules, so paths with rules are withheld from it.

use std::net::SocketAddr;
use std::sync::Arc;

use lowroad_access_control::passwords::{Checked, Credentials};
use lowroad_access_control::{Guard, Rule, RuleInput, Sender};
use lowroad_config::Action;
use lowroad_http::status::Status;
use lowroad_site_rules::FormSet;

use super::asked::Passing;
use super::world::{Step, World};
use crate::is_from_daemon;
use crate::respond::{RETRY_AFTER, Responder};
use crate::sites::{At, Site};

/// Takes the client's address, and the original request's facts, from the reports of a trusted proxy.
///
/// # Errors
/// The request was refused.
pub fn identify_client(
    guard: &Guard,
    world: &impl World,
    site: &Site,
    to: &mut Responder<'_, '_>,
) -> Result<(), Status> {
    let peer = SocketAddr::new(to.exchange.peer, to.exchange.peer_port);
    let sender = Sender {
        peer,
        proxy: to.exchange.proxy,
    };
    let client = match guard.forwarded_client(sender, to.request) {
        Ok(Some(client)) => client,
        Ok(None) => return Ok(()),
        Err(_) => {
            world.note(Step::BadTarget(
                "a proxy names the client in a way that can't be read",
            ));
            return Err(to.refuse(Some(At { site, path: b"/" }), Status::BAD_REQUEST));
        }
    };
    if client.address != peer {
        world.note(Step::Client(client.address.ip()));
        to.exchange.peer = client.address.ip();
        to.exchange.peer_port = client.address.port();
    }
    to.exchange.forwarded = Some(Arc::new(client.request));
    Ok(())
}

/// The reason why a request is not admitted.
pub enum Stopped {
    /// It was refused.
    Answered(Status),
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
    guard: &Guard,
    from: usize,
    world: &impl World,
    passing: Passing<'_>,
    to: &mut Responder<'_, '_>,
) -> Result<(), Stopped> {
    let Passing {
        at,
        matches,
        before,
    } = passing;
    let before = before.map(|path| at.site.rules.match_path(path));
    let has_counted = |number| {
        let before = before.as_ref();
        before.is_some_and(|it| guard.has_pattern(number, it))
    };
    // The level below would send its copy to other clients without applying the rules.
    if guard.concerns(matches) {
        world.note(Step::Ruled);
        if is_from_daemon(to.request.user_agent(), to.exchange.peer) {
            let status = to.refuse_by_rule(at, Status::FORBIDDEN, &[]);
            return Err(Stopped::Answered(status));
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
        if rule.action().refuses() && refusable.is_empty() {
            continue;
        }
        if number < from {
            // The rule was applied before the wait; the forms that it allowed stay allowed.
            if matches!(rule.action(), Action::Allow) {
                allowed = allowed.with(forms);
            }
            continue;
        }
        match rule.action() {
            // Applied later, if the file is missing.
            Action::Fallback(_) => continue,
            _ => world.note(Step::Rule(rule)),
        }
        if rule.action().refuses() && !allowed.is_empty() {
            world.note(Step::NotAllowedForms(matches, refusable));
        }
        match rule.action() {
            Action::Fallback(_) => {}
            Action::Allow => allowed = allowed.with(forms),
            Action::Deny(status) => {
                let status = Status::new(*status).unwrap_or(Status::FORBIDDEN);
                return Err(refuse(rule, status, &[], world, at, to));
            }
            // The limit already counted this request under the path that led here.
            Action::Limit(_) if has_counted(number) => {}
            Action::Limit(_) => within(rule, input, world, at, to)?,
            Action::Auth(_) => match shown(rule, world, to) {
                Some(checked) => {
                    judge(rule, checked, world, at, to)?;
                    to.exchange.is_user = true;
                }
                None => return Err(Stopped::Waits(number)),
            },
        }
    }
    Ok(())
}

/// Continues with the rules after one that required a password.
///
/// # Errors
/// The request is refused, or must wait.
pub fn go_on(
    guard: &Guard,
    (number, checked): (usize, Checked),
    world: &impl World,
    passing: Passing<'_>,
    to: &mut Responder<'_, '_>,
) -> Result<(), Stopped> {
    let at = passing.at;
    // The rule exists: a waiting request keeps the site that it started with across reloads.
    let Some(rule) = guard.rule(number) else {
        let status = to.refuse(Some(at), Status::INTERNAL_ERROR);
        return Err(Stopped::Answered(status));
    };
    judge(rule, checked, world, at, to)?;
    to.exchange.is_user = true;
    pass(guard, number + 1, world, passing, to)
}

fn within(
    rule: &Rule,
    input: RuleInput,
    world: &impl World,
    at: At<'_>,
    to: &mut Responder<'_, '_>,
) -> Result<(), Stopped> {
    let now_ms = to.exchange.now_ms;
    let limit = rule.limit();
    let taken = limit.map(|limit| world.take_within(limit, input.peer, now_ms));
    match taken {
        Some(Err(wait_s)) => Err(refuse_often(rule, wait_s, world, at, to)),
        _ => Ok(()),
    }
}

/// The outcome for the password of a request; `None` if a helper must verify it first.
fn shown(rule: &Rule, world: &impl World, to: &Responder<'_, '_>) -> Option<Checked> {
    let credentials = Credentials::of(to.request);
    let (Some(credentials), Some(passwords)) = (credentials, rule.passwords()) else {
        return Some(Checked::Wrong);
    };
    world.check(passwords, credentials, to.exchange.peer, to.exchange.id)
}

fn judge(
    rule: &Rule,
    checked: Checked,
    world: &impl World,
    at: At<'_>,
    to: &mut Responder<'_, '_>,
) -> Result<(), Stopped> {
    match checked {
        Checked::Right => Ok(()),
        Checked::Wrong => {
            let realm = rule
                .passwords()
                .map_or("", |passwords| passwords.realm.as_str());
            let challenge = format!("Basic realm=\"{realm}\", charset=\"UTF-8\"");
            let fields = [("WWW-Authenticate", challenge.as_bytes())];
            let status = Status::UNAUTHORIZED;
            Err(refuse(rule, status, &fields, world, at, to))
        }
        Checked::TooOften(wait_s) => Err(refuse_often(rule, wait_s, world, at, to)),
        Checked::Busy => {
            let status = Status::SERVICE_UNAVAILABLE;
            Err(refuse(rule, status, &[], world, at, to))
        }
    }
}

fn refuse_often(
    rule: &Rule,
    wait_s: u64,
    world: &impl World,
    at: At<'_>,
    to: &mut Responder<'_, '_>,
) -> Stopped {
    let seconds = wait_s.to_string();
    let fields = [(RETRY_AFTER, seconds.as_bytes())];
    refuse(rule, Status::TOO_MANY_REQUESTS, &fields, world, at, to)
}

fn refuse(
    rule: &Rule,
    status: Status,
    fields: &[(&str, &[u8])],
    world: &impl World,
    at: At<'_>,
    to: &mut Responder<'_, '_>,
) -> Stopped {
    world.note(Step::Refused(rule));
    Stopped::Answered(to.refuse_by_rule(at, status, fields))
}
