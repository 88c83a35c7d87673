//! Authentication by access rules: tokens, then passwords, then the decision of a server (forward authentication). The
//! first two need no other server. If any method of a rule suffices, a method without credentials in the request is
//! skipped.

use std::net::{Ipv4Addr, SocketAddr};

use lowroad_access_control::passwords::{BasicCredentials, PasswordOutcome};
use lowroad_access_control::{AccessPolicy, AccessRule, TokenFault};
use lowroad_config::{AuthConfig, ForwardAuth, RuleAction};
use lowroad_engine::authentication::Authentication;
use lowroad_handler::{HandlerFailure, ResponseFields};
use lowroad_http::status::StatusCode;
use lowroad_limits::RefusalReason;
use lowroad_log::ErrorLogger;
use lowroad_response_cache::calls::{AuthCall, is_success};
use lowroad_response_cache::reply::HandlerReply;

use super::{AccessRefusal, apply_rules, refuse, refuse_rate_limited};
use crate::answering_rule::AnsweringRule;
use crate::decision::context::AccessCheck;
use crate::decision::effects::{Effects, TraceEvent};
use crate::responder::RequestResponder;
use crate::sites::SitePath;

/// The authentication of a request by one rule.
pub struct AuthCheck<'a> {
    /// The number of the rule.
    pub number: usize,
    pub rule: &'a AccessRule,
    pub auth: &'a AuthConfig,
    pub site_path: SitePath<'a>,
}

/// The outcome of the password check of a rule.
pub struct CheckedPassword {
    /// The number of the rule.
    pub rule: usize,
    pub outcome: PasswordOutcome,
}

/// The response of the server of a rule.
pub struct ServerAnswer {
    /// The number of the rule.
    pub rule: usize,
    pub reply: Result<Box<HandlerReply>, HandlerFailure>,
}

/// Whether a rule has admitted this request before.
pub fn has_admitted(number: usize, responder: &RequestResponder<'_, '_>) -> bool {
    let authentication = responder.exchange.authentication.as_ref();
    authentication.is_some_and(|it| it.rules.contains(&number))
}

