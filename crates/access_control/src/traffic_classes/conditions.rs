//! The conditions of a class, and a map by host name. Independent of the limits of classes.

use std::collections::HashMap;
use std::net::IpAddr;

use lowroad_config::{ClassMembers, PrefixSet, SiteName};
use lowroad_http::request::Request;
use lowroad_site_rules::FieldMap;

/// The properties of a request that are matched.
pub(super) struct ClassInput<'a> {
    /// The request, of which only the fields are used.
    pub(super) request: &'a Request<'a>,
    /// The normalized host name; empty if the request has none, or if no class has a host.
    pub(super) host: &'a [u8],
    /// The numbers of the patterns that match the path, in ascending order.
    pub(super) patterns: &'a [u32],
    /// The client.
    pub(super) peer: IpAddr,
}

/// The conditions of a class. A request meets them if it matches each list that is not empty.
pub(super) struct ClassConditions {
    hosts: HostMap<()>,
    /// The numbers of the patterns of the class.
    pub(super) patterns: Vec<u32>,
    addresses: PrefixSet,
    fields: FieldMap<()>,
}

impl ClassConditions {
    /// Creates the conditions of `members`; `patterns` are the numbers of their patterns.
    pub(super) fn new(members: &ClassMembers, patterns: Vec<u32>) -> ClassConditions {
        let (mut hosts, mut fields) = (HostMap::default(), FieldMap::default());
        for name in &members.hosts {
            hosts.insert(name, ());
        }
        for line in &members.headers {
            fields.insert(&line.name, line.value.as_deref(), ());
        }
        ClassConditions {
            hosts,
            patterns,
            addresses: PrefixSet::new(&members.addresses),
            fields,
        }
    }

    /// Whether a request meets the conditions.
    pub(super) fn matches(&self, input: &ClassInput<'_>) -> bool {
        let has = |number: &u32| self.patterns.contains(number);
        (self.addresses.is_empty() || self.addresses.contains(input.peer))
            && (self.patterns.is_empty() || input.patterns.iter().any(has))
            && (self.hosts.is_empty() || self.hosts.get(input.host).next().is_some())
            && (self.fields.is_empty() || self.fields.get(input.request.fields()).next().is_some())
    }
}

/// Values by host name.
pub(super) struct HostMap<T> {
    exact: HashMap<Box<[u8]>, Vec<T>>,
    /// `*.example.com` has the key `example.com`.
    wildcard: HashMap<Box<[u8]>, Vec<T>>,
    /// The values of [`SiteName::Default`].
    default: Vec<T>,
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        HostMap {
            exact: HashMap::new(),
            wildcard: HashMap::new(),
            default: Vec::new(),
        }
    }
}

impl<T> HostMap<T> {
    /// Adds a value for a host name or wildcard.
    pub(super) fn insert(&mut self, name: &SiteName, value: T) {
        let values = match name {
            SiteName::Exact(name) => self.exact.entry(name.as_bytes().into()).or_default(),
            SiteName::Wildcard(suffix) => {
                self.wildcard.entry(suffix.as_bytes().into()).or_default()
            }
            SiteName::Default => &mut self.default,
        };
        values.push(value);
    }

    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcard.is_empty() && self.default.is_empty()
    }

    /// The values of all names and wildcards that match a normalized host name.
    pub(super) fn get(&self, host: &[u8]) -> impl Iterator<Item = &T> {
        // A wildcard stands for at least one byte.
        let dots = host.iter().enumerate().skip(1);
        let dots = dots.filter(|(_, byte)| **byte == b'.');
        let wildcard = dots.filter_map(|(at, _)| self.wildcard.get(&host[at + 1..]));
        let exact = self.exact.get(host);
        exact
            .into_iter()
            .chain(wildcard)
            .flatten()
            .chain(&self.default)
    }
}
