//! A request whose site is known, what was decided about it, and what it waits for. Looks nothing up.

use std::sync::Arc;

use lowroad_access_control::{Rule, RuleInput};
use lowroad_config::RequestPath;
use lowroad_http::request::OwnedRequest;
use lowroad_http::status::Status;
use lowroad_routes::routes::Route;
use lowroad_site_rules::PathMatches;

use super::inner_target::Inner;
use super::wait::WaitsFor;
use crate::access::Outcome as Logged;
use crate::respond::Responder;
use crate::sites::{At, Site};

/// What the decision came to.
pub enum Decision {
    /// The answer was written.
    Answered(Status, Logged),
    /// It will be possible later.
    Deferred(Box<Pending>),
}

/// A request that waits.
pub struct Pending {
    /// Its head: fields decide what exactly is sent.
    pub request: OwnedRequest,
    /// All that was decided about it.
    pub waiting: Waiting,
}

/// What was decided about a request that waits.
pub struct Waiting {
    /// The site.
    pub site: Arc<Site>,
    /// See [`Asked`].
    pub host: Box<[u8]>,
    /// Decoded.
    pub path: Box<[u8]>,
    /// See [`Asked`].
    pub is_for_files: bool,
    /// The same.
    pub is_fallback: bool,
    /// The same.
    pub inner: Option<Arc<Inner>>,
    /// What for.
    pub waits_for: WaitsFor,
}

/// What a request is for, once its site is known.
pub struct Asked<'a> {
    /// The site.
    pub site: &'a Arc<Site>,
    /// The normalised host name, where each has a folder of its own; else empty.
    pub host: &'a [u8],
    /// Decoded.
    pub path: &'a [u8],
    /// The same, percent-encoded.
    pub raw_path: &'a [u8],
    /// The patterns of the site that the path matches.
    pub matches: PathMatches<'a>,
    /// As it came.
    pub query: Option<&'a [u8]>,
    /// It is a path that a file may have: no slash in it was encoded.
    pub is_for_files: bool,
    /// There is no file for what was asked for, and this path stands in.
    pub is_fallback: bool,
    /// How it was come to, if it is not the target that the client sent.
    pub inner: Option<&'a Arc<Inner>>,
}

/// What the rules of a site decide about.
#[derive(Clone, Copy)]
pub struct Passing<'a> {
    /// The site and the path.
    pub at: At<'a>,
    /// The patterns that the path matches.
    pub matches: &'a PathMatches<'a>,
    /// The decoded path that led to this one inside the server, and passed.
    pub before: Option<&'a [u8]>,
}

impl<'a> Asked<'a> {
    /// The path, as rules lead on from it.
    pub fn request_path(&self) -> RequestPath<'a> {
        RequestPath::new(self.raw_path, self.path)
    }
}

impl Asked<'_> {
    /// Which site's rules count, and for what.
    pub fn at(&self) -> At<'_> {
        At {
            site: self.site,
            path: self.path,
        }
    }

    /// The same for the rules of the site.
    pub fn passing(&self) -> Passing<'_> {
        Passing {
            at: self.at(),
            matches: &self.matches,
            before: self.inner.map(|inner| inner.before()),
        }
    }

    /// What stands in where there is no file, by a rule of the site.
    pub fn fallback(&self, to: &Responder<'_, '_>) -> Option<(&Rule, &str)> {
        let guard = self.site.guard.as_ref().filter(|_| !self.is_fallback)?;
        let input = RuleInput {
            method: to.request.method,
            peer: to.exchange.peer,
        };
        guard.fallback(&self.matches, input)
    }

    /// Keeps what was decided until it can be gone on with.
    pub fn wait(&self, to: &Responder<'_, '_>, waits_for: WaitsFor) -> Decision {
        let waiting = Waiting {
            site: self.site.clone(),
            host: self.host.into(),
            path: self.path.into(),
            is_for_files: self.is_for_files,
            is_fallback: self.is_fallback,
            inner: self.inner.cloned(),
            waits_for,
        };
        Decision::Deferred(Box::new(Pending {
            request: OwnedRequest::copy_of(to.request),
            waiting,
        }))
    }

    /// The same until somebody has verified the password that a rule wants, which has this number.
    pub fn wait_for_password(&self, to: &mut Responder<'_, '_>, rule: usize) -> Decision {
        let body = to.exchange.body.take();
        to.exchange.is_body_undecided = true;
        self.wait(to, WaitsFor::Password { body, rule })
    }

    /// The same for what comes of a program's work.
    pub fn wait_for_program(
        &self,
        to: &Responder<'_, '_>,
        (work, is_variant): (Box<dyn Send>, bool),
        path: &[u8],
        route: &Arc<Route>,
    ) -> Decision {
        let waits_for = WaitsFor::Program {
            _work: work,
            is_variant,
            route: route.clone(),
            path: path.into(),
        };
        self.wait(to, waits_for)
    }
}

/// An answer that was made for this request.
pub fn made(status: Status) -> Decision {
    Decision::Answered(status, Logged::Made)
}
