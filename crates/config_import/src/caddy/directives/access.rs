//! Access and fixed answers: `basic_auth`, `forward_auth`, `respond`, `error`, `abort`, `redir`.

use super::proxy_draft::upstream_url;
use crate::caddy::placeholders::has_captures;
use crate::caddy::plan::StepAction;
use crate::caddy::site::{SiteReader, StepScope, StepTarget, text_key};
use crate::caddy::tree::CaddyDirective;
use crate::origin_tables::TableKeys;
use crate::report::DirectiveOutcome;
use crate::request_selector::RequestSelector;
use crate::toml_values::quoted;

/// Statuses that need further fields, or forbid content.
const OTHER_STATUSES: [u16; 8] = [204, 205, 206, 401, 407, 416, 421, 426];

/// The effect of a rule on its requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RuleEffect {
    /// Admits some clients.
    Guard,
    /// Refuses requests, perhaps with a text.
    Refusal,
    /// Answers with a fixed text.
    Answer,
}

impl SiteReader<'_> {
    /// Adds a rule for the requests of a directive. If they are not known, a guard protects all of the scope, and other
    /// rules refuse them.
    fn rule(
        &mut self,
        directive: &CaddyDirective,
        scope: &StepScope,
        keys: TableKeys,
        effect: RuleEffect,
    ) -> DirectiveOutcome {
        // A guard only admits; the others answer.
        let is_final = effect != RuleEffect::Guard;
        match self.target(directive, scope).0 {
            StepTarget::Requests { selector, .. } => {
                let selector = match effect {
                    RuleEffect::Answer => selector,
                    RuleEffect::Guard | RuleEffect::Refusal => without_case(selector),
                };
                self.push(selector, StepAction::Rule { keys, is_final }, directive);
                DirectiveOutcome::translated()
            }
            _ if !is_final => {
                let action = StepAction::Rule { keys, is_final };
                self.push(scope.selector.clone(), action, directive);
                let way = "its matcher has no equal: until then, all paths are protected";
                DirectiveOutcome::ByHand(way.to_string())
            }
            StepTarget::Unknown(reason) => self.refuse(scope, directive, &reason),
            _ => self.refuse(scope, directive, "rules do not look for files"),
        }
    }

    pub(super) fn password(
        &mut self,
        directive: &CaddyDirective,
        scope: &StepScope,
    ) -> DirectiveOutcome {
        // The algorithm and the realm are optional.
        let (_, args) = self.target(directive, scope);
        let realm = args
            .iter()
            .map(|it| it.text.as_str())
            .find(|it| *it != "bcrypt");
        let file = format!("/etc/lowroad/{}.passwords", self.name);
        let mut keys = vec![text_key("auth", &file)];
        keys.extend(realm.map(|realm| text_key("realm", realm)));
        let users: Vec<String> = directive.children().iter().map(user_line).collect();
        let outcome = self.rule(directive, scope, keys, RuleEffect::Guard);
        if let Some(step) = self.steps.last_mut() {
            step.comment = format!("{file} needs these lines: {}", users.join(" and "));
        }
        match outcome {
            DirectiveOutcome::ByHand(_) => outcome,
            _ => DirectiveOutcome::ByHand(format!(
                "write the users to {file}: the lines are in the comment of the rule"
            )),
        }
    }

    pub(super) fn forward_auth(
        &mut self,
        directive: &CaddyDirective,
        scope: &StepScope,
    ) -> DirectiveOutcome {
        let (_, args) = self.target(directive, scope);
        let server = args.first().and_then(|it| upstream_url(&it.text));
        let mut uri = "/".to_string();
        let mut copied: Vec<String> = Vec::new();
        for line in directive.children() {
            match line.name() {
                "uri" => uri = line.arg(0).to_string(),
                "copy_headers" => {
                    let words = line.args().iter().map(|it| it.text.clone());
                    copied.extend(words.chain(line.children().iter().map(copied_name)));
                }
                "header_up" | "trusted_proxies" | "transport" => {}
                _ => {
                    let way = "url, copy, answer and timeout are the keys of forward_auth";
                    self.record_all(line, &DirectiveOutcome::ByHand(way.to_string()));
                }
            }
        }
        // The URL of a rule is fixed; the server gets the path of the request in X-Forwarded-Uri.
        let is_plain = !uri.contains('{');
        let Some(server) = server.filter(|it| is_plain && !it.contains("h2c")) else {
            return self.refuse(
                scope,
                directive,
                "forward_auth needs a URL without placeholders",
            );
        };
        let copied = copied.iter().map(|name| match name.split_once('>') {
            Some((from, to)) => format!("{} = {}", quoted(to), quoted(from)),
            None => format!("{0} = {0}", quoted(name)),
        });
        let copied: Vec<String> = copied.collect();
        let url = quoted(&format!("{server}{uri}"));
        let value = match copied.is_empty() {
            true => url,
            false => format!("{{ url = {url}, copy = {{ {} }} }}", copied.join(", ")),
        };
        let keys = vec![("forward_auth", value)];
        self.rule(directive, scope, keys, RuleEffect::Guard)
    }

    pub(super) fn abort(
        &mut self,
        directive: &CaddyDirective,
        scope: &StepScope,
    ) -> DirectiveOutcome {
        let keys = vec![("close", "true".to_string())];
        self.rule(directive, scope, keys, RuleEffect::Refusal)
    }

    pub(super) fn error(
        &mut self,
        directive: &CaddyDirective,
        scope: &StepScope,
    ) -> DirectiveOutcome {
        let (_, args) = self.target(directive, scope);
        let status = args
            .iter()
            .find_map(|it| it.text.parse().ok())
            .unwrap_or(500);
        self.rule(directive, scope, refusal(status), RuleEffect::Refusal)
    }

    pub(super) fn respond(
        &mut self,
        directive: &CaddyDirective,
        scope: &StepScope,
    ) -> DirectiveOutcome {
        let (_, args) = self.target(directive, scope);
        let mut text = String::new();
        let mut status = 200;
        match args {
            // A number alone is a status, unless it is quoted.
            [word] => match word.text.parse::<u16>() {
                Ok(code) if word.text.len() == 3 && !word.is_quoted => status = code,
                _ => text = word.text.clone(),
            },
            [body, code] => {
                text = body.text.clone();
                status = code.text.parse().unwrap_or(0);
            }
            _ => {}
        }
        let mut closes = false;
        for line in directive.children() {
            match line.name() {
                "body" => text = line.arg(0).to_string(),
                "close" => closes = true,
                _ => {}
            }
        }
        // The text of a rule has no variables.
        let is_fixed = self
            .text(&text)
            .is_some_and(|it| it == text.replace('$', "$$"));
        if !is_fixed || !(200..600).contains(&status) || (300..400).contains(&status) {
            return self.refuse(
                scope,
                directive,
                "a fixed response has a text without placeholders",
            );
        }
        let outcome = match status {
            400.. if text.is_empty() || OTHER_STATUSES.contains(&status) => {
                self.rule(directive, scope, refusal(status), RuleEffect::Refusal)
            }
            204..=206 => {
                return self.refuse(scope, directive, "fixed responses have content: use 200");
            }
            _ => {
                let table = match text.is_empty() {
                    true if status >= 400 => format!("{{ status = {status} }}"),
                    _ => format!("{{ status = {status}, text = {} }}", quoted(&text)),
                };
                let effect = match status {
                    400.. => RuleEffect::Refusal,
                    _ => RuleEffect::Answer,
                };
                let outcome = self.rule(directive, scope, vec![("respond", table)], effect);
                // A fixed answer is for exactly its paths; protected files may have other spellings.
                if effect == RuleEffect::Refusal {
                    self.rule(directive, scope, refusal(status), effect);
                }
                outcome
            }
        };
        match outcome {
            DirectiveOutcome::Translated(_) if closes => {
                DirectiveOutcome::Translated("the connection stays open".to_string())
            }
            DirectiveOutcome::Translated(_) if OTHER_STATUSES.contains(&status) => {
                DirectiveOutcome::Translated("403: the status needs further fields".to_string())
            }
            outcome => outcome,
        }
    }

    pub(super) fn redirect(
        &mut self,
        directive: &CaddyDirective,
        scope: &StepScope,
    ) -> DirectiveOutcome {
        let (target, args) = self.target(directive, scope);
        let to = args.first().map_or("", |it| it.text.as_str());
        let status = match args.get(1).map_or("302", |it| it.text.as_str()) {
            "permanent" => 301,
            "temporary" => 302,
            code => code.parse().unwrap_or(0),
        };
        let (selector, regex) = match target {
            StepTarget::Requests { selector, regex } => (selector, regex),
            // Without the redirect, its requests would reach later steps.
            StepTarget::Unknown(reason) => return self.refuse(scope, directive, &reason),
            StepTarget::Existing(_) => {
                return self.refuse(scope, directive, "redirects come before files");
            }
            StepTarget::Missing(_) => {
                return DirectiveOutcome::ByHand("redirects come before files".to_string());
            }
        };
        let is_known = matches!(status, 301 | 302 | 303 | 307 | 308);
        let Some(to) = self.text(&with_path(to, &selector)).filter(|_| is_known) else {
            let way = "a redirect has a status 301, 302, 303, 307 or 308, and variables of the URL";
            return self.refuse(
                &StepScope {
                    selector,
                    ..scope.clone()
                },
                directive,
                way,
            );
        };
        // Without captures, patterns are easier to read than an expression.
        let regex = regex.filter(|_| has_captures(&to));
        let action = StepAction::Redirect { to, status, regex };
        self.push(selector, action, directive);
        DirectiveOutcome::translated()
    }

    pub(super) fn log_skip(
        &mut self,
        directive: &CaddyDirective,
        scope: &StepScope,
    ) -> DirectiveOutcome {
        match self.target(directive, scope).0 {
            StepTarget::Requests { selector, .. } => {
                let keys = vec![("log", "false".to_string())];
                let is_final = false;
                self.push(selector, StepAction::Rule { keys, is_final }, directive);
                DirectiveOutcome::translated()
            }
            _ => DirectiveOutcome::ByHand("use path in [[log.access]]".to_string()),
        }
    }
}

