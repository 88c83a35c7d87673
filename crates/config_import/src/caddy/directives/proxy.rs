//! `reverse_proxy`: a route to an origin.

use super::proxy_draft::{ProxyDraft, checked, number, upstream_url};
use crate::caddy::matchers::networks;
use crate::caddy::plan::StepAction;
use crate::caddy::site::{SiteReader, StepScope, StepTarget};
use crate::caddy::tree::CaddyDirective;
use crate::caddy::values::duration;
use crate::report::DirectiveOutcome;
use crate::toml_values::quoted;

/// The address of a FastCGI server.
pub fn fastcgi_address(text: &str) -> Option<String> {
    let url = upstream_url(text)?;
    let address = url.strip_prefix("http://").unwrap_or(&url);
    Some(address.to_string()).filter(|it| it.starts_with("unix:") || it.contains(':'))
}

impl SiteReader<'_> {
    pub(super) fn proxy(
        &mut self,
        directive: &CaddyDirective,
        scope: &StepScope,
    ) -> DirectiveOutcome {
        let (target, args) = self.target(directive, scope);
        let mut draft = ProxyDraft::default();
        for word in args {
            draft.add_server(&word.text);
        }
        for line in directive.children() {
            let outcome = self.proxy_option(&mut draft, line);
            self.report.change(line.id, outcome);
        }
        let (selector, is_missing) = match target {
            StepTarget::Requests { selector, .. } => (selector, false),
            StepTarget::Missing(selector) => (selector, true),
            StepTarget::Existing(_) => {
                return DirectiveOutcome::ByHand("files that exist are sent".to_string());
            }
            StepTarget::Unknown(reason) => return DirectiveOutcome::ByHand(reason),
        };
        if draft.servers.is_empty() || draft.has_unknown {
            let inner = StepScope {
                selector,
                ..scope.clone()
            };
            return self.refuse(
                &inner,
                directive,
                "an origin has addresses without placeholders",
            );
        }
        // Response fields are a separate step: they are set for the paths of the route.
        let down = std::mem::take(&mut draft.down);
        let mut action = draft.finish();
        action.fields.extend(scope.request_fields.iter().cloned());
        action.strip = scope.strip.clone();
        action.add = scope.add.clone();
        action.is_missing = is_missing;
        if let Some(len) = scope.body_len {
            action.keys.push(("body_len_max", len.to_string()));
        }
        if !(down.set.is_empty() && down.append.is_empty() && down.remove.is_empty()) {
            self.push(selector.clone(), StepAction::Fields(down), directive);
        }
        self.push(selector, StepAction::Proxy(Box::new(action)), directive);
        DirectiveOutcome::translated()
    }

    fn proxy_option(&mut self, draft: &mut ProxyDraft, line: &CaddyDirective) -> DirectiveOutcome {
        let by_hand = |way: &str| DirectiveOutcome::ByHand(way.to_string());
        let not_needed = |reason: &str| DirectiveOutcome::NotNeeded(reason.to_string());
        let value = line.arg(0);
        let group = &mut draft.action.group;
        match line.name() {
            "to" => {
                for word in line.args() {
                    draft.add_server(&word.text);
                }
                DirectiveOutcome::translated()
            }
            // The load balancing policy is a key of the group.
            "lb_policy" => draft.balance(line),
            "lb_retries" => {
                let retries = value.parse::<u8>().ok();
                // The first attempt counts, too.
                let tries = retries.map(|it| (it.min(15) + 1).to_string());
                checked(&mut group.keys, "tries", tries)
            }
            "lb_try_duration" | "lb_try_interval" | "lb_retry_match" => {
                not_needed("failed requests are repeated where that is safe (docs/accelerator.md)")
            }
            "fail_duration"
            | "max_fails"
            | "unhealthy_status"
            | "unhealthy_latency"
            // Passive health checks.
            | "unhealthy_request_count" => not_needed("circuit breakers notice failures"),
            // Active health checks.
            "health_uri" => checked(&mut group.check, "path", Some(quoted(value))),
            "health_interval" => checked(&mut group.check, "interval", duration(value)),
            "health_timeout" => checked(&mut group.check, "timeout", duration(value)),
            "health_status" => checked(&mut group.check, "status", Some(health_status(value))),
            "health_passes" => checked(&mut group.check, "rise", number(value)),
            "health_fails" => checked(&mut group.check, "fall", number(value)),
            "flush_interval" => not_needed("bytes are sent as soon as they arrive"),
            "buffer_requests" | "buffer_responses" | "request_buffers" | "response_buffers"
            | "stream_timeout" | "stream_close_delay" | "max_buffer_size" => {
                not_needed("buffers grow as needed; [buffering] has limits")
            }
            // Caddy trusts proxies for each origin, Lowroad for each site.
            "trusted_proxies" => {
                for word in line.args() {
                    self.settings.trusted_proxies.extend(ranges(&word.text));
                }
                DirectiveOutcome::Translated("for the whole site".to_string())
            }
            // Fields of requests and of responses.
            "header_up" => self.header_up(draft, line),
            "header_down" => self.header_down(draft, line),
            "transport" if value == "http" || value.is_empty() => {
                for option in line.children() {
                    let outcome = draft.transport_option(option);
                    self.report.change(option.id, outcome);
                }
                DirectiveOutcome::translated()
            }
            "transport" => by_hand("use php_fastcgi's equal, a route with fastcgi"),
            // Responses of the origin that lead elsewhere.
            "handle_response" | "@" | "replace_status" | "copy_response" => by_hand(
                "intercept_errors has error pages, internal_redirects files that a response names",
            ),
            "method" | "rewrite" => {
                by_hand("methods are kept; for paths there are strip_prefix and add_prefix")
            }
            "dynamic" => {
                by_hand("all addresses of a host name are servers; names are resolved every 10 s")
            }
            _ => by_hand("see the keys of [[origin]] and [[site.route]]"),
        }
    }

    fn header_up(&mut self, draft: &mut ProxyDraft, line: &CaddyDirective) -> DirectiveOutcome {
        let (name, value) = (line.arg(0), line.arg(1));
        let not_needed = |reason: &str| DirectiveOutcome::NotNeeded(reason.to_string());
        if line.args().len() > 2 {
            return DirectiveOutcome::ByHand("fields are replaced as a whole".to_string());
        }
        // A placeholder alone is the usual value, which origins get anyway.
        let is_placeholder = value.starts_with('{') && value.ends_with('}');
        match (&*name.to_ascii_lowercase(), value) {
            (
                "host",
                "{host}" | "{hostport}" | "{http.request.host}" | "{http.request.hostport}",
            ) => {
                return not_needed("origins get the client's Host");
            }
            ("host", it) if it.contains("upstream") => {
                draft.action.group.keys.push(("host", quoted("origin")));
                return DirectiveOutcome::translated();
            }
            ("host", host) if !host.contains('{') => {
                draft.action.group.keys.push(("host", quoted(host)));
                return DirectiveOutcome::translated();
            }
            ("host", _) => {
                return DirectiveOutcome::ByHand(
                    "Host is the client's, the origin's or a text".to_string(),
                );
            }
            (
                "x-forwarded-for" | "x-real-ip" | "x-forwarded-proto" | "x-forwarded-host"
                | "x-forwarded-port",
                _,
            ) if is_placeholder => {
                return not_needed("origins get this field");
            }
            ("connection" | "upgrade", _) => return not_needed("WebSocket needs no fields"),
            _ => {}
        }
        match self.sent_field(name, value) {
            Some(field) => draft.action.fields.push(field),
            None => {
                return DirectiveOutcome::ByHand(
                    "a placeholder of its value has no equal".to_string(),
                );
            }
        }
        DirectiveOutcome::translated()
    }

    fn header_down(&mut self, draft: &mut ProxyDraft, line: &CaddyDirective) -> DirectiveOutcome {
        let field = match line.args().len() {
            1 | 2 => self.sent_field(line.arg(0), line.arg(1)),
            _ => None,
        };
        match field {
            Some(("remove", name, _)) => draft.down.remove.push(name),
            Some(("append", name, value)) => draft.down.append.push((name, value)),
            Some((_, name, value)) => draft.down.set.push((name, value)),
            None => return DirectiveOutcome::ByHand("fields are replaced as a whole".to_string()),
        }
        DirectiveOutcome::translated()
    }
}

