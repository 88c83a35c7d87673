//! Redirects, rewrites and variables: `return`, `rewrite`, `set`.

use super::process::not_a_value;
use super::targets::{change_of, with_query};
use super::{Handling::Translate, TableLine};
use lowroad_config::PathExpression;

use crate::look_ahead::{SplitExpression, without_look_arounds};
use crate::nginx::condition_keys::ConditionKeys;
use crate::nginx::level::Level;
use crate::nginx::settings::{ConditionalRefusal, PathChange, Sourced};
use crate::nginx::tree::Directive;
use crate::report::DirectiveOutcome;

/// Directives of redirects and rewrites.
pub const TABLE: &[TableLine] = &[
    ("return", Translate(return_)),
    ("rewrite", Translate(rewrite)),
    ("set", Translate(set)),
    ("break", Translate(end_of_rewrites)),
];

/// The longest value of a variable.
const VARIABLE_LEN_MAX: usize = 8192;

fn return_(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let (status, text) = match directive.arg(0).parse::<u16>() {
        Ok(status) => (status, directive.arg(1)),
        // `return URL` without a status is a 302 in nginx.
        Err(_) => (302, directive.arg(0)),
    };
    let text = level.substitute(text);
    match status {
        301 | 302 | 303 | 307 | 308 if !text.is_empty() => {
            level.content.redirect = Some(Sourced {
                value: (status, text),
                entry: directive.id,
            });
            DirectiveOutcome::translated()
        }
        401 | 407 | 426 => refuse(level, 403, "403: the status needs further fields"),
        400..=599 if status != 499 && text.contains('$') => {
            refuse(level, status, "the text of the response is an error page")
        }
        400..=599 if status != 499 => {
            level.settings.access.refusal_text = text;
            refuse(level, status, "")
        }
        _ => {
            level.content.is_other = true;
            level.content.respond = Some(Sourced {
                value: (status, text),
                entry: directive.id,
            });
            DirectiveOutcome::ByHand("write a [[site.rule]] with `respond`".to_string())
        }
    }
}

fn refuse(level: &mut Level<'_>, status: u16, difference: &str) -> DirectiveOutcome {
    level.settings.access.refusal = Some(status);
    DirectiveOutcome::Translated(difference.to_string())
}

fn rewrite(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    match path_change(level, directive, false) {
        Ok(change) => {
            level.content.changes.push(change);
            DirectiveOutcome::translated()
        }
        Err(outcome) => {
            close_paths(level, directive.arg(0));
            match outcome {
                DirectiveOutcome::ByHand(way) => {
                    DirectiveOutcome::ByHand(format!("its paths are refused until then: {way}"))
                }
                outcome => outcome,
            }
        }
    }
}

/// Refuses the paths of a rewrite without an equal: it may lead them away from files that no client may get.
fn close_paths(level: &mut Level<'_>, regex: &str) {
    let regex = without_look_arounds(regex);
    match ConditionKeys::from_match("$path", &regex) {
        Some(conditions) => {
            let refusals = &mut level.settings.access.conditional_refusals;
            refusals.push(ConditionalRefusal {
                conditions,
                status: 503,
            });
        }
        None if level.is_location => level.settings.access.has_unknown_guard = true,
        None => level.content.has_unknown_guard = true,
    }
}

/// `break`: the location keeps the path that the rewrites before have set.
fn end_of_rewrites(level: &mut Level<'_>, _: &Directive) -> DirectiveOutcome {
    let changes = level.content.changes.iter_mut();
    for change in changes.filter(|it| level.is_location && it.status.is_none()) {
        change.stays = true;
    }
    DirectiveOutcome::NotNeeded("a request is rewritten once".to_string())
}

impl PathChange {
    /// The rewrite of an expression to a target, of a directive.
    pub fn new(regex: String, to: String, directive: &Directive) -> PathChange {
        PathChange {
            regex,
            to,
            status: None,
            is_missing: false,
            conditions: ConditionKeys::default(),
            stays: false,
            entry: directive.id,
            comment: directive.to_text(),
        }
    }
}

/// The paths of an expression of nginx; `None` if Lowroad's expressions and conditions can't select them.
pub fn selected_paths(regex: &str) -> Option<SplitExpression> {
    let split = SplitExpression::parse(regex)?;
    let mut texts = std::iter::once(&split.expression).chain(&split.exceptions);
    texts
        .all(|it| PathExpression::parse(it).is_ok())
        .then_some(split)
}

impl SplitExpression {
    /// The conditions that the exceptions do not hold.
    pub fn exception_keys(&self) -> ConditionKeys {
        let mut keys = ConditionKeys::default();
        for exception in &self.exceptions {
            keys.except_path(exception);
        }
        keys
    }
}

/// Reads `rewrite`; `is_missing` if it applies to missing files only.
pub fn path_change(
    level: &Level<'_>,
    directive: &Directive,
    is_missing: bool,
) -> Result<PathChange, DirectiveOutcome> {
    let target = level.substitute(directive.arg(1));
    let status = match directive.arg(2) {
        "permanent" => Some(301),
        "redirect" => Some(302),
        // nginx redirects to a URL even with the flag `last` or `break`.
        _ if target.starts_with("http://")
            || target.starts_with("https://")
            || target.starts_with("$scheme") =>
        {
            Some(302)
        }
        "" | "last" | "break" => None,
        _ => return Err(not_a_value()),
    };
    let way = "its expression has a look-around, a back-reference or the like: write it as a pattern with `not`";
    let selected = selected_paths(directive.arg(0))
        .ok_or_else(|| DirectiveOutcome::ByHand(way.to_string()))?;
    let way = "targets contain $1 to $9 and $query only, after the host";
    let (regex, to) = change_of(&selected.expression, &target)
        .ok_or_else(|| DirectiveOutcome::ByHand(way.to_string()))?;
    Ok(PathChange {
        status,
        is_missing,
        conditions: selected.exception_keys(),
        stays: level.is_location && status.is_none() && directive.arg(2) == "break",
        ..PathChange::new(regex, with_query(&to), directive)
    })
}

fn set(level: &mut Level<'_>, directive: &Directive) -> DirectiveOutcome {
    let name = directive.arg(0).trim_start_matches('$').to_string();
    let value = level.substitute(directive.arg(1));
    // A variable of a fixed value is replaced where it is used. One with a variable is replaced, too, unless that
    // depends on captures.
    let depends_on_captures = value
        .split('$')
        .skip(1)
        .any(|it| it.starts_with(|it: char| it.is_ascii_digit()));
    if depends_on_captures || value.contains(&format!("${name}")) {
        return DirectiveOutcome::ByHand("there are no variables of requests".to_string());
    }
    // Values that double themselves would grow exponentially.
    if value.len() > VARIABLE_LEN_MAX {
        return DirectiveOutcome::ByHand(format!(
            "its value has more than {VARIABLE_LEN_MAX} bytes"
        ));
    }
    level.settings.variables.insert(name, value);
    DirectiveOutcome::translated()
}
