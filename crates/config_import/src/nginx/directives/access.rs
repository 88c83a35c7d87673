//! Access: addresses, passwords and rates, and clients behind proxies.

use super::process::not_a_value;
use super::{Handling, Handling::NotNeeded, Handling::Translate, TableLine};
use crate::nginx::level::Level;
use crate::nginx::settings::{AddressEntry, RateSetting};
use crate::nginx::tree::Directive;
use crate::report::DirectiveOutcome;

/// Directives of access.
pub const TABLE: &[TableLine] = &[
    ("allow", Translate(address)),
    ("deny", Translate(address)),
    ("satisfy", Translate(satisfy)),
    ("auth_basic", Translate(realm)),
    ("auth_basic_user_file", Translate(password_file)),
    ("limit_req_zone", Translate(rate_zone)),
    ("limit_req", Translate(rate)),
    ("limit_conn_zone", Translate(connection_zone)),
    ("limit_conn", Translate(connections)),
    (
        "limit_req_status",
        NotNeeded("requests beyond a rate get 429"),
    ),
    (
        "limit_req_log_level",
        NotNeeded("refused requests are counted"),
    ),
    (
        "limit_req_dry_run",
        NotNeeded("`lowroad status` counts refused requests"),
    ),
    (
        "limit_conn_status",
        NotNeeded("connections beyond the limit are closed"),
    ),
    (
        "limit_conn_log_level",
        NotNeeded("refused connections are counted"),
    ),
    ("auth_request", Translate(auth_request)),
    ("auth_request_set", Translate(auth_variable)),
    ("set_real_ip_from", Translate(real_ip_from)),
    ("real_ip_header", Translate(real_ip_header)),
    (
        "real_ip_recursive",
        NotNeeded("the client is the last address that is no trusted proxy"),
    ),
    (
        "valid_referers",
        Handling::ByHand("a [[site.rule]] with the condition `not = { header = \"Referer: ~…\" }`"),
    ),
];

fn address(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let address = match directive.arg(0) {
        "all" => None,
        "unix:" => {
            return DirectiveOutcome::NotNeeded("sites listen at no Unix sockets".to_string());
        }
        text => Some(text.to_string()),
    };
    let is_allowed = directive.name == "allow";
    // nginx inherits `allow` and `deny` together: a block with either loses all inherited ones.
    if level.begins_array("allow") {
        level.settings.access.addresses.clear();
    }
    let access_entry = AddressEntry {
        is_allowed,
        address,
    };
    level.settings.access.addresses.push(access_entry);
    DirectiveOutcome::translated()
}

fn auth_request(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    if directive.arg(0) == "off" {
        level.settings.access.auth_request = None;
        return DirectiveOutcome::translated();
    }
    // The location is looked up when all are known.
    level.settings.access.auth_request = Some(directive.arg(0).to_string());
    DirectiveOutcome::translated()
}

fn auth_variable(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let (variable, value) = (directive.arg(0), directive.arg(1));
    let Some(field) = value.strip_prefix("$upstream_http_") else {
        return DirectiveOutcome::ByHand("only fields of the response can be copied".to_string());
    };
    // In nginx, the lines of an inner level replace those of the outer one.
    if level.begins_array("auth_request_set") {
        level.settings.access.auth_variables.clear();
    }
    // The names of variables have `_` in place of `-`.
    let field = field.replace('_', "-");
    let set = (variable.to_string(), field);
    level.settings.access.auth_variables.push(set);
    DirectiveOutcome::translated()
}

fn satisfy(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    level.settings.access.is_any_enough = directive.arg(0) == "any";
    DirectiveOutcome::translated()
}

fn realm(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let realm = directive.arg(0);
    level.settings.access.password.realm = (realm != "off").then(|| realm.to_string());
    DirectiveOutcome::translated()
}

fn password_file(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let path = level.absolute_path(directive.arg(0));
    level.settings.access.password.file = path;
    DirectiveOutcome::Translated(
        "hashes of apr1, MD5 and SHA work with a warning; crypt(3) of 13 characters does not"
            .to_string(),
    )
}

fn is_client_key(key: &str) -> bool {
    matches!(key, "$binary_remote_addr" | "$remote_addr")
}

fn zone_name(argument: &str) -> Option<&str> {
    argument.strip_prefix("zone=")?.split(':').next()
}

