//! Requests that are answered as if another target had been asked for, because a rewrite says so.
//!
//! The new path has to pass all that stands before a site as if a client had asked for it, and then is found as any other.
//! Redirects are for what clients ask for only, and so are rewrites: one may count before anything is looked for, and one
//! more where there is nothing.

use std::sync::Arc;

use lowroad_config::Rewrite;
use lowroad_http::status::Status;

use super::guarded::{self, Stopped};
use super::lookup::{Asked, Decision, Lookup, made};
use super::world::{Step, World};
use super::{admitted, decoded, may_have};
use crate::respond::Responder;
use crate::softirq;

/// A longer target is nobody's.
const TARGET_LEN_MAX: usize = 64 << 10;

/// A target in place of the one that was asked for.
pub struct Inner {
    /// Path and query, percent-encoded.
    target: Vec<u8>,
    path_len: usize,
    /// The decoded path before.
    before: Box<[u8]>,
    /// No rewrite comes any more.
    is_last: bool,
}

impl Inner {
    fn of(target: Vec<u8>, asked: &Asked<'_>, is_last: bool) -> Inner {
        let query = target.iter().position(|byte| *byte == b'?');
        Inner {
            path_len: query.unwrap_or(target.len()),
            target,
            before: asked.path.into(),
            is_last,
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
}

impl<'a> Asked<'a> {
    /// The rewrite for a path, and where it leads: of those that count before anything is looked for, or where there is nothing.
    pub fn rewrite(&self, missing: bool) -> Option<(&'a Rewrite, Inner)> {
        let may_be = match self.inner {
            None => true,
            Some(inner) => missing && !inner.is_last,
        };
        if !may_be || self.is_fallback {
            return None;
        }
        let mut rewrites = self.site.rules.rewrites.iter();
        rewrites.find_map(|rewrite| {
            if rewrite.missing != missing {
                return None;
            }
            let target = rewrite.target(self.path, self.query)?;
            Some((rewrite, Inner::of(target, self, missing)))
        })
    }
}

/// Whether clients can't ask for a path.
#[inline(never)]
pub fn is_internal(world: &impl World, asked: &Asked<'_>) -> bool {
    let alias = asked.site.alias(asked.path).map(|(alias, ..)| alias);
    let Some(alias) = alias.filter(|alias| alias.internal && asked.inner.is_none()) else {
        return false;
    };
    world.note(Step::Internal(alias));
    true
}

/// The rewrite for a path that no file can have, and that is no program's whatever files there are.
pub fn of_program_s_path<'a>(
    asked: &Asked<'a>,
    to: &Responder<'_, '_>,
) -> Option<(&'a Rewrite, Inner)> {
    let routes = &asked.site.routes;
    let is_free = || matches!(routes.of_request(asked.path, to.request), Ok(None));
    (!asked.is_for_files && is_free()).then(|| asked.rewrite(true))?
}

/// Goes on with another target. Who keeps the answer for the one that was asked for would not be told of a change.
#[inline(never)]
pub fn lead<W: World>(
    lookup: &mut Lookup<'_, W>,
    asked: &Asked<'_>,
    (rewrite, inner): (&Rewrite, Inner),
    to: &mut Responder<'_, '_>,
) -> Decision {
    let (site, world) = (asked.site, lookup.world);
    world.note(Step::Rewrite(rewrite, &inner.target));
    world.note(Step::Ruled);
    if softirq::asks(to.request.user_agent(), to.exchange.peer) {
        return made(to.refuse_by_rule(asked.at(), Status::FORBIDDEN, &[]));
    }
    if inner.target.len() > TARGET_LEN_MAX {
        return made(to.refuse(Some(asked.at()), Status::URI_TOO_LONG));
    }
    let inner = Arc::new(inner);
    let mut scratch = vec![0; inner.path_len];
    let (path, is_for_files) = match decoded(site, inner.path(), &mut scratch) {
        Ok(decoded) => decoded,
        Err(refusal) => {
            world.note(Step::BadTarget(refusal.as_str()));
            return made(to.refuse_target(asked.at(), refusal));
        }
    };
    let mut asked = Asked {
        site,
        host: asked.host,
        path,
        query: inner.query(),
        is_for_files,
        is_fallback: false,
        inner: Some(&inner),
        is_user: asked.is_user,
    };
    if !may_have(site, path, to.exchange) {
        world.note(Step::NoClientCertificate);
        return made(to.refuse(Some(asked.at()), Status::FORBIDDEN));
    }
    if let Some(guard) = &site.guard {
        match guarded::pass(guard, 0, world, asked.passing(), to) {
            Ok(passed) => asked.is_user |= passed.is_user,
            Err(Stopped::Answered(status)) => return made(status),
            Err(Stopped::Waits(rule)) => return asked.wait_for_password(to, rule),
        }
    }
    admitted(lookup.again(), &asked, to)
}
