//! Finds the class of a request. Each class is indexed by its most selective kind of condition: addresses, else fields,
//! else hosts, else paths. A request is therefore compared only with classes that have a matching indexed condition,
//! and with those without conditions.

use std::collections::HashMap;
use std::net::IpAddr;

use lowroad_config as config;
use lowroad_config::{MatchScope, PathPattern, PatternSet, PatternSetBuilder, PrefixMap};
use lowroad_http::host;
use lowroad_http::request::Request;
use lowroad_site_rules::FieldMap;

use super::conditions::{ClassConditions, ClassInput, HostMap};

/// Classes by their conditions. The number of a class is its position in the configuration.
pub(super) struct ClassIndex {
    conditions: Vec<ClassConditions>,
    by_address: PrefixMap<usize>,
    by_field: FieldMap<usize>,
    by_host: HostMap<usize>,
    /// The classes of each pattern, by the number of the pattern.
    by_pattern: Vec<Vec<usize>>,
    /// Classes without conditions.
    unconditional: Vec<usize>,
    /// Whether a class has hosts.
    has_hosts: bool,
    /// The distinct patterns of all classes.
    patterns: PatternSet,
}

/// Collects the distinct patterns of all classes.
#[derive(Default)]
struct PatternNumbers {
    builder: PatternSetBuilder,
    by_text: HashMap<String, u32>,
}

impl PatternNumbers {
    fn number(&mut self, pattern: &PathPattern) -> u32 {
        let next = u32::try_from(self.by_text.len()).unwrap_or(u32::MAX);
        // Equal patterns share a number, so each is matched once per request.
        *self.by_text.entry(pattern.to_string()).or_insert_with(|| {
            self.builder.add(pattern, MatchScope::Script);
            next
        })
    }
}

impl ClassIndex {
    /// Indexes classes, which are in the configured order.
    pub(super) fn new(classes: &[&config::ClassConfig]) -> ClassIndex {
        let mut numbers = PatternNumbers::default();
        let conditions = classes.iter().map(|class| {
            let routes = class.members.routes.iter();
            let patterns = routes.map(|pattern| numbers.number(pattern)).collect();
            ClassConditions::new(&class.members, patterns)
        });
        let mut index = ClassIndex {
            conditions: conditions.collect(),
            by_address: PrefixMap::default(),
            by_field: FieldMap::default(),
            by_host: HostMap::default(),
            by_pattern: vec![Vec::new(); numbers.by_text.len()],
            unconditional: Vec::new(),
            has_hosts: classes.iter().any(|it| !it.members.hosts.is_empty()),
            patterns: numbers.builder.build([]),
        };
        for (number, class) in classes.iter().enumerate() {
            index.insert(number, &class.members);
        }
        index
    }

    fn insert(&mut self, number: usize, members: &config::ClassMembers) {
        let config::ClassMembers {
            hosts,
            routes,
            addresses,
            headers,
        } = members;
        // Only one kind of condition is indexed, the most selective; `ClassConditions::matches` checks all.
        if !addresses.is_empty() {
            for prefix in addresses {
                self.by_address.insert(prefix, number);
            }
        } else if !headers.is_empty() {
            for line in headers {
                self.by_field
                    .insert(&line.name, line.value.as_deref(), number);
            }
        } else if !hosts.is_empty() {
            for name in hosts {
                self.by_host.insert(name, number);
            }
        } else if !routes.is_empty() {
            for pattern in &self.conditions[number].patterns {
                self.by_pattern[*pattern as usize].push(number);
            }
        } else {
            self.unconditional.push(number);
        }
    }

