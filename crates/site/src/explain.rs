//! `lowroad explain`: shows the response to a request, and the steps of the decision.
//!
//! The decision is that for a client, with effects that change nothing: no counters, stored responses or watches are
//! changed, and no handler is called. May block on the disk.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use lowroad_access_control::passwords::{BasicCredentials, PasswordFile, PasswordOutcome};
use lowroad_access_control::traffic_classes::TrafficClass;
use lowroad_cache::invalidation;
use lowroad_config::SiteRoot;
use lowroad_engine::tls_session::TlsInfo;
use lowroad_engine::{DetachedResponse, Exchange, ExchangeId, ListenerId};
use lowroad_files::file_fetcher::FileFetcher;
use lowroad_files::file_loader::{LoadOutcome, LoadRequest};
use lowroad_handler::RouteProbe;
use lowroad_http::date;
use lowroad_http::forwarding::default_port;
use lowroad_http::h1;
use lowroad_http::host;
use lowroad_http::limits::RequestLimits;
use lowroad_http::request::{Request, RequestTarget};
use lowroad_http::status::StatusCode;
use lowroad_log::ErrorLogger;
use lowroad_log::escape::is_invisible;
use lowroad_response_cache::calls::{AuthCall, CallStatus, HandlerCall};
use lowroad_response_cache::handler_outcome::OutcomeWaiter;
use lowroad_site_rules::{SiteFields, SiteRules};
use lowroad_store::clock;
use lowroad_store::disk_cache;
use lowroad_store::object::ObjectKind;
use lowroad_store::{SharedStore, VariantSet};

use crate::decision::{
    DecisionScratch, DiskRecall, Effects, LoadProgress, RequestDecider, TLS_REDIRECT, TraceEvent,
};
use crate::explain_files;
use crate::explain_notes::TraceNotes;
use crate::responder::RequestResponder;
use crate::sites::SiteTable;

/// The parts of the running server that an explanation uses.
pub struct ExplainView {
    /// The sites in force.
    pub sites: Arc<SiteTable>,
    /// The addresses of the listeners.
    pub addresses: Vec<(ListenerId, SocketAddr)>,
    /// The stored responses.
    pub store: Arc<SharedStore>,
    /// Loads files.
    pub fetcher: Arc<FileFetcher<OutcomeWaiter>>,
    /// The request limits.
    pub limits: RequestLimits,
    /// Longer files are sent by sendfile, not from memory.
    pub object_len_max: u64,
    /// The error log.
    pub logger: ErrorLogger,
}

/// A request to explain, without a body.
#[derive(Clone, Copy, Debug)]
pub struct ExplainedRequest<'r> {
    /// The method.
    pub method: &'r str,
    /// The URL; it selects the listener.
    pub url: &'r str,
    /// The fields, as lines. As with curl, a Host among them replaces that of the URL.
    pub fields: &'r [String],
}

/// Explains how a request would be answered. `None` if no listener uses its port.
pub fn explain(view: &ExplainView, explained: ExplainedRequest<'_>) -> Option<String> {
    let url = explained.url;
    let (authority, target) = split(url);
    let is_https = is_https(url);
    let port = host::port(authority.as_bytes()).unwrap_or(default_port(is_https));
    let ip = authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host)
        .trim_matches(['[', ']']);
    let at_port = || {
        view.addresses
            .iter()
            .filter(|(_, address)| address.port() == port)
            .filter(|(id, _)| view.sites.tls_endpoint(*id).is_some() == is_https)
    };
    // For a host name, any listener of the port is suitable; the first is used.
    let exact = at_port().find(|(_, address)| address.ip().to_string() == ip);
    let (listener, _) = exact.or_else(|| at_port().next())?;
    let head = explained.head(authority, &target);
    let mut out = format!("{} {}\n", visible(explained.method), visible(url));
    match h1::parse(head.as_bytes(), &view.limits) {
        Ok(Some(_)) => {
            let loader = view.fetcher.loader();
            // Watches that the explanation has added are removed afterwards.
            loader.without_watching(|| walk(view, *listener, &head, &mut out));
        }
        Ok(None) => line(&mut out, "answer", "none: the request is not complete"),
        Err(refusal) => write_refusal(refusal.status(), refusal.as_str(), &mut out),
    }
    Some(out)
}

