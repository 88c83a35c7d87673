//! The block `if`, in the forms that other keys express: missing files, http, hosts and methods.

use super::changes::{path_change, selected_paths};
use super::is_handler;
use super::refusals::{is_refusing, refusal, request_condition, variable_condition};
use super::targets::{change_of, is_everything, is_to_https, returned, returned_url, with_query};
use crate::nginx::condition_keys::ConditionKeys;
use crate::nginx::include::flat;
use crate::nginx::level::Level;
use crate::nginx::settings::{
    ConditionalPass, ConditionalRefusal, HostRedirect, PathChange, Sourced,
};
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
    let (operand, rest) = match operand {
        "$scheme" | "$https" | "$server_port" if is_plain(rest) => ("$scheme", "= http"),
        operand => (operand, rest),
    };
    let outcome = match operand {
        "!-e" | "!-f" | "!-d" => if_missing(level, directive),
        "-f" | "-e" | "-d" if !rest.contains("maintenance") => if_present(directive),
        "$scheme" => if_plain(level, directive, rest),
        "$host" | "$http_host" => if_host(level, directive, rest),
        "$uri" | "$request_uri" => if_path(level, directive, operand, rest),
        _ => None,
    };
    let outcome = outcome
        .or_else(|| if_moved(level, directive, operand, rest))
        .or_else(|| if_request(level, directive, operand, rest));
    let is_translated = outcome.is_some();
    let outcome = outcome.unwrap_or_else(|| {
        // Requests of files that are missing get no file in any case.
        let is_missing = operand.starts_with("!-") && rest.contains("$request_filename");
        let is_answering = is_refusing(directive) || (is_answering(directive) && !is_missing);
        // A map without all entries would leave some requests open.
        let is_complete = !is_incomplete_map(level, operand);
        let conditions = conditions_of(level, operand, rest).filter(|_| is_complete);
        match is_answering {
            true => close_requests(level, directive, conditions),
            false => DirectiveOutcome::ByHand(CONDITION_WAY.to_string()),
        }
    });
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
    let conditions = conditions_of(level, operand, rest)?;
    let Some(refusal) = refusal(directive) else {
        if let Some(pass) = conditional_pass(level, directive, &conditions) {
            level.content.conditional_passes.push(pass);
            return Some(DirectiveOutcome::translated());
        }
        let change = conditional_change(level, directive, conditions)?;
        level.content.changes.push(change);
        return Some(DirectiveOutcome::translated());
    };
    // The block is refused as a whole instead: without all entries of its map, protected paths would be open.
    if is_incomplete {
        return None;
    }
    let refusals = &mut level.settings.access.conditional_refusals;
    refusals.push(ConditionalRefusal {
        conditions,
        status: refusal.status,
    });
    Some(DirectiveOutcome::Translated(refusal.difference))
}

/// The conditions of a block; `None` without an equal.
fn conditions_of(level: &mut Level<'_>, operand: &str, rest: &str) -> Option<ConditionKeys> {
    file_condition(level, operand, rest)
        .or_else(|| request_condition(operand, rest))
        .or_else(|| compared_map(level, operand, rest))
}

/// `if ($cookie_beta) { proxy_pass http://beta; }` of a location. Its route comes before that of the location.
fn conditional_pass(
    level: &Level<'_>,
    directive: &Directive,
    conditions: &ConditionKeys,
) -> Option<ConditionalPass> {
    let [action] = actions(directive)[..] else {
        return None;
    };
    let url = level.substitute(action.arg(0));
    let is_pass = action.name == "proxy_pass" && level.is_location && !url.contains('$');
    is_pass.then(|| ConditionalPass {
        conditions: conditions.clone(),
        url,
        entry: directive.id,
    })
}

