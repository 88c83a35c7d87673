//! Access control for a site: finds the client that proxies report (`forwarded_client`), and applies rules in order:
//! denials, rate limits (`limit`), passwords (`passwords`) and tokens (`tokens`). The patterns of all rules of a site are matched
//! together.
//!
//! The result depends on path, method and client of a request, not on files or programs. Traffic classes
//! (`traffic_classes`) limit and schedule calls of handlers.

#![forbid(unsafe_code)]

mod forwarded_client;
pub mod passwords;
mod protected_fields;
mod rule_index;
mod token_fault;
#[cfg(feature = "tls")]
pub mod tokens;
#[cfg(not(feature = "tls"))]
#[path = "tokens_stub.rs"]
pub mod tokens;
pub mod traffic_classes;

use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lowroad_config as config;
use lowroad_config::{AuthConfig, ClientField, OriginConfig, PrefixSet, RuleAction, TokenKeys};
use lowroad_http::request::Request;
use lowroad_limits::ClientRates;
use lowroad_request_conditions::{ConditionInput, ConditionSet, FindSwitch, condition_text};
use lowroad_site_rules::{FormSet, PathMatches};

use forwarded_client::AmbiguousForwarding;
pub use forwarded_client::{DirectPeer, ForwardedClient};
use passwords::PasswordFile;
pub use protected_fields::is_protected;
pub use rule_index::CandidateRules;
use rule_index::RuleIndex;
pub use token_fault::TokenFault;
use tokens::{TokenKeySet, TokenVerifier};

/// The access policy of a site: its access rules and trusted proxies.
pub struct AccessPolicy {
    rules: Vec<AccessRule>,
    index: RuleIndex,
    /// The request fields that authentication sets.
    protected_fields: Vec<Box<str>>,
    trusted_proxies: PrefixSet,
    client_field: ClientField,
}

/// An access rule.
pub struct AccessRule {
    config: config::RuleConfig,
    conditions: ConditionSet,
    /// The limiter, if the rule is a rate limit.
    limit: Option<ClientRates>,
    /// The password file, if the rule requires a password.
    passwords: Option<Arc<PasswordFile>>,
    /// The verifier, if the rule requires a token.
    tokens: Option<TokenVerifier>,
    /// Keeps the keys of `tokens` up to date.
    _key_watch: Option<KeyWatch>,
    /// The number of requests that the rule has refused.
    refused: AtomicU64,
}

/// Keeps a key set up to date until it is dropped.
pub type KeyWatch = Box<dyn Any + Send + Sync>;

/// Begins to fetch a key set from a path of a server, again and again.
pub type WatchKeys<'r> =
    dyn Fn(&OriginConfig, &str, Arc<TokenKeySet>) -> Result<KeyWatch, String> + 'r;

/// The parts of the server that access rules use.
pub struct RuleResources<'r> {
    /// Returns the password file in force for a path.
    pub find_password_file: &'r dyn Fn(&Path) -> Option<Arc<PasswordFile>>,
    /// Returns the switch of a file in a condition.
    pub find_switch: FindSwitch<'r>,
    /// Begins to fetch a key set of tokens.
    pub watch_keys: &'r WatchKeys<'r>,
}

impl AccessPolicy {
    /// The access policy of a site; `None` if the site needs none. `previous` is the policy of the site with the same
    /// names and addresses; it is reused if rules and trusted proxies are unchanged.
    ///
    /// # Errors
    /// A password file that cannot be used, and the reason.
    pub fn new(
        site: &config::SiteConfig,
        previous: Option<(&config::SiteConfig, &Arc<AccessPolicy>)>,
        resources: &RuleResources<'_>,
    ) -> io::Result<Option<Arc<AccessPolicy>>> {
        if site.access.is_empty() && site.trusted_proxies.addresses.is_empty() {
            return Ok(None);
        }
        // Reused, so that a reload neither resets rate limits nor forgets verified passwords.
        if let Some((old, policy)) = previous
            && (&old.access, &old.trusted_proxies) == (&site.access, &site.trusted_proxies)
        {
            return Ok(Some(policy.clone()));
        }
        let rules: io::Result<Vec<AccessRule>> = site
            .access
            .iter()
            .map(|rule| AccessRule::new(rule, resources))
            .collect();
        Ok(Some(Arc::new(AccessPolicy {
            rules: rules?,
            protected_fields: site.protected_fields().map(Box::from).collect(),
            index: RuleIndex::new(&site.access),
            trusted_proxies: PrefixSet::new(&site.trusted_proxies.addresses),
            client_field: site.trusted_proxies.field,
        })))
    }

