//! Conditions on requests, prepared for evaluation. Rules, redirects, rewrites and routes use the same conditions.
//!
//! The evaluation depends on the request, its client and the time only. A condition on a file reads a [`FileSwitch`],
//! which a thread outside of the workers keeps up to date.

#![forbid(unsafe_code)]

mod client_share;
mod condition_facts;
mod condition_input;
mod condition_text;
mod file_switch;
mod query_arguments;

use std::path::Path;
use std::sync::Arc;

use lowroad_cache::vary;
use lowroad_config::{
    ClientShare, NamedCondition, PrefixSet, RequestConditions, SiteName, ValueCondition,
    VariableCondition, WeekTime,
};
use lowroad_http::method::Method;
use lowroad_variables::TemplateInput;

use client_share::is_in_share;
use condition_facts::ConditionFacts;
pub use condition_input::{ConditionInput, request_cookies};
pub use condition_text::condition_text;
pub use file_switch::FileSwitch;
use query_arguments::query_arguments;

#[cfg(test)]
mod tests;

/// Finds the switch for a file.
pub type FindSwitch<'a> = &'a dyn Fn(&Path) -> Arc<FileSwitch>;

/// A set of conditions, all of which must hold. The empty set holds for each request.
#[derive(Default)]
pub struct ConditionSet {
    tests: Vec<RequestTest>,
}

/// A condition. Cheap conditions precede expensive ones.
enum RequestTest {
    Methods(Vec<String>),
    Https(bool),
    Certificate(bool),
    File(Arc<FileSwitch>),
    Times(Vec<WeekTime>),
    Addresses(PrefixSet),
    Share(ClientShare),
    Hosts(Vec<SiteName>),
    Field(NamedCondition),
    Cookie(NamedCondition),
    Argument(NamedCondition),
    Variable(VariableCondition),
    NoneOf(Vec<ConditionSet>),
}

impl ConditionSet {
    /// Prepares conditions.
    pub fn new(conditions: &RequestConditions, find_switch: FindSwitch<'_>) -> ConditionSet {
        let mut tests = Vec::new();
        if !conditions.methods.is_empty() {
            tests.push(RequestTest::Methods(conditions.methods.clone()));
        }
        tests.extend(conditions.is_https.map(RequestTest::Https));
        tests.extend(conditions.has_certificate.map(RequestTest::Certificate));
        let file = conditions.file.as_deref();
        tests.extend(file.map(|file| RequestTest::File(find_switch(file))));
        if !conditions.times.is_empty() {
            tests.push(RequestTest::Times(conditions.times.clone()));
        }
        if !conditions.addresses.is_empty() {
            let addresses = PrefixSet::new(&conditions.addresses);
            tests.push(RequestTest::Addresses(addresses));
        }
        tests.extend(conditions.share.clone().map(RequestTest::Share));
        if !conditions.hosts.is_empty() {
            tests.push(RequestTest::Hosts(conditions.hosts.clone()));
        }
        tests.extend(conditions.headers.iter().cloned().map(RequestTest::Field));
        tests.extend(conditions.cookies.iter().cloned().map(RequestTest::Cookie));
        let arguments = conditions.arguments.iter().cloned();
        tests.extend(arguments.map(RequestTest::Argument));
        let variables = conditions.variables.iter().cloned();
        tests.extend(variables.map(RequestTest::Variable));
        if !conditions.exceptions.is_empty() {
            let exceptions = conditions.exceptions.iter();
            let sets = exceptions.map(|it| ConditionSet::new(it, find_switch));
            tests.push(RequestTest::NoneOf(sets.collect()));
        }
        ConditionSet { tests }
    }

    /// Whether there are no conditions.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tests.is_empty()
    }

    /// Whether all conditions hold for a request.
    #[inline]
    pub fn is_met(&self, input: &ConditionInput<'_>) -> bool {
        self.tests.iter().all(|test| test.is_met(input))
    }
}

