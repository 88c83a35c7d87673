//! `lowroad explain`, first part: whether a level in front of the URL's port would answer the request, or why not. The
//! admin service of the server explains the second part, the server's decision.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lowroad_cache::freshness::LifetimeSource;
use lowroad_http::status::StatusCode;
use lowroad_site::explain::{ExplainedRequest, is_https};
use lowroad_softirq::fetch::address_fetcher::{AddressFetcher, ServerConnector};
use lowroad_softirq::key::RequestKey;
use lowroad_softirq::layout::REASONS;
use lowroad_softirq::learner::{
    self, FetchDenial, LearnSettings, PublishableResponse, VerdictTerms,
};
use lowroad_softirq::level::SoftirqLevel;
use lowroad_softirq::level::publisher::{self, PublishedResponse};
use lowroad_softirq::machine::interfaces;
use lowroad_softirq::pattern::{self, RequestPattern};
use lowroad_softirq::programs::links;
use lowroad_softirq::programs::loader::ProgramTier;
use lowroad_softirq::response::fetched_response::RevalidationFields;
use lowroad_softirq::trial::{ProgramTrial, TrialOutcome};

use super::attach::{origin, rules};
use super::level_view::{self, LevelView};
use super::levels::{self, group_digits};
use super::{advice, namespace};
use crate::admin;
use crate::cli::ExplainArgs;
use crate::terminal_output;

/// Maximum number of variants in the output.
const VARIANTS_MAX: usize = 8;

/// Prints the explanations of this namespace's levels and of the server above them.
///
/// # Errors
/// When neither a level nor a server serves the URL: a message for the user.
pub fn explain(args: &ExplainArgs) -> Result<(), String> {
    let is_selected: admin::ServerFilter<'_> = match &args.netns {
        Some(namespace) => {
            namespace::enter_namespace(namespace)?;
            &namespace::is_in_namespace
        }
        None => admin::EVERY_SERVER,
    };
    if is_https(&args.url) {
        // Levels see only encrypted bytes.
        return admin::print_explanation(args, is_selected);
    }
    let request = ExplainRequest::from_args(args)?;
    // Users without permission to open maps still get the server's explanation.
    let (mut levels, _) = levels::all().unwrap_or_default();
    levels.retain(|level| level.ports().contains(&request.port));
    if levels.is_empty() {
        return admin::print_explanation(args, is_selected);
    }
    terminal_output::out(format_args!("{} {}\n", args.method, request.url))?;
    for level in levels {
        terminal_output::out(explain_level(&Arc::new(level), &request)?)?;
    }
    // A server other than Lowroad has no admin socket, which is not an error.
    if let Ok(text) = admin::explanation(args, is_selected) {
        // The URL, the first line of the server's text, is already printed.
        terminal_output::out(text.split_once('\n').map_or("", |(_, rest)| rest))?;
    }
    Ok(())
}

/// The request to explain.
struct ExplainRequest {
    url: String,
    /// The URL's host, if it is an address (one of this machine).
    address: Option<IpAddr>,
    port: u16,
    head: String,
}

impl ExplainRequest {
    fn from_args(args: &ExplainArgs) -> Result<ExplainRequest, String> {
        if let Some(invalid) = args.headers.iter().find(|field| !field.contains(':')) {
            return Err(format!("-H {invalid}: not a field (allowed: NAME: VALUE)"));
        }
        let url = match args.url.split_once("://") {
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("http") => args.url.clone(),
            Some(_) => return Err(format!("{}: not a URL of HTTP", args.url)),
            None => format!("http://{}", args.url),
        };
        let (authority, target) = lowroad_site::explain::split(&url);
        let explained = ExplainedRequest {
            method: &args.method,
            url: &url,
            fields: &args.headers,
        };
        let head = explained.head(authority, &target);
        let port = lowroad_http::host::port(authority.as_bytes()).unwrap_or(80);
        let address = address_in(authority);
        Ok(ExplainRequest {
            address: address
                .filter(|ip| interfaces::with_scope(SocketAddr::new(*ip, port)).is_ok()),
            port,
            url,
            head,
        })
    }
}

/// A published response with its key.
type PublishedEntry<'p> = (&'p PublishedResponse, RequestKey);

/// The address in an authority; `None` if the authority has a name.
fn address_in(authority: &str) -> Option<IpAddr> {
    let with_port = authority.parse().map(|socket: SocketAddr| socket.ip());
    let without_port = || authority.trim_matches(['[', ']']).parse();
    with_port.or_else(|_| without_port()).ok()
}