    /// Whether the site has trusted proxies.
    #[inline]
    pub fn trusts_proxies(&self) -> bool {
        !self.trusted_proxies.is_empty()
    }

    /// The client that trusted proxies report for a request of `sender`; `None` if `sender` is not a trusted proxy.
    ///
    /// # Errors
    /// A field of a trusted proxy is ambiguous.
    pub fn forwarded_client(
        &self,
        sender: DirectPeer,
        request: &Request<'_>,
    ) -> Result<Option<ForwardedClient>, AmbiguousForwarding> {
        forwarded_client::read(&self.trusted_proxies, self.client_field, sender, request)
    }

    /// Whether a path matches the pattern of rule `number`.
    pub fn has_pattern(&self, number: usize, matches: &PathMatches<'_>) -> bool {
        self.index.has_pattern(number, matches)
    }

    /// The forms of a path that match the pattern of rule `number`.
    pub fn matched_forms(&self, number: usize, matches: &PathMatches<'_>) -> FormSet {
        self.index.matched_forms(number, matches)
    }

    /// The first fallback rule that matches, and the path that replaces a missing file.
    pub fn fallback(
        &self,
        matches: &PathMatches<'_>,
        facts: ConditionInput<'_>,
    ) -> Option<(&AccessRule, &str)> {
        let numbers = self.candidates(matches, &facts).numbers.into_iter();
        let mut rules = numbers.filter_map(|number| self.met_rule(number, &facts));
        rules.find_map(|rule| match &rule.config.action {
            RuleAction::Fallback(to) => Some((rule, to.as_str())),
            _ => None,
        })
    }

    /// The rules that match a request by pattern, method and address.
    pub fn candidates(
        &self,
        matches: &PathMatches<'_>,
        facts: &ConditionInput<'_>,
    ) -> CandidateRules {
        self.index.candidates(matches, facts)
    }

    /// The rule with a number, if all of its conditions hold.
    pub fn met_rule(&self, number: usize, facts: &ConditionInput<'_>) -> Option<&AccessRule> {
        let rule = self.rules.get(number)?;
        // The index knows methods and addresses only.
        rule.conditions.is_met(facts).then_some(rule)
    }

    /// The request fields that authentication sets.
    pub fn protected_fields(&self) -> &[Box<str>] {
        &self.protected_fields
    }

    /// The rule with a number.
    pub fn rule(&self, number: usize) -> Option<&AccessRule> {
        self.rules.get(number)
    }

    /// The password files of all rules.
    pub fn passwords(&self) -> impl Iterator<Item = &Arc<PasswordFile>> {
        self.rules.iter().filter_map(AccessRule::passwords)
    }

    /// The key sets of all rules.
    pub fn token_keys(&self) -> impl Iterator<Item = &TokenKeySet> {
        let tokens = self.rules.iter().filter_map(AccessRule::tokens);
        tokens.map(TokenVerifier::keys)
    }

    /// The counters of all rules, as texts.
    pub fn status(&self) -> impl Iterator<Item = String> {
        self.rules.iter().filter_map(AccessRule::status)
    }
}

