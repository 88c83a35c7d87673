//! `php_fastcgi`: scripts, with a front controller for missing files.

use super::paths::folder_of;
use super::proxy::fastcgi_address;
use super::proxy_draft::checked;
use crate::caddy::plan::{ProgramAction, StepAction};
use crate::caddy::site::{SiteReader, StepScope, StepTarget};
use crate::caddy::tree::CaddyDirective;
use crate::caddy::values::duration;
use crate::report::DirectiveOutcome;

impl SiteReader<'_> {
    pub(super) fn php(
        &mut self,
        directive: &CaddyDirective,
        scope: &StepScope,
    ) -> DirectiveOutcome {
        let (target, args) = self.target(directive, scope);
        let mut action = ProgramAction {
            index: "index.php".to_string(),
            root: scope.root.clone(),
            strip: scope.strip.clone(),
            has_files: scope.has_files,
            keys: vec![("keep", "\"never\"".to_string())],
            ..ProgramAction::default()
        };
        for word in args {
            action.servers.extend(fastcgi_address(&word.text));
        }
        for line in directive.children() {
            let outcome = self.php_option(&mut action, line);
            self.report.change(line.id, outcome);
        }
        if action.servers.is_empty() || action.servers.len() < args.len() {
            let way = "a FastCGI server has an address without placeholders";
            return self.refuse(scope, directive, way);
        }
        if !scope.add.is_empty() {
            let way =
                "after a rewrite, scripts are looked for in the root: name their folder in it";
            return self.refuse(scope, directive, way);
        }
        match target {
            StepTarget::Requests { selector, .. } => {
                self.push(selector, StepAction::Program(action), directive);
                DirectiveOutcome::translated()
            }
            // Sources of scripts must not be sent as files.
            StepTarget::Unknown(reason) => self.refuse(scope, directive, &reason),
            _ => self.refuse(scope, directive, "scripts are found by their paths"),
        }
    }

    fn php_option(&self, action: &mut ProgramAction, line: &CaddyDirective) -> DirectiveOutcome {
        let by_hand = |way: &str| DirectiveOutcome::ByHand(way.to_string());
        match line.name() {
            "root" => match folder_of(line.arg(0)) {
                Some(folder) => {
                    action.root = Some(folder);
                    DirectiveOutcome::translated()
                }
                // Without servers, the paths are refused.
                None => {
                    action.servers.clear();
                    by_hand("a root has no placeholders but {host}")
                }
            },
            "index" => {
                action.index = line.arg(0).to_string();
                DirectiveOutcome::translated()
            }
            "env" => match self.text(line.arg(1)) {
                Some(value) if !line.arg(0).starts_with("HTTP_") => {
                    action.env.push((line.arg(0).to_string(), value));
                    DirectiveOutcome::translated()
                }
                _ => by_hand("its value has no equal"),
            },
            "split" if line.arg(0) == ".php" => {
                DirectiveOutcome::NotNeeded("scripts end in .php".to_string())
            }
            "resolve_root_symlink" => {
                DirectiveOutcome::NotNeeded("the root is a folder, not a link".to_string())
            }
            "read_timeout" => checked(&mut action.keys, "timeout", duration(line.arg(0))),
            "dial_timeout" | "write_timeout" | "capture_stderr" => {
                DirectiveOutcome::NotNeeded("the route's timeout applies".to_string())
            }
            "try_files" => by_hand("missing files go to the index"),
            _ => by_hand("see the keys of [[site.route]]"),
        }
    }
}