fn explain_level(level: &Arc<SoftirqLevel>, request: &ExplainRequest) -> Result<String, String> {
    let mut out = String::new();
    let view = LevelView::new(level)?;
    let interfaces: Vec<&str> = view.interfaces.iter().map(|(name, _)| &**name).collect();
    let location = format!("port {} on {}", request.port, interfaces.join(", "));
    line(&mut out, "softirq level", &location);
    if let Some(reason) = inactive_reason(&view) {
        line(&mut out, "answers", &format!("nothing: {reason}"));
        return Ok(out);
    }
    let server = match request.address {
        Some(address) => Ok(SocketAddr::new(address, request.port)),
        None => origin::server_address(request.port),
    };
    // A level's decision to punt does not depend on the address.
    let unspecified = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), request.port);
    let local = *server.as_ref().unwrap_or(&unspecified);
    let tiers = tiers(level);
    for tier in &tiers {
        if tiers.len() > 1 {
            line(&mut out, "programs", level_view::tier_name(*tier));
        }
        let trial = ProgramTrial::new(level, *tier).map_err(|error| error.to_string())?;
        // The kernel runs the level's programs with the request, so their rules are not repeated here.
        let outcome = run_trial(&trial, request, local)?;
        let key = match (&outcome.response, outcome.reason()) {
            (Some(response), _) => RequestKey::read(&response.key),
            (None, Some("up_miss" | "up_expired")) => outcome.key.clone(),
            // With any other reason, a stored response would not be used, so none is looked up.
            _ => None,
        };
        let Some(key) = key else {
            line(
                &mut out,
                "answers",
                &format!("no: {}", punt_reason(&outcome)),
            );
            continue;
        };
        let published = publisher::published(level);
        // Without an address in the URL, published responses of all addresses are shown.
        let matches_address =
            |address| request.address.is_none_or(|requested| requested == address);
        let is_same = |other: &RequestKey| {
            other.is_same_request(&key) && matches_address(other.parts().address)
        };
        let (found, others): (Vec<PublishedEntry<'_>>, Vec<PublishedEntry<'_>>) = published
            .iter()
            .filter_map(|response| Some((response, RequestKey::read(&response.key)?)))
            .partition(|(_, other)| is_same(other));
        for (response, key) in &found {
            let outcome = run_trial(&trial, request, key.parts().local())?;
            describe(response, &outcome, key.parts().address, &mut out);
        }
        match &server {
            _ if !found.is_empty() => {}
            Ok(_) => explain_unpublished(level, &view, &key, &mut out),
            Err(problem) => {
                let text = format!("no, and can't be fetched: {problem}");
                line(&mut out, "answers", &text);
            }
        }
        variants(&others, &request.url, &mut out);
    }
    Ok(out)
}

/// The tiers at which the level's programs are attached.
fn tiers(level: &SoftirqLevel) -> Vec<ProgramTier> {
    let attached = links::attached(level.folder());
    let has = |tier: &ProgramTier| attached.iter().any(|(_, other)| other == tier);
    [ProgramTier::Xdp, ProgramTier::Tc]
        .into_iter()
        .filter(has)
        .collect()
}

/// Runs the level's programs with the request, sent to this local address.
fn run_trial(
    trial: &ProgramTrial,
    request: &ExplainRequest,
    local: SocketAddr,
) -> Result<TrialOutcome, String> {
    let outcome = trial.run_request(request.head.as_bytes(), local);
    outcome.map_err(|error| format!("the programs could not be tried: {error}"))
}

/// The reason why the level answers no requests at all; `None` if it is active.
fn inactive_reason(view: &LevelView) -> Option<String> {
    if let Some(trouble) = view.trouble {
        return Some(format!("all connections are left to the kernel: {trouble}"));
    }
    match (view.mode, view.heartbeat_age_ms) {
        ("serving", Some(_)) if view.is_daemon_alive() && view.bypass.is_some() => Some(
            "it is bypassed, because it answered hardly any requests; see `lowroad status`".into(),
        ),
        ("serving", Some(_)) if view.is_daemon_alive() => None,
        ("serving", Some(_)) => {
            Some("its daemon has sent no heartbeat for 30 s; attach again".into())
        }
        ("serving", None) => Some("its daemon is still starting".into()),
        (mode, _) => Some(format!("it is {mode}")),
    }
}

