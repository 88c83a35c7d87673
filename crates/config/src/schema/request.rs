//! The request that an origin or a program gets in place of the client's: path and fields.

use lowroad_variables::{Dependence, Template};

/// The prefixes by which the path of a request to an origin differs from the path that the client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPrefixes {
    /// Removed from the front of the decoded path; without a slash at its end, and empty if nothing is removed. Default
    /// none; with a path in the URL of the origin, the text of the pattern before its first wildcard, up to its last
    /// slash. Key `strip_prefix`.
    pub strip: String,
    /// Put in front of the rest, percent-encoded; empty if nothing is added. Default the path in the URL of the origin.
    /// Key `add_prefix`.
    pub add: String,
    /// Whether paths in fields of responses are translated back. Default true. Key `restore_prefix`.
    pub restores: bool,
}

impl PathPrefixes {
    /// Whether paths are not changed.
    pub fn is_empty(&self) -> bool {
        self.strip.is_empty() && self.add.is_empty()
    }
}

impl Default for PathPrefixes {
    fn default() -> PathPrefixes {
        PathPrefixes {
            strip: String::new(),
            add: String::new(),
            restores: true,
        }
    }
}

/// Changes to the fields of a request to an origin. `[site.route.request]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestRule {
    /// The value of Host in place of that of `OriginConfig::host`. Key `host`.
    pub host: Option<Template>,
    /// Names as written (tokens) and values, each in place of all fields of that name; with an empty value, no field is
    /// sent.
    pub set: Vec<(String, Template)>,
    /// Names and values of lines that are added to the fields of the same name.
    pub append: Vec<(String, Template)>,
    /// Names, in lower case, of fields to remove.
    pub remove: Vec<String>,
}

impl RequestRule {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.host.is_none() && !self.changes_fields()
    }

    /// Whether fields other than Host are changed.
    pub fn changes_fields(&self) -> bool {
        !(self.set.is_empty() && self.append.is_empty() && self.remove.is_empty())
    }

    /// The parts of a client's request on which the request to the origin depends, other than the cache key, each with
    /// the name of the field that it determines.
    pub fn dependences(&self) -> impl Iterator<Item = (&str, Dependence<'_>)> {
        let lines = self.set.iter().chain(&self.append);
        let lines = lines.map(|(name, value)| (name.as_str(), value));
        let host = self.host.iter().map(|value| ("Host", value));
        lines
            .chain(host)
            .flat_map(|(name, value)| value.dependences().map(move |it| (name, it)))
    }
}
