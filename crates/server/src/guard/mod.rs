//! What stands before a site: who its clients are (`client`), and its rules in their order: who is refused, and how often one may
//! ask (`limit`). Which paths a rule is for is told by `paths`.
//!
//! It decides about a request by its decoded path, its method and its client. Knows neither files nor programs.

mod client;
mod limit;
mod paths;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lowroad_config as config;
use lowroad_config::{Action, RouteTo, TrustedProxies};
use lowroad_http::method::Method;
use lowroad_http::request::Request;

pub use client::Unreadable;
pub use limit::Limit;

/// What stands before a site.
pub struct Guard {
    rules: Vec<Rule>,
    proxies: TrustedProxies,
    /// Names of files that a folder's path may stand for.
    indexes: Vec<String>,
}

/// A rule.
pub struct Rule {
    config: config::Rule,
    /// If it is a limit.
    limit: Option<Limit>,
    /// Requests that it refused.
    refused: AtomicU64,
}

/// What rules look at of a request.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// Decoded.
    pub path: &'a [u8],
    /// Its method.
    pub method: Method,
    /// The client.
    pub peer: IpAddr,
}

impl Guard {
    /// What stands before this site, if anything does; that of the same site before, if nothing of it has changed.
    pub fn of<'b>(
        site: &config::Site,
        before: impl IntoIterator<Item = (&'b config::Site, &'b Arc<Guard>)>,
    ) -> Option<Arc<Guard>> {
        if site.access.is_empty() && site.trusted_proxies.addresses.is_empty() {
            return None;
        }
        let guard = Guard::new(site);
        let same = |(old, known): &(&config::Site, &Arc<Guard>)| {
            (&old.names, &old.listen) == (&site.names, &site.listen) && known.is_same(&guard)
        };
        let found = before.into_iter().find(same);
        Some(found.map_or_else(|| Arc::new(guard), |(_, known)| known.clone()))
    }

    fn new(site: &config::Site) -> Guard {
        let of_programs = site.routes.iter().filter_map(|route| match &route.to {
            RouteTo::FastCgi(fastcgi) => Some(fastcgi.index.clone()),
            _ => None,
        });
        let rule = |config: &config::Rule| Rule {
            config: config.clone(),
            limit: match &config.action {
                Action::Limit(rate) => Some(Limit::new(rate)),
                _ => None,
            },
            refused: AtomicU64::new(0),
        };
        Guard {
            rules: site.access.iter().map(rule).collect(),
            proxies: site.trusted_proxies.clone(),
            indexes: site.index.iter().cloned().chain(of_programs).collect(),
        }
    }

    fn is_same(&self, other: &Guard) -> bool {
        let own = self.rules.iter().map(|rule| &rule.config);
        own.eq(other.rules.iter().map(|rule| &rule.config))
            && self.proxies == other.proxies
            && self.indexes == other.indexes
    }

    /// The client of a request that came from `peer`: whom a trusted proxy names.
    ///
    /// # Errors
    /// A trusted proxy's field can be read in two ways.
    pub fn client(&self, peer: IpAddr, request: &Request<'_>) -> Result<IpAddr, Unreadable> {
        client::of(&self.proxies, peer, request)
    }

    /// Whether any rule may be for this path, whoever asks. Then nobody else can answer for us who does not know the rules.
    pub fn concerns(&self, path: &[u8]) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.is_for_path(path, &self.indexes))
    }

    /// The first rule for a request from that number on, and its number.
    pub fn next(&self, from: usize, facts: Facts<'_>) -> Option<(usize, &Rule)> {
        let mut rules = self.rules.iter().enumerate().skip(from);
        rules.find(|(_, rule)| rule.is_for(facts, &self.indexes))
    }

    /// What its rules did, for people.
    pub fn status(&self) -> impl Iterator<Item = String> {
        self.rules.iter().filter_map(Rule::status)
    }
}

impl Rule {
    /// What it does.
    pub fn action(&self) -> &Action {
        &self.config.action
    }

    /// How often one may ask, if it says that.
    pub fn limit(&self) -> Option<&Limit> {
        self.limit.as_ref()
    }

    /// Counts a request that it refused.
    pub fn count_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    fn is_for(&self, facts: Facts<'_>, indexes: &[String]) -> bool {
        let config = &self.config;
        let has = |prefixes: &[config::Prefix]| prefixes.iter().any(|it| it.has(facts.peer));
        (config.methods.is_empty() || is_one_of(facts.method, &config.methods))
            && (config.addresses.is_empty() || has(&config.addresses))
            && !has(&config.except)
            && self.is_for_path(facts.path, indexes)
    }

    fn is_for_path(&self, path: &[u8], indexes: &[String]) -> bool {
        match self.config.action.refuses() {
            true => paths::has_or_leads_to(&self.config.pattern, path, indexes),
            false => self.config.pattern.matches(path),
        }
    }

    /// The rule, for people.
    pub fn text(&self) -> String {
        let config = &self.config;
        let what = match &config.action {
            Action::Deny(status) => format!("deny {status}"),
            Action::Allow => "allow".into(),
            Action::Limit(rate) => {
                let (requests, period) = (rate.requests, period(rate.period_ms));
                format!("rate {requests}/{period}, burst {}", rate.burst)
            }
        };
        let mut text = format!("{}: {what}", config.pattern);
        let methods = config.methods.join(", ");
        let prefixes = |prefixes: &[config::Prefix]| {
            let texts: Vec<String> = prefixes.iter().map(ToString::to_string).collect();
            texts.join(", ")
        };
        for (word, list) in [
            ("for", methods),
            ("from", prefixes(&config.addresses)),
            ("except from", prefixes(&config.except)),
        ] {
            if !list.is_empty() {
                text.push_str(&format!(", {word} {list}"));
            }
        }
        text
    }

    fn status(&self) -> Option<String> {
        let refused = self.refused.load(Relaxed);
        let mut text = match self.action().refuses() {
            true => format!("{}; {refused} refused", self.text()),
            false => return None,
        };
        if let Some(limit) = &self.limit {
            text.push_str(&format!(", {} forgotten", limit.forgotten()));
        }
        Some(text)
    }
}

/// HEAD is a GET that keeps the body back.
fn is_one_of(method: Method, methods: &[String]) -> bool {
    let named = |name: &str| methods.iter().any(|known| known == name);
    named(method.as_str()) || method == Method::Head && named("GET")
}

fn period(period_ms: u64) -> &'static str {
    match period_ms {
        1000 => "s",
        60_000 => "m",
        _ => "h",
    }
}
