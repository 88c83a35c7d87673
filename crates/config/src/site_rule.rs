//! Reads `[[site.rule]]`, and which proxies of a site say who its clients are.
//!
//! What the keys mean and their defaults are in [`crate::schema`].

use crate::class::{list, rate_of};
use crate::reader::{Item, Section};
use crate::{Action, ClientField, Pattern, Prefix, Rule, TrustedProxies, conditions};

/// The keys of which a rule has one.
const ACTIONS: [&str; 3] = ["deny", "allow", "rate"];
const ALLOWED: &str = "one of deny, allow and rate";

pub(crate) fn rule(section: Section<'_>) -> Option<Rule> {
    let pattern = match section.item("pattern") {
        Some(item) => item.pattern(),
        None => Some(Pattern::everything()),
    };
    let methods = list(&section, "methods", |item| item.read(conditions::method));
    let addresses = list(&section, "addresses", |item| item.read(Prefix::parse));
    let except = list(&section, "except", |item| item.read(Prefix::parse));
    let action = action(&section);
    section.finish();
    Some(Rule {
        pattern: pattern?,
        methods,
        addresses,
        except,
        action: action?,
    })
}

fn action(section: &Section<'_>) -> Option<Action> {
    let present = ACTIONS.map(|key| section.item(key).map(|item| (key, item)));
    let mut present = present.into_iter().flatten();
    let (first, second) = (present.next(), present.next());
    let kind = match (&first, &second) {
        (Some((kind, _)), None) => Some(*kind),
        (None, _) => {
            section.report("the rule does nothing", ALLOWED);
            None
        }
        (Some((one, _)), Some((other, _))) => {
            section.report(format!("{one} and {other} are two rules"), ALLOWED);
            None
        }
    };
    if kind.is_some_and(|kind| kind != "rate") {
        section.only_with("burst", "rate");
    }
    let item = first?.1;
    match kind? {
        "deny" => deny(&item).map(Action::Deny),
        "allow" => (item.value_bool() == Some(true))
            .then_some(Action::Allow)
            .or_else(|| {
                item.refuse("what a rule may say", "true; or leave the rule out");
                None
            }),
        _ => rate_of(section, &item).map(Action::Limit),
    }
}

fn deny(item: &Item<'_>) -> Option<u16> {
    let status = item.read(crate::value::count)?;
    let found = [403, 404]
        .into_iter()
        .find(|known| u64::from(*known) == status);
    if found.is_none() {
        item.refuse("a status of a refusal", "403 or 404");
    }
    found
}

pub(crate) fn trusted_proxies(section: &Section<'_>) -> TrustedProxies {
    let addresses = list(section, "trusted_proxies", |item| item.read(Prefix::parse));
    if addresses.is_empty() {
        section.only_with("client_field", "trusted_proxies");
        return TrustedProxies::default();
    }
    let words = [
        ("X-Forwarded-For", ClientField::XForwardedFor),
        ("Forwarded", ClientField::Forwarded),
    ];
    TrustedProxies {
        addresses,
        field: section.choice("client_field", &words, ClientField::default()),
    }
}
