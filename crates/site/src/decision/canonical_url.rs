//! Redirects to the canonical URL of a site: its https scheme, its host, and the form of paths with or without a slash.

use lowroad_config::TrailingSlash;
use lowroad_http::host;
use lowroad_http::method::Method;

use super::context::{RequestContext, RequestDecision, generated_response};
use super::effects::{Effects, TraceEvent};
use crate::answering_rule::AnsweringRule;
use crate::responder::RequestResponder;
use crate::sites::{Site, SiteTable};

/// The name of the redirect to the form with or without a slash.
pub const TRAILING_SLASH: &str = "trailing_slash";
/// The name of the redirect to https.
pub const TLS_REDIRECT: &str = "site.tls.redirect";

/// The scheme and host of a site's canonical URL, for a request with others.
pub struct CanonicalUrl {
    /// Scheme, host and port.
    origin: Vec<u8>,
    changes_scheme: bool,
}

/// The canonical URL for a request with another scheme or host.
#[inline]
pub fn canonical_url(
    sites: &SiteTable,
    site: &Site,
    responder: &RequestResponder<'_, '_>,
) -> Option<CanonicalUrl> {
    let tls = site.rules.config.tls.as_ref();
    let canonical = site.rules.config.canonical_host.as_deref();
    // Both changes are one redirect, so that a client is not sent from one to the other.
    let changes_scheme = tls.is_some_and(|tls| tls.redirect) && !responder.exchange.is_https();
    if !changes_scheme && canonical.is_none() {
        return None;
    }
    other_url(sites, site, changes_scheme, responder)
}

fn other_url(
    sites: &SiteTable,
    site: &Site,
    changes_scheme: bool,
    responder: &RequestResponder<'_, '_>,
) -> Option<CanonicalUrl> {
    let canonical = site.rules.config.canonical_host.as_deref();
    let mut name = [0; 256];
    // A redirect needs a host name.
    let authority = responder.request.authority?;
    let host = host::normalize(authority, &mut name)?;
    // Without a canonical host, the requested one is kept.
    let new_host = canonical.map_or(host, str::as_bytes);
    if !changes_scheme && new_host == host {
        return None;
    }
    let origin = match (changes_scheme, &responder.exchange.forwarded) {
        // The client connects to the proxy, so the proxy's default port is used.
        (true, Some(forwarded)) if forwarded.is_https.is_some() => [b"https://", new_host].concat(),
        (true, _) => sites.https_url(site, new_host)?,
        (false, _) => {
            let is_https = responder.exchange.is_https();
            let scheme: &[u8] = if is_https { b"https://" } else { b"http://" };
            [scheme, new_host, port(authority)].concat()
        }
    };
    Some(CanonicalUrl {
        origin,
        changes_scheme,
    })
}

impl CanonicalUrl {
    /// Redirects the client to the path of its request, in the canonical form.
    #[cold]
    pub fn redirect(
        self,
        effects: &impl Effects,
        context: &RequestContext<'_>,
        responder: &mut RequestResponder<'_, '_>,
    ) -> RequestDecision {
        let matches = &context.matches;
        // A rule for the path itself would not see the path with another end.
        let has_rules =
            matches.redirects().next().is_some() || matches.access_patterns().next().is_some();
        let slash = (!has_rules)
            .then(|| slash_path(context, responder))
            .flatten();
        let rule = match (self.changes_scheme, &slash) {
            (true, _) => TLS_REDIRECT,
            (false, None) => "canonical_host",
            (false, Some(_)) => "canonical_host and trailing_slash",
        };
        // The query stays as it was sent.
        let mut location = self.origin;
        location.extend(slash.unwrap_or_else(|| context.raw_path.to_vec()));
        append_query(context.query, &mut location);
        effects.trace(TraceEvent::Redirect(rule, &location));
        AnsweringRule::Https.note(responder.exchange);
        if self.changes_scheme {
            // Header rules may be intended for TLS only, such as Strict-Transport-Security (RFC 6797 §7.2).
            return generated_response(responder.redirect_to_canonical(None, &location));
        }
        // Otherwise the fields are set later in the decision, which ends here.
        if context.has_request_fields(responder.exchange) {
            context.set_request_fields(effects, responder);
        }
        let site_path = Some(context.site_path());
        generated_response(responder.redirect_to_canonical(site_path, &location))
    }
}

/// The path and query for a path of a route without the canonical slash at its end, or with one too much.
pub fn slash_location(
    context: &RequestContext<'_>,
    responder: &RequestResponder<'_, '_>,
) -> Option<Vec<u8>> {
    let mut location = slash_path(context, responder)?;
    append_query(context.query, &mut location);
    Some(location)
}

/// The path of a route in the canonical form, for a path in the other one.
fn slash_path(
    context: &RequestContext<'_>,
    responder: &RequestResponder<'_, '_>,
) -> Option<Vec<u8>> {
    let form = context.site.rules.config.trailing_slash;
    let is_read = matches!(responder.request.method, Method::Get | Method::Head);
    // A redirect of POST would lose the body in some clients.
    if form == TrailingSlash::Keep || !is_read || context.rewritten_target.is_some() {
        return None;
    }
    let (raw, path) = (context.raw_path, context.path);
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    // The client's own bytes are kept: decoding and encoding might change them.
    let mut location = match form {
        TrailingSlash::Add if !path.ends_with(b"/") && !last.contains(&b'.') => {
            [raw, b"/"].concat()
        }
        TrailingSlash::Remove if path.len() > 1 && path.ends_with(b"/") => {
            let end = raw.iter().rposition(|byte| *byte != b'/')?;
            raw[..=end].to_vec()
        }
        _ => return None,
    };
    // Two slashes at the start would name a host (RFC 3986 §4.2).
    let slashes = location.iter().take_while(|byte| **byte == b'/').count();
    location.drain(1..slashes.max(1));
    // Browsers treat a backslash as a slash.
    if location.contains(&b'\\') {
        return None;
    }
    // Folders of files always have a slash, and files never have one.
    let target = match form {
        TrailingSlash::Add => [path, b"/"].concat(),
        _ => path[..path.len() - 1].to_vec(),
    };
    context.site.rules.has_route(&target).then_some(location)
}

fn append_query(query: Option<&[u8]>, location: &mut Vec<u8>) {
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
}

/// The port of an authority with its colon; empty without a port.
fn port(authority: &[u8]) -> &[u8] {
    match authority.iter().rposition(|byte| !byte.is_ascii_digit()) {
        // The colons in brackets belong to an IPv6 address.
        Some(colon) if authority[colon] == b':' && colon + 1 < authority.len() => {
            &authority[colon..]
        }
        _ => b"",
    }
}
