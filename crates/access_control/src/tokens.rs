//! JSON Web Tokens (RFC 7519): finds the token of a request, verifies its signature and its claims, and derives request
//! fields from them. The token itself never chooses the kind of key: the permitted algorithms are those of the
//! configuration, and of these the ones that fit the key (RFC 8725 §3.1).

mod claims;
mod key_set;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode, decode_header};
use lowroad_config::TokenAuth;
use lowroad_engine::authentication::Authentication;
use lowroad_http::request::Request;
use lowroad_request_conditions::request_cookies;

use crate::token_fault::TokenFault;
use claims::Claims;
pub use key_set::TokenKeySet;

/// The longest token, in bytes.
const TOKEN_LEN_MAX: usize = 8 << 10;
/// The largest number of keys that are tried for a token without `kid`.
const TRIES_MAX: usize = 8;

/// Verifies the tokens that a rule requires.
pub struct TokenVerifier {
    config: TokenAuth,
    keys: Arc<TokenKeySet>,
    /// The number of invalid tokens so far.
    invalid: AtomicU64,
}

impl TokenVerifier {
    /// Creates a verifier with these keys.
    pub fn new(config: &TokenAuth, keys: Arc<TokenKeySet>) -> TokenVerifier {
        TokenVerifier {
            config: config.clone(),
            keys,
            invalid: AtomicU64::new(0),
        }
    }

    /// Verifies the token of a request. Returns the user (the claim `sub`) and the request fields.
    ///
    /// # Errors
    /// The request has no valid token.
    pub fn verify(&self, request: &Request<'_>) -> Result<Authentication, TokenFault> {
        let verified = self.find_token(request).and_then(|token| self.check(token));
        // A missing token is no attack: browsers send the first request without one.
        if let Err(TokenFault::Invalid(_)) = verified {
            self.invalid.fetch_add(1, Relaxed);
        }
        verified
    }

    /// The keys.
    pub fn keys(&self) -> &TokenKeySet {
        &self.keys
    }

    /// The state, as text.
    pub fn status(&self) -> String {
        let (invalid, keys) = (self.invalid.load(Relaxed), self.keys.status());
        format!("{invalid} invalid tokens, {keys}")
    }

    /// The token in Authorization or in the cookie. Two of them are ambiguous.
    fn find_token<'r>(&self, request: &'r Request<'_>) -> Result<&'r [u8], TokenFault> {
        let mut tokens: Box<dyn Iterator<Item = &'r [u8]> + '_> = match &self.config.cookie {
            None => Box::new(
                request
                    .fields()
                    .filter(|(name, _)| name.eq_ignore_ascii_case(b"authorization"))
                    .filter_map(|(_, value)| bearer_token(value)),
            ),
            Some(cookie) => Box::new(
                request_cookies(request)
                    .filter(|(name, _)| *name == cookie.as_bytes())
                    .map(|(_, value)| value),
            ),
        };
        let token = tokens.next().ok_or(TokenFault::Missing)?;
        match tokens.next() {
            None => Ok(token),
            Some(_) => Err(TokenFault::Invalid("two tokens")),
        }
    }

    fn check(&self, token: &[u8]) -> Result<Authentication, TokenFault> {
        // Checked before decoding, because the cost of decoding grows with the length.
        if token.len() > TOKEN_LEN_MAX {
            return Err(TokenFault::Invalid("longer than 8 KiB"));
        }
        let header = decode_header(token).map_err(|_| TokenFault::Invalid("malformed"))?;
        // This server understands no extension (RFC 7515 §4.1.11).
        if header.crit.is_some() {
            return Err(TokenFault::Invalid("it requires an extension"));
        }
        let keys = self.keys.current();
        if keys.is_empty() {
            return Err(TokenFault::NoKeys);
        }
        let fits = |key: &&key_set::TokenKey| key.fits(header.alg, header.kid.as_deref());
        let mut fault = TokenFault::Invalid("no key has its kid and algorithm");
        let mut is_known = false;
        for key in keys.iter().filter(fits).take(TRIES_MAX) {
            is_known = true;
            match decode::<Claims>(token, &key.key, &self.validation(key)) {
                Ok(verified) => return self.admit(&verified.claims),
                // Another key without a name may be the right one.
                Err(error) => fault = TokenFault::Invalid(reason(error.kind())),
            }
        }
        if !is_known {
            // The issuer may have new keys.
            self.keys.request_refresh();
        }
        Err(fault)
    }

    /// The checks of a token with a key.
    fn validation(&self, key: &key_set::TokenKey) -> Validation {
        let permitted = self.config.algorithms.iter().copied();
        let mut algorithms = permitted.map(key_set::algorithm).filter(|it| key.has(*it));
        let first = algorithms.next();
        // The library demands that all algorithms fit the key; without any, no token is valid.
        let mut validation = Validation::new(first.unwrap_or_default());
        validation.algorithms = first.into_iter().chain(algorithms).collect();
        // The clocks of issuers and servers differ.
        validation.leeway = self.config.leeway_s;
        validation.validate_nbf = true;
        validation.validate_aud = !self.config.audiences.is_empty();
        // Without an end, a stolen token would be valid forever.
        let mut required = vec!["exp"];
        if !self.config.issuers.is_empty() {
            validation.set_issuer(&self.config.issuers);
            required.push("iss");
        }
        if !self.config.audiences.is_empty() {
            validation.set_audience(&self.config.audiences);
            required.push("aud");
        }
        validation.set_required_spec_claims(&required);
        validation
    }

    /// Checks the required claims, and derives the request fields.
    fn admit(&self, claims: &Claims) -> Result<Authentication, TokenFault> {
        let required = &self.config.required;
        if !required.iter().all(|(name, value)| claims.has(name, value)) {
            return Err(TokenFault::Invalid("a required claim is missing"));
        }
        let mut authentication = Authentication {
            user: claims
                .text("sub")
                .filter(|it| claims::is_field_value(it))
                .map(Into::into),
            ..Authentication::default()
        };
        // A claim that is absent leaves its field out, so the handler sees no stale value.
        for (field, claim) in &self.config.fields {
            let Some(value) = claims.text(claim) else {
                continue;
            };
            if !claims::is_field_value(&value) {
                return Err(TokenFault::Invalid("a claim can't be a field value"));
            }
            authentication.push_field(field, value.as_bytes());
        }
        Ok(authentication)
    }
}

/// The token in a value of Authorization (RFC 6750 §2.1).
fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

fn reason(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ExpiredSignature => "expired",
        ErrorKind::ImmatureSignature => "not valid yet",
        ErrorKind::InvalidSignature => "the signature is wrong",
        ErrorKind::InvalidIssuer => "from another issuer",
        ErrorKind::InvalidAudience => "for another audience",
        ErrorKind::MissingRequiredClaim(_) => "exp, iss or aud is missing",
        ErrorKind::InvalidAlgorithm => "the algorithm is not permitted",
        _ => "malformed",
    }
}

#[cfg(test)]
mod tests;
