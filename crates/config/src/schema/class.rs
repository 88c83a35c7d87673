//! Classes of requests.

use lowroad_limits::Rate;

use crate::{Name, Pattern, Prefix};

/// Requests that share what may be asked of programs and origins with those of other classes. `[[class]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// How status and explanations call it.
    pub name: String,
    /// Its share beside those of others, 1 to 1000; the class of the least is shed first. Default 10.
    pub weight: u32,
    /// Calls of programs and origins under way at a time, 1 to 65 536. Default `Limits::calls_max`. Key `concurrency`.
    pub concurrency_max: Option<usize>,
    /// How many requests there may be in a time, whatever answers them. Default: any number.
    pub rate: Option<Rate>,
    /// Calls that wait, 0 to 65 536. Default 128. Key `queue`.
    pub queue_len_max: usize,
    /// How long a call waits, in milliseconds. 1 ms to 1 hour. Default 10 000. Key `deadline`.
    pub deadline_ms: u64,
    /// What belongs to it.
    pub members: Members,
}

/// What belongs to a class: what is all of these. A list that is empty says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Requests to one of these hosts; never [`Name::Default`].
    pub hosts: Vec<Name>,
    /// For one of these paths. Key `routes`.
    pub routes: Vec<Pattern>,
    /// From one of these addresses.
    pub addresses: Vec<Prefix>,
    /// With one of these fields.
    pub headers: Vec<FieldLine>,
}

/// A field that a request may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldLine {
    /// Its name, in any case.
    pub name: String,
    /// Its value to the letter; `None`: any.
    pub value: Option<String>,
}

impl Class {
    /// A class to which everything belongs, with every default.
    pub fn new(name: String) -> Class {
        Class {
            name,
            weight: 10,
            concurrency_max: None,
            rate: None,
            queue_len_max: 128,
            deadline_ms: 10_000,
            members: Members::default(),
        }
    }

    /// The class of what belongs to no other.
    pub const OTHERS: &str = "others";
}

impl Members {
    /// Whether everything belongs to it.
    pub fn is_everything(&self) -> bool {
        *self == Members::default()
    }
}