/// `if (-f /srv/maintenance)`: a file at a fixed path, as the switch of a maintenance mode.
fn file_condition(level: &Level<'_>, operand: &str, rest: &str) -> Option<ConditionKeys> {
    let kind = operand.trim_start_matches('!');
    let root = level.settings.root.as_deref();
    // Other variables would make it a file of the request.
    let path = match rest.strip_prefix("$document_root") {
        Some(path) => format!("{}{path}", root?.trim_end_matches('/')),
        None => level.substitute(rest),
    };
    if !matches!(kind, "-f" | "-e" | "-d") || !path.starts_with('/') || path.contains('$') {
        return None;
    }
    let mut keys = ConditionKeys::default();
    match operand.starts_with('!') {
        true => keys.except(format!("{{ file_exists = {} }}", quoted(&path))),
        false => keys.require("file_exists", quoted(&path)),
    }
    Some(keys)
}

fn is_incomplete_map(level: &mut Level<'_>, operand: &str) -> bool {
    let name = operand.trim_start_matches('$');
    level.definitions().incomplete_maps.contains(name)
}

fn compared_map(level: &mut Level<'_>, operand: &str, rest: &str) -> Option<ConditionKeys> {
    if !level.is_map(operand) {
        return None;
    }
    // This marks the map as used, so that its table is written.
    let variable = level.request_text(operand)?;
    variable_condition(&variable.to_string(), rest)
}

/// The redirect or rewrite of a block with a condition.
fn conditional_change(
    level: &Level<'_>,
    directive: &Directive,
    conditions: ConditionKeys,
) -> Option<PathChange> {
    let [action] = actions(directive)[..] else {
        return None;
    };
    let mut change = match &*action.name {
        "rewrite" => path_change(level, action, false).ok()?,
        "return" => {
            let (status, target) = redirect_of(action)?;
            let to = returned_url(&level.substitute(target))?;
            PathChange {
                status: Some(status),
                comment: directive.to_text(),
                ..PathChange::new("^/(.*)$".to_string(), to, action)
            }
        }
        _ => return None,
    };
    change.conditions.extend(&conditions);
    Some(change)
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
    let variable = level.request_text(operand)?.to_string();
    // `return` sends the value alone, and `rewrite` adds the query of the request.
    let to = match &*action.name {
        "return" => format!("{variable}?"),
        _ => variable,
    };
    level.content.changes.push(PathChange {
        status: Some(status),
        comment: directive.to_text(),
        ..PathChange::new("^/(.*)$".to_string(), to, action)
    });
    Some(DirectiveOutcome::translated())
}

/// The way to translate a condition by hand.
const CONDITION_WAY: &str =
    "see the conditions of rules, redirects, rewrites and routes (site-rule-not.md)";

/// Refuses the requests of a block that no table expresses, so that no file or handler answers them: all of the location or
/// server without an equal of the condition.
fn close_requests(
    level: &mut Level<'_>,
    directive: &Directive,
    conditions: Option<ConditionKeys>,
) -> DirectiveOutcome {
    let refused = match conditions {
        Some(conditions) => {
            let status = if is_refusing(directive) { 403 } else { 503 };
            let refusals = &mut level.settings.access.conditional_refusals;
            refusals.push(ConditionalRefusal { conditions, status });
            "its requests are"
        }
        None => close_block(level, is_refusing(directive)),
    };
    DirectiveOutcome::ByHand(format!("{refused} refused until then: {CONDITION_WAY}"))
}