/// The reason why the programs punt the request, and a remedy.
fn punt_reason(outcome: &TrialOutcome) -> String {
    let reason = outcome.reason().unwrap_or("no exit");
    let text = REASONS.iter().find(|(name, _)| *name == reason);
    let text = text.map_or(reason, |(_, text)| text);
    let advice = match reason {
        "up_cookie" => "; `attach --ignore-cookies` if pages do not depend on it",
        "up_field" if is_cache_control(outcome) => "; `attach --ignore-cache-control` ignores it",
        _ => "",
    };
    match &outcome.field {
        Some(field) => format!("{text} ({field}): passed to the server{advice}"),
        None => format!("{text}: passed to the server{advice}"),
    }
}

fn is_cache_control(outcome: &TrialOutcome) -> bool {
    let field = outcome.field.as_deref().unwrap_or_default();
    let field = field.to_ascii_lowercase();
    field.starts_with("cache-control:") || field.starts_with("pragma:")
}

/// Describes a published response, and whether the programs would send it.
fn describe(
    response: &PublishedResponse,
    outcome: &TrialOutcome,
    address: IpAddr,
    out: &mut String,
) {
    let answers = match outcome.reason() {
        None => "yes, from the segment of the request".to_owned(),
        Some("up_expired") => "no: published, but expired; it will be fetched again".to_owned(),
        Some(_) => format!("no: {}", punt_reason(outcome)),
    };
    line(out, "answers", &answers);
    line(out, "status", &status_text(response.status));
    let text = format!("{} bytes with its head", response.len);
    line(out, "published", &text);
    line(out, "at", &address.to_string());
    let remaining_ns = response
        .expires_ns
        .saturating_sub(lowroad_softirq::now_ns());
    let remaining_s = group_digits(remaining_ns.div_ceil(1_000_000_000));
    line(out, "expires in", &format!("{remaining_s} s"));
    line(out, "hits", &group_digits(response.hits));
}

/// Requests a response that is not published, as the daemon would. Describes whether the daemon would store the
/// response.
fn explain_unpublished(
    level: &Arc<SoftirqLevel>,
    view: &LevelView,
    key: &RequestKey,
    out: &mut String,
) {
    // The options of the running daemon apply, not those of this command.
    let daemon = view.pid.and_then(rules::daemon_arguments);
    let is_managed = daemon.as_ref().is_some_and(|args| args.own);
    let learning = daemon.and_then(|args| rules::learn_settings(&args).ok());
    let settings = rules::limit_to_programs(learning.unwrap_or_default(), level.folder());
    let server = key.parts().local();
    if let Some(excluded) = FetchDenial::for_path(&key.parts(), &settings) {
        line(out, "answers", &format!("no: {excluded}"));
        return;
    }
    let (status, verdict) = fetch(level, key, &settings, is_managed);
    if let Some(status) = status {
        line(out, "status", &status_text(status));
    }
    match verdict {
        Ok(accepted) => {
            line(
                out,
                "answers",
                "not now: it is published when it is requested again",
            );
            let prepared = &accepted.prepared;
            let len = prepared.bytes.len();
            line(
                out,
                "would be published",
                &format!("{len} bytes with its head"),
            );
            let fresh_s = group_digits(accepted.remaining_ms.div_ceil(1000));
            let lifetime = format!("{fresh_s} s, by {}", rule(accepted.source));
            line(out, "for", &lifetime);
        }
        Err(denial) => line(out, "answers", &format!("no: {denial}")),
    }
    if let Some(pause_s) = view.pause_s {
        line(out, "fetches", &advice::for_pause(pause_s));
    }
    line(out, "asked", &format!("the server at {server}"));
}

/// The text for the source of a response's lifetime.
fn rule(source: LifetimeSource) -> &'static str {
    match source {
        LifetimeSource::Targeted => "CDN-Cache-Control",
        LifetimeSource::SMaxage => "s-maxage",
        LifetimeSource::MaxAge => "max-age",
        LifetimeSource::Expires => "Expires",
        LifetimeSource::Ttl => "--ttl",
        LifetimeSource::Heuristic => {
            "a tenth of the time since Last-Modified, 5 s at most (set another with --ttl)"
        }
        LifetimeSource::Absent => "nothing",
    }
}

