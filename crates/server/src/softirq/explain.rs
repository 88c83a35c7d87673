//! `lowroad explain`, first part: whether a level in front of the URL's port would answer, and the reason if not. The
//! second part, the server's decision, comes from the server's admin socket.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lowroad_cache::freshness::LifetimeSource;
use lowroad_http::status::StatusCode;
use lowroad_site::explain::is_https;
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
use super::levels::{self, grouped};
use super::{advice, namespace};
use crate::admin;
use crate::cli::ExplainArgs;
use crate::terminal_output;

/// Maximum number of variants in the output.
const VARIANTS_MAX: usize = 8;

/// Prints explanations for the levels of this namespace and the server above.
///
/// # Errors
/// When neither a level nor a server serves the URL: a message for the user.
pub fn explain(args: &ExplainArgs) -> Result<(), String> {
    let is_asked: admin::ServerFilter<'_> = match &args.netns {
        Some(namespace) => {
            namespace::enter_namespace(namespace)?;
            &namespace::is_here
        }
        None => admin::EVERY_SERVER,
    };
    if is_https(&args.url) {
        // Levels see only encrypted bytes.
        return admin::ask_to_explain(args, is_asked);
    }
    let question = ExplainRequest::from_args(args)?;
    // Users without the right to open maps still get the server's explanation.
    let (mut levels, _) = levels::all().unwrap_or_default();
    levels.retain(|level| level.ports().contains(&question.port));
    if levels.is_empty() {
        return admin::ask_to_explain(args, is_asked);
    }
    terminal_output::out(format_args!("GET {}\n", question.url))?;
    for level in levels {
        terminal_output::out(account(&Arc::new(level), &question)?)?;
    }
    // Another server has no admin socket, which is no error.
    if let Ok(text) = admin::explanation(args, is_asked) {
        // The server's text begins with the URL, which is printed already.
        terminal_output::out(text.split_once('\n').map_or("", |(_, rest)| rest))?;
    }
    Ok(())
}

/// The request to explain.
struct ExplainRequest {
    url: String,
    /// The URL's host, if it is an address of this machine.
    address: Option<IpAddr>,
    port: u16,
    head: String,
}

impl ExplainRequest {
    fn from_args(args: &ExplainArgs) -> Result<ExplainRequest, String> {
        if let Some(bad) = args.headers.iter().find(|field| !field.contains(':')) {
            return Err(format!("-H {bad}: not a field (allowed: NAME: VALUE)"));
        }
        let url = match args.url.split_once("://") {
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("http") => args.url.clone(),
            Some(_) => return Err(format!("{}: not a URL of HTTP", args.url)),
            None => format!("http://{}", args.url),
        };
        let (authority, target) = lowroad_site::explain::split(&url);
        let mut head = format!("GET {target} HTTP/1.1\r\nHost: {authority}\r\n");
        for field in &args.headers {
            let _ = write!(head, "{}\r\n", field.trim());
        }
        head.push_str("\r\n");
        let port = lowroad_http::host::port(authority.as_bytes()).unwrap_or(80);
        let address = address_in(authority);
        Ok(ExplainRequest {
            address: address.filter(|ip| interfaces::own(SocketAddr::new(*ip, port)).is_ok()),
            port,
            url,
            head,
        })
    }
}

/// A published response with its key.
type PublishedEntry<'p> = (&'p PublishedResponse, RequestKey);

/// The address in an authority, if it has an address instead of a name.
fn address_in(authority: &str) -> Option<IpAddr> {
    let with_port = authority.parse().map(|socket: SocketAddr| socket.ip());
    let alone = || authority.trim_matches(['[', ']']).parse();
    with_port.or_else(|_| alone()).ok()
}

