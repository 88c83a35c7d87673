//! Traffic classes: requests that share a bound and a weight at programs and origins.

use lowroad_limits::RequestRate;

use crate::{AddressPrefix, PathPattern, SiteName};

/// A traffic class: its requests share the capacity of programs and origins with the other classes. `[[class]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassConfig {
    /// Its name in status reports and explanations.
    pub name: String,
    /// Its share relative to other classes, 1 to 1000; the class with the least weight is shed first. Default 10.
    pub weight: u32,
    /// Concurrent calls of programs and origins, 1 to 65 536. Default `LimitsConfig::calls_max`. Key `concurrency`.
    pub concurrency_max: Option<usize>,
    /// The rate of requests at all levels. Default: unlimited.
    pub rate: Option<RequestRate>,
    /// Calls in the queue, 0 to 65 536. Default 128. Key `queue`.
    pub queue_len_max: usize,
    /// The maximum time of a call in the queue, in milliseconds. 1 ms to 1 hour. Default 10 000. Key `deadline`.
    pub deadline_ms: u64,
    /// The requests that belong to it.
    pub members: ClassMembers,
}

/// The requests of a class: those that match every list here. An empty list matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassMembers {
    /// Requests to one of these hosts; never [`SiteName::Default`].
    pub hosts: Vec<SiteName>,
    /// For one of these paths. Key `routes`.
    pub routes: Vec<PathPattern>,
    /// From a client with one of these addresses.
    pub addresses: Vec<AddressPrefix>,
    /// With one of these fields.
    pub headers: Vec<FieldMatch>,
}

/// A request field to match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldMatch {
    /// The name, case-insensitive.
    pub name: String,
    /// The exact value; `None`: any.
    pub value: Option<String>,
}

impl ClassConfig {
    /// A class of all requests, with every default.
    pub fn new(name: String) -> ClassConfig {
        ClassConfig {
            name,
            weight: 10,
            concurrency_max: None,
            rate: None,
            queue_len_max: 128,
            deadline_ms: 10_000,
            members: ClassMembers::default(),
        }
    }

    /// The name of the class of requests that match no other.
    pub const OTHERS: &str = "others";
}

impl ClassMembers {
    /// Whether all requests match.
    pub fn is_everything(&self) -> bool {
        *self == ClassMembers::default()
    }
}
