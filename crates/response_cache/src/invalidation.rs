//! Invalidation: a successful unsafe request deletes the stored responses for its target, for the URLs of Location and
//! Content-Location in its response (RFC 9111 §4.4), and for groups (RFC 9875 §3).

use std::sync::Arc;

use lowroad_cache::groups;
use lowroad_cache::invalidation::{self, BaseUri};
use lowroad_cache::pattern::RequestPattern;
use lowroad_cache::query_rules::QueryRules;
use lowroad_engine::Exchange;
use lowroad_handler::ResponseFields;
use lowroad_http::request::{Request, RequestTarget};
use lowroad_http::status::StatusCode;
use lowroad_routes::routes::{Route, RouteTable};
use lowroad_site_rules::SiteRules;
use lowroad_store::SharedStore;
use lowroad_store::change_feed::ChangeFeed;
use lowroad_store::disk_cache::{self, SiteIdentity};
use lowroad_store::key::{self, SiteScope};
use lowroad_store::purge_rules::{PurgeMode, PurgeRequest};

/// The stored responses that a request invalidates.
pub struct InvalidationSet {
    site_id: u32,
    /// The site's number on disk.
    disk_identity: SiteIdentity,
    is_https: bool,
    authority: Box<[u8]>,
    target: Box<[u8]>,
    /// The rules for the query in keys of the site.
    query_rules: Vec<QueryRules>,
    changes: Arc<ChangeFeed>,
}

impl InvalidationSet {
    /// The responses that this request invalidates. `None` if the method is safe, or the site has no stored responses.
    /// `change_feed` notifies the softirq level, which has copies.
    pub fn from_request(
        request: &Request<'_>,
        exchange: &Exchange,
        rules: &SiteRules,
        routes: &RouteTable,
        changes: &Arc<ChangeFeed>,
    ) -> Option<InvalidationSet> {
        let is_safe = !invalidation::is_unsafe(request.method.as_str().as_bytes());
        // Routes to origins always count, since a response may be in flight and stored after this check.
        let may_store = |route: &Route| route.is_origin || route.is_storing();
        if is_safe || !routes.iter().any(may_store) {
            return None;
        }
        let (is_https, authority) = (exchange.is_https(), request.authority.unwrap_or_default());
        let forwarded = exchange.forwarded.as_ref();
        let full_authority = forwarded.and_then(|it| it.authority_with_port(authority, is_https));
        Some(InvalidationSet {
            site_id: rules.id,
            disk_identity: rules.disk_id,
            is_https,
            authority: full_authority.unwrap_or_else(|| authority.into()).into(),
            target: target_of(request)?.into(),
            query_rules: routes
                .iter()
                .filter(|route| !route.query_rules.is_empty())
                .map(|route| route.query_rules.clone())
                .collect(),
            changes: changes.clone(),
        })
    }

    /// Deletes the invalidated responses, depending on the status of the response.
    pub fn invalidate(&self, status: StatusCode, fields: &ResponseFields, store: &SharedStore) {
        // Location and Content-Location are ignored if they refer to another origin (RFC 9111 §4.4).
        let base = BaseUri {
            scheme: if self.is_https { b"https" } else { b"http" },
            authority: &self.authority,
            target: &self.target,
        };
        let lines = fields.iter().map(|(name, value)| (name.as_bytes(), value));
        let targets = invalidation::invalidated(status.code(), &base, lines);
        for target in &targets {
            self.invalidate_target(target, store);
            for rules in &self.query_rules {
                let normalized = rules.normalize_target(target);
                if normalized != *target {
                    self.invalidate_target(&normalized, store);
                }
            }
        }
        // An error response invalidates nothing (RFC 9111 §4.4), and so no groups either.
        if targets.is_empty() {
            return;
        }
        for group in groups::names(fields.values("Cache-Group-Invalidation")) {
            store.purge(
                &PurgeRequest::Group(&self.authority, &group),
                PurgeMode::Hard,
            );
            // The softirq level does not know groups, so it discards all copies.
            self.changes.notify();
        }
    }

    fn invalidate_target(&self, target: &[u8], store: &SharedStore) {
        let mut key = Vec::new();
        let split = target.iter().position(|b| *b == b'?');
        let (path, query) = match split {
            Some(at) => (&target[..at], Some(&target[at + 1..])),
            None => (target, None),
        };
        // The resource is the same over http and https, so both keys are deleted.
        for over_tls in [false, true] {
            let site = SiteScope {
                site_id: self.site_id,
                is_https: over_tls,
            };
            key::write_handler_key(&mut key, site, &self.authority, path, query);
            let delete_in_memory = || store.delete(store.hash(&key), &key);
            match (store.tier(), disk_cache::primary(&self.disk_identity, &key)) {
                (Some(tier), Some(primary)) => tier.delete(&primary, delete_in_memory),
                _ => delete_in_memory(),
            }
        }
        match RequestPattern::from_url(&self.authority, target, false) {
            Ok(url) => self.changes.notify_purge(&url),
            // The URL has no valid pattern, so the softirq level discards all copies.
            Err(_) => self.changes.notify(),
        }
    }
}

/// Path and query of a request, neither decoded nor normalized.
pub fn target_of(request: &Request<'_>) -> Option<Vec<u8>> {
    let RequestTarget::Origin { path, query, .. } = request.target else {
        return None;
    };
    let mut target = path.to_vec();
    if let Some(query) = query {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    Some(target)
}