fn account(level: &Arc<SoftirqLevel>, question: &ExplainRequest) -> Result<String, String> {
    let mut out = String::new();
    let view = LevelView::new(level)?;
    let interfaces: Vec<&str> = view.interfaces.iter().map(|(name, _)| &**name).collect();
    let place = format!("port {} on {}", question.port, interfaces.join(", "));
    line(&mut out, "softirq level", &place);
    if let Some(why) = asleep(&view) {
        line(&mut out, "answers", &format!("nothing: {why}"));
        return Ok(out);
    }
    let server = match question.address {
        Some(address) => Ok(SocketAddr::new(address, question.port)),
        None => origin::server_of(question.port),
    };
    // Programs punt independently of the address.
    let nowhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), question.port);
    let local = *server.as_ref().unwrap_or(&nowhere);
    let tiers = tiers(level);
    for tier in &tiers {
        if tiers.len() > 1 {
            line(&mut out, "programs", level_view::tier_name(*tier));
        }
        let trial = ProgramTrial::new(level, *tier).map_err(|error| error.to_string())?;
        // The programs themselves decide, in a test run of the kernel: their rules are not repeated here.
        let tried = ask(&trial, question, local)?;
        let key = match (&tried.response, tried.reason()) {
            (Some(one), _) => RequestKey::read(&one.key),
            // Only after these two reasons a stored response would be the answer.
            (None, Some("up_miss" | "up_expired")) => tried.key.clone(),
            _ => None,
        };
        let Some(key) = key else {
            line(&mut out, "answers", &format!("no: {}", goes_up(&tried)));
            continue;
        };
        let published = publisher::published(level);
        // Without an address in the URL, the responses of all addresses are shown.
        let is_meant = |address| question.address.is_none_or(|wanted| wanted == address);
        let is_it =
            |other: &RequestKey| other.is_same_request(&key) && is_meant(other.parts().address);
        let (found, others): (Vec<PublishedEntry<'_>>, Vec<PublishedEntry<'_>>) = published
            .iter()
            .filter_map(|one| Some((one, RequestKey::read(&one.key)?)))
            .partition(|(_, other)| is_it(other));
        for (one, key) in &found {
            let tried = ask(&trial, question, key.parts().local())?;
            describe(one, &tried, key.parts().address, &mut out);
        }
        match &server {
            _ if !found.is_empty() => {}
            Ok(_) => not_published(level, &view, &key, &mut out),
            Err(why) => {
                let what = format!("no, and can't be fetched: {why}");
                line(&mut out, "answers", &what);
            }
        }
        variants(&others, &question.url, &mut out);
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

/// Runs the programs with the request at an address.
fn ask(
    trial: &ProgramTrial,
    question: &ExplainRequest,
    local: SocketAddr,
) -> Result<TrialOutcome, String> {
    let tried = trial.ask(question.head.as_bytes(), local);
    tried.map_err(|error| format!("the programs could not be tried: {error}"))
}

/// The reason that the level answers no request at all, if it does not.
fn asleep(view: &LevelView) -> Option<String> {
    if let Some(trouble) = view.trouble {
        return Some(format!("all connections are left to the kernel: {trouble}"));
    }
    match (view.mode, view.heartbeat_age_ms) {
        ("serving", Some(_)) if view.is_kept() && view.rest.is_some() => Some(
            "it is bypassed, because it answered hardly any requests; see `lowroad status`".into(),
        ),
        ("serving", Some(_)) if view.is_kept() => None,
        ("serving", Some(_)) => {
            Some("its daemon has sent no heartbeat for 30 s; attach again".into())
        }
        ("serving", None) => Some("its daemon is still starting".into()),
        (mode, _) => Some(format!("it is {mode}")),
    }
}

/// The reason of a punt, and a remedy.
fn goes_up(tried: &TrialOutcome) -> String {
    let reason = tried.reason().unwrap_or("no exit");
    let text = REASONS.iter().find(|(name, _)| *name == reason);
    let text = text.map_or(reason, |(_, text)| text);
    let advice = match reason {
        "up_cookie" => "; `attach --ignore-cookies` if pages do not depend on it",
        "up_field" if is_cache_control(tried) => "; `attach --ignore-cache-control` ignores it",
        _ => "",
    };
    match &tried.field {
        Some(field) => format!("{text} ({field}): passed to the server{advice}"),
        None => format!("{text}: passed to the server{advice}"),
    }
}

fn is_cache_control(tried: &TrialOutcome) -> bool {
    let field = tried.field.as_deref().unwrap_or_default();
    let field = field.to_ascii_lowercase();
    field.starts_with("cache-control:") || field.starts_with("pragma:")
}

/// Describes a published response and the programs' decision.
fn describe(found: &PublishedResponse, tried: &TrialOutcome, address: IpAddr, out: &mut String) {
    let answers = match tried.reason() {
        None => "yes, from the segment of the request".to_owned(),
        Some("up_expired") => "no: published, but expired; it will be fetched again".to_owned(),
        Some(_) => format!("no: {}", goes_up(tried)),
    };
    line(out, "answers", &answers);
    line(out, "status", &named(found.status));
    let what = format!("{} bytes with its head", found.len);
    line(out, "published", &what);
    line(out, "at", &address.to_string());
    let left_ns = found.expires_ns.saturating_sub(lowroad_softirq::now_ns());
    let left_s = grouped(left_ns.div_ceil(1_000_000_000));
    line(out, "expires in", &format!("{left_s} s"));
    line(out, "hits", &grouped(found.hits));
}

/// Requests a response that is not published from the server, as the daemon would, and judges it by the daemon's rules.
fn not_published(level: &Arc<SoftirqLevel>, view: &LevelView, key: &RequestKey, out: &mut String) {
    // The daemon's own options decide, not those of this command.
    let daemon = view.pid.and_then(rules::arguments_of);
    let is_own = daemon.as_ref().is_some_and(|args| args.own);
    let learning = daemon.and_then(|args| rules::learning(&args).ok());
    let settings = rules::behind(learning.unwrap_or_default(), level.folder());
    let server = key.parts().local();
    if let Some(excluded) = FetchDenial::for_path(&key.parts(), &settings) {
        line(out, "answers", &format!("no: {excluded}"));
        return;
    }
    let (status, judged) = fetch(level, key, &settings, is_own);
    if let Some(status) = status {
        line(out, "status", &named(status));
    }
    match judged {
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
            let fresh_s = grouped(accepted.left_ms.div_ceil(1000));
            let why = format!("{fresh_s} s, by {}", rule(accepted.source));
            line(out, "for", &why);
        }
        Err(why) => line(out, "answers", &format!("no: {why}")),
    }
    if let Some(left_s) = view.pause_s {
        line(out, "fetches", &advice::for_pause(left_s));
    }
    line(out, "asked", &format!("the server at {server}"));
}

