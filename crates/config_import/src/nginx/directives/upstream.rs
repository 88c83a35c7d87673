//! The block `upstream`: `[[origin]]`.

use std::net::SocketAddr;

use super::process::not_a_value;
use crate::nginx::level::{Upstream, UpstreamServer, is_ip_address};
use crate::nginx::tree::Directive;
use crate::report::DirectiveOutcome;
use crate::toml_values::{list, quoted};

/// Translates a directive in `upstream`.
pub fn upstream_directive(upstream: &mut Upstream, directive: &Directive) -> DirectiveOutcome {
    let not_needed = |reason: &str| DirectiveOutcome::NotNeeded(reason.to_string());
    let by_hand = |way: &str| DirectiveOutcome::ByHand(way.to_string());
    match &*directive.name {
        "server" => server(upstream, directive),
        "least_conn" | "least_time" => balance(upstream, "least-connections"),
        "random" => balance(upstream, "random"),
        "ip_hash" => {
            upstream.keys.insert("hash", quoted("address"));
            balance(upstream, "hash")
        }
        "hash" => hash(upstream, directive),
        "keepalive" | "keepalive_requests" | "keepalive_timeout" | "keepalive_time" => {
            not_needed("connections to origins are kept")
        }
        "zone" | "state" | "ntlm" => not_needed("workers share the state of origins"),
        "resolver" => resolver(upstream, directive),
        "resolver_timeout" => not_needed("names are resolved in the background"),
        "queue" => not_needed("requests wait for connections"),
        "check" => by_hand("health checks: [origin.check]"),
        "sticky" if directive.arg(0) == "cookie" => sticky_cookie(upstream, directive),
        "sticky" => by_hand("sticky = true: a cookie of Lowroad's names the server"),
        _ => by_hand("this directive is unknown to the import"),
    }
}

/// `resolver`: addresses of name servers, and parameters. The time to live of the records counts.
fn resolver(upstream: &mut Upstream, directive: &Directive) -> DirectiveOutcome {
    let addresses = directive.args.iter().filter(|arg| !arg.contains('='));
    let addresses: Vec<String> = addresses.cloned().collect();
    if addresses.is_empty() || !addresses.iter().all(|it| is_ip_address(it)) {
        return DirectiveOutcome::ByHand("resolver has addresses, not names".to_string());
    }
    let plain = addresses
        .iter()
        .map(|text| match text.parse::<SocketAddr>() {
            Ok(_) => text.clone(),
            Err(_) => text.trim_matches(['[', ']']).to_string(),
        });
    let plain: Vec<String> = plain.collect();
    upstream.keys.insert("resolver", list(&plain));
    DirectiveOutcome::translated()
}

fn balance(upstream: &mut Upstream, balance: &str) -> DirectiveOutcome {
    upstream.keys.insert("balance", quoted(balance));
    DirectiveOutcome::translated()
}

fn hash(upstream: &mut Upstream, directive: &Directive) -> DirectiveOutcome {
    let key = match directive.arg(0) {
        "$remote_addr" | "$binary_remote_addr" => "address".to_string(),
        "$request_uri" | "$uri" | "$scheme$proxy_host$request_uri" => "url".to_string(),
        text => match (text.strip_prefix("$cookie_"), text.strip_prefix("$http_")) {
            (Some(name), _) => format!("cookie:{name}"),
            (_, Some(name)) => format!("header:{}", name.replace('_', "-")),
            _ => {
                return DirectiveOutcome::ByHand(
                    "keys are url, address, header:NAME and cookie:NAME".to_string(),
                );
            }
        },
    };
    upstream.keys.insert("hash", quoted(&key));
    balance(upstream, "hash")
}

/// Translates `sticky cookie NAME` with its parameters.
fn sticky_cookie(upstream: &mut Upstream, directive: &Directive) -> DirectiveOutcome {
    let mut keys = vec![format!("cookie = {}", quoted(directive.arg(1)))];
    for arg in directive.args.iter().skip(2) {
        // Flags have no value.
        let (name, value) = arg.split_once('=').unwrap_or((arg, ""));
        match name {
            // Browsers limit lifetimes to 400 days.
            "expires" if value == "max" => keys.push("lifetime = \"400d\"".to_string()),
            "expires" if is_duration(value) => keys.push(format!("lifetime = {}", quoted(value))),
            "secure" => keys.push("secure = true".to_string()),
            "samesite" if ["strict", "lax", "none"].contains(&value) => {
                keys.push(format!("same_site = {}", quoted(value)));
            }
            // The cookie is for all paths, and scripts can't read it.
            "path" | "httponly" => {}
            // Such as `domain`, which would send the cookie to other hosts.
            _ => return DirectiveOutcome::ByHand(format!("sticky: {name} has no equal")),
        }
    }
    let table = format!("{{ {} }}", keys.join(", "));
    upstream.keys.insert("sticky", table);
    DirectiveOutcome::translated()
}

/// Whether a time of nginx is a duration in Lowroad, too.
fn is_duration(text: &str) -> bool {
    let digits = text.trim_end_matches(['s', 'm', 'h', 'd']);
    // A single unit: nginx adds up several, such as `1h30m`.
    text.len() <= digits.len() + 1
        && !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn server(upstream: &mut Upstream, directive: &Directive) -> DirectiveOutcome {
    let mut keys = Vec::new();
    for arg in directive.args.iter().skip(1) {
        match arg.split_once('=') {
            Some(("weight", weight)) if weight.parse::<u16>().is_ok() => {
                keys.push(("weight", weight.to_string()))
            }
            Some(("weight", _)) => return not_a_value(),
            Some(("max_conns", connections)) => {
                if connections.parse::<u32>().is_err() {
                    return not_a_value();
                }
                upstream.keys.insert("connections", connections.to_string());
            }
            None if arg == "backup" => keys.push(("backup", "true".to_string())),
            None if arg == "down" => {
                return DirectiveOutcome::NotNeeded("the server is down".to_string());
            }
            // A circuit breaker and slow start replace max_fails, fail_timeout and slow_start.
            _ => {}
        }
    }
    upstream.servers.push(UpstreamServer {
        address: directive.arg(0).to_string(),
        keys,
    });
    DirectiveOutcome::translated()
}
