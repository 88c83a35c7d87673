//! `lowroad explain` and `lowroad status`: the server's own account of what it does.
//!
//! The explanation walks the same steps as `answer`, with the same functions, but leaves no trace:
//! nothing is counted, stored or renewed. May block on the disk.

use std::fmt::Write;
use std::sync::Arc;

use lowroad_engine::ListenerId;
use lowroad_http::encoding::{self, Encoding};
use lowroad_http::error_page;
use lowroad_http::limits::Limits;
use lowroad_http::request::{Parsed, Request, Target, parse};
use lowroad_http::status::Status;
use lowroad_http::target;

use crate::answer::{is_no_file, made_of, redirect, write_key};
use crate::clock;
use crate::fetch::Fetcher;
use crate::load::Want;
use crate::running::Running;
use crate::sites::{Site, Sites};
use crate::store::SharedStore;
use crate::stored::{Content, Kind, Representation, Stored};

/// What an explanation needs of the running server.
pub struct View {
    sites: Arc<Sites>,
    addresses: Vec<(ListenerId, std::net::SocketAddr)>,
    store: Arc<SharedStore>,
    fetcher: Arc<Fetcher>,
    limits: Limits,
    object_len_max: u64,
}

impl View {
    /// Takes it, so that no lock is held while explaining.
    pub fn of(running: &Running) -> View {
        View {
            sites: running.sites.clone(),
            addresses: running.listeners.addresses.clone(),
            store: running.store.clone(),
            fetcher: running.fetcher.clone(),
            limits: crate::limits::settings(&running.config, running.fd_limit).http,
            object_len_max: running.config.server.cache_object_len_max,
        }
    }
}

/// Explains how a GET for `url` with these fields would be answered. `None` if nobody here listens
/// at its port.
pub fn explain(view: &View, url: &str, fields: &[String]) -> Option<String> {
    let (authority, target) = split(url);
    let port = lowroad_http::host::port(authority.as_bytes()).unwrap_or(80);
    let ip = authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host)
        .trim_matches(['[', ']']);
    let at_port = || {
        view.addresses
            .iter()
            .filter(|(_, address)| address.port() == port)
    };
    let exact = at_port().find(|(_, address)| address.ip().to_string() == ip);
    let (listener, _) = exact.or_else(|| at_port().next())?;
    let mut head = format!("GET {target} HTTP/1.1\r\nHost: {authority}\r\n");
    fields.iter().for_each(|field| {
        let _ = write!(head, "{}\r\n", field.trim());
    });
    head.push_str("\r\n");
    let mut out = format!("GET {url}\n");
    match parse(head.as_bytes(), &view.limits) {
        Ok(Parsed::Complete(request)) => walk(view, *listener, &request, &mut out),
        Ok(Parsed::Partial) => line(&mut out, "answer", "none: the request is not complete"),
        Err(refusal) => refused(refusal.status(), refusal.as_str(), &mut out),
    }
    Some(out)
}

fn walk(view: &View, listener: ListenerId, request: &Request<'_>, out: &mut String) {
    let mut name = [0; 256];
    let Some(found) = view.sites.find(listener, request.host, &mut name) else {
        let why = "no site of this name is served at this address, and none is the default";
        return refused(Status::MISDIRECTED_REQUEST, why, out);
    };
    let site = found.site;
    line(
        out,
        "site",
        &format!("{} (root {})", site.label, site.base().display()),
    );
    let Target::Origin { path, query, .. } = request.target else {
        return refused(Status::BAD_REQUEST, "the target is no path", out);
    };
    let mut scratch = vec![0; path.len()];
    let path = match target::decode(path, &mut scratch) {
        Ok(path) => path,
        Err(refusal) => return refused(refusal.status(), refusal.as_str(), out),
    };
    if let Some((status, location)) = redirect(site, path, query) {
        let why = format!("a redirect rule: to {}", String::from_utf8_lossy(&location));
        return refused(status, &why, out);
    }
    if site.routes.of(path).is_some() {
        return routed(site, path, out);
    }
    let host: &[u8] = if site.per_host() {
        &name[..found.host_len]
    } else {
        &[]
    };
    look_up(
        &Place {
            view,
            site,
            host,
            path,
        },
        request,
        out,
    );
}

