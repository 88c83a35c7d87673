//! Fields of responses and requests: `header`, `request_header`.

use crate::caddy::lexer::Word;
use crate::caddy::plan::{FieldChanges, StepAction};
use crate::caddy::site::{SiteReader, StepScope, StepTarget};
use crate::caddy::tree::CaddyDirective;
use crate::report::DirectiveOutcome;

/// Fields of responses that the server manages itself.
const MANAGED: [&str; 8] = [
    "vary",
    "etag",
    "last-modified",
    "date",
    "connection",
    "alt-svc",
    "accept-ranges",
    "content-type",
];

impl SiteReader<'_> {
    pub(super) fn response_fields(
        &mut self,
        directive: &CaddyDirective,
        scope: &StepScope,
    ) -> DirectiveOutcome {
        let (target, args) = self.target(directive, scope);
        let mut changes = FieldChanges::default();
        let mut outcome = DirectiveOutcome::translated();
        if !args.is_empty() {
            outcome = self.change_field(&mut changes, args);
        }
        for line in directive.children() {
            let outcome = match line.name() {
                "defer" => DirectiveOutcome::NotNeeded("fields are changed last".to_string()),
                _ => self.change_field(&mut changes, &line.words),
            };
            self.report.change(line.id, outcome);
        }
        let selector = match target {
            StepTarget::Requests { selector, .. } => selector,
            StepTarget::Unknown(reason) => return DirectiveOutcome::ByHand(reason),
            _ => return DirectiveOutcome::ByHand("fields do not depend on files".to_string()),
        };
        self.push(selector, StepAction::Fields(changes), directive);
        outcome
    }

    /// Reads `[+|-|?|>]NAME [VALUE [REPLACEMENT]]`.
    fn change_field(&self, changes: &mut FieldChanges, words: &[Word]) -> DirectiveOutcome {
        let name = words.first().map_or("", |it| it.text.as_str());
        let value = words.get(1).map_or("", |it| it.text.as_str());
        // The third word replaces a part of the value.
        if words.len() > 2 {
            return DirectiveOutcome::ByHand("fields are replaced as a whole".to_string());
        }
        // `>` defers the change, which is always deferred here.
        let plain = name.trim_start_matches(['+', '-', '?', '>']).to_string();
        if MANAGED.contains(&&*plain.to_ascii_lowercase()) {
            return match name.starts_with('-') {
                true => DirectiveOutcome::NotNeeded("the server manages this field".to_string()),
                false => DirectiveOutcome::ByHand(
                    "the server manages this field; for media types there is [site.types]"
                        .to_string(),
                ),
            };
        }
        if plain.contains('*') {
            return DirectiveOutcome::ByHand("fields are removed by their names".to_string());
        }
        if name.starts_with('-') {
            changes.remove.push(plain);
            return DirectiveOutcome::translated();
        }
        let Some(value) = self.text(value) else {
            return DirectiveOutcome::ByHand(
                "a placeholder of its value has no equal: set it in the application".to_string(),
            );
        };
        let list = match name.chars().next() {
            Some('+') => &mut changes.append,
            Some('?') => &mut changes.default,
            _ => &mut changes.set,
        };
        list.push((plain, value));
        DirectiveOutcome::translated()
    }

    pub(super) fn request_field(
        &mut self,
        directive: &CaddyDirective,
        scope: &mut StepScope,
    ) -> DirectiveOutcome {
        let (target, args) = self.target(directive, scope);
        if !target.is_whole(scope) || args.len() > 2 {
            return DirectiveOutcome::ByHand("use [site.route.request]".to_string());
        }
        let name = args.first().map_or("", |it| it.text.as_str());
        let value = args.get(1).map_or("", |it| it.text.as_str());
        match self.sent_field(name, value) {
            Some(field) => {
                scope.request_fields.push(field);
                DirectiveOutcome::translated()
            }
            None => DirectiveOutcome::ByHand("a placeholder of its value has no equal".to_string()),
        }
    }

    /// A field of requests to origins: the key of its table, the name and the value.
    pub(super) fn sent_field(
        &self,
        name: &str,
        value: &str,
    ) -> Option<(&'static str, String, String)> {
        let plain = name.trim_start_matches(['+', '-', '>', '?']).to_string();
        if plain.contains('*') {
            return None;
        }
        match name.chars().next()? {
            '-' => Some(("remove", plain, String::new())),
            '+' => Some(("append", plain, self.text(value)?)),
            _ => Some(("set", plain, self.text(value)?)),
        }
    }
}
