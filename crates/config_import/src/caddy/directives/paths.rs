//! Paths and files: `root`, `file_server`, `try_files`, `rewrite`, `uri`.

use crate::caddy::matchers::path_patterns;
use crate::caddy::placeholders::has_captures;
use crate::caddy::plan::{FilesAction, StepAction};
use crate::caddy::site::{FolderListing, SiteReader, StepScope, StepTarget};
use crate::caddy::tree::CaddyDirective;
use crate::report::DirectiveOutcome;
use crate::request_selector::{RequestSelector, globs_regex};

impl SiteReader<'_> {
    pub(super) fn root(
        &mut self,
        directive: &CaddyDirective,
        scope: &mut StepScope,
    ) -> DirectiveOutcome {
        // A single argument is the folder, although it looks like a matcher.
        let (target, args) = match directive.args().len() {
            1 => (None, directive.args()),
            _ => {
                let (target, args) = self.target(directive, scope);
                (Some(target), args)
            }
        };
        let text = args.first().map_or("", |it| it.text.as_str());
        // Without its folder, a file server would send files of another.
        let Some(folder) = folder_of(text) else {
            let way = "a root has no placeholders but {host}";
            return self.refuse(scope, directive, way);
        };
        match target {
            None => scope.root = Some(folder),
            Some(StepTarget::Requests { selector, .. }) if selector == scope.selector => {
                scope.root = Some(folder);
            }
            Some(StepTarget::Requests { selector, .. }) => {
                scope.special_roots.push((selector, folder));
            }
            Some(_) => {
                return self.refuse(scope, directive, "use an [[site.alias]] for the folder");
            }
        }
        DirectiveOutcome::translated()
    }

    pub(super) fn file_server(
        &mut self,
        directive: &CaddyDirective,
        scope: &StepScope,
    ) -> DirectiveOutcome {
        let (target, args) = self.target(directive, scope);
        let mut root = scope.root.clone();
        let mut hidden = Vec::new();
        let mut browses = args.iter().any(|it| it.text == "browse");
        for line in directive.children() {
            let outcome = match line.name() {
                "root" => match folder_of(line.arg(0)) {
                    Some(folder) => {
                        root = Some(folder);
                        DirectiveOutcome::translated()
                    }
                    None => self.refuse(scope, line, "a root has no placeholders but {host}"),
                },
                "index" => {
                    self.settings.index = line.args().iter().map(|it| it.text.clone()).collect();
                    DirectiveOutcome::Translated("for the whole site".to_string())
                }
                "browse" => {
                    browses = true;
                    DirectiveOutcome::Translated("with a template of its own".to_string())
                }
                "hide" => {
                    hidden.extend(line.args().iter().map(|it| it.text.clone()));
                    DirectiveOutcome::translated()
                }
                "precompressed" => {
                    DirectiveOutcome::NotNeeded("precompressed files are used".to_string())
                }
                "disable_canonical_uris" => {
                    DirectiveOutcome::NotNeeded("folders have a slash at their end".to_string())
                }
                _ => DirectiveOutcome::ByHand("a file server has no such option".to_string()),
            };
            self.report.change(line.id, outcome);
        }
        self.settings.listings.push(FolderListing {
            is_listed: browses,
            entry: directive.id,
        });
        let (selector, is_optional) = match target {
            StepTarget::Requests { selector, .. } => (selector, false),
            StepTarget::Existing(selector) => (selector, true),
            StepTarget::Missing(_) => {
                return DirectiveOutcome::ByHand("missing files are not sent".to_string());
            }
            StepTarget::Unknown(reason) => return self.refuse(scope, directive, &reason),
        };
        // Candidates of try_files would begin with the path that a rewrite adds.
        if !scope.add.is_empty() && (scope.try_files.is_some() || !hidden.is_empty()) {
            let way = "after a rewrite, files are looked for in the root: name their folder in it";
            return self.refuse(scope, directive, way);
        }
        // Hidden files come first, since the rules for them must precede the answer.
        for name in hidden {
            self.hide(directive, &name, scope);
        }
        self.file_steps(directive, scope, selector, root, is_optional);
        DirectiveOutcome::translated()
    }

    fn file_steps(
        &mut self,
        directive: &CaddyDirective,
        scope: &StepScope,
        selector: RequestSelector,
        root: Option<String>,
        is_optional: bool,
    ) {
        let mut folders = Vec::new();
        for (special, folder) in &scope.special_roots {
            folders.extend(
                selector
                    .and(special)
                    .map(|both| (both, Some(folder.clone()))),
            );
        }
        // The root without a matcher is for the paths that no other root has.
        folders.push((selector, root));
        for (selector, root) in folders {
            if let Some((files, entry)) = scope.try_files.clone() {
                self.missing_files(directive, scope, &selector, &files, entry);
            }
            let action = StepAction::Files(FilesAction {
                // In a configuration, a relative folder begins at that of the configuration.
                root: root
                    .or_else(|| folder_of("."))
                    .map(|root| match &*scope.add {
                        "" => root,
                        add => format!("{}{add}", root.trim_end_matches('/')),
                    }),
                strip: scope.strip.clone(),
                is_optional,
            });
            self.push(selector, action, directive);
        }
    }

    /// Refuses a hidden file.
    fn hide(&mut self, directive: &CaddyDirective, name: &str, scope: &StepScope) {
        let path = name.trim_start_matches("./");
        let root = scope.root.as_deref().unwrap_or_default();
        let path = path.strip_prefix(root).unwrap_or(path);
        let pattern = match path.contains('/') {
            true => format!("{}/{}", scope.strip, path.trim_start_matches('/')),
            false => format!("/**/{path}"),
        };
        let patterns = match pattern.strip_prefix("/**") {
            Some(rest) => vec![pattern.clone(), rest.to_string()],
            None => vec![pattern],
        };
        let action = StepAction::Rule {
            keys: vec![("deny", "404".to_string())],
            is_final: true,
        };
        self.push(RequestSelector::paths(patterns), action, directive);
    }

    pub(super) fn try_files(
        &mut self,
        directive: &CaddyDirective,
        scope: &mut StepScope,
    ) -> DirectiveOutcome {
        let files = directive.args().iter().map(|it| it.text.clone()).collect();
        scope.try_files = Some((files, directive.id));
        match scope.has_files {
            true => DirectiveOutcome::translated(),
            false => DirectiveOutcome::ByHand("there is no file_server in its block".to_string()),
        }
    }

    /// Adds the candidates of `try_files` after the path itself.
    fn missing_files(
        &mut self,
        directive: &CaddyDirective,
        scope: &StepScope,
        selector: &RequestSelector,
        files: &[String],
        entry: usize,
    ) {
        let mut steps = Vec::new();
        for file in files {
            let end = file
                .strip_prefix("{path}")
                .or_else(|| file.strip_prefix("{uri}"));
            match (end, &**file) {
                (Some("" | "/"), _) => {}
                (Some(end), _) if end.starts_with("/index.") => {}
                (Some(end), _) if !end.contains(['{', '/']) => steps.push(StepAction::Rewrite {
                    to: format!("/$1{end}"),
                    regex: Some(globs_regex(&selector.patterns_or_all())),
                    is_missing: true,
                }),
                (_, "=404") => {}
                (None, file) => {
                    let path = match file.starts_with('/') {
                        true => file.to_string(),
                        false => format!("/{file}"),
                    };
                    // A fallback keeps the query of the request, so one with arguments is a rewrite.
                    let (path, query) = path.split_once('?').unwrap_or((&path, ""));
                    let path = format!("{}{path}", scope.strip);
                    steps.push(match (query, self.text(query)) {
                        ("" | "{query}", _) => StepAction::Fallback(path),
                        (_, Some(query)) => StepAction::Rewrite {
                            to: format!("{path}?{query}"),
                            regex: None,
                            is_missing: true,
                        },
                        (_, None) => continue,
                    });
                }
                _ => {
                    let difference = format!("{file} is not looked for");
                    self.report.note_difference(entry, &difference);
                }
            }
        }
        for action in steps {
            self.push(selector.clone(), action, directive);
            if let Some(step) = self.steps.last_mut() {
                step.entry = entry;
            }
        }
    }

    pub(super) fn rewrite(
        &mut self,
        directive: &CaddyDirective,
        scope: &mut StepScope,
    ) -> DirectiveOutcome {
        let by_hand = |way: &str| DirectiveOutcome::ByHand(way.to_string());
        let (target, args) = self.target(directive, scope);
        let text = args.first().map_or("", |it| it.text.as_str());
        let (selector, regex, is_missing) = match target {
            StepTarget::Requests { selector, regex } => (selector, regex, false),
            StepTarget::Missing(selector) => (selector, None, true),
            StepTarget::Existing(_) => return by_hand("files that exist are sent"),
            StepTarget::Unknown(reason) => return by_hand(&reason),
        };
        let is_whole = selector == scope.selector;
        // In front of an origin, a prefix is a key of the route.
        let prefix = ["{uri}", "{path}", "{path}{?query}"]
            .iter()
            .find_map(|end| text.strip_suffix(end));
        if let Some(prefix) =
            prefix.filter(|it| is_whole && it.starts_with('/') && !it.contains(['{', '.']))
        {
            scope.add = format!("{}{}", prefix.trim_end_matches('/'), scope.add);
            return DirectiveOutcome::translated();
        }
        let Some(to) = self.text(text).filter(|it| it.starts_with('/')) else {
            let way = "a rewrite leads to a path";
            // Without it, other files would be sent.
            return match is_whole {
                true => self.refuse(scope, directive, way),
                false => by_hand(way),
            };
        };
        // A block was selected by the path before it is rewritten, which Lowroad would forget.
        let is_inside = path_patterns(to.split(['?', '$']).next().unwrap_or_default())
            .map(RequestSelector::paths)
            .and_then(|path| scope.selector.and(&path))
            .is_some_and(|both| both.conditions == scope.selector.conditions);
        let is_kept = is_inside && scope.selector.is_by_path();
        if !(is_kept || scope.selector.is_everything()) {
            let way = "a rewrite inside of a block leads to a path of the block";
            return match is_whole {
                true => self.refuse(scope, directive, way),
                false => by_hand(way),
            };
        }
        // Captures need the expression of the matcher.
        let regex = regex.filter(|_| has_captures(&to));
        let to = match to.contains("$request_uri") {
            true => to.replace("$request_uri", "/$1").replace("//", "/"),
            false => to,
        };
        let whole = to
            .contains("/$1")
            .then(|| globs_regex(&selector.patterns_or_all()));
        let action = StepAction::Rewrite {
            to,
            regex: regex.or(whole),
            is_missing,
        };
        self.push(selector, action, directive);
        DirectiveOutcome::translated()
    }

    pub(super) fn uri(
        &mut self,
        directive: &CaddyDirective,
        scope: &mut StepScope,
    ) -> DirectiveOutcome {
        let (target, args) = self.target(directive, scope);
        let is_whole = target.is_whole(scope);
        let word = |index: usize| args.get(index).map_or("", |it| it.text.as_str());
        let prefix = word(1).trim_end_matches('/');
        match word(0) {
            "strip_prefix" if is_whole && scope.add.is_empty() && !prefix.contains('{') => {
                // Inside of handle_path, the prefix begins after the removed part.
                let prefix = format!("{}/{}", scope.strip, prefix.trim_start_matches('/'));
                let folder = RequestSelector::paths(vec![format!("{prefix}/**")]);
                let below = scope.selector.and(&folder);
                let is_inside = below
                    .as_ref()
                    .is_some_and(|it| it.patterns == scope.selector.patterns);
                if !is_inside {
                    let way = "the prefix is removed in a block for its paths: use handle_path";
                    return DirectiveOutcome::ByHand(way.to_string());
                }
                scope.strip = prefix;
                DirectiveOutcome::translated()
            }
            _ => DirectiveOutcome::ByHand(
                "use [[site.rewrite]], or strip_prefix of a route".to_string(),
            ),
        }
    }
}

/// The absolute path of a folder; `None` with placeholders other than the host, which Lowroad has in a root, too.
pub(super) fn folder_of(text: &str) -> Option<String> {
    if text.replace("{host}", "").contains('{') {
        return None;
    }
    match text.trim_end_matches('/') {
        // An empty folder would be that of the configuration.
        "" => text.starts_with('/').then(|| "/".to_string()),
        folder => {
            let folder = std::path::absolute(folder).ok()?;
            Some(folder.to_string_lossy().into_owned())
        }
    }
}