fn rate_zone(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let mut args = directive.args.iter().skip(1);
    let zone = args.clone().find_map(|arg| zone_name(arg));
    let rate = args.find_map(|arg| {
        arg.strip_prefix("rate=")?
            .strip_suffix('s')
            .map_or_else(|| arg.strip_prefix("rate="), Some)
    });
    let (Some(zone), Some(rate)) = (zone, rate) else {
        return not_a_value();
    };
    if !is_client_key(directive.arg(0)) {
        return DirectiveOutcome::ByHand(
            "rates are limited by client; [[class]] limits a group of requests".to_string(),
        );
    }
    // `10r/s` and `30r/m`; the letter s was removed above.
    let (count, unit) = match rate.split_once("r/") {
        Some((count, "" | "s")) => (count, "s"),
        Some((count, "m")) => (count, "m"),
        _ => return not_a_value(),
    };
    let Ok(count) = count.parse::<u64>() else {
        return not_a_value();
    };
    let setting = RateSetting {
        rate: format!("{count}/{unit}"),
        burst: 1,
    };
    level
        .definitions()
        .rate_zones
        .insert(zone.to_string(), setting);
    DirectiveOutcome::translated()
}

fn rate(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let zone = directive
        .args
        .iter()
        .find_map(|arg| zone_name(arg))
        .unwrap_or_default()
        .to_string();
    let Some(setting) = level.definitions().rate_zones.get(&zone).cloned() else {
        return DirectiveOutcome::ByHand(format!("its zone {zone:?} has no equal"));
    };
    if level.begins_array("limit_req") {
        level.settings.access.rates.clear();
    }
    let burst = directive
        .args
        .iter()
        .find_map(|arg| arg.strip_prefix("burst=")?.parse::<u64>().ok());
    let is_delayed = !directive.args.iter().any(|arg| arg == "nodelay");
    level.settings.access.rates.push(RateSetting {
        // nginx counts the requests beyond the first; Lowroad's `burst` includes that one.
        burst: burst.unwrap_or(0) + 1,
        ..setting
    });
    DirectiveOutcome::Translated(match is_delayed && burst.is_some() {
        true => "requests are not delayed, but refused beyond the burst".to_string(),
        false => String::new(),
    })
}

fn connection_zone(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let zone = zone_name(directive.arg(1)).unwrap_or_default().to_string();
    if !is_client_key(directive.arg(0)) {
        return DirectiveOutcome::ByHand(
            "connections are limited by client; `concurrency` of a route limits its requests"
                .to_string(),
        );
    }
    level.definitions().connection_zones.insert(zone);
    DirectiveOutcome::translated()
}

fn connections(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let is_known = level
        .definitions()
        .connection_zones
        .contains(directive.arg(0));
    if !is_known || directive.arg(1).parse::<u32>().is_err() {
        return DirectiveOutcome::ByHand(
            "connections are limited by client; `concurrency` of a route limits its requests"
                .to_string(),
        );
    }
    if level.is_location {
        return DirectiveOutcome::ByHand(
            "connections are limited for the whole server only; `concurrency` and `client_share` of a route limit its requests"
                .to_string(),
        );
    }
    // nginx counts requests in progress of a location, this limit counts connections of the whole server.
    let value = directive.arg(1).to_string();
    level.set_process_key("limits", "connections_per_address_max", value, directive);
    DirectiveOutcome::Translated("for the whole server".to_string())
}

fn real_ip_from(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    if level.begins_array("set_real_ip_from") {
        level.settings.trusted_proxies.clear();
    }
    if directive.arg(0) == "unix:" {
        return DirectiveOutcome::NotNeeded("sites listen at no Unix sockets".to_string());
    }
    level
        .settings
        .trusted_proxies
        .push(directive.arg(0).to_string());
    DirectiveOutcome::Translated(
        "with real_ip_header X-Forwarded-For only; X-Forwarded-Host and -Proto of the proxy count, too".to_string(),
    )
}

fn real_ip_header(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let field = directive.arg(0).to_ascii_lowercase();
    level.settings.trusts_forwarded = field == "x-forwarded-for";
    match &*field {
        "proxy_protocol" => level.settings.is_proxy_protocol = true,
        "x-forwarded-for" => {}
        _ => {
            return DirectiveOutcome::ByHand(
                "no proxy is trusted, and paths with rules of addresses are refused until then: let the proxy send X-Forwarded-For".to_string(),
            );
        }
    }
    DirectiveOutcome::translated()
}