/// A relative target begins at the folder of the path, which only a fixed path has.
fn with_path(to: &str, selector: &RequestSelector) -> String {
    let is_complete = to.starts_with('/') || to.contains("://") || to.starts_with('{');
    match &selector.patterns[..] {
        [path] if !is_complete && !path.contains('*') => {
            let folder = path.rfind('/').map_or("", |end| &path[..end]);
            format!("{folder}/{to}")
        }
        _ => to.to_string(),
    }
}

fn refusal(status: u16) -> TableKeys {
    let status = match status {
        401 | 407 | 416 | 421 | 426 => 403,
        status => status,
    };
    vec![("deny", status.to_string())]
}

/// Caddy compares paths without regard to case; a rule that refuses must not match less.
fn without_case(mut selector: RequestSelector) -> RequestSelector {
    for pattern in &mut selector.patterns {
        if pattern.contains(|it: char| it.is_ascii_alphabetic()) && !pattern.starts_with("(?i)") {
            pattern.insert_str(0, "(?i)");
        }
    }
    // Patterns inside of a block are conditions on the path.
    let variables = selector.conditions.get_mut("variable");
    for value in variables.into_iter().flatten() {
        if let Some(expression) = value.strip_prefix("$path=~") {
            *value = format!("$path=~(?i){}", expression.trim_start_matches("(?i)"));
        }
    }
    selector
}

/// The line of a user for a password file.
fn user_line(line: &CaddyDirective) -> String {
    match line.arg(0) {
        hash if hash.starts_with('$') => format!("{}:{hash}", line.name()),
        // Old files of Caddy have hashes in base64.
        encoded => format!("{}:… (`echo {encoded} | base64 -d`)", line.name()),
    }
}

fn copied_name(line: &CaddyDirective) -> String {
    line.name().to_string()
}