impl AuthCheck<'_> {
    /// Applies the methods in their order.
    ///
    /// # Errors
    /// The request was refused, or must wait.
    pub fn run(
        &self,
        effects: &impl Effects,
        responder: &mut RequestResponder<'_, '_>,
    ) -> Result<(), AccessRefusal> {
        let mut token_fault = None;
        if let Some(tokens) = self.rule.tokens() {
            match tokens.verify(responder.request) {
                Ok(verified) => {
                    // The fields of the token are set even if a later method of the rule refuses the request.
                    self.admit(verified, responder);
                    if self.auth.satisfies_any {
                        return Ok(());
                    }
                }
                // The fault is shown only if no other method admits the request.
                Err(fault) if self.auth.satisfies_any => token_fault = Some(fault),
                Err(fault) => return Err(self.challenge(Some(fault), effects, responder)),
            }
        }
        if let Some(passwords) = self.rule.passwords() {
            match BasicCredentials::from_request(responder.request) {
                Some(credentials) => {
                    let (peer, id) = (responder.exchange.peer, responder.exchange.id);
                    let outcome = effects.check(passwords, credentials, peer, id);
                    let outcome = outcome.ok_or(AccessRefusal::NeedsPassword(self.number))?;
                    return self.apply_password(outcome, token_fault, effects, responder);
                }
                // Another method may suffice.
                None if self.auth.satisfies_any => {}
                // A missing password is treated as wrong: the 401 response requests one.
                None => return Err(self.challenge(token_fault, effects, responder)),
            }
        }
        self.ask_server(token_fault, effects, responder)
    }

    /// Applies the outcome of a password check, then sends a request to the server if that is still needed.
    fn apply_password(
        &self,
        outcome: PasswordOutcome,
        token_fault: Option<TokenFault>,
        effects: &impl Effects,
        responder: &mut RequestResponder<'_, '_>,
    ) -> Result<(), AccessRefusal> {
        match outcome {
            PasswordOutcome::Right => {
                responder.exchange.is_user = true;
                match self.auth.satisfies_any || self.auth.forward.is_none() {
                    true => Ok(()),
                    false => self.ask_server(token_fault, effects, responder),
                }
            }
            // The attempt has been counted: guesses are limited although the server may admit the request.
            PasswordOutcome::Wrong if self.auth.satisfies_any => {
                self.ask_server(token_fault, effects, responder)
            }
            PasswordOutcome::Wrong => Err(self.challenge(token_fault, effects, responder)),
            PasswordOutcome::TooOften(wait_s) => {
                responder.exchange.refusal_reason = Some(RefusalReason::Passwords);
                Err(refuse_rate_limited(
                    self.rule,
                    wait_s,
                    effects,
                    self.site_path,
                    responder,
                ))
            }
            PasswordOutcome::Busy => {
                responder.exchange.refusal_reason = Some(RefusalReason::Passwords);
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Err(refuse(
                    self.rule,
                    status,
                    &[],
                    effects,
                    self.site_path,
                    responder,
                ))
            }
        }
    }

    /// Asks the server of the rule. Without one, the request is refused unless all methods have admitted it.
    fn ask_server(
        &self,
        token_fault: Option<TokenFault>,
        effects: &impl Effects,
        responder: &mut RequestResponder<'_, '_>,
    ) -> Result<(), AccessRefusal> {
        let Some(forward) = &self.auth.forward else {
            return match self.auth.satisfies_any {
                true => Err(self.challenge(token_fault, effects, responder)),
                false => Ok(()),
            };
        };
        let site = self.site_path.site;
        // Each rule with a server has a route; a missing one must not admit the request.
        let Some(route) = site.auth_routes.get(self.number) else {
            let status = StatusCode::INTERNAL_ERROR;
            return Err(refuse(
                self.rule,
                status,
                &[],
                effects,
                self.site_path,
                responder,
            ));
        };
        let call = AuthCall {
            rules: &site.rules,
            route,
            target: &forward.target,
            request: responder.request,
            // The server learns the client's address from fields, so the address of the listener is not needed.
            local: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        };
        match effects.ask(&call, responder.exchange) {
            Some(call_guard) => Err(AccessRefusal::NeedsServer(self.number, call_guard)),
            None => Ok(()),
        }
    }

    /// Records that the rule has admitted the request.
    fn admit(&self, admitted: Authentication, responder: &mut RequestResponder<'_, '_>) {
        let all = responder.exchange.authentication.get_or_insert_default();
        all.rules.push(self.number);
        all.lines.extend_from_slice(&admitted.lines);
        if all.user.is_none() {
            all.user = admitted.user;
        }
    }

    /// Refuses the request with 401 and the challenges of the rule (RFC 9110 §11.6.1), or with 503 if no key for tokens
    /// is known.
    fn challenge(
        &self,
        token_fault: Option<TokenFault>,
        effects: &impl Effects,
        responder: &mut RequestResponder<'_, '_>,
    ) -> AccessRefusal {
        let site_path = self.site_path;
        if token_fault == Some(TokenFault::NoKeys) && self.auth.password.is_none() {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return refuse(self.rule, status, &[], effects, site_path, responder);
        }
        AnsweringRule::Auth.note(responder.exchange);
        let challenges = self.challenges(token_fault);
        let fields: Vec<(&str, &[u8])> = challenges
            .iter()
            .map(|challenge| ("WWW-Authenticate", challenge.as_bytes()))
            .collect();
        let status = StatusCode::UNAUTHORIZED;
        refuse(self.rule, status, &fields, effects, site_path, responder)
    }

    /// The challenges of the methods that this server checks itself.
    fn challenges(&self, token_fault: Option<TokenFault>) -> Vec<String> {
        let basic = self.rule.passwords().map(|passwords| {
            let realm = &passwords.realm;
            format!("Basic realm=\"{realm}\", charset=\"UTF-8\"")
        });
        // A cookie has no authentication scheme, and so no challenge.
        let is_bearer = self
            .auth
            .token
            .as_ref()
            .is_some_and(|it| it.cookie.is_none());
        // RFC 6750 §3.1: without a token, the challenge has no error.
        let bearer = is_bearer.then(|| match token_fault {
            Some(TokenFault::Invalid(reason)) => {
                format!("Bearer error=\"invalid_token\", error_description=\"{reason}\"")
            }
            _ => "Bearer".to_owned(),
        });
        basic.into_iter().chain(bearer).collect()
    }

    /// Determines the fault of a token again, after a wait, during which it is not kept. None if the token is required,
    /// since its fault has refused the request before.
    fn token_fault(&self, responder: &RequestResponder<'_, '_>) -> Option<TokenFault> {
        let tokens = self.rule.tokens().filter(|_| self.auth.satisfies_any)?;
        tokens.verify(responder.request).err()
    }
}

/// The check of the rule with a number, for a request that has waited. The rule is normally present: a waiting request
/// keeps its site across reloads.
fn check_of<'a>(
    access_policy: &'a AccessPolicy,
    number: usize,
    access_check: AccessCheck<'a>,
) -> Option<AuthCheck<'a>> {
    let rule = access_policy.rule(number)?;
    let RuleAction::Auth(auth) = rule.action() else {
        return None;
    };
    Some(AuthCheck {
        number,
        rule,
        auth,
        site_path: access_check.site_path,
    })
}