/// What is stored for a path, or would be, and which encoding of it is sent.
fn look_up(place: &Place<'_>, request: &Request<'_>, out: &mut String) {
    let (base, note) = place.look(Encoding::Identity, None);
    let identity = match &base.kind {
        Kind::Representation(identity) => identity,
        Kind::Folder => {
            let why = "it is a folder, and those end in a slash";
            return refused(Status::MOVED_PERMANENTLY, why, out);
        }
        Kind::Refused(status)
            if is_no_file(*status, place.path)
                && place.site.routes.of_missing(place.path).is_some() =>
        {
            return routed(place.site, place.path, out);
        }
        Kind::Refused(status) => return refused(*status, error_page::explanation(*status), out),
        Kind::Index(path) => return routed(place.site, path, out),
        // Under a key of its own, which files' answers never have.
        Kind::Kept(_) => return,
    };
    let wanted = encoding::choose(&request.accept_encoding, identity.encodings());
    if wanted == Encoding::Identity {
        return describe(place.view, identity, &base, &note, out);
    }
    let (encoded, note) = place.look(wanted, Some(base.clone()));
    let sent = encoded.representation().unwrap_or(identity);
    describe(place.view, sent, &base, &note, out);
}

/// What a program answers for.
fn routed(site: &Site, path: &[u8], out: &mut String) {
    let Some(route) = site
        .routes
        .of(path)
        .or_else(|| site.routes.of_missing(path))
    else {
        return;
    };
    line(out, "level", "module: made for each request");
    line(out, "route", &route.label);
}

fn refused(status: Status, why: &str, out: &mut String) {
    line(
        out,
        "answer",
        &format!("{} {}", status.code(), status.reason()),
    );
    line(out, "why", why);
}

/// A path of a site, to be looked up.
struct Place<'p> {
    view: &'p View,
    site: &'p Arc<Site>,
    host: &'p [u8],
    path: &'p [u8],
}

impl Place<'_> {
    /// What is stored, or what would be loaded, and which of the two.
    fn look(&self, encoding: Encoding, base: Option<Arc<Stored>>) -> (Arc<Stored>, String) {
        let mut key = Vec::new();
        write_key(&mut key, self.site, self.host, self.path, encoding);
        let hash = self.view.store.hash(&key);
        let now_ms = clock::now_ms();
        let stored = self.view.store.peek(hash, &key);
        if let Some(stored) = stored
            && match base.as_ref().and_then(|base| base.representation()) {
                Some(identity) => made_of(&stored, identity).is_some(),
                None => stored.fresh(now_ms),
            }
        {
            return (stored, "yes".into());
        }
        let (site, host, path) = (self.site.clone(), self.host.into(), self.path.into());
        let want = Want {
            site,
            host,
            path,
            encoding,
            base,
            key: key.into(),
            hash,
        };
        (
            self.view.fetcher.loader().make(&want),
            "not now: it would be loaded by a helper".into(),
        )
    }
}

fn describe(view: &View, found: &Representation, base: &Stored, note: &str, out: &mut String) {
    let content_type = String::from_utf8_lossy(found.content_type());
    line(
        out,
        "answer",
        &format!("200 OK, {} bytes, {content_type}", found.len),
    );
    let choices: Vec<&str> = base
        .representation()
        .map(|identity| identity.encodings().iter().map(Encoding::as_str).collect())
        .unwrap_or_default();
    let choices = if choices.is_empty() {
        "no other".into()
    } else {
        choices.join(", ")
    };
    line(
        out,
        "encoding",
        &format!(
            "{}; to be had besides identity: {choices}",
            found.encoding.as_str()
        ),
    );
    line(
        out,
        "etag",
        &String::from_utf8_lossy(found.validators().etag),
    );
    let (stored, sent) = match &found.content {
        Content::File(_) => {
            let max = view.object_len_max;
            (
                format!("no: longer than cache_object ({max} bytes)"),
                "from its file, by sendfile",
            )
        }
        Content::Block(_) => (note.to_string(), "from the arena, by sendfile"),
        Content::Heap(_) => ("no: the cache has no room for it".into(), "from memory"),
        Content::Inline => (
            note.to_string(),
            "from the arena, in one piece with its head",
        ),
    };
    line(out, "stored", &stored);
    let trust = if base.is_watched() {
        "watched: the kernel tells of a change"
    } else {
        "not watched: looked at again after half a second"
    };
    line(out, "fresh", trust);
    line(out, "level", &format!("worker, {sent}"));
}

