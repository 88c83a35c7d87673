//! Redirects to the canonical URL of a site: its https scheme, its host, and the form of paths with or without a slash.

use lowroad_config::TrailingSlash;
use lowroad_http::host;
use lowroad_http::method::Method;
use lowroad_http::request::RequestTarget;

use super::context::RequestContext;
use crate::responder::RequestResponder;
use crate::sites::{Site, SiteTable};

/// The location for a request with another scheme or host than the canonical ones.
pub fn canonical_location(
    sites: &SiteTable,
    site: &Site,
    responder: &RequestResponder<'_, '_>,
) -> Option<Vec<u8>> {
    let request = responder.request;
    let is_https = responder.exchange.is_https();
    let tls = site.rules.config.tls.as_ref();
    // Both changes are one redirect, so that a client is not sent from one to the other.
    let changes_scheme = !is_https && tls.is_some_and(|tls| tls.redirect);
    let canonical = site.rules.config.canonical_host.as_deref();
    if !changes_scheme && canonical.is_none() {
        return None;
    }
    let mut name = [0; 256];
    // A redirect needs a host name.
    let authority = request.authority?;
    let host = host::normalize(authority, &mut name)?;
    // Without a canonical host, the requested one is kept.
    let new_host = canonical.map_or(host, str::as_bytes);
    if !changes_scheme && new_host == host {
        return None;
    }
    let mut location = match (changes_scheme, &responder.exchange.forwarded) {
        // The client connects to the proxy, so the proxy's default port is used.
        (true, Some(forwarded)) if forwarded.is_https.is_some() => [b"https://", new_host].concat(),
        (true, _) => sites.https_url(site, new_host)?,
        (false, _) => {
            let scheme: &[u8] = if is_https { b"https://" } else { b"http://" };
            [scheme, new_host, port(authority)].concat()
        }
    };
    let RequestTarget::Origin { path, query, .. } = request.target else {
        return None;
    };
    location.extend_from_slice(path);
    append_query(query, &mut location);
    Some(location)
}

/// The path and query for a path of a route without the canonical slash at its end, or with one too much.
pub fn slash_location(
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
    if !context.site.rules.has_route(&target) {
        return None;
    }
    append_query(context.query, &mut location);
    Some(location)
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
