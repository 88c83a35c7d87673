//! Reads `[[site.rule]]` (access rules) and the trusted proxies of a site.
//!
//! The meaning and the defaults of the keys are in [`crate::schema`].

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::class::{addresses, read_rate};
use crate::fixed_response::fixed_response;
use crate::named::absolute_path;
use crate::reader::{ConfigSection, ConfigSource, ConfigValue, KeyPosition};
use crate::site_marks::SiteMarks;
use crate::{
    AddressPrefix, ClientField, RequestConditions, RuleAction, RuleConfig, SiteConfig,
    TrustedProxies, authentication, bandwidth, conditions,
};

/// An access rule, and the position of its action key.
pub(crate) type MarkedRule = (RuleConfig, KeyPosition);

/// The action keys; a rule has exactly one of them, or several of authentication.
const ACTIONS: [&str; 10] = [
    "deny",
    "allow",
    "rate",
    "auth",
    "jwt",
    "forward_auth",
    "fallback",
    "respond",
    "close",
    "log",
];
const ALLOWED: &str =
    "one of deny, allow, rate, auth, jwt, forward_auth, fallback, respond, close and log";

/// The last addresses of IPv4 and IPv6.
const ALL_ONES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::BROADCAST),
    IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)),
];

pub(crate) fn rule(section: ConfigSection<'_>) -> Vec<MarkedRule> {
    let position = section.position.clone();
    let patterns = section.patterns_or_all();
    // The other keys are read even if the pattern is invalid, so that all problems are reported together.
    let mut conditions = conditions::conditions(&section);
    let except = addresses(&section, "except");
    if !except.is_empty() {
        conditions.exceptions.push(RequestConditions {
            addresses: except,
            ..RequestConditions::default()
        });
    }
    let action = action(&section);
    let patterns = patterns.unwrap_or_default();
    if patterns.len() > 1 && matches!(action, Some(RuleAction::Limit(_))) {
        // Each pattern would have a separate limit.
        section.report(
            "rate has several patterns",
            "one pattern, perhaps with {a,b}",
        );
    }
    section.finish();
    let Some(action) = action else {
        return Vec::new();
    };
    let rule = |pattern| {
        let rule = RuleConfig {
            pattern,
            conditions: conditions.clone(),
            action: action.clone(),
        };
        (rule, position.clone())
    };
    patterns.into_iter().map(rule).collect()
}

/// Checks that password files exist and are well-formed. A file without read permission is not a problem here: the
/// server may read it before it drops root privileges.
pub(crate) fn check_files(source: &ConfigSource<'_>, site: &SiteConfig, marks: &SiteMarks) {
    for (rule, position) in site.access.iter().zip(&marks.access) {
        let RuleAction::Auth(auth) = &rule.action else {
            continue;
        };
        let Some(auth) = &auth.password else {
            continue;
        };
        let read = std::fs::read_to_string(&auth.file);
        let is_denied = |error: &io::Error| error.kind() == ErrorKind::PermissionDenied;
        // The check may run as a different user than the server.
        if read.as_ref().is_err_and(is_denied) {
            continue;
        }
        let read = read.map_err(|error| format!("cannot be used: {error}"));
        if let Err(reason) = read.and_then(|text| crate::passwords::users(&text)) {
            let message = format!("{}: {reason}", auth.file.display());
            source.report(position, message, "a file as htpasswd -B makes it");
        }
    }
}