impl AccessRule {
    fn new(config: &config::RuleConfig, resources: &RuleResources<'_>) -> io::Result<AccessRule> {
        let (mut limit, mut passwords, mut tokens, mut key_watch) = (None, None, None, None);
        match &config.action {
            RuleAction::Limit(rate) => limit = Some(ClientRates::new(*rate)),
            RuleAction::Auth(auth) => {
                if let Some(auth) = &auth.password {
                    // If the file cannot be read now, the users of the previous one stay in force.
                    let previous = (resources.find_password_file)(&auth.file);
                    let password_file =
                        PasswordFile::open(&auth.file, &auth.realm, previous.as_deref())?;
                    passwords = Some(Arc::new(password_file));
                }
                if let Some(auth) = &auth.token {
                    let keys = Arc::new(TokenKeySet::open(&auth.keys)?);
                    if let TokenKeys::Url(origin, target) = &auth.keys {
                        // The watch ends with the rule, so a removed rule sends no further requests to its issuer.
                        let watch = (resources.watch_keys)(origin, target, keys.clone());
                        key_watch = Some(watch.map_err(io::Error::other)?);
                    }
                    tokens = Some(TokenVerifier::new(auth, keys));
                }
            }
            RuleAction::Deny(_)
            | RuleAction::Allow
            | RuleAction::Fallback(_)
            | RuleAction::Respond(_)
            | RuleAction::Close
            | RuleAction::Bandwidth(_)
            | RuleAction::Log(_) => {}
        }
        Ok(AccessRule {
            conditions: ConditionSet::new(&config.conditions, resources.find_switch),
            config: config.clone(),
            limit,
            passwords,
            tokens,
            _key_watch: key_watch,
            refused: AtomicU64::new(0),
        })
    }

    /// The action.
    pub fn action(&self) -> &RuleAction {
        &self.config.action
    }

    /// The limiter, if the rule is a rate limit.
    pub fn limit(&self) -> Option<&ClientRates> {
        self.limit.as_ref()
    }

    /// The password file, if the rule requires a password.
    pub fn passwords(&self) -> Option<&Arc<PasswordFile>> {
        self.passwords.as_ref()
    }

    /// The verifier of tokens, if the rule requires one.
    pub fn tokens(&self) -> Option<&TokenVerifier> {
        self.tokens.as_ref()
    }

    /// Counts a refused request.
    pub fn count_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    /// The rule as text.
    pub fn text(&self) -> String {
        let config = &self.config;
        let action_text = match &config.action {
            RuleAction::Deny(status) => format!("deny {status}"),
            RuleAction::Allow => "allow".into(),
            RuleAction::Limit(rate) => {
                let (requests, period) = (rate.requests, period(rate.period_ms));
                format!("rate {requests}/{period}, burst {}", rate.burst)
            }
            RuleAction::Auth(auth) => auth_text(auth),
            RuleAction::Fallback(to) => format!("fallback {to}"),
            RuleAction::Respond(response) => format!("respond {}", response.status),
            RuleAction::Close => "close".into(),
            RuleAction::Bandwidth(limit) => format!(
                "bandwidth {} bytes/s after {} bytes",
                limit.bytes_per_s, limit.after
            ),
            RuleAction::Log(is_logged) => format!("log {is_logged}"),
        };
        let mut text = format!("{}: {action_text}", config.pattern);
        let conditions = condition_text(&config.conditions);
        if !conditions.is_empty() {
            text.push_str(&format!(", {conditions}"));
        }
        text
    }

    fn status(&self) -> Option<String> {
        let refused = self.refused.load(Relaxed);
        let mut text = match self.action().refuses() {
            true => format!("{}; {refused} refused", self.text()),
            false => return None,
        };
        // Forgotten clients show that the limiter's table is too small.
        if let Some(limit) = &self.limit {
            text.push_str(&format!(", {} forgotten", limit.evicted()));
        }
        if let Some(passwords) = &self.passwords {
            text.push_str(&format!(", {}", passwords.status()));
        }
        if let Some(tokens) = &self.tokens {
            text.push_str(&format!(", {}", tokens.status()));
        }
        Some(text)
    }
}

/// The methods of a rule, as text.
fn auth_text(auth: &AuthConfig) -> String {
    let password = auth.password.as_ref();
    let password = password.map(|auth| format!("auth {}", auth.file.display()));
    let token = auth.token.as_ref().map(|auth| match &auth.keys {
        TokenKeys::Secret(_) => "jwt with a secret".to_owned(),
        TokenKeys::File(file) => format!("jwt with {}", file.display()),
        TokenKeys::Url(origin, target) => format!("jwt with {}{target}", origin.name),
    });
    let forward = auth.forward.as_ref();
    let forward = forward.map(|auth| format!("forward_auth {}{}", auth.origin.name, auth.target));
    let methods: Vec<String> = [token, password, forward].into_iter().flatten().collect();
    let word = if auth.satisfies_any { " or " } else { " and " };
    methods.join(word)
}

fn period(period_ms: u64) -> &'static str {
    match period_ms {
        1000 => "s",
        60_000 => "m",
        _ => "h",
    }
}
