//! The block `if`, in the forms that other keys express: missing files, http, hosts and methods.

use super::changes::{change_of, is_to_https, path_change};
use super::refusals::{is_refusing, map_condition, refusal, request_condition};
use crate::nginx::include::flat;
use crate::nginx::level::Level;
use crate::nginx::settings::{ConditionalRefusal, PathChange, RequestCondition, Sourced};
use crate::nginx::tree::Directive;
use crate::report::DirectiveOutcome;
use crate::toml_values::quoted;

/// Translates `if` with its block.
pub fn condition(level: &mut Level<'_>, directive: &Directive) {
    let text = directive.args.join(" ");
    // An expression may contain parentheses, too.
    let text = text.strip_prefix('(').unwrap_or(&text);
    let text = text.strip_suffix(')').unwrap_or(text).trim();
    let (operand, rest) = text.split_once(' ').unwrap_or((text, ""));
    let rest = rest.trim();
    let outcome = match operand {
        "!-e" | "!-f" | "!-d" => if_missing(level, directive),
        "-f" | "-e" | "-d" if !rest.contains("maintenance") => if_present(directive),
        "$scheme" | "$https" | "$server_port" => if_plain(level, directive, rest),
        "$host" | "$http_host" => if_host(level, directive, rest),
        "$uri" | "$request_uri" => if_path(level, directive, rest),
        _ => None,
    };
    let outcome = outcome
        .or_else(|| if_moved(level, directive, operand, rest))
        .or_else(|| if_request(level, directive, operand, rest));
    let is_translated = outcome.is_some();
    let outcome = match outcome {
        Some(outcome) => outcome,
        None => untranslated(level, directive),
    };
    level.record(directive, outcome);
    for child in flat(directive.children()) {
        let outcome = match is_translated {
            true => DirectiveOutcome::translated(),
            false => DirectiveOutcome::ByHand("see the condition around it".to_string()),
        };
        level.record(child, outcome);
    }
}

/// `if ($http_user_agent ~* bot) { return 403; }`, `if ($map = 1) { return 302 /m; }`
fn if_request(
    level: &mut Level<'_>,
    directive: &Directive,
    operand: &str,
    rest: &str,
) -> Option<DirectiveOutcome> {
    let is_incomplete = is_incomplete_map(level, operand);
    let condition =
        request_condition(operand, rest).or_else(|| compared_map(level, operand, rest))?;
    let Some(refusal) = refusal(directive) else {
        let change = conditional_change(level, directive, condition)?;
        level.content.changes.push(change);
        return Some(DirectiveOutcome::translated());
    };
    // The block is refused as a whole instead: without all entries of its map, protected paths would be open.
    if is_incomplete {
        return None;
    }
    let refusals = &mut level.settings.access.conditional_refusals;
    refusals.push(ConditionalRefusal {
        condition,
        status: refusal.status,
    });
    Some(DirectiveOutcome::Translated(refusal.difference))
}

fn is_incomplete_map(level: &mut Level<'_>, operand: &str) -> bool {
    let name = operand.trim_start_matches('$');
    level.definitions().incomplete_maps.contains(name)
}

fn compared_map(level: &mut Level<'_>, operand: &str, rest: &str) -> Option<RequestCondition> {
    if !level.is_map(operand) {
        return None;
    }
    // This marks the map as used, so that its table is written.
    let variable = level.request_text(operand)?;
    map_condition(&variable.to_string(), rest)
}

/// The redirect or rewrite of a block with a condition.
fn conditional_change(
    level: &Level<'_>,
    directive: &Directive,
    condition: RequestCondition,
) -> Option<PathChange> {
    let [action] = actions(directive)[..] else {
        return None;
    };
    let change = match &*action.name {
        "rewrite" => path_change(level, action, false).ok()?,
        "return" => {
            let (status, target) = redirect_of(action)?;
            let target = level.substitute(target);
            let (regex, to) = change_of("^/(.*)$", &target)?;
            PathChange {
                regex,
                to,
                status: Some(status),
                is_missing: false,
                condition: None,
                entry: action.id,
                comment: directive.to_text(),
            }
        }
        _ => return None,
    };
    Some(PathChange {
        condition: Some(condition),
        ..change
    })
}