impl RequestTest {
    fn is_met(&self, input: &ConditionInput<'_>) -> bool {
        match self {
            RequestTest::Methods(methods) => has_method(input.request.method, methods),
            RequestTest::Https(is_https) => input.is_https == *is_https,
            RequestTest::Certificate(has_certificate) => input.has_certificate == *has_certificate,
            RequestTest::File(switch) => switch.exists(),
            RequestTest::Times(times) => times.iter().any(|time| time.contains(input.unix_s)),
            RequestTest::Addresses(addresses) => addresses.contains(input.client),
            RequestTest::Share(share) => is_in_share(input, share),
            RequestTest::Hosts(names) => has_host(input, names),
            RequestTest::Field(condition) => has_field(input, condition),
            RequestTest::Cookie(condition) => has_cookie(input, condition),
            RequestTest::Argument(condition) => has_argument(input, condition),
            RequestTest::Variable(condition) => has_variable(input, condition),
            RequestTest::NoneOf(sets) => !sets.iter().any(|set| set.is_met(input)),
        }
    }
}

/// Whether a list of methods includes `method`; GET includes HEAD.
fn has_method(method: Method, methods: &[String]) -> bool {
    let is_listed = |name: &str| methods.iter().any(|listed| listed == name);
    // Otherwise a HEAD request could reveal resources that a rule for GET protects.
    is_listed(method.as_str()) || method == Method::Head && is_listed("GET")
}

fn has_host(input: &ConditionInput<'_>, names: &[SiteName]) -> bool {
    let mut buffer = [0; 256];
    let Some(host) = input.host(&mut buffer) else {
        return false;
    };
    names.iter().any(|name| name.includes(host))
}

/// The whole list of a field, or one of its members, must meet the condition: so equal lists have equal results, in one
/// line or in several (RFC 9110 §5.3), and a stored response is selected by Vary in the same way.
fn has_field(input: &ConditionInput<'_>, condition: &NamedCondition) -> bool {
    let name = condition.name.to_ascii_lowercase();
    // The authority of an absolute target replaces Host (RFC 9112 §3.2.2).
    if name == "host" {
        let authority = input.request.authority;
        return authority.is_some_and(|authority| meets(authority, &condition.value));
    }
    let Some(value) = vary::combined_value(name.as_bytes(), input.request.fields()) else {
        return false;
    };
    let mut members = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    meets(&value, &condition.value) || members.any(|member| meets(member, &condition.value))
}

fn has_cookie(input: &ConditionInput<'_>, condition: &NamedCondition) -> bool {
    let mut cookies = request_cookies(input.request);
    cookies.any(|(name, value)| {
        let is_name = match condition.name.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix.as_bytes()),
            None => name == condition.name.as_bytes(),
        };
        is_name && meets(value, &condition.value)
    })
}

fn has_argument(input: &ConditionInput<'_>, condition: &NamedCondition) -> bool {
    query_arguments(input.request).any(|(name, value)| {
        name == condition.name.as_str() && meets(value.as_bytes(), &condition.value)
    })
}

fn has_variable(input: &ConditionInput<'_>, condition: &VariableCondition) -> bool {
    // The text is built for each evaluation, since only candidates of the index get here.
    let mut value = Vec::with_capacity(64);
    let facts = ConditionFacts::new(input);
    let template_input = TemplateInput {
        facts: &facts,
        captures: &[],
    };
    condition.text.write_plain(template_input, &mut value);
    match condition.value {
        // An absent value is empty.
        ValueCondition::Any => !value.is_empty(),
        _ => meets(&value, &condition.value),
    }
}

fn meets(value: &[u8], condition: &ValueCondition) -> bool {
    match condition {
        ValueCondition::Any => true,
        ValueCondition::Exact(expected) => expected.as_bytes() == value,
        ValueCondition::Matches(expression) => expression.is_match(value),
    }
}
