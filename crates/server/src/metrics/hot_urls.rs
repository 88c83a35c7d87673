//! The URLs with the most requests, over all workers and the softirq level.

use std::collections::HashMap;

use lowroad_metrics::MetricScope;
use lowroad_site::url_table::{HALF_LIFE_MS, URL_LEVELS, UrlEstimate, UrlSnapshot};
use lowroad_store::clock;
use serde_json::{Map, Value, json};

use crate::running_server::RunningServer;

/// Maximum number of URLs in a list.
const URLS_MAX: usize = 100;
/// URLs with fewer requests per second are omitted: they have not been requested for minutes.
const RATE_MIN: f64 = 1e-3;

/// The list of the hottest URLs.
#[derive(Default)]
pub struct HotUrls {
    /// Requests per second for all URLs.
    total_rate: f64,
    /// The URLs, the hottest first.
    urls: Vec<HotUrl>,
}

/// Whether a list has the values of query arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueryValues {
    /// `*` in place of each value; URLs that differ only in values are one.
    #[default]
    Masked,
    /// As clients send them.
    Shown,
}

/// A URL with its site.
struct HotUrl {
    site: String,
    estimate: UrlEstimate,
}

impl HotUrls {
    /// Adds up the tables of the workers and of the softirq level.
    pub fn new(running: &RunningServer, values: QueryValues) -> HotUrls {
        let now_ms = clock::now_ms();
        let workers = running.urls.iter().map(|table| {
            // A poisoned table is complete enough: a sample changes numbers only.
            let table = table.lock().unwrap_or_else(|it| it.into_inner());
            table.snapshot(now_ms)
        });
        let mut tables: Vec<UrlSnapshot> = workers.collect();
        if let Some(health) = &running.softirq {
            let mut below = health.urls(now_ms);
            for url in &mut below.urls {
                url.scope = scope_at_softirq(running, url);
            }
            tables.push(below);
        }
        if values == QueryValues::Masked {
            let urls = tables.iter_mut().flat_map(|table| &mut table.urls);
            urls.for_each(|url| url.target = masked(&url.target));
        }
        let labels = running.sites.scopes.labels();
        let site = |scope: MetricScope| match labels.get(scope.index()) {
            Some(labels) => labels.site.clone(),
            None => String::new(),
        };
        HotUrls::from_tables(tables, site)
    }

    /// Adds up tables. The same URL in several scopes of a site, such as a route and the site's rules, is one.
    fn from_tables(tables: Vec<UrlSnapshot>, site_name: impl Fn(MetricScope) -> String) -> HotUrls {
        let total_rate = tables.iter().map(|table| table.total_rate).sum();
        let mut sums: HashMap<(String, bool, bool, String, String), UrlEstimate> = HashMap::new();
        for url in tables.into_iter().flat_map(|table| table.urls) {
            let key = (
                site_name(url.scope),
                url.is_https,
                url.is_cut,
                url.host.clone(),
                url.target.clone(),
            );
            match sums.entry(key) {
                std::collections::hash_map::Entry::Vacant(entry) => drop(entry.insert(url)),
                std::collections::hash_map::Entry::Occupied(mut entry) => {
                    let sum = entry.get_mut();
                    sum.error += url.error;
                    sum.rates
                        .iter_mut()
                        .zip(url.rates)
                        .for_each(|(a, b)| *a += b);
                }
            }
        }
        let mut urls: Vec<HotUrl> = sums
            .into_iter()
            .map(|((site, ..), estimate)| HotUrl { site, estimate })
            .filter(|url| url.rate() >= RATE_MIN)
            .collect();
        // URLs with the same rate are sorted by name, so that they keep their order in the next list.
        urls.sort_by(|a, b| {
            let by_rate = b.rate().total_cmp(&a.rate());
            by_rate.then_with(|| a.text().cmp(&b.text()))
        });
        urls.truncate(URLS_MAX);
        HotUrls { total_rate, urls }
    }

    /// The list as JSON.
    pub fn to_json(&self) -> Value {
        let urls: Vec<Value> = self
            .urls
            .iter()
            .map(|url| url.to_json(self.total_rate))
            .collect();
        json!({
            "half_life_s": HALF_LIFE_MS / 1000,
            "total_rate": rounded(self.total_rate),
            "urls": urls,
        })
    }
}

impl HotUrl {
    fn rate(&self) -> f64 {
        self.estimate.rates.iter().sum()
    }

    /// The URL; the beginning if it was cut.
    fn text(&self) -> String {
        let scheme = if self.estimate.is_https {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}{}", self.estimate.host, self.estimate.target)
    }

