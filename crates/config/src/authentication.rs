//! Reads the authentication of an access rule: `auth`, `jwt`, `forward_auth` and `satisfy`.
//!
//! The meaning and the defaults of the keys are in [`crate::schema`].

mod forward;
mod token;

use crate::reader::{ConfigSection, ConfigSource, ConfigValue};
use crate::site_marks::SiteMarks;
use crate::value::InvalidValue;
use crate::{AuthConfig, OriginConfig, PasswordAuth, RuleAction, SiteConfig, TokenKeys, named};

/// The keys of the methods. Several of them may be in one rule.
pub(crate) const METHODS: [&str; 3] = ["auth", "jwt", "forward_auth"];

/// Reads the methods of a rule, at least one of which is present.
pub(crate) fn authentication(section: &ConfigSection<'_>) -> Option<AuthConfig> {
    let items = METHODS.map(|key| section.item(key));
    let count = items.iter().flatten().count();
    let [auth, jwt, forward] = items;
    if auth.is_none() {
        section.only_with("realm", "auth");
    }
    // Each method is read even if another one is invalid, so that all problems are reported together.
    let password = auth.as_ref().map(|item| password(section, item));
    let token = jwt.as_ref().map(token::token_auth);
    let forward = forward.as_ref().map(forward::forward_auth);
    let satisfies_any = match count {
        2.. => section.choice("satisfy", &[("all", false), ("any", true)], false),
        _ => {
            section.only_with("satisfy", "two of auth, jwt and forward_auth");
            false
        }
    };
    let config = AuthConfig {
        password: transpose(password)?,
        token: transpose(token)?.map(Box::new),
        forward: transpose(forward)?.map(Box::new),
        satisfies_any,
    };
    let needs_authorization = |token: &crate::TokenAuth| token.cookie.is_none();
    if !satisfies_any
        && config.password.is_some()
        && config.token.as_deref().is_some_and(needs_authorization)
        && let Some(item) = &jwt
    {
        item.report(
            "a request has one Authorization, which can't have both a password and a token",
            "satisfy = \"any\", or jwt with cookie",
        );
        return None;
    }
    Some(config)
}

/// `None` if the value is present, but invalid.
fn transpose<T>(read: Option<Option<T>>) -> Option<Option<T>> {
    match read {
        None => Some(None),
        Some(value) => value.map(Some),
    }
}

fn password(section: &ConfigSection<'_>, item: &ConfigValue<'_>) -> Option<PasswordAuth> {
    let realm = match section.item("realm") {
        None => Some("restricted".to_string()),
        Some(item) => item.read(|text| {
            // Quotes and backslashes would need escapes in WWW-Authenticate (RFC 9110 §5.6.4).
            let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !b"\"\\".contains(&byte);
            let is_realm = !text.is_empty() && text.bytes().all(is_plain);
            is_realm.then(|| text.to_string()).ok_or(InvalidValue {
                expected: "a realm",
                allowed: "visible ASCII and spaces, without quotes and backslashes",
            })
        }),
    };
    Some(PasswordAuth {
        file: item.path()?,
        realm: realm?,
    })
}

/// Reports conditions on fields that authentication sets: conditions see the request as the client sent it, so a client
/// could meet them at will.
pub(crate) fn check_conditions(source: &ConfigSource<'_>, site: &SiteConfig, marks: &SiteMarks) {
    let fields: Vec<&str> = site.protected_fields().collect();
    let rules = site.access.iter().map(|rule| &rule.conditions);
    let routes = site.routes.iter().map(|route| &route.conditions);
    let handlers = marks.routes.iter().map(|marks| &marks.handler);
    let marked = rules.zip(&marks.access).chain(routes.zip(handlers));
    for (conditions, position) in marked {
        let is_set = |name: &&str| fields.iter().any(|field| field.eq_ignore_ascii_case(name));
        if let Some(name) = conditions.fields().find(is_set) {
            let message = format!(
                "any client meets the condition on {name}, which authentication sets later"
            );
            source.report(
                position,
                message,
                "require in jwt, or a decision of the server",
            );
        }
    }
}

/// Replaces names of origins by the `[[origin]]` sections, and reports undefined names.
pub(crate) fn resolve_origins(
    source: &ConfigSource<'_>,
    sites: &mut [(SiteConfig, SiteMarks)],
    origins: &[OriginConfig],
) {
    let names: Vec<&str> = origins.iter().map(|origin| origin.name.as_str()).collect();
    for (site, marks) in sites {
        for (rule, position) in site.access.iter_mut().zip(&marks.access) {
            let RuleAction::Auth(auth) = &mut rule.action else {
                continue;
            };
            let forward = auth.forward.iter_mut().map(|it| &mut it.origin);
            let keys = auth.token.iter_mut().filter_map(|it| match &mut it.keys {
                TokenKeys::Url(origin, _) => Some(&mut **origin),
                _ => None,
            });
            // An origin with servers was given by URL.
            for origin in forward.chain(keys).filter(|it| it.servers.is_empty()) {
                match origins.iter().find(|known| known.name == origin.name) {
                    Some(defined) => *origin = defined.clone(),
                    None => named::check_defined(source, "origin", &origin.name, position, &names),
                }
            }
        }
    }
}