/// Fetches the response and applies the daemon's storing rules. Also returns the status, if there is a response.
fn fetch(
    level: &Arc<SoftirqLevel>,
    key: &RequestKey,
    settings: &LearnSettings,
    is_managed: bool,
) -> (Option<u16>, Result<PublishableResponse, FetchDenial>) {
    let connector = origin::connector(level.clone());
    let ports = Arc::new(Mutex::new(Vec::new()));
    let used_ports = ports.clone();
    let connect: ServerConnector = Arc::new(move |local, source| {
        let stream = connector(local, source)?;
        // The port is recorded, because the level exempts it until the exemption is reset below.
        if let Ok(mut used_ports) = used_ports.lock() {
            used_ports.push(stream.local_addr()?.port());
        }
        Ok(stream)
    });
    // If the server is Lowroad, the daemon fetches only from this machine's address.
    let mut fetcher = AddressFetcher::new(&connect, !is_managed);
    let started_at = Instant::now();
    let fetched = fetcher.fetch(&key.parts(), &RevalidationFields::default());
    let delay_ms = u64::try_from(started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
    // Dropping the fetcher closes the connections while their ports are still exempted.
    drop(fetcher);
    // Other processes may get these ports now, so the exemption ends.
    for port in ports.lock().iter().flat_map(|ports| ports.iter()) {
        level.exempt_port(*port, false);
    }
    let terms = VerdictTerms {
        key: key.parts(),
        settings,
        delay_ms,
    };
    let status = fetched.as_ref().ok().map(|fetched| fetched.status);
    (status, learner::judge(fetched, None, &terms))
}

/// A status code with its reason phrase.
fn status_text(status: u16) -> String {
    let reason = StatusCode::new(status).map_or("", StatusCode::reason);
    format!("{status} {reason}").trim_end().to_owned()
}

/// Lists responses that are published under the same URL for other request fields, since browsers send more fields than
/// this request has.
fn variants(published: &[PublishedEntry<'_>], url: &str, out: &mut String) {
    let (authority, target) = lowroad_site::explain::split(url);
    let pattern = RequestPattern::from_url(authority.as_bytes(), target.as_bytes(), false);
    let Ok(pattern) = pattern else {
        return;
    };
    let mut others: Vec<&PublishedResponse> = published
        .iter()
        .filter(|(_, key)| pattern::matches_pattern(&pattern, key))
        .map(|(response, _)| *response)
        .collect();
    // The most frequently requested variants come first.
    others.sort_by_key(|response| std::cmp::Reverse(response.hits));
    for response in others.iter().take(VARIANTS_MAX) {
        let (_, fields) = levels::describe_key(&response.key);
        let fields = fields.join(", ");
        let hits = group_digits(response.hits);
        line(out, "published also for", &format!("{fields}: {hits} hits"));
    }
    if let Some(omitted @ 1..) = others.len().checked_sub(VARIANTS_MAX) {
        line(
            out,
            "published also for",
            &format!("{omitted} other requests"),
        );
    }
}

fn line(out: &mut String, name: &str, value: &str) {
    let _ = writeln!(out, "  {name:<22} {value}"); // into memory: does not fail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::softirq::level_view::tests::example_view;
    use std::net::Ipv6Addr;

    #[test]
    fn addresses_are_parsed_from_authorities() {
        let v4 = Some([192, 0, 2, 1].into());
        assert_eq!(address_in("192.0.2.1"), v4);
        assert_eq!(address_in("192.0.2.1:80"), v4);
        assert_eq!(address_in("[::1]:80"), Some(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(address_in("[::1]"), Some(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(address_in("a.example:80"), None);
    }

    #[test]
    fn punt_reason_has_text_field_and_remedy() {
        let up = |reason, field: &str| {
            punt_reason(&TrialOutcome {
                exits: vec![reason],
                field: Some(field.into()),
                ..TrialOutcome::default()
            })
        };
        let cookie = up("up_cookie", "Cookie: a=b");
        assert!(
            cookie.starts_with("a Cookie (Cookie: a=b): passed to the server; `attach --ignore-c")
        );
        assert!(up("up_field", "Pragma: no-cache").contains("--ignore-cache-control"));
        assert!(up("up_field", "Range: bytes=0-").ends_with("passed to the server"));
    }

    #[test]
    fn inactive_level_has_a_reason() {
        let mut view = example_view();
        assert_eq!(inactive_reason(&view), None);
        view.heartbeat_age_ms = Some(60_000);
        assert!(inactive_reason(&view).is_some_and(|why| why.contains("daemon")));
        view.heartbeat_age_ms = None;
        assert!(inactive_reason(&view).is_some_and(|why| why.contains("starting")));
        view.mode = "draining";
        assert_eq!(inactive_reason(&view).as_deref(), Some("it is draining"));
    }
}