    fn to_json(&self, total_rate: f64) -> Value {
        let estimate = &self.estimate;
        let levels = URL_LEVELS.into_iter().zip(estimate.rates);
        let most = levels.clone().max_by(|a, b| a.1.total_cmp(&b.1));
        let levels: Map<String, Value> = levels
            .filter(|(_, rate)| *rate >= RATE_MIN)
            .map(|(level, rate)| (level.to_owned(), rounded(rate)))
            .collect();
        json!({
            "url": self.text(),
            "site": self.site,
            "host": estimate.host,
            "path": estimate.target,
            "is_cut": estimate.is_cut,
            "level": most.map(|(level, _)| level),
            "levels": levels,
            "rate": rounded(self.rate()),
            "error": rounded(estimate.error),
            "share": rounded((self.rate() / total_rate).min(1.0)),
        })
    }
}

/// A target with `*` in place of each value of its query. An argument without `=` is a value.
fn masked(target: &str) -> String {
    let Some((path, query)) = target.split_once('?') else {
        return target.to_owned();
    };
    let arguments = query
        .split('&')
        .map(|argument| match argument.split_once('=') {
            Some((name, _)) => format!("{name}=*"),
            None if argument.is_empty() => String::new(),
            None => "*".into(),
        });
    format!("{path}?{}", arguments.collect::<Vec<_>>().join("&"))
}

/// The scope of the site of a URL that the softirq level answers.
fn scope_at_softirq(running: &RunningServer, url: &UrlEstimate) -> MetricScope {
    let port = match url.host.rsplit_once(':') {
        // The colons of an IPv6 address are in brackets.
        Some((_, port)) if !port.ends_with(']') => port.parse().ok(),
        _ => Some(80),
    };
    let mut addresses = running.listeners.addresses.iter();
    let site = addresses.find_map(|(listener, address)| {
        let is_port = port == Some(address.port());
        let sites = is_port.then_some(&running.sites)?;
        let found = sites.find(*listener, Some(url.host.as_bytes()), &mut [0; 256])?;
        Some(found.site.metric_scope)
    });
    site.unwrap_or(MetricScope::NO_SITE)
}

/// Rounds to four decimals, more than estimates are worth.
fn rounded(value: f64) -> Value {
    json!((value * 1e4).round() / 1e4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(scope: u16, target: &str, rates: [f64; 4]) -> UrlEstimate {
        UrlEstimate {
            scope: MetricScope::from_number(scope),
            is_https: false,
            is_cut: false,
            host: "h".into(),
            target: target.into(),
            error: 0.5,
            rates,
        }
    }

    #[test]
    fn tables_are_added_up_by_site_and_url() {
        let table = |total_rate, urls: &[UrlEstimate]| UrlSnapshot {
            total_rate,
            urls: urls.to_vec(),
        };
        let tables = vec![
            table(
                10.0,
                &[
                    url(2, "/a", [0.0, 4.0, 0.0, 1.0]),
                    url(2, "/old", [0.0, 1e-4, 0.0, 0.0]),
                ],
            ),
            table(
                10.0,
                &[
                    url(3, "/a", [0.0, 1.0, 0.0, 0.0]),
                    url(4, "/a", [0.0, 1.0, 0.0, 0.0]),
                ],
            ),
            table(20.0, &[url(2, "/a", [8.0, 0.0, 0.0, 0.0])]),
        ];
        // Scopes 2 and 3 are routes of the same site.
        let site = |scope: MetricScope| if scope.number() < 4 { "s" } else { "t" }.to_owned();
        let list = HotUrls::from_tables(tables, site).to_json();
        let urls = list["urls"].as_array().expect("a list");
        assert_eq!(urls.len(), 2, "{list}");
        let expected = json!({
            "url": "http://h/a", "site": "s", "host": "h", "path": "/a", "is_cut": false,
            "level": "softirq", "levels": {"softirq": 8.0, "worker": 5.0, "origin": 1.0},
            "rate": 14.0, "error": 1.5, "share": 0.35,
        });
        assert_eq!(urls[0], expected);
        assert_eq!(urls[1]["site"], "t");
    }

    #[test]
    fn values_of_queries_are_masked() {
        for (target, expected) in [
            ("/a", "/a"),
            ("/a?token=secret&b=&c", "/a?token=*&b=*&*"),
            ("/a?x=1=2&&", "/a?x=*&&"),
            ("/a?", "/a?"),
            ("/a?b?c=d", "/a?b?c=*"),
        ] {
            assert_eq!(masked(target), expected);
        }
    }

    #[test]
    fn list_is_bounded() {
        let urls = (0..300).map(|number| url(2, &format!("/{number}"), [0.0, 1.0, 0.0, 0.0]));
        let table = UrlSnapshot {
            total_rate: 300.0,
            urls: urls.collect(),
        };
        let list = HotUrls::from_tables(vec![table], |_| String::new());
        assert_eq!(list.urls.len(), URLS_MAX);
        assert!(HotUrls::default().to_json()["urls"].is_array());
    }
}
