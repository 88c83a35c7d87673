//! Reads the directives of a site into steps.

use std::collections::BTreeSet;

use super::lexer::Word;
use super::matchers::{MatcherMeaning, NamedMatchers, read_matcher, split_matcher};
use super::order::DirectiveOrder;
use super::placeholders::{PlaceholderNames, request_text};
use super::plan::{SiteStep, StepAction};
use super::tree::CaddyDirective;
use crate::document::ConfigTable;
use crate::origin_tables::TableKeys;
use crate::report::{DirectiveOutcome, ImportReport};
use crate::request_selector::RequestSelector;
use crate::toml_values::quoted;

/// The state that directives of a block leave to those after them.
#[derive(Clone, Debug, Default)]
pub struct StepScope {
    /// The requests of the block.
    pub selector: RequestSelector,
    /// The front of the path that is removed, without a slash at its end.
    pub strip: String,
    /// The front of the path that is added.
    pub add: String,
    /// `root`
    pub root: Option<String>,
    /// `root` with a matcher.
    pub special_roots: Vec<(RequestSelector, String)>,
    /// `try_files`, and its directive.
    pub try_files: Option<(Vec<String>, usize)>,
    /// `request_header`: the key, the name and the value.
    pub request_fields: Vec<(&'static str, String, String)>,
    /// `request_body`
    pub body_len: Option<u64>,
    /// Whether a file server follows in the block.
    pub has_files: bool,
    /// The expression of the matcher, for captures.
    pub regex: Option<String>,
}

/// The folders of a `file_server`.
#[derive(Clone, Copy, Debug)]
pub struct FolderListing {
    /// `browse`
    pub is_listed: bool,
    /// The directive in the report.
    pub entry: usize,
}

/// Settings of a site that are not steps.
#[derive(Clone, Debug, Default)]
pub struct SiteSettings {
    /// Keys of `[site.tls]`; `None` without the directive.
    pub tls: Option<TableKeys>,
    /// `bind`
    pub hosts: Vec<String>,
    /// Logs: tables of `[[log.access]]` without their site.
    pub logs: Vec<ConfigTable>,
    /// Whether responses of programs and origins are compressed.
    pub compresses: bool,
    /// Whether each `file_server` lists folders; none without any.
    pub listings: Vec<FolderListing>,
    /// Error pages: status and path.
    pub error_pages: Vec<(u16, String, usize)>,
    /// The index files.
    pub index: Vec<String>,
    /// Whether [`SiteSettings::body_len`] holds for the whole site.
    pub body_len: Option<u64>,
    /// `trusted_proxies` of a proxy.
    pub trusted_proxies: Vec<String>,
}

impl SiteSettings {
    /// Whether the directive `tls` names a certificate.
    pub fn names_certificate(&self) -> bool {
        let mut keys = self.tls.iter().flatten();
        keys.any(|(key, _)| matches!(*key, "certificate" | "local"))
    }
}

/// Reads one site.
pub struct SiteReader<'r> {
    /// The outcomes.
    pub report: &'r mut ImportReport,
    /// The order of directives.
    pub order: &'r DirectiveOrder,
    /// `[map.NAME]` tables.
    pub maps: &'r mut Vec<(String, ConfigTable)>,
    /// The names of password files begin with this.
    pub name: String,
    /// Named matchers.
    pub matchers: NamedMatchers,
    /// Placeholders of `vars` and `map`.
    pub placeholders: PlaceholderNames,
    /// The steps, in order.
    pub steps: Vec<SiteStep>,
    /// Other settings.
    pub settings: SiteSettings,
}