/// Status and target of `return` with a redirect.
fn redirect_of(action: &Directive) -> Option<(u16, &str)> {
    let status = action.arg(0).parse().ok()?;
    let is_redirect = matches!(status, 301 | 302 | 303 | 307 | 308) && action.args.len() == 2;
    is_redirect.then(|| (status, action.arg(1)))
}

/// `if ($map) { return 301 $map; }`: a value that is no URL does not redirect.
fn if_moved(
    level: &mut Level<'_>,
    directive: &Directive,
    operand: &str,
    rest: &str,
) -> Option<DirectiveOutcome> {
    if !rest.is_empty() || !level.is_map(operand) {
        return None;
    }
    let [action] = actions(directive)[..] else {
        return None;
    };
    let (status, target) = match (&*action.name, action.arg(2)) {
        ("return", _) => redirect_of(action)?,
        ("rewrite", "permanent") => (301, action.arg(1)),
        ("rewrite", "redirect") => (302, action.arg(1)),
        _ => return None,
    };
    if target != operand {
        return None;
    }
    let variable = level.request_text(operand)?;
    level.content.changes.push(PathChange {
        regex: "^/(.*)$".to_string(),
        to: variable.to_string(),
        status: Some(status),
        is_missing: false,
        condition: None,
        entry: action.id,
        comment: directive.to_text(),
    });
    Some(DirectiveOutcome::translated())
}

/// The outcome for a condition that no table expresses. The location or the server that it protects is refused: it must
/// not become open.
fn untranslated(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let way = "see the conditions of rules, redirects, rewrites and routes (site-rule-not.md)";
    if !is_refusing(directive) {
        return DirectiveOutcome::ByHand(way.to_string());
    }
    let block = match level.is_location {
        true => {
            level.settings.access.refusal = Some(403);
            "location"
        }
        // nginx decides before it selects a location, so those of the server can't have precedence.
        false => {
            level.content.has_unknown_guard = true;
            "server"
        }
    };
    DirectiveOutcome::ByHand(format!("the {block} is refused until then: {way}"))
}

/// The children of an `if` without those that do nothing.
fn actions(directive: &Directive) -> Vec<&Directive> {
    flat(directive.children())
        .into_iter()
        .filter(|it| it.name != "break")
        .collect()
}

/// `if (!-e $request_filename)`
fn if_missing(level: &mut Level<'_>, directive: &Directive) -> Option<DirectiveOutcome> {
    for action in actions(directive) {
        match &*action.name {
            "rewrite" => {
                let change = path_change(level, action, true).ok()?;
                match change.status {
                    None => level.content.changes.push(change),
                    Some(_) => remove_slash(level, &change)?,
                }
            }
            "proxy_pass" | "fastcgi_pass" if !action.arg(0).contains('$') => {
                let pass = Some(Sourced {
                    value: action.arg(0).to_string(),
                    entry: action.id,
                });
                match &*action.name {
                    "proxy_pass" => level.content.proxy = pass,
                    _ => level.content.fastcgi = pass,
                }
                level.content.is_missing = true;
            }
            "return" if action.arg(0) == "404" => {}
            _ => return None,
        }
    }
    Some(DirectiveOutcome::translated())
}

/// `rewrite ^/(.*)/$ /$1 permanent` of a server for paths without a folder. Redirects know no files, so this one would
/// lead to the path of a folder, which leads back.
fn remove_slash(level: &mut Level<'_>, change: &PathChange) -> Option<()> {
    let removes_slash = matches!(&*change.regex, "^/(.*)/$" | "^/(.+)/$") && change.to == "/$1";
    (removes_slash && !level.is_location).then_some(())?;
    let keys = &mut level.settings.site_keys;
    keys.insert("trailing_slash", quoted("remove"));
    Some(())
}