    /// The first class whose conditions a request meets. `path` is decoded; `peer` is the client's address.
    pub(super) fn class(&self, request: &Request<'_>, path: &[u8], peer: IpAddr) -> Option<usize> {
        let mut buffer = [0; 256];
        // The name is only normalized if a class has hosts: that takes longer than the other conditions.
        let authority = request.authority.filter(|_| self.has_hosts);
        let host = authority.and_then(|it| host::normalize(it, &mut buffer));
        let input = ClassInput {
            request,
            host: host.unwrap_or_default(),
            patterns: &self.patterns.matches(path),
            peer,
        };
        // The first class without conditions matches all requests, so later ones are never reached.
        let mut candidates: Vec<usize> = self.unconditional.first().copied().into_iter().collect();
        // Each class is in one index, that of its most selective kind of condition.
        candidates.extend(self.by_address.get(peer));
        candidates.extend(self.by_field.get(request.fields()));
        if self.has_hosts {
            candidates.extend(self.by_host.get(input.host));
        }
        for number in input.patterns {
            candidates.extend_from_slice(&self.by_pattern[*number as usize]);
        }
        // The first class in the configured order is chosen.
        candidates.sort_unstable();
        let mut candidates = candidates.into_iter();
        candidates.find(|number| self.conditions[*number].matches(&input))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_config::{AddressPrefix, ClassMembers, FieldMatch, SiteName};
    use lowroad_http::h1::parse;
    use lowroad_http::limits::RequestLimits;

    const HEAD: &str = "GET /api/x HTTP/1.1\r\nHost: A.example.com:81\r\nX-Tier:  gold \r\n\r\n";

    fn members(
        hosts: &[&str],
        routes: &[&str],
        addresses: &[&str],
        headers: &[&str],
    ) -> ClassMembers {
        let name = |text: &&str| match text.strip_prefix("*.") {
            Some(suffix) => SiteName::Wildcard(suffix.into()),
            None => SiteName::Exact((*text).into()),
        };
        let pattern = |text: &&str| PathPattern::parse(text).expect("a pattern");
        let prefix = |text: &&str| AddressPrefix::parse(text).expect("a prefix");
        let line = |text: &&str| match text.split_once(": ") {
            Some((name, value)) => FieldMatch {
                name: name.into(),
                value: Some(value.into()),
            },
            None => FieldMatch {
                name: (*text).into(),
                value: None,
            },
        };
        ClassMembers {
            hosts: hosts.iter().map(name).collect(),
            routes: routes.iter().map(pattern).collect(),
            addresses: addresses.iter().map(prefix).collect(),
            headers: headers.iter().map(line).collect(),
        }
    }

    fn first(all: &[ClassMembers], head: &str, path: &str, peer: &str) -> Option<usize> {
        let class = |members: &ClassMembers| config::ClassConfig {
            members: members.clone(),
            ..config::ClassConfig::new(String::new())
        };
        let classes: Vec<config::ClassConfig> = all.iter().map(class).collect();
        let index = ClassIndex::new(&classes.iter().collect::<Vec<_>>());
        let Ok(Some(head)) = parse(head.as_bytes(), &RequestLimits::default()) else {
            panic!("it is a request");
        };
        let peer = peer.parse().expect("an address");
        index.class(&head.request, path.as_bytes(), peer)
    }

    #[test]
    fn class_requires_one_match_in_each_nonempty_list() {
        let hosts = ["b", "*.example.com"];
        let lists = [
            members(&hosts, &[], &["192.0.2.0/24"], &["x-tier: gold"]),
            members(&hosts, &["/no", "/api/**"], &[], &["x-tier: gold"]),
            members(&hosts, &["/api/**"], &[], &[]),
        ];
        for list in lists {
            let is_in = |head: &str, path: &str, peer: &str| {
                first(std::slice::from_ref(&list), head, path, peer).is_some()
            };
            let peer = "192.0.2.1";
            assert!(is_in(HEAD, "/api/x", peer), "{list:?}");
            let (addresses, routes) = (list.addresses.is_empty(), list.routes.is_empty());
            assert_eq!(is_in(HEAD, "/api/x", "192.0.3.1"), addresses);
            assert_eq!(is_in(HEAD, "/x", peer), routes);
            let fields = list.headers.is_empty();
            assert_eq!(is_in(&HEAD.replace("gold", "Gold"), "/api/x", peer), fields);
            assert_eq!(is_in(&HEAD.replace("X-T", "X-"), "/api/x", peer), fields);
            assert!(!is_in(&HEAD.replace("A.exam", "exam"), "/api/x", peer));
            assert!(is_in(&HEAD.replace("A.example.com", "b"), "/api/x", peer));
            assert!(is_in(&HEAD.replace("A.", "c.d."), "/api/x", peer));
            assert!(!is_in("GET / HTTP/1.0\r\n\r\n", "/api/x", peer));
        }
        let everything = [ClassMembers::default()];
        assert_eq!(
            first(&everything, "GET / HTTP/1.0\r\n\r\n", "/", "::1"),
            Some(0)
        );
    }

    #[test]
    fn field_condition_without_value_matches_any_value() {
        let list = [members(&[], &[], &[], &["Authorization"])];
        let head = "GET / HTTP/1.1\r\nHost: a\r\nauthorization: x\r\n\r\n";
        assert_eq!(first(&list, head, "/", "::1"), Some(0));
        assert_eq!(first(&list, HEAD, "/", "::1"), None);
    }

    #[test]
    fn first_matching_class_in_configured_order_is_chosen() {
        let conditions = [
            members(&[], &["/api/**", "*.php"], &[], &[]),
            members(&["*.example.com"], &[], &[], &[]),
            members(&[], &[], &["192.0.2.1"], &[]),
            members(&[], &[], &["192.0.0.0/8"], &[]),
            members(&[], &[], &[], &["X-TIER"]),
            members(&[], &["/api/**"], &[], &[]),
        ];
        for start in 0..conditions.len() {
            assert_eq!(
                first(&conditions[start..], HEAD, "/api/x", "192.0.2.1"),
                Some(0)
            );
        }
        let others = [
            &conditions[..],
            &[ClassMembers::default(), ClassMembers::default()],
        ]
        .concat();
        let head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(first(&others, head, "/", "::1"), Some(conditions.len()));
        assert_eq!(first(&others, head, "/x.php/y", "::1"), Some(0));
    }
}
