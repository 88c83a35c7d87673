//! Conditions on requests.

use std::path::PathBuf;

use lowroad_variables::{Dependence, Template};

use super::HashBy;
use crate::{AddressPrefix, PathExpression, SiteName};

/// Conditions on a request in addition to its path. All that are present must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestConditions {
    /// Its method is one of these; GET includes HEAD. Empty: any. Key `methods`.
    pub methods: Vec<String>,
    /// The client has one of these addresses. Empty: any. Key `addresses`.
    pub addresses: Vec<AddressPrefix>,
    /// It has all of these fields. Names are case-insensitive. Key `header`.
    pub headers: Vec<NamedCondition>,
    /// It has all of these cookies. A name that ends in `*` stands for all names that begin with the text before it.
    /// Key `cookie`.
    pub cookies: Vec<NamedCondition>,
    /// Its query has all of these arguments. Key `argument`.
    pub arguments: Vec<NamedCondition>,
    /// Texts with variables have these values. Key `variable`.
    pub variables: Vec<VariableCondition>,
    /// Its host is one of these. Empty: any. Key `host`.
    pub hosts: Vec<SiteName>,
    /// Whether it was sent over TLS, to this server or to a trusted proxy. Key `scheme`.
    pub is_https: Option<bool>,
    /// Whether the client has sent a valid certificate. Key `client_certificate`.
    pub has_certificate: Option<bool>,
    /// It arrives in one of these times of the week, in UTC. Empty: any. Key `time`.
    pub times: Vec<WeekTime>,
    /// A file exists at this path. Key `file_exists`.
    pub file: Option<PathBuf>,
    /// Its client belongs to this share of the clients. Key `share`.
    pub share: Option<ClientShare>,
    /// None of these sets of conditions holds. Key `not`: a table, or an array of tables.
    pub exceptions: Vec<RequestConditions>,
}

/// A share of clients, always the same ones. A smaller share by the same key is a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientShare {
    /// The share in percent, 1 to 99.
    pub percent: u8,
    /// The key that identifies a client: the address, a cookie or a field. A request without it counts by its
    /// address.
    pub by: HashBy,
}

/// A condition on a field, cookie or argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCondition {
    /// The name.
    pub name: String,
    /// The condition on the value. If the name occurs several times, one value must meet it.
    pub value: ValueCondition,
}

/// A condition on a text with variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableCondition {
    /// The text.
    pub text: Template,
    /// The condition on its value. `ValueCondition::Any`: it is not empty.
    pub value: ValueCondition,
}

/// A condition on a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueCondition {
    /// Any value. `"NAME"`
    Any,
    /// This value. `"NAME: VALUE"`, `"NAME=VALUE"`
    Exact(String),
    /// A value in which the expression is found. `"NAME: ~EXPRESSION"`, `"NAME=~EXPRESSION"`
    Matches(PathExpression),
}

/// A time on some days of the week, in UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeekTime {
    /// The days, from Monday. An interval that ends on the next day belongs to the day on which it begins.
    pub days: [bool; 7],
    /// The first minute of the day, 0 to 1439.
    pub start_min: u16,
    /// The minute after the last one, 1 to 1440. If it is not after `start_min`, it is on the next day.
    pub end_min: u16,
}

impl RequestConditions {
    /// Whether there are no conditions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == RequestConditions::default()
    }

    /// The request fields on which they depend; a name may occur several times.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        let sets = std::iter::once(self).chain(&self.exceptions);
        sets.flat_map(|set| {
            // All cookies are in one field.
            let cookie = (!set.cookies.is_empty()).then_some("Cookie");
            let headers = set.headers.iter().map(|it| it.name.as_str());
            let variables = set.variable_dependences().filter_map(|it| match it {
                Dependence::Field(name) => Some(name),
                _ => None,
            });
            headers.chain(cookie).chain(variables)
        })
    }

    /// The parts of a request on which variables in the conditions depend, other than the cache key.
    pub fn variable_dependences(&self) -> impl Iterator<Item = Dependence<'_>> {
        self.variables.iter().flat_map(|it| it.text.dependences())
    }

    /// Whether they depend on facts that Vary can't name: the client or its share, the time, or a file.
    #[must_use]
    pub fn depend_on_unnamed_facts(&self) -> bool {
        let is_unnamed = |dependence| match dependence {
            Dependence::Client | Dependence::Request | Dependence::File => true,
            Dependence::Field(_) | Dependence::CacheKey => false,
        };
        !self.addresses.is_empty()
            || self.has_certificate.is_some()
            || !self.times.is_empty()
            || self.file.is_some()
            || self.share.is_some()
            || self.variable_dependences().any(is_unnamed)
            || (self.exceptions.iter()).any(RequestConditions::depend_on_unnamed_facts)
    }

    /// Whether they depend on the target, host and method of the request only.
    #[must_use]
    pub fn depend_on_url_only(&self) -> bool {
        let RequestConditions {
            methods: _,
            arguments: _,
            hosts: _,
            is_https: _,
            addresses,
            headers,
            cookies,
            variables,
            has_certificate,
            times,
            file,
            share,
            exceptions,
        } = self;
        addresses.is_empty()
            && headers.is_empty()
            && cookies.is_empty()
            && (variables.iter()).all(|it| it.text.dependences().next().is_none())
            && has_certificate.is_none()
            && times.is_empty()
            && file.is_none()
            && share.is_none()
            && exceptions.iter().all(RequestConditions::depend_on_url_only)
    }
}

impl WeekTime {
    /// Whether the interval contains a time.
    #[must_use]
    pub fn contains(&self, unix_s: u64) -> bool {
        let (day, minute) = day_and_minute(unix_s);
        let (start, end) = (self.start_min, self.end_min);
        if start < end {
            return self.days[day] && (start..end).contains(&minute);
        }
        let previous_day = (day + 6) % 7;
        (self.days[day] && minute >= start) || (self.days[previous_day] && minute < end)
    }
}

/// The day of the week, from Monday, and the minute of the day.
fn day_and_minute(unix_s: u64) -> (usize, u16) {
    let minutes = unix_s / 60;
    // 1 January 1970 was a Thursday.
    let day = (minutes / 1440 + 3) % 7;
    (day as usize, (minutes % 1440) as u16)
}