fn action(section: &ConfigSection<'_>) -> Option<RuleAction> {
    let present = ACTIONS.map(|key| section.item(key).map(|item| (key, item)));
    let mut present = present.into_iter().flatten();
    let is_method = |key: &str| authentication::METHODS.contains(&key);
    let first = present.next();
    // Methods of authentication can be combined with each other.
    let second = present.find(|(key, _)| {
        !first.as_ref().is_some_and(|(first, _)| is_method(first)) || !is_method(key)
    });
    let kind = match (&first, &second) {
        (Some((kind, _)), None) => Some(*kind),
        (None, _) => {
            section.report("the rule does nothing", ALLOWED);
            None
        }
        (Some((first_key, _)), Some((second_key, _))) => {
            section.report(
                format!("{first_key} and {second_key} are two actions"),
                ALLOWED,
            );
            None
        }
    };
    let owner = kind.map(|kind| if is_method(kind) { "auth" } else { kind });
    // These keys belong to one action each.
    for (key, action) in [
        ("burst", "rate"),
        ("after", "rate"),
        ("realm", "auth"),
        ("satisfy", "auth"),
    ] {
        match owner {
            // Without an action, its keys are accepted; the missing action was reported.
            None => drop(section.item(key)),
            Some(owner) if action == owner => {}
            Some(_) => section.only_with(key, action),
        }
    }
    let item = first?.1;
    match owner? {
        "deny" => deny(&item).map(RuleAction::Deny),
        "allow" => allow(&item),
        "close" => only_true(&item, RuleAction::Close),
        "log" => conditions::boolean(&item).map(RuleAction::Log),
        "respond" => fixed_response(&item).map(RuleAction::Respond),
        "rate" if item.value_text().is_some_and(bandwidth::is_bandwidth) => {
            section.only_with("burst", "a rate of requests");
            bandwidth::limit(section, &item).map(RuleAction::Bandwidth)
        }
        "rate" => {
            section.only_with("after", "a bandwidth as rate (1MB/s)");
            read_rate(section, &item).map(RuleAction::Limit)
        }
        "auth" => authentication::authentication(section).map(RuleAction::Auth),
        _ => absolute_path(&item).map(RuleAction::Fallback),
    }
}

/// The action of a key that permits only `true`: `false` would look like the opposite action.
fn only_true(item: &ConfigValue<'_>, action: RuleAction) -> Option<RuleAction> {
    if item.value_bool() != Some(true) {
        item.refuse("an action", "true; or leave the rule out");
        return None;
    }
    Some(action)
}

fn allow(item: &ConfigValue<'_>) -> Option<RuleAction> {
    if item.value_text().is_some() || item.is_array() {
        item.refuse("an action", "allow = true, with the clients in addresses");
        return None;
    }
    only_true(item, RuleAction::Allow)
}

fn deny(item: &ConfigValue<'_>) -> Option<u16> {
    let status = item.read(crate::value::count)?;
    // 401 and 407 need a challenge, 426 a protocol; 499 is for clients that have left.
    let is_refusal = (400..=599).contains(&status) && ![401, 407, 426, 499].contains(&status);
    if !is_refusal {
        item.refuse(
            "a status of a refusal",
            "400 to 599 without 401, 407, 426 and 499",
        );
    }
    is_refusal.then(|| u16::try_from(status).ok()).flatten()
}

/// Warns of a list that contains every client.
fn warn_of_all_proxies(section: &ConfigSection<'_>, addresses: &[AddressPrefix]) {
    let is_every = |prefix: &&AddressPrefix| {
        let range = prefix.range();
        range.start().is_unspecified()
            && range.contains(&ALL_ONES[usize::from(range.start().is_ipv6())])
    };
    if let (Some(prefix), Some(item)) = (
        addresses.iter().find(is_every),
        section.item("trusted_proxies"),
    ) {
        item.warn(
            format!("{prefix} trusts every client: each can name any address as its own"),
            "the addresses of the proxies",
        );
    }
}

pub(crate) fn trusted_proxies(section: &ConfigSection<'_>) -> TrustedProxies {
    let addresses = addresses(section, "trusted_proxies");
    warn_of_all_proxies(section, &addresses);
    if addresses.is_empty() {
        section.only_with("client_field", "trusted_proxies");
        return TrustedProxies::default();
    }
    let choices = [
        ("X-Forwarded-For", ClientField::XForwardedFor),
        ("Forwarded", ClientField::Forwarded),
    ];
    TrustedProxies {
        addresses,
        field: section.choice("client_field", &choices, ClientField::default()),
    }
}