/// What the server has counted since its start.
pub fn status(running: &Running) -> String {
    let mut out = format!("lowroad {}\n", env!("CARGO_PKG_VERSION"));
    line(
        &mut out,
        "process",
        &format!(
            "{}, up {} s",
            std::process::id(),
            running.started.elapsed().as_secs()
        ),
    );
    for (_, address) in &running.listeners.addresses {
        line(&mut out, "listens", &address.to_string());
    }
    if let Some(health) = &running.softirq {
        line(&mut out, "softirq", &health.text());
    }
    line(&mut out, "workers", &running.workers.len().to_string());
    line(
        &mut out,
        "open",
        &format!("{} connections", running.admission.open()),
    );
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for (at, counters) in running.counters.iter().enumerate() {
        for (place, (name, value)) in counters.list().into_iter().enumerate() {
            if at == 0 {
                sums.push((name, value));
            } else {
                sums[place].1 += value;
            }
        }
    }
    sums.iter()
        .for_each(|(name, value)| line(&mut out, name, &value.to_string()));
    let lost: u64 = running.sinks.iter().map(lowroad_log::Sink::lost).sum();
    line(&mut out, "log_lines_lost", &lost.to_string());
    let (shards, arena_used) = running.store.counters();
    let sum =
        |of: fn(&lowroad_cache::Counters) -> u64| shards.iter().map(of).sum::<u64>().to_string();
    line(&mut out, "cache_hits", &sum(|c| c.hits));
    line(&mut out, "cache_misses", &sum(|c| c.misses));
    line(&mut out, "cache_inserted", &sum(|c| c.inserted));
    line(&mut out, "cache_evicted", &sum(|c| c.evicted));
    line(&mut out, "cache_refused", &sum(|c| c.refused));
    line(&mut out, "cache_objects", &sum(|c| c.objects));
    line(&mut out, "cache_bytes", &sum(|c| c.bytes));
    line(&mut out, "arena_bytes", &arena_used.to_string());
    line(
        &mut out,
        "folders_watched",
        &running.fetcher.loader().folders_watched().to_string(),
    );
    programs(running, &mut out);
    out
}

/// What happened to requests for programs.
fn programs(running: &Running, out: &mut String) {
    for site in &running.sites.all {
        for route in site.routes.iter() {
            let text = format!("{} {}: {}", site.label, route.name(), route.counts.text());
            line(out, "route", &text);
        }
    }
    for (module, counts) in running.modules.counts() {
        for (name, value) in counts {
            line(out, &format!("module.{module}.{name}"), &value.to_string());
        }
    }
    let of_kinds = running.programs.wasm_counts().into_iter();
    let of_kinds = of_kinds.chain(lowroad_dynamic::pages::counts());
    for (name, value) in of_kinds.chain(running.programs.spool_counts()) {
        line(out, name, &value.to_string());
    }
}

fn line(out: &mut String, name: &str, value: &str) {
    let _ = writeln!(out, "  {name:<22} {value}"); // into memory: does not fail
}

/// Authority and target of a URL.
pub fn split(url: &str) -> (&str, String) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split('#').next().unwrap_or(rest);
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(at);
    let slash = if target.starts_with('/') { "" } else { "/" };
    (authority, format!("{slash}{target}"))
}