/// Applies the outcome of a password check, then the remaining rules.
///
/// # Errors
/// The request was refused, or must wait.
pub fn resume_after_password(
    access_policy: &AccessPolicy,
    checked: CheckedPassword,
    effects: &impl Effects,
    access_check: AccessCheck<'_>,
    responder: &mut RequestResponder<'_, '_>,
) -> Result<(), AccessRefusal> {
    let Some(check) = check_of(access_policy, checked.rule, access_check) else {
        return Err(internal_error(access_check, responder));
    };
    let token_fault = check.token_fault(responder);
    check.apply_password(checked.outcome, token_fault, effects, responder)?;
    let next = checked.rule + 1;
    apply_rules(access_policy, next, effects, access_check, responder)
}

/// Applies the decision of a server, then the remaining rules.
///
/// # Errors
/// The request was refused, or must wait.
pub fn resume_after_server(
    answer: ServerAnswer,
    effects: &impl Effects,
    access_check: AccessCheck<'_>,
    logger: &ErrorLogger,
    responder: &mut RequestResponder<'_, '_>,
) -> Result<(), AccessRefusal> {
    let site_path = access_check.site_path;
    let site = site_path.site;
    let access_policy = site.access_policy.as_ref();
    let check = access_policy.and_then(|it| check_of(it, answer.rule, access_check));
    let (Some(access_policy), Some(check), Some(route)) =
        (access_policy, check, site.auth_routes.get(answer.rule))
    else {
        return Err(internal_error(access_check, responder));
    };
    let Some(forward) = &check.auth.forward else {
        return Err(internal_error(access_check, responder));
    };
    let failure = match answer.reply {
        Ok(reply) if is_success(reply.status().code()) => {
            // Only the fields of a permission are copied, so a refusal can't name a user.
            check.admit(copied_fields(forward, &reply.response.fields), responder);
            let next = answer.rule + 1;
            return apply_rules(access_policy, next, effects, access_check, responder);
        }
        Ok(mut reply) if is_refusal(reply.status().code()) => {
            AnsweringRule::Auth.note(responder.exchange);
            effects.trace(TraceEvent::Refused(check.rule));
            // Fields that the configuration doesn't name may be internal ones of the server.
            reply.response.fields = answered_fields(forward, &reply.response.fields);
            // A 401 names all methods that would admit the request (RFC 9110 §11.6.1), not only that of the server.
            if reply.status() == StatusCode::UNAUTHORIZED && check.auth.satisfies_any {
                for challenge in check.challenges(check.token_fault(responder)) {
                    let fields = &mut reply.response.fields;
                    fields.push("WWW-Authenticate", challenge.as_bytes());
                }
            }
            let status = responder.reply(site_path, route, *reply);
            return Err(AccessRefusal::Answered(status));
        }
        Ok(reply) => HandlerFailure::new(
            StatusCode::INTERNAL_ERROR,
            format!(
                "{}: status {} is neither a permission (2xx) nor a refusal (401, 403, a redirect)",
                route.label,
                reply.status().code()
            ),
        ),
        // A server that is down admits no request.
        Err(failure) => HandlerFailure {
            status: StatusCode::SERVICE_UNAVAILABLE,
            ..failure
        },
    };
    effects.trace(TraceEvent::Refused(check.rule));
    let status = responder.send_failure(site_path, route, &failure, logger);
    Err(AccessRefusal::Answered(status))
}

/// Whether a status of a server is a refusal for the client.
fn is_refusal(status: u16) -> bool {
    matches!(status, 401 | 403 | 301 | 302 | 303 | 307 | 308)
}

/// The request fields that a permission sets. The user is that of the first field with a name that ends in `User`.
fn copied_fields(forward: &ForwardAuth, fields: &ResponseFields) -> Authentication {
    let mut authentication = Authentication::default();
    for (name, source) in &forward.copied {
        // Several values are one list (RFC 9110 §5.3).
        let values: Vec<&[u8]> = fields.values(source).collect();
        if values.is_empty() {
            continue;
        }
        let value = values.join(&b", "[..]);
        authentication.push_field(name, &value);
        let is_user = name.to_ascii_lowercase().ends_with("user");
        if is_user && authentication.user.is_none() {
            authentication.user = Some(String::from_utf8_lossy(&value).into());
        }
    }
    authentication
}

/// The fields of a refusal that the client gets. The refusal must not be stored: it may admit another client.
fn answered_fields(forward: &ForwardAuth, fields: &ResponseFields) -> ResponseFields {
    let mut answered = ResponseFields::new();
    let is_answered = |name: &str| {
        let mut names = forward.answered.iter();
        names.any(|answered| name.eq_ignore_ascii_case(answered))
    };
    for (name, value) in fields.iter().filter(|(name, _)| is_answered(name)) {
        answered.push(name, value);
    }
    answered.push("Cache-Control", b"no-store");
    answered
}

fn internal_error(
    access_check: AccessCheck<'_>,
    responder: &mut RequestResponder<'_, '_>,
) -> AccessRefusal {
    let status = responder.refuse(Some(access_check.site_path), StatusCode::INTERNAL_ERROR);
    AccessRefusal::Answered(status)
}
