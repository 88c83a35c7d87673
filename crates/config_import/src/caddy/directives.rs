//! The table from directive to reader.

use super::site::{SiteReader, StepScope, is_access_guard};
use super::tree::CaddyDirective;
use crate::report::DirectiveOutcome;

mod access;
mod fields;
mod paths;
mod programs;
pub mod proxy;
mod proxy_draft;
mod settings;

pub(super) use settings::PAGE_STATUSES;

impl SiteReader<'_> {
    /// Reads a directive other than a block of directives.
    pub fn directive(
        &mut self,
        directive: &CaddyDirective,
        scope: &mut StepScope,
    ) -> DirectiveOutcome {
        let by_hand = |way: &str| DirectiveOutcome::ByHand(way.to_string());
        let not_needed = |reason: &str| DirectiveOutcome::NotNeeded(reason.to_string());
        let outcome = match directive.name() {
            "root" => self.root(directive, scope),
            "file_server" => self.file_server(directive, scope),
            "try_files" => self.try_files(directive, scope),
            "rewrite" => self.rewrite(directive, scope),
            "uri" => self.uri(directive, scope),
            "redir" => self.redirect(directive, scope),
            "respond" => self.respond(directive, scope),
            "error" => self.error(directive, scope),
            "abort" => self.abort(directive, scope),
            "basic_auth" | "basicauth" => self.password(directive, scope),
            "forward_auth" => self.forward_auth(directive, scope),
            "header" => self.response_fields(directive, scope),
            "request_header" => self.request_field(directive, scope),
            "reverse_proxy" => self.proxy(directive, scope),
            "php_fastcgi" => self.php(directive, scope),
            "tls" => self.tls(directive),
            "log" => self.log(directive),
            "log_skip" | "skip_log" => self.log_skip(directive, scope),
            "bind" => self.bind(directive),
            "encode" => self.encode(directive),
            "request_body" => self.request_body(directive, scope),
            "handle_errors" => self.handle_errors(directive),
            "vars" => self.vars(directive),
            "map" => self.map(directive),
            "log_append" | "log_name" => by_hand("[[log.access]] has a format for each log"),
            "templates" => by_hand("use pages (docs/pages.md) or a program"),
            "tracing" => by_hand("[traces] sends spans of all sites"),
            "metrics" => not_needed("metrics for Prometheus are at [admin]"),
            "push" => not_needed("browsers have removed server push"),
            "acme_server" => by_hand("use a separate authority, such as step-ca"),
            "method" => by_hand("methods are sent on unchanged"),
            "invoke" => self.refuse(scope, directive, "write the named route at this place"),
            "intercept" => by_hand("intercept_errors of a route has error pages"),
            "fs" => by_hand("files are in folders"),
            "copy_response" | "copy_response_headers" => by_hand("see handle_response"),
            name if is_access_guard(name) => {
                self.refuse(scope, directive, "this directive is unknown to the import")
            }
            _ => by_hand("this directive is unknown to the import"),
        };
        // A line that no reader knows must not stay out of the report.
        self.finish_block(directive, &outcome);
        outcome
    }

    /// Lines of a block that their directive did not record itself have its outcome.
    fn finish_block(&mut self, directive: &CaddyDirective, outcome: &DirectiveOutcome) {
        for child in directive.children() {
            if self.report.is_open(child.id) {
                self.record_all(child, outcome);
            }
        }
    }
}