impl SiteReader<'_> {
    /// Reads the directives of a block. In `route` they keep their order.
    pub fn read_block(
        &mut self,
        directives: &[CaddyDirective],
        mut scope: StepScope,
        keeps_order: bool,
    ) {
        // A matcher holds in its block, where it hides an outer one of its name.
        let outer = self.matchers.clone();
        let mut names = BTreeSet::new();
        // Matchers may be defined after their use.
        for directive in directives.iter().filter(|it| it.name().starts_with('@')) {
            let is_new = names.insert(directive.name());
            self.define_matcher(directive, is_new);
        }
        let is_step = |it: &&CaddyDirective| !it.name().starts_with('@');
        // A front controller must know whether a file server follows it.
        scope.has_files |= directives.iter().any(|it| it.name() == "file_server");
        let sorted = match keeps_order {
            true => directives.iter().collect(),
            false => self.order.sorted(directives, |it| self.path_len(it)),
        };
        let mut handled: Vec<RequestSelector> = Vec::new();
        for directive in sorted.into_iter().filter(is_step) {
            let outcome = match directive.name() {
                "handle" | "handle_path" => self.handle(directive, &scope, &mut handled),
                "route" => self.route(directive, &scope),
                _ => self.directive(directive, &mut scope),
            };
            self.report.change(directive.id, outcome);
        }
        self.matchers = outer;
    }

    fn define_matcher(&mut self, directive: &CaddyDirective, is_new: bool) {
        let meaning = match is_new {
            true => read_matcher(directive),
            false => MatcherMeaning::Unknown("its name has two definitions".to_string()),
        };
        let outcome = match &meaning {
            MatcherMeaning::Unknown(reason) => DirectiveOutcome::ByHand(reason.clone()),
            _ => DirectiveOutcome::translated(),
        };
        self.record_all(directive, &outcome);
        let name = directive.name().trim_start_matches('@').to_string();
        self.matchers.insert(name, meaning);
    }

    /// Records a directive and all in its block.
    pub fn record_all(&mut self, directive: &CaddyDirective, outcome: &DirectiveOutcome) {
        self.report.change(directive.id, outcome.clone());
        for child in directive.children() {
            self.record_all(child, outcome);
        }
    }

    /// The length of the only path in the matcher of a directive, which decides about its precedence.
    fn path_len(&self, directive: &CaddyDirective) -> Option<usize> {
        match split_matcher(directive.args(), &self.matchers).0? {
            MatcherMeaning::Requests(selector) => {
                let patterns = selector.patterns.iter();
                Some(
                    patterns
                        .map(|it| it.trim_end_matches('*').len())
                        .max()
                        .unwrap_or(0),
                )
            }
            _ => Some(0),
        }
    }

    /// The requests of a directive in a scope, and its arguments without the matcher.
    pub fn target<'d>(
        &self,
        directive: &'d CaddyDirective,
        scope: &StepScope,
    ) -> (StepTarget, &'d [Word]) {
        let (meaning, args) = split_matcher(directive.args(), &self.matchers);
        (in_scope(meaning, scope), args)
    }

    /// Adds a step.
    pub fn push(
        &mut self,
        selector: RequestSelector,
        action: StepAction,
        directive: &CaddyDirective,
    ) {
        let comment = directive.to_text();
        self.steps.push(SiteStep {
            selector,
            action,
            entry: directive.id,
            comment,
        });
    }

    /// Refuses requests that an untranslated directive would have protected or answered.
    pub fn refuse(
        &mut self,
        scope: &StepScope,
        directive: &CaddyDirective,
        way: &str,
    ) -> DirectiveOutcome {
        let action = StepAction::Rule {
            keys: vec![("deny", "503".to_string())],
            is_final: true,
        };
        self.push(scope.selector.clone(), action, directive);
        DirectiveOutcome::ByHand(format!(
            "{} refused until then: {way}",
            paths_of(&scope.selector)
        ))
    }

    /// A text with placeholders in the notation of Lowroad; `None` if one has no equal.
    pub fn text(&self, text: &str) -> Option<String> {
        let text = request_text(text, &self.placeholders)?;
        Some(text.to_string())
    }

    fn handle(
        &mut self,
        directive: &CaddyDirective,
        scope: &StepScope,
        handled: &mut Vec<RequestSelector>,
    ) -> DirectiveOutcome {
        let (target, _) = self.target(directive, scope);
        let mut inner = scope.clone();
        match target {
            StepTarget::Requests { selector, regex } => {
                inner.selector = selector;
                inner.regex = regex.or(inner.regex);
            }
            StepTarget::Existing(selector) if directive.name() == "handle" => {
                return self.handle_files(directive, scope, selector);
            }
            StepTarget::Existing(_) | StepTarget::Missing(_) => {
                return self.unknown_block(directive, scope, "a block for files has no equal");
            }
            StepTarget::Unknown(reason) => return self.unknown_block(directive, scope, &reason),
        }
        // The rest of the block sees the path without its front.
        if directive.name() == "handle_path" {
            let path = directive.arg(0).trim_end_matches('*').trim_end_matches('/');
            inner.strip = format!("{}{path}", scope.strip);
        }
        // The next blocks must not get these requests, whatever this block leaves out.
        let own = inner.selector.clone();
        for other in handled.iter() {
            match inner.selector.without(other) {
                Some(rest) => inner.selector = rest,
                None => {
                    let way = "another block takes its paths";
                    return self.unknown_block(directive, scope, way);
                }
            }
        }
        let first = self.steps.len();
        let selector = inner.selector.clone();
        self.read_block(directive.children(), inner, false);
        // Of these requests none reach the next blocks.
        // A step with all requests of the block answers them all.
        let is_total = self.steps[first..]
            .iter()
            .any(|step| step.action.answers_all() && step.selector == selector);
        if !is_total {
            handled.push(own);
        }
        DirectiveOutcome::translated()
    }

    /// `handle @file { file_server }`: files have precedence over later directives.
    fn handle_files(
        &mut self,
        directive: &CaddyDirective,
        scope: &StepScope,
        selector: RequestSelector,
    ) -> DirectiveOutcome {
        let first = self.steps.len();
        let inner = StepScope {
            selector,
            ..scope.clone()
        };
        self.read_block(directive.children(), inner, false);
        for step in &mut self.steps[first..] {
            match &mut step.action {
                StepAction::Files(files) => files.is_optional = true,
                // Fields of a block for files are those of all its paths.
                StepAction::Fields(_) => {}
                _ => {
                    let way = "a block for files has nothing but file_server";
                    self.report
                        .change(step.entry, DirectiveOutcome::ByHand(way.to_string()));
                }
            }
        }
        DirectiveOutcome::translated()
    }

    /// A block for unknown requests: if it protects them, all requests of the scope are refused.
    fn unknown_block(
        &mut self,
        directive: &CaddyDirective,
        scope: &StepScope,
        reason: &str,
    ) -> DirectiveOutcome {
        let outcome = DirectiveOutcome::ByHand("see the block around it".to_string());
        self.record_all(directive, &outcome);
        match protects(directive) {
            true => self.refuse(scope, directive, reason),
            false => DirectiveOutcome::ByHand(reason.to_string()),
        }
    }

    fn route(&mut self, directive: &CaddyDirective, scope: &StepScope) -> DirectiveOutcome {
        let (target, _) = self.target(directive, scope);
        match target {
            StepTarget::Requests { selector, regex } => {
                let inner = StepScope {
                    selector,
                    regex,
                    ..scope.clone()
                };
                self.read_block(directive.children(), inner, true);
                DirectiveOutcome::translated()
            }
            StepTarget::Existing(_) | StepTarget::Missing(_) => {
                self.unknown_block(directive, scope, "a block for files has no equal")
            }
            StepTarget::Unknown(reason) => self.unknown_block(directive, scope, &reason),
        }
    }
}