impl ExplainedRequest<'_> {
    /// The head of the request. As with curl, a Host among the fields replaces `authority`, and an empty one leaves the
    /// field out: behind a port mapping or a proxy, clients send another Host than the URL at which the server listens.
    pub fn head(&self, authority: &str, target: &str) -> String {
        let is_host = |field: &String| {
            let (name, _) = field.split_once(':').unwrap_or_default();
            name.trim().eq_ignore_ascii_case("host")
        };
        // As clients send it: the port is a part of the key of stored responses.
        let host = invalidation::without_default_port(authority.as_bytes(), is_https(self.url));
        let authority = &authority[..host.len()];
        let mut head = format!("{} {target} HTTP/1.1\r\n", self.method);
        if !self.fields.iter().any(is_host) {
            let _ = write!(head, "Host: {authority}\r\n");
        }
        let is_left_out = |field: &&String| is_host(field) && field.trim().ends_with(':');
        for field in self.fields.iter().filter(|field| !is_left_out(field)) {
            let _ = write!(head, "{}\r\n", field.trim());
        }
        head.push_str("\r\n");
        head
    }
}

/// Whether the scheme of a URL is https.
pub fn is_https(url: &str) -> bool {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    scheme.eq_ignore_ascii_case("https")
}

fn write_refusal(status: StatusCode, reason: &str, out: &mut String) {
    let answer = format!("{} {}", status.code(), status.reason());
    line(out, "answer", &answer);
    line(out, "why", reason);
}

/// Runs the decision for a request, and writes the steps to `out`.
fn walk(view: &ExplainView, listener: ListenerId, head: &str, out: &mut String) {
    let mut detached = DetachedResponse::default();
    let Some(request) = detached.request(head.as_bytes(), &view.limits) else {
        return line(out, "answer", "none: the request is not complete");
    };
    let unix_s = (clock::unix_ns() / 1_000_000_000) as u64;
    let mut exchange = Exchange::without_client(
        listener,
        Ipv4Addr::LOCALHOST.into(),
        detached.protocol(),
        clock::now_ms(),
        unix_s,
    );
    // The TLS connection is assumed to be one that the client made for this host.
    exchange.tls = assumed_tls(view, listener, &request);
    if let (Some(endpoint), Some(tls)) = (view.sites.tls_endpoint(listener), &exchange.tls)
        && endpoint.refuses(tls.server_name.as_deref())
    {
        line(out, "answer", "none: the handshake is refused");
        let reason = "strict_sni: no certificate of the address has this name";
        return line(out, "why", reason);
    }
    let date = date::format(exchange.unix_s);
    let mut responder = RequestResponder {
        request: &request,
        exchange: &mut exchange,
        response: &mut detached.response(&date),
    };
    let trace = ExplainTrace {
        view,
        notes: RefCell::default(),
    };
    let decider = RequestDecider {
        sites: &view.sites,
        effects: &trace,
        logger: &view.logger,
        scratch: &mut DecisionScratch::default(),
    };
    let decision = decider.decide(&request, &mut responder);
    trace.notes.into_inner().write_to(&decision, out);
}

/// The TLS parameters of a client that connects for the request's host; `None` at a listener without TLS.
fn assumed_tls(
    view: &ExplainView,
    listener: ListenerId,
    request: &Request<'_>,
) -> Option<Arc<TlsInfo>> {
    view.sites.tls_endpoint(listener)?;
    let mut name = [0; 256];
    let host = host::normalize(request.authority.unwrap_or_default(), &mut name);
    let server_name = host.map(|host| String::from_utf8_lossy(host).into());
    Some(Arc::new(TlsInfo {
        server_name,
        ..TlsInfo::default()
    }))
}