/// Names the source of a response's lifetime.
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
        LifetimeSource::Nothing => "nothing",
    }
}

/// Fetches the response from the server and judges it. Also returns the response's status, if there is a response.
fn fetch(
    level: &Arc<SoftirqLevel>,
    key: &RequestKey,
    settings: &LearnSettings,
    is_own: bool,
) -> (Option<u16>, Result<PublishableResponse, FetchDenial>) {
    let connector = origin::connector(level.clone());
    let ports = Arc::new(Mutex::new(Vec::new()));
    let used = ports.clone();
    let connect: ServerConnector = Arc::new(move |local, asks| {
        let stream = connector(local, asks)?;
        // Recorded, so that the exemption of the port can be ended.
        if let Ok(mut used) = used.lock() {
            used.push(stream.local_addr()?.port());
        }
        Ok(stream)
    });
    // In front of Lowroad itself the daemon fetches from this machine's address only.
    let mut asker = AddressFetcher::new(&connect, !is_own);
    let begin = Instant::now();
    let fetched = asker.fetch(&key.parts(), &RevalidationFields::default());
    let delay_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
    // Closes its connections before their ports lose the exemption.
    drop(asker);
    // The connections are closed, so other processes may get their ports.
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
fn named(status: u16) -> String {
    let reason = StatusCode::new(status).map_or("", StatusCode::reason);
    format!("{status} {reason}").trim_end().to_owned()
}

/// Lists responses published under the same URL for other requests: a browser sends more fields than this one.
fn variants(published: &[PublishedEntry<'_>], url: &str, out: &mut String) {
    // A fragment is never part of a request.
    let Ok(pattern) = RequestPattern::parse(url.split('#').next().unwrap_or(url)) else {
        return;
    };
    let mut others: Vec<&PublishedResponse> = published
        .iter()
        .filter(|(_, key)| pattern::is_meant(&pattern, key))
        .map(|(one, _)| *one)
        .collect();
    // The most requested variants first.
    others.sort_by_key(|one| std::cmp::Reverse(one.hits));
    for one in others.iter().take(VARIANTS_MAX) {
        let (_, fields) = levels::name_of(&one.key);
        let fields = fields.join(", ");
        let hits = grouped(one.hits);
        line(out, "published also for", &format!("{fields}: {hits} hits"));
    }
    if let Some(more @ 1..) = others.len().checked_sub(VARIANTS_MAX) {
        line(out, "published also for", &format!("{more} other requests"));
    }
}

fn line(out: &mut String, name: &str, value: &str) {
    let _ = writeln!(out, "  {name:<22} {value}"); // into memory: does not fail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::softirq::level_view::tests::made_up;
    use std::net::Ipv6Addr;

    #[test]
    fn addresses_are_found_in_authorities() {
        let v4 = Some([192, 0, 2, 1].into());
        assert_eq!(address_in("192.0.2.1"), v4);
        assert_eq!(address_in("192.0.2.1:80"), v4);
        assert_eq!(address_in("[::1]:80"), Some(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(address_in("[::1]"), Some(Ipv6Addr::LOCALHOST.into()));
        assert_eq!(address_in("a.example:80"), None);
    }

    #[test]
    fn a_reason_has_its_text_the_field_and_what_to_do() {
        let up = |reason, field: &str| {
            goes_up(&TrialOutcome {
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
    fn a_level_that_sleeps_says_so() {
        let mut view = made_up();
        assert_eq!(asleep(&view), None);
        view.heartbeat_age_ms = Some(60_000);
        assert!(asleep(&view).is_some_and(|why| why.contains("daemon")));
        view.heartbeat_age_ms = None;
        assert!(asleep(&view).is_some_and(|why| why.contains("starting")));
        view.mode = "draining";
        assert_eq!(asleep(&view).as_deref(), Some("it is draining"));
    }
}