/// The networks of a word of `trusted_proxies`; none for `static`, the kind of its list.
pub fn ranges(word: &str) -> Vec<String> {
    match word {
        "static" => Vec::new(),
        word => networks(word),
    }
}

/// `2xx` is a range of statuses.
fn health_status(text: &str) -> String {
    match text.strip_suffix("xx") {
        Some(class) => quoted(&format!("{class}00-{class}99")),
        None => quoted(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_upstreams_are_urls() {
        for (text, expected) in [
            ("localhost:80", Some("http://localhost:80")),
            (":3000", Some("http://127.0.0.1:3000")),
            ("app", Some("http://app")),
            ("https://b.example", Some("https://b.example")),
            ("h2c://a:1", Some("h2c://a:1")),
            ("unix//run/a.sock", Some("unix:/run/a.sock")),
            ("[::1]:80", Some("http://[::1]:80")),
            ("a:8000-8003", None),
            ("{args[0]}", None),
        ] {
            assert_eq!(upstream_url(text).as_deref(), expected, "{text}");
        }
        assert_eq!(fastcgi_address("php:9000").as_deref(), Some("php:9000"));
        assert_eq!(
            fastcgi_address("unix//run/php.sock").as_deref(),
            Some("unix:/run/php.sock")
        );
    }
}