/// Refuses all requests of a block; returns a text for the report.
fn close_block(level: &mut Level<'_>, is_refusal: bool) -> &'static str {
    if !level.is_location {
        // nginx decides before it selects a location, so those of the server can't have precedence.
        level.content.has_unknown_guard = true;
        return "the server is";
    }
    match is_refusal {
        true => level.settings.access.refusal = Some(403),
        false => level.settings.access.has_unknown_guard = true,
    }
    "the location is"
}

/// Whether a block answers its requests, or leads them elsewhere.
fn is_answering(directive: &Directive) -> bool {
    let actions = actions(directive);
    actions
        .iter()
        .any(|it| matches!(&*it.name, "return" | "rewrite") || is_handler(it))
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
            // nginx doesn't merge the slashes of the new path `//x`, which only the location `/` has.
            "rewrite" if adds_slash(action) => level.content.missing_to_slash = Some(action.id),
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

/// `rewrite (.*) /$1 last`
fn adds_slash(action: &Directive) -> bool {
    let is_whole = matches!(
        action.arg(0),
        "(.*)" | "^(.*)" | "^(.*)$" | "(.*)$" | "^(.+)$"
    );
    is_whole && action.arg(1) == "/$1" && matches!(action.arg(2), "" | "last")
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

/// Whether a comparison of `$scheme`, `$server_port` or `$https` holds for requests without TLS.
fn is_plain(rest: &str) -> bool {
    matches!(
        rest,
        "= http" | "= \"http\"" | "!= https" | "= 80" | "!= 443" | "=" | "= \"\"" | "!= on"
    )
}

/// `if ($scheme = http) { return 301 https://$host$request_uri; }` of a server.
fn if_plain(level: &mut Level<'_>, directive: &Directive, rest: &str) -> Option<DirectiveOutcome> {
    let [action] = actions(directive)[..] else {
        return None;
    };
    let is_redirect = action.args.iter().any(|arg| is_to_https(arg));
    if !is_plain(rest) || !is_redirect || level.is_location {
        return None;
    }
    level.content.redirects_to_https = true;
    Some(DirectiveOutcome::translated())
}

/// `if ($host = www.example.com) { return 301 https://example.com$request_uri; }`
fn if_host(level: &mut Level<'_>, directive: &Directive, rest: &str) -> Option<DirectiveOutcome> {
    let (operator, name) = rest.split_once(' ').filter(|_| !level.is_location)?;
    let name = name.trim_matches(['"', '\'']);
    let [action] = actions(directive)[..] else {
        return None;
    };
    let (status, target) = match (&*action.name, action.arg(2)) {
        ("return", _) => redirect_of(action)?,
        ("rewrite", _) if !is_everything(action.arg(0)) => return None,
        ("rewrite", "permanent") => (301, action.arg(1)),
        ("rewrite", _) => (302, action.arg(1)),
        _ => return None,
    };
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
    let (scheme, _) = target.split_once("://")?;
    // A target without another host would lead back to this redirect, in a loop.
    let (_, to) = change_of("^/(.*)$", &target.replace("$scheme://", "https://"))?;
    let (_, rest) = to.split_once("://")?;
    let to = format!("{scheme}://{rest}");
    let to = match &*action.name {
        "return" => returned(&target, to),
        _ => with_query(&to),
    };
    level.content.host_redirects.push(Sourced {
        value: HostRedirect { name, to, status },
        entry: directive.id,
    });
    Some(DirectiveOutcome::translated())
}

/// `if ($request_uri ~ ^/old/(.*)) { return 301 /new/$1; }`
fn if_path(
    level: &mut Level<'_>,
    directive: &Directive,
    operand: &str,
    rest: &str,
) -> Option<DirectiveOutcome> {
    let (operator, regex) = rest.split_once(' ')?;
    let regex = regex.trim_matches(['"', '\'']);
    let [action] = actions(directive)[..] else {
        return None;
    };
    let (status, target) = redirect_of(action).filter(|_| action.name == "return")?;
    // A condition on the target compares the query, too; only captures need an expression of the path.
    let is_target = operand == "$request_uri";
    let has_capture = target.contains(|it: char| it.is_ascii_digit()) && target.contains('$');
    if is_target && (!has_capture || regex.contains('?')) {
        return None;
    }
    let regex = match operator {
        "~" => regex.to_string(),
        "~*" => format!("(?i){regex}"),
        "=" => format!("^{}$", regex_syntax::escape(regex)),
        _ => return None,
    };
    let target = level.substitute(target);
    let selected = selected_paths(&regex)?;
    let (regex, to) = change_of(&selected.expression, &target)?;
    // The last capture of a target may contain its query, which Lowroad adds.
    let to = match is_target {
        true => to,
        false => returned(&target, to),
    };
    level.content.changes.push(PathChange {
        status: Some(status),
        conditions: selected.exception_keys(),
        ..PathChange::new(regex, to, directive)
    });
    Some(DirectiveOutcome::translated())
}