/// The effects of an explanation: loads files on the current thread, calls no handlers, and records the steps.
struct ExplainTrace<'v> {
    view: &'v ExplainView,
    notes: RefCell<TraceNotes>,
}

impl Effects for ExplainTrace<'_> {
    fn hash(&self, key: &[u8]) -> u64 {
        self.view.store.hash(key)
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<VariantSet> {
        // `peek` is used because an explanation must not change the eviction order.
        self.view.store.peek(hash, key)
    }

    fn find_unpurged(&self, hash: u64, key: &[u8]) -> Option<VariantSet> {
        self.view.store.peek_valid(hash, key)
    }

    fn fetch(&self, request: LoadRequest, _: ExchangeId) -> LoadProgress {
        self.notes.borrow_mut().is_loaded = true;
        // `build` is used instead of `load`, because the object must not be stored.
        let object = self.view.fetcher.loader().build(&request);
        LoadProgress::Loaded(LoadOutcome::new(&request, object))
    }

    fn recall(&self, lookup: &DiskRecall<'_>, _: ExchangeId) -> bool {
        let DiskRecall {
            site, key, request, ..
        } = lookup;
        let store = &self.view.store;
        let len = store.tier().and_then(|tier| {
            let primary = disk_cache::primary(&site.rules.disk_id, key)?;
            tier.find_len(store, &primary, request.lines())
        });
        if let Some(len) = len {
            self.notes.borrow_mut().record_on_disk(len);
        }
        len.is_some()
    }

    fn call(&self, call: &HandlerCall<'_>, exchange: &mut Exchange) -> CallStatus {
        let probe = RouteProbe {
            target: &target(call.request),
            peer: exchange.peer,
            fields: call.request.fields(),
        };
        self.notes.borrow_mut().alias = alias(call.rules, call.path);
        if let Some(upstream) = call.route.handler.explain_member(&probe) {
            self.notes.borrow_mut().details.push(("asks", upstream));
        }
        // Which of them applies depends on the status of the response.
        for rule in call.route.cache_rules.texts(call.cache_rules) {
            let rule = ("cache rule", rule.to_owned());
            self.notes.borrow_mut().details.push(rule);
        }
        let lines = call.route.handler.explain_request(&call.preview(exchange));
        let mut notes = self.notes.borrow_mut();
        for (number, text) in lines.into_iter().enumerate() {
            let name = if number == 0 { "sends" } else { "" };
            notes.details.push((name, text));
        }
        // The decision ends here as if the call were running.
        CallStatus::Running(Box::new(()))
    }

    fn refresh(&self, _: &HandlerCall<'_>, _: &mut Exchange) {}

    fn take(&self, _: &TrafficClass, _: u64) -> Result<(), u64> {
        Ok(())
    }

    fn check(
        &self,
        passwords: &Arc<PasswordFile>,
        credentials: BasicCredentials,
        _: IpAddr,
        _: ExchangeId,
    ) -> Option<PasswordOutcome> {
        // This verification does not count as an attempt.
        Some(passwords.verify_blocking(&credentials))
    }

    fn ask(&self, call: &AuthCall<'_>, _: &Exchange) -> Option<Box<dyn Send>> {
        let text = format!(
            // An explanation sends no requests to other servers.
            "{}{} decides; what follows is if it admits the request",
            call.route.label, call.target
        );
        self.notes.borrow_mut().rules.push(text);
        None
    }

    fn trace(&self, event: TraceEvent<'_>) {
        let mut notes = self.notes.borrow_mut();
        match event {
            TraceEvent::NoSite => {
                let reason = "no site at this address has this name, and none is the default";
                notes.reason = Some(reason.into());
            }
            TraceEvent::Site(site) => {
                let root = match site.rules.config.root {
                    SiteRoot::None => "no files".into(),
                    _ => format!("root {}", site.rules.base().display()),
                };
                notes.site = Some(format!("{} ({root})", site.rules.label));
                notes.error_pages = page_statuses(&site.rules.config.error_pages);
            }
            TraceEvent::Bandwidth(limit) => {
                let (rate, after) = (limit.bytes_per_s, limit.after);
                notes.bandwidth = Some(format!("{rate} bytes/s after {after} bytes"));
            }
            TraceEvent::Path(context) => {
                // The status is not known yet; only those of lifetimes differ for errors.
                let fields = SiteFields::new(&context.site.rules, context.path, StatusCode::OK);
                let lines = fields.added(|_| false);
                notes.site_fields = lines
                    .map(|(name, value)| format!("{name}: {value}"))
                    .collect();
            }
            TraceEvent::OtherCertificate => {
                notes.reason = Some("the name in the handshake has other certificates".into());
            }
            TraceEvent::NoClientCertificate => {
                notes.reason =
                    Some("the path is in client_paths, and the client sent no certificate".into());
            }
            TraceEvent::Class(class_choice) => notes.class = Some(class_choice.text()),
            TraceEvent::Rule(rule) => notes.rules.push(rule.text()),
            TraceEvent::RuleLimitedToForms(matches, forms) => {
                for form in matches.form_texts(forms) {
                    let form = String::from_utf8_lossy(&form).into_owned();
                    let form = form.escape_debug();
                    let text = format!("no earlier rule allows the form {form} of the path");
                    notes.rules.push(text);
                }
            }
            TraceEvent::Refused(_) => notes.is_refused = true,
            TraceEvent::HasAccessRules => {}
            TraceEvent::Client(client) => notes.client = Some(client.to_string()),
            TraceEvent::BadTarget(reason) => notes.reason = Some(reason.into()),
            TraceEvent::InternalRoute(route) => {
                notes.reason = Some(format!(
                    "{} is an internal route: only rewrites and programs can reach it",
                    route.label
                ));
            }
            TraceEvent::Internal(alias) => {
                let path = &alias.path;
                notes.reason = Some(format!(
                    "{path} is an internal alias, which clients can't reach"
                ));
            }
            TraceEvent::Rewrite(rewrite, target) => {
                let target = String::from_utf8_lossy(target);
                notes.rewrites.push(format!("{} to {target}", rewrite.from));
            }
            TraceEvent::Fields(changes) => {
                let lines = String::from_utf8_lossy(&changes.lines);
                let lines = lines.lines().map(str::to_owned);
                let omitted = changes
                    .omitted
                    .iter()
                    .map(|name| format!("no other {name}"));
                let private = changes
                    .is_private
                    .then(|| "Cache-Control: private".to_owned());
                notes.site_fields.retain(|line| {
                    let name = line.split(':').next().unwrap_or_default();
                    !changes.omits(name.as_bytes())
                });
                // A rewrite replaces the changes of the path before.
                notes.fields = lines.chain(omitted).chain(private).collect();
            }
            TraceEvent::Maintenance => {
                notes.reason = Some("the site is in maintenance mode".into());
            }
            TraceEvent::Preflight(is_permitted) => {
                let reason = match is_permitted {
                    true => "a preflight that site.cors permits",
                    false => "a preflight of an origin that site.cors does not list",
                };
                notes.reason = Some(reason.into());
            }
            TraceEvent::Redirect(rule, location) => {
                if rule == TLS_REDIRECT {
                    notes.site_fields.clear();
                }
                let location = String::from_utf8_lossy(location);
                notes.reason = Some(format!("{rule}: to {location}"));
            }
            TraceEvent::RedirectRule(rule, location) => {
                let location = String::from_utf8_lossy(location);
                notes.reason = Some(format!("site.redirect {}: to {location}", rule.from));
            }
            TraceEvent::Found(context, object) => {
                notes.record_found(object);
                if object.representation().is_some() {
                    notes.file =
                        explain_files::file_lines(context.site, context.host, context.path);
                }
                notes.alias = alias(&context.site.rules, context.path);
                if let ObjectKind::Refused(..) | ObjectKind::NoIndex(_) = object.kind {
                    notes.reason =
                        explain_files::find_cause(context.site, context.host, context.path)
                            .or(notes.reason.take());
                }
            }
            TraceEvent::Chosen(object) => notes.record_chosen(object, self.view.object_len_max),
            TraceEvent::Route(route) => {
                notes.route = Some(format!("{}, for {}", route.label, route.pattern()));
                notes.intercepted_errors = route.describe_intercepted_errors(&notes.error_pages);
                notes.answering_level = match route.is_origin {
                    true => "origin: fetched from it",
                    false => "handler: generated for each request",
                };
            }
            TraceEvent::Unkeyed(reason) => notes.unkeyed_reason = reason,
            TraceEvent::Unused(key, found) => {
                let reason = key.and_then(|key| self.view.store.unstored_reasons.find(key.hash));
                notes.record_unused(key, found.map(|(object, _)| &**object), reason);
            }
            TraceEvent::Reused(_, object) => notes.record_reused(object),
        }
    }
}

/// The alias and the folder for a decoded path, as text.
fn alias(rules: &SiteRules, path: &[u8]) -> Option<String> {
    let (alias, folder, _) = rules.alias(path)?;
    Some(format!("{} is {}", alias.path, folder.display()))
}

/// The statuses with an error page: `404, 5xx`.
fn page_statuses(pages: &BTreeMap<u16, String>) -> String {
    let mut texts = Vec::new();
    for class in [4, 5] {
        let statuses = pages.range(class * 100..(class + 1) * 100);
        match statuses.clone().count() {
            100 => texts.push(format!("{class}xx")),
            _ => texts.extend(statuses.map(|(status, _)| status.to_string())),
        }
    }
    texts.join(", ")
}

/// The path and query, as the client sent them.
fn target(request: &Request<'_>) -> Vec<u8> {
    let RequestTarget::Origin { path, query, .. } = request.target else {
        return Vec::new();
    };
    let mut target = path.to_vec();
    if let Some(query) = query {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    target
}

/// Writes a line of an explanation.
pub fn line(out: &mut String, name: &str, value: &str) {
    // Paths and fields of a request may contain line breaks and sequences that a terminal obeys.
    let value = visible(value);
    let _ = writeln!(out, "  {name:<22} {value}"); // into memory: does not fail
}

/// The text with invisible characters as `\u{…}`.
fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_invisible) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for it in text.chars() {
        match is_invisible(it) {
            true => out.extend(it.escape_unicode()),
            false => out.push(it),
        }
    }
    Cow::Owned(out)
}

/// Splits a URL into its authority and its target.
pub fn split(url: &str) -> (&str, String) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split('#').next().unwrap_or(rest);
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(at);
    let slash = if target.starts_with('/') { "" } else { "/" };
    (authority, format!("{slash}{target}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_of_pages_are_joined() {
        let page = |status| (status, String::new());
        let pages = [404, 410].into_iter().chain(500..600).map(page);
        assert_eq!(page_statuses(&pages.collect()), "404, 410, 5xx");
        assert_eq!(page_statuses(&BTreeMap::new()), "");
    }

    #[test]
    fn a_value_can_neither_add_lines_nor_control_the_terminal() {
        let mut out = String::new();
        line(
            &mut out,
            "why",
            "/x\n  answer 200 OK\n\u{1b}]0;t\u{7}\u{9b}8m\u{202e}gpj",
        );
        assert_eq!(out.lines().count(), 1, "{out}");
        assert!(!out.trim_end().contains(is_invisible), "{out}");
        assert!(out.contains("\\u{202e}gpj"), "{out}");
    }
}