/// The requests of a directive.
#[derive(Clone, Debug)]
pub enum StepTarget {
    /// These.
    Requests {
        /// Patterns and conditions.
        selector: RequestSelector,
        /// The expression of the path.
        regex: Option<String>,
    },
    /// Those for existing files.
    Existing(RequestSelector),
    /// Those for missing files.
    Missing(RequestSelector),
    /// Unknown ones; the reason.
    Unknown(String),
}

impl StepTarget {
    /// Whether it selects all requests of a scope.
    pub fn is_whole(&self, scope: &StepScope) -> bool {
        matches!(self, StepTarget::Requests { selector, .. } if *selector == scope.selector)
    }
}

fn in_scope(meaning: Option<MatcherMeaning>, scope: &StepScope) -> StepTarget {
    let join = |selector: &RequestSelector| scope.selector.and(&sent_paths(selector, scope)?);
    let unjoined = || StepTarget::Unknown("its conditions can't be joined".to_string());
    match meaning {
        // Without a matcher, a directive concerns all requests of its block.
        None => StepTarget::Requests {
            selector: scope.selector.clone(),
            regex: scope.regex.clone(),
        },
        Some(MatcherMeaning::Requests(selector)) => {
            // The expression of path_regexp has the captures of targets.
            let variables = selector.conditions.get("variable").into_iter().flatten();
            let mut expressions = variables.filter_map(|it| it.strip_prefix("$path=~"));
            let regex = expressions
                .next()
                .map(str::to_string)
                .or(scope.regex.clone());
            let joined = join(&selector);
            joined.map_or_else(unjoined, |selector| StepTarget::Requests {
                selector,
                regex,
            })
        }
        Some(MatcherMeaning::File(files, selector)) => match &files[..] {
            [file] if file == "{path}" => {
                join(&selector).map_or_else(unjoined, StepTarget::Existing)
            }
            _ => StepTarget::Unknown("file has the path of the request only".to_string()),
        },
        Some(MatcherMeaning::Missing(selector)) => {
            join(&selector).map_or_else(unjoined, StepTarget::Missing)
        }
        Some(MatcherMeaning::Unknown(reason)) => StepTarget::Unknown(reason),
    }
}

