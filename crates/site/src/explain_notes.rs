//! The notes of an explanation: texts for the steps of a decision, and the lines that they become.

use lowroad_cache::freshness::LifetimeSource;
use lowroad_cache::storage_policy::StorageRefusal;
use lowroad_cache::vary::SelectingFields;
use lowroad_http::content_coding::ContentCoding;
use lowroad_http::error_page;
use lowroad_http::status::StatusCode;
use lowroad_response_cache::reuse::CacheKey;
use lowroad_store::clock;
use lowroad_store::object::{BodyLocation, ObjectKind, Representation};
use lowroad_store::{StoredObject, key};

use crate::decision::RequestDecision;
use crate::explain::line;

/// The text for a body that is sent from the disk cache.
const ON_DISK: &str = "from the disk cache, by sendfile";

/// The recorded steps, as texts.
#[derive(Default)]
pub(crate) struct TraceNotes {
    pub site: Option<String>,
    pub reason: Option<String>,
    /// The length and the media type.
    pub content: Option<String>,
    pub route: Option<String>,
    /// Lines about the file: the index file of a folder, and the rule for Cache-Control.
    pub file: Vec<(&'static str, String)>,
    /// The statuses for which the site has an error page.
    pub error_pages: String,
    /// The errors of the route that error pages replace.
    pub intercepted_errors: Option<String>,
    /// The level that answers unless a later step sets another.
    pub answering_level: &'static str,
    pub class: Option<String>,
    /// The limit of the site or the route for the response.
    pub bandwidth: Option<String>,
    /// The client that a trusted proxy reported.
    pub client: Option<String>,
    /// The folder of the files, if the path is below an alias.
    pub alias: Option<String>,
    /// The access rules that match the request.
    pub rules: Vec<String>,
    /// The fields that the site's rules without conditions add to the response.
    pub site_fields: Vec<String>,
    /// The changes to the fields of the response for this request.
    pub fields: Vec<String>,
    /// The rewrites that were applied.
    pub rewrites: Vec<String>,
    /// Whether the last one of `rules` refuses the request.
    pub is_refused: bool,
    /// Why the response has no cache key.
    pub unkeyed_reason: &'static str,
    /// Whether the object had to be loaded.
    pub is_loaded: bool,
    /// The other content codings of the object.
    pub other_codings: String,
    pub trust: &'static str,
    pub details: Vec<(&'static str, String)>,
    /// Whether the response is in the disk cache, but not in memory.
    pub is_on_disk: bool,
}

impl TraceNotes {
    pub fn record_found(&mut self, base: &StoredObject) {
        self.trust = match base.validity.is_watched() {
            true => "watched: the kernel reports changes",
            false => "not watched: checked again after half a second",
        };
        match &base.kind {
            ObjectKind::Representation(identity) => {
                let other_codings: Vec<&str> = identity
                    .encodings()
                    .iter()
                    .map(ContentCoding::as_str)
                    .collect();
                self.other_codings = match other_codings.is_empty() {
                    true => "no other".into(),
                    false => other_codings.join(", "),
                };
            }
            ObjectKind::Folder(_) => {
                self.reason = Some("it is a folder, so the path must end in a slash".into())
            }
            ObjectKind::Refused(status, _) => {
                self.reason = Some(error_page::explanation(*status).into())
            }
            ObjectKind::NoIndex(_)
            | ObjectKind::Index(..)
            | ObjectKind::Streaming(..)
            | ObjectKind::Parts(_) => {}
        }
    }

    pub fn record_chosen(&mut self, object: &StoredObject, object_len_max: u64) {
        let Some(sent) = object.representation() else {
            return;
        };
        let content_type = String::from_utf8_lossy(sent.content_type());
        self.content = Some(format!("{} bytes, {content_type}", sent.len()));
        let other_codings = &self.other_codings;
        let encoding = sent.encoding.as_str();
        let encoding = format!("{encoding}; available besides identity: {other_codings}");
        let in_memory = match self.is_loaded {
            true => "not now: a helper thread would load it",
            false => "yes",
        };
        let (stored, method) = match sent.content() {
            BodyLocation::File(_) => {
                let stored = format!("no: longer than cache_object ({object_len_max} bytes)");
                (stored, "from its file, by sendfile")
            }
            BodyLocation::Segment(_) => ("yes: on the disk".into(), ON_DISK),
            BodyLocation::Block(_) => (in_memory.into(), "from the arena, by sendfile"),
            BodyLocation::Heap(_) => ("no: the cache has no room for it".into(), "from memory"),
            BodyLocation::Pieces(_) => (in_memory.into(), "from the arena, in pieces"),
            BodyLocation::Inline => (
                in_memory.into(),
                "from the arena, in one piece with its head",
            ),
        };
        let etag = String::from_utf8_lossy(sent.validators().etag).into_owned();
        self.details = vec![
            ("encoding", encoding),
            ("etag", etag),
            ("stored", stored),
            ("fresh", self.trust.into()),
            ("level", format!("worker, {method}")),
        ];
    }

    /// Records why a stored response cannot be used, or why there is none.
    pub fn record_unused(
        &mut self,
        key: Option<&CacheKey>,
        found: Option<&StoredObject>,
        reason: Option<StorageRefusal>,
    ) {
        let Some(key) = key else {
            let stored = format!("no, and the response will not be: {}", self.unkeyed_reason);
            return self.details.push(("stored", stored));
        };
        let (host, target) = key::handler_key_parts(&key.bytes).unwrap_or_default();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        self.details
            .push(("key", format!("{}{}", text(host), text(target))));
        let lifetime = found.and_then(|object| object.validity.lifetime());
        let stored = match (lifetime, reason) {
            (Some(lifetime), _) => {
                let stale_ms = clock::now_ms().saturating_sub(lifetime.fresh_until_ms());
                let source = source(lifetime.source);
                format!(
                    "yes, but stale for {} s, by {source}: it would be validated",
                    stale_ms / 1000
                )
            }
            (None, Some(reason)) => format!("no, and the last response was not stored: {reason}"),
            (None, None) => "no: not requested recently, or evicted".into(),
        };
        self.details.push(("stored", stored));
        if let Some(representation) = found.and_then(StoredObject::representation) {
            let status = representation.head.status();
            let status = format!("{} {}", status.code(), status.reason());
            self.details.push(("stored status", status));
        }
        found
            .into_iter()
            .for_each(|object| self.record_variant(object));
    }

    /// Records the request fields that select a stored response in addition to its key (RFC 9111 §4.1).
    pub fn record_variant(&mut self, object: &StoredObject) {
        let selecting = object.selecting();
        for (name, value) in selecting.into_iter().flat_map(SelectingFields::iter) {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            self.details
                .push(("variant", format!("{}: {}", text(name), text(value))));
        }
    }

    pub fn record_reused(&mut self, object: &StoredObject) {
        let Some(lifetime) = object.validity.lifetime() else {
            return;
        };
        let now_ms = clock::now_ms();
        let remaining_s = lifetime.fresh_until_ms().saturating_sub(now_ms) / 1000;
        let age_s = lifetime.age_s(now_ms);
        let content = object.representation().map(Representation::content);
        let stored = match (&object.kind, content) {
            (ObjectKind::Streaming(..), _) => "yes: its body is still arriving",
            (ObjectKind::Parts(_), _) => "yes, in parts, which include the requested one",
            (_, Some(BodyLocation::Segment(_))) => "yes: its head in memory, its body on the disk",
            _ => "yes",
        };
        let source = source(lifetime.source);
        let fresh = format!("{age_s} s old, for another {remaining_s} s, by {source}");
        let level = "worker, from the program's stored response";
        self.details = vec![
            ("stored", stored.into()),
            ("fresh", fresh),
            ("level", level.into()),
        ];
        self.record_variant(object);
    }

    /// Records that a body of `len` bytes would be read from disk.
    pub fn record_on_disk(&mut self, len: u64) {
        self.is_on_disk = true;
        let stored = format!("yes: on the disk, {len} bytes; its head is not in memory now");
        self.details = vec![("stored", stored), ("level", format!("worker, {ON_DISK}"))];
    }

    pub fn write_to(self, decision: &RequestDecision, out: &mut String) {
        if let Some(site) = &self.site {
            line(out, "site", site);
        }
        match decision {
            RequestDecision::Answered(status, _) => {
                let mut answer = format!("{} {}", status.code(), status.reason());
                if let Some(content) = self.content.filter(|_| *status == StatusCode::OK) {
                    answer = format!("{answer}, {content}");
                }
                line(out, "answer", &answer);
                // The rules are listed below; the last of them refuses the request.
                let by_rule = self
                    .is_refused
                    .then(|| "by the last of these rules".to_string());
                let reason = by_rule.or(self.reason).filter(|_| self.details.is_empty());
                reason.iter().for_each(|reason| line(out, "why", reason));
            }
            RequestDecision::Deferred(_) if self.is_on_disk => {}
            RequestDecision::Deferred(_) => line(out, "level", self.answering_level),
        }
        self.details
            .iter()
            .for_each(|(name, value)| line(out, name, value));
        self.file
            .iter()
            .for_each(|(name, value)| line(out, name, value));
        if let Some(route) = &self.route {
            line(out, "route", route);
        }
        if let Some(errors) = &self.intercepted_errors {
            line(out, "errors", errors);
        }
        if let Some(bandwidth) = &self.bandwidth {
            line(out, "rate", bandwidth);
        }
        if let Some(class) = &self.class {
            line(out, "class", class);
        }
        if let Some(client) = &self.client {
            line(out, "client", client);
        }
        if let Some(alias) = &self.alias {
            line(out, "alias", alias);
        }
        let rewrites = self.rewrites.iter();
        rewrites.for_each(|rewrite| line(out, "rewrite", rewrite));
        self.rules.iter().for_each(|rule| line(out, "rule", rule));
        self.site_fields
            .iter()
            .chain(&self.fields)
            .for_each(|field| line(out, "field", field));
    }
}

/// A text for the source of a freshness lifetime.
fn source(source: LifetimeSource) -> &'static str {
    match source {
        LifetimeSource::SMaxage => "s-maxage",
        LifetimeSource::MaxAge => "max-age",
        LifetimeSource::Targeted => "CDN-Cache-Control",
        LifetimeSource::Expires => "Expires",
        LifetimeSource::Ttl => "a ttl of the route's cache",
        LifetimeSource::Heuristic => "a tenth of the time since Last-Modified",
        LifetimeSource::Absent => "none: it is validated before each use",
    }
}
