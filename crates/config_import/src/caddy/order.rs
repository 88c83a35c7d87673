//! The order in which Caddy applies the directives of a block.

use super::site::is_access_guard;
use super::tree::CaddyDirective;

/// Caddy's own order.
const ORDER: [&str; 46] = [
    "tracing",
    "map",
    "vars",
    "fs",
    "root",
    "log_append",
    "skip_log",
    "log_skip",
    "log_name",
    "header",
    "copy_response_headers",
    "request_body",
    "redir",
    "method",
    "rewrite",
    "uri",
    "try_files",
    "basicauth",
    "basic_auth",
    "forward_auth",
    "request_header",
    "encode",
    "push",
    "intercept",
    "templates",
    "invoke",
    "handle",
    "handle_path",
    "route",
    "abort",
    "error",
    "copy_response",
    "respond",
    "metrics",
    "reverse_proxy",
    "php_fastcgi",
    "file_server",
    "acme_server",
    "tls",
    "bind",
    "log",
    "handle_errors",
    "import",
    "encode_zstd",
    "pki",
    "debug",
];

/// The order of directives, with the changes of the global option `order`.
#[derive(Clone, Debug)]
pub struct DirectiveOrder(Vec<String>);

impl Default for DirectiveOrder {
    fn default() -> DirectiveOrder {
        DirectiveOrder(ORDER.iter().map(ToString::to_string).collect())
    }
}

impl DirectiveOrder {
    /// Applies `order NAME first|last|before NAME|after NAME`; returns whether it is understood.
    pub fn change(&mut self, option: &CaddyDirective) -> bool {
        let name = option.arg(0).to_string();
        // Positions are counted without the directive that moves.
        let others: Vec<String> = self.0.iter().filter(|it| **it != name).cloned().collect();
        let position = |other: &str| others.iter().position(|it| it == other);
        let index = match option.arg(1) {
            "first" => Some(0),
            "last" => Some(others.len()),
            "before" => position(option.arg(2)),
            "after" => position(option.arg(2)).map(|index| index + 1),
            _ => None,
        };
        let Some(index) = index else {
            return false;
        };
        self.0 = others;
        self.0.insert(index, name);
        true
    }

    /// The directives in the order in which they apply: of the same name, longer paths first, those for all requests
    /// last.
    pub fn sorted<'d>(
        &self,
        directives: &'d [CaddyDirective],
        path_len: impl Fn(&CaddyDirective) -> Option<usize>,
    ) -> Vec<&'d CaddyDirective> {
        let rank = |directive: &CaddyDirective| {
            let name = match directive.name() {
                // They are one group.
                "handle_path" => "handle",
                name => name,
            };
            let index = self.0.iter().position(|it| it == name);
            // A guard without a known place must come first.
            let index = match is_access_guard(name) {
                true => index,
                false => index.or(Some(self.0.len())),
            };
            (index, std::cmp::Reverse(path_len(directive)))
        };
        let mut sorted: Vec<&CaddyDirective> = directives.iter().collect();
        sorted.sort_by_cached_key(|directive| rank(directive));
        sorted
    }
}