/// A selector by the path that the client sent; `None` if an expression concerns the path after it was changed.
fn sent_paths(selector: &RequestSelector, scope: &StepScope) -> Option<RequestSelector> {
    let mut selector = selector.clone();
    let mut all = std::iter::once(&selector.conditions).chain(&selector.exceptions);
    let is_changed = !(scope.strip.is_empty() && scope.add.is_empty());
    if is_changed && all.any(|it| it.contains_key("variable")) {
        return None;
    }
    for pattern in selector
        .patterns
        .iter_mut()
        .filter(|it| it.starts_with('/'))
    {
        // After a rewrite, paths begin with the added prefix.
        let rest = pattern.strip_prefix(&*scope.add)?;
        let rest = rest.starts_with('/').then_some(rest)?;
        // Inside of handle_path, paths have lost their front.
        *pattern = format!("{}{rest}", scope.strip);
    }
    Some(selector)
}

/// Whether a directive, perhaps of a plugin, admits some clients only.
pub fn is_access_guard(name: &str) -> bool {
    let names = [
        "jwt",
        "ldap",
        "geofence",
        "ip_filter",
        "crowdsec",
        "coraza_waf",
    ];
    names.contains(&name) || (name.contains("auth") && !name.starts_with('@'))
}

fn protects(directive: &CaddyDirective) -> bool {
    let is_guard = |name: &str| {
        matches!(name, "error" | "abort" | "respond" | "redir" | "invoke") || is_access_guard(name)
    };
    is_guard(directive.name()) || directive.children().iter().any(protects)
}

fn paths_of(selector: &RequestSelector) -> String {
    match selector.is_everything() {
        true => "all paths are".to_string(),
        false => format!("{} is", selector.patterns_or_all().join(", ")),
    }
}

/// A rule's key with a text.
pub fn text_key(key: &'static str, text: &str) -> (&'static str, String) {
    (key, quoted(text))
}
