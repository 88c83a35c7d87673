//! A request on its way past what stands before its site: who the client is, and what the rules say, one after the other.
//! The level below can't know the rules, so it is given nothing for which there are any.

use lowroad_config::Action;
use lowroad_http::status::Status;

use super::world::{Step, World};
use crate::guard::{Facts, Guard};
use crate::respond::{RETRY_AFTER, Responder};
use crate::sites::{At, Site};
use crate::softirq;

/// From now on the client is whom a trusted proxy names.
///
/// # Errors
/// The request was refused.
pub fn meet_client(
    guard: &Guard,
    world: &impl World,
    site: &Site,
    to: &mut Responder<'_, '_>,
) -> Result<(), Status> {
    match guard.client(to.exchange.peer, to.request) {
        Ok(client) if client == to.exchange.peer => Ok(()),
        Ok(client) => {
            world.note(Step::Client(client));
            to.exchange.peer = client;
            Ok(())
        }
        Err(_) => {
            world.note(Step::BadTarget(
                "a proxy names the client in a way that can't be read",
            ));
            Err(to.refuse(Some(At { site, path: b"/" }), Status::BAD_REQUEST))
        }
    }
}

/// Goes by the rules of a site.
///
/// # Errors
/// The request was refused.
#[inline(never)]
pub fn pass(
    guard: &Guard,
    world: &impl World,
    at: At<'_>,
    to: &mut Responder<'_, '_>,
) -> Result<(), Status> {
    if guard.concerns(at.path) {
        world.note(Step::Ruled);
        if softirq::asks(to.request.user_agent(), to.exchange.peer) {
            return Err(to.refuse_by_rule(at, Status::FORBIDDEN, &[]));
        }
    }
    let facts = Facts {
        path: at.path,
        method: to.request.method,
        peer: to.exchange.peer,
    };
    let (mut from, mut is_allowed) = (0, false);
    while let Some((number, rule)) = guard.next(from, facts) {
        from = number + 1;
        if is_allowed && rule.action().refuses() {
            continue;
        }
        world.note(Step::Rule(rule));
        match rule.action() {
            Action::Allow => is_allowed = true,
            Action::Deny(status) => {
                world.note(Step::Refused(rule));
                let status = Status::new(*status).unwrap_or(Status::FORBIDDEN);
                return Err(to.refuse_by_rule(at, status, &[]));
            }
            Action::Limit(_) => {
                let now_ms = to.exchange.now_ms;
                let taken = rule
                    .limit()
                    .map(|limit| world.take_within(limit, facts.peer, now_ms));
                if let Some(Err(wait_s)) = taken {
                    world.note(Step::Refused(rule));
                    let seconds = wait_s.to_string();
                    let fields = [(RETRY_AFTER, seconds.as_bytes())];
                    return Err(to.refuse_by_rule(at, Status::TOO_MANY_REQUESTS, &fields));
                }
            }
        }
    }
    Ok(())
}