/// `if (-f $request_filename) { break; }`: files are sent first anyway.
fn if_present(directive: &Directive) -> Option<DirectiveOutcome> {
    let is_idle = actions(directive).is_empty();
    is_idle.then(|| {
        DirectiveOutcome::NotNeeded(
            "files have precedence in routes and rewrites with missing".to_string(),
        )
    })
}

/// `if ($scheme = http)`, `if ($server_port = 80)`, `if ($https = "")`
fn if_plain(level: &mut Level<'_>, directive: &Directive, rest: &str) -> Option<DirectiveOutcome> {
    let is_plain = matches!(
        rest,
        "= http" | "= \"http\"" | "!= https" | "= 80" | "!= 443" | "=" | "= \"\"" | "= " | "!= on"
    );
    let [action] = actions(directive)[..] else {
        return None;
    };
    let is_redirect = action
        .args
        .iter()
        .any(|arg| is_to_https(arg) || arg.starts_with("https://"));
    if !is_plain || !is_redirect {
        return None;
    }
    level.content.redirects_to_https = true;
    Some(DirectiveOutcome::translated())
}

/// `if ($host = www.example.com) { return 301 https://example.com$request_uri; }`
fn if_host(level: &mut Level<'_>, directive: &Directive, rest: &str) -> Option<DirectiveOutcome> {
    let (operator, name) = rest.split_once(' ')?;
    let name = name.trim_matches(['"', '\'']);
    let [action] = actions(directive)[..] else {
        return None;
    };
    let (status, target) = match &*action.name {
        "return" => (action.arg(0), action.arg(1)),
        "rewrite" => ("301", action.arg(1)),
        _ => return None,
    };
    if !matches!(status, "301" | "302" | "307" | "308") {
        return None;
    }
    let target = level.substitute(target);
    let name = match operator {
        "=" => name.to_string(),
        // All other names of the server.
        "!=" => format!("!{name}"),
        _ => return None,
    };
    // certbot writes one such condition for each name, so together they cover the server.
    if is_to_https(&target) {
        level.content.redirects_to_https = true;
        return Some(DirectiveOutcome::translated());
    }
    let to = target.replace("$scheme://", "https://");
    let (_, to) = change_of("^/(.*)$", &to)?;
    // A target without another host would lead back to this redirect, in a loop.
    to.contains("://").then_some(())?;
    level.content.host_redirects.push(Sourced {
        value: (name, to),
        entry: directive.id,
    });
    Some(DirectiveOutcome::translated())
}

/// `if ($request_uri ~ ^/old) { return 301 /new; }`
fn if_path(level: &mut Level<'_>, directive: &Directive, rest: &str) -> Option<DirectiveOutcome> {
    let (operator, regex) = rest.split_once(' ')?;
    let [action] = actions(directive)[..] else {
        return None;
    };
    let regex = match operator {
        "~" => regex.to_string(),
        "~*" => format!("(?i){regex}"),
        "=" => format!("^{}$", regex.replace('.', "\\.")),
        _ => return None,
    };
    let (status, target) = match &*action.name {
        "return" if action.args.len() == 2 => (action.arg(0).parse().ok()?, action.arg(1)),
        "rewrite" => (
            if action.arg(2) == "redirect" {
                302
            } else {
                301
            },
            action.arg(1),
        ),
        _ => return None,
    };
    let target = level.substitute(target);
    let (regex, to) = change_of(&regex, &target)?;
    level.content.changes.push(PathChange {
        regex,
        to,
        status: Some(status),
        is_missing: false,
        condition: None,
        entry: directive.id,
        comment: directive.to_text(),
    });
    Some(DirectiveOutcome::translated())
}
