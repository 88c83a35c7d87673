//! The conditions of a class, and values by host name and by request field. Independent of what classes may have.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use lowroad_config::{FieldLine, Members, Name, PrefixSet};
use lowroad_http::request::Request;

/// The properties of a request that classes match.
pub(super) struct ClassInput<'a> {
    /// Its fields count.
    pub(super) request: &'a Request<'a>,
    /// Normalised; empty if the request names none.
    pub(super) host: &'a [u8],
    /// The numbers of the patterns that its path matches, in ascending order.
    pub(super) patterns: &'a [u32],
    /// The client.
    pub(super) peer: IpAddr,
}

/// The conditions of a class. A request meets them if it matches each list that is not empty.
pub(super) struct ClassConditions {
    hosts: HostMap<()>,
    /// The numbers of its patterns.
    pub(super) patterns: Vec<u32>,
    addresses: PrefixSet,
    fields: FieldMap<()>,
}

impl ClassConditions {
    /// The conditions of these members; their patterns have these numbers.
    pub(super) fn new(members: &Members, patterns: Vec<u32>) -> ClassConditions {
        let (mut hosts, mut fields) = (HostMap::default(), FieldMap::default());
        for name in &members.hosts {
            hosts.insert(name, ());
        }
        for line in &members.headers {
            fields.insert(line, ());
        }
        ClassConditions {
            hosts,
            patterns,
            addresses: PrefixSet::new(&members.addresses),
            fields,
        }
    }

    /// Whether a request meets them.
    pub(super) fn hold(&self, input: &ClassInput<'_>) -> bool {
        let has = |number: &u32| self.patterns.contains(number);
        (self.addresses.is_empty() || self.addresses.has(input.peer))
            && (self.patterns.is_empty() || input.patterns.iter().any(has))
            && (self.hosts.is_empty() || self.hosts.get(input.host).next().is_some())
            && (self.fields.is_empty() || self.fields.get(input.request).next().is_some())
    }
}

/// Values by host name.
pub(super) struct HostMap<T> {
    exact: HashMap<Box<[u8]>, Vec<T>>,
    /// `*.example.com` under `example.com`.
    wildcard: HashMap<Box<[u8]>, Vec<T>>,
    /// Those of [`Name::Default`].
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
    /// Adds a value for a name.
    pub(super) fn insert(&mut self, name: &Name, value: T) {
        let values = match name {
            Name::Exact(name) => self.exact.entry(name.as_bytes().into()).or_default(),
            Name::Wildcard(suffix) => self.wildcard.entry(suffix.as_bytes().into()).or_default(),
            Name::Default => &mut self.default,
        };
        values.push(value);
    }

    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcard.is_empty() && self.default.is_empty()
    }

    /// The values of all names that a normalised host matches.
    pub(super) fn get(&self, host: &[u8]) -> impl Iterator<Item = &T> {
        // At least one byte stands for the wildcard.
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

/// Values by request field, with or without its value.
pub(super) struct FieldMap<T> {
    /// By name in lower case, in ascending order.
    names: Vec<(Box<[u8]>, FieldValues<T>)>,
}

/// Values for one name: for any value of the field under `None`.
type FieldValues<T> = BTreeMap<Option<Box<[u8]>>, Vec<T>>;

impl<T> Default for FieldMap<T> {
    fn default() -> Self {
        FieldMap { names: Vec::new() }
    }
}

impl<T> FieldMap<T> {
    /// Adds a value for a field.
    pub(super) fn insert(&mut self, line: &FieldLine, value: T) {
        let name = line.name.to_ascii_lowercase().into_bytes();
        let at = match self.position(&name) {
            Ok(at) => at,
            Err(at) => {
                self.names.insert(at, (name.into(), BTreeMap::new()));
                at
            }
        };
        let wanted = line.value.as_ref().map(|value| value.as_bytes().into());
        self.names[at].1.entry(wanted).or_default().push(value);
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The values for all fields of a request.
    pub(super) fn get<'s>(&'s self, request: &Request<'_>) -> impl Iterator<Item = &'s T> {
        let mut found: Vec<&'s Vec<T>> = Vec::new();
        if !self.is_empty() {
            for (name, value) in request.fields() {
                let Ok(at) = self.position(name) else {
                    continue;
                };
                let values = &self.names[at].1;
                found.extend(values.get(&None));
                found.extend(values.get(&Some(value.trim_ascii().into())));
            }
        }
        found.into_iter().flatten()
    }

    fn position(&self, name: &[u8]) -> Result<usize, usize> {
        let lower = || name.iter().map(u8::to_ascii_lowercase);
        self.names
            .binary_search_by(|(known, _)| known.iter().copied().cmp(lower()))
    }
}
