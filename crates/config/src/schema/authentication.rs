//! Authentication of clients: by a password, a token, or the decision of another server.

use std::path::PathBuf;

use super::OriginConfig;
use crate::SecretText;

/// The authentication that a rule requires. At least one method is present. `[[site.rule]]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthConfig {
    /// Basic authentication (RFC 7617). Key `auth`.
    pub password: Option<PasswordAuth>,
    /// A JSON Web Token (RFC 7519). Key `jwt`.
    pub token: Option<Box<TokenAuth>>,
    /// The decision of another server. Key `forward_auth`.
    pub forward: Option<Box<ForwardAuth>>,
    /// One of the methods suffices. Default false: all of them must admit the request. Key `satisfy`.
    pub satisfies_any: bool,
}

impl AuthConfig {
    /// The request fields that the rule sets.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        let copied = self.forward.iter().flat_map(|it| &it.copied);
        let claims = self.token.iter().flat_map(|it| &it.fields);
        let copied = copied.map(|(field, _)| field.as_str());
        copied.chain(claims.map(|(field, _)| field.as_str()))
    }
}

/// Basic authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordAuth {
    /// Users and the hashes of their passwords.
    pub file: PathBuf,
    /// The realm: the name of the protected area that browsers show. Default `restricted`. Key `realm`.
    pub realm: String,
}

/// Another server decides about each request. `[site.rule.forward_auth]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardAuth {
    /// The server; without servers until the names of origins are resolved.
    pub origin: OriginConfig,
    /// The path, with a query perhaps, of the requests to the server. Key `url`.
    pub target: String,
    /// The request fields that are set, each with the field of the server's response that has its value. Key `copy`.
    pub copied: Vec<(String, String)>,
    /// The fields of a refusal that the client gets, in lower case. Key `answer`.
    pub answered: Vec<String>,
    /// Time until the head of the response, in milliseconds. Default 5 000. Key `timeout`.
    pub timeout_ms: u64,
}

impl ForwardAuth {
    /// The default of `answered`.
    pub const ANSWERED: [&str; 5] = [
        "content-language",
        "content-type",
        "location",
        "set-cookie",
        "www-authenticate",
    ];
    /// The default of `timeout_ms`.
    pub const TIMEOUT_MS: u64 = 5_000;
}

/// JSON Web Tokens. `[site.rule.jwt]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenAuth {
    /// The keys with which signatures are verified. Keys `secret`, `key` and `jwks`.
    pub keys: TokenKeys,
    /// The permitted algorithms; not empty. Default those of the keys. Key `algorithms`.
    pub algorithms: Vec<TokenAlgorithm>,
    /// The permitted values of `iss`; empty: any. Key `issuer`.
    pub issuers: Vec<String>,
    /// The permitted values of `aud`; empty: any. Key `audience`.
    pub audiences: Vec<String>,
    /// The permitted difference of clocks for `exp` and `nbf`, in seconds. Default 30. Key `leeway`.
    pub leeway_s: u64,
    /// The cookie with the token; `None`: Authorization has it. Key `cookie`.
    pub cookie: Option<String>,
    /// Claims with required values. `[site.rule.jwt.require]`
    pub required: Vec<(String, String)>,
    /// The request fields that are set, each with the claim that has its value. `[site.rule.jwt.fields]`
    pub fields: Vec<(String, String)>,
}

/// The keys for tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenKeys {
    /// A secret that the issuer and this server share (HMAC). Key `secret`.
    Secret(SecretText),
    /// A file with a public key in PEM, or a JSON Web Key Set (RFC 7517). Keys `key` and `jwks`.
    File(PathBuf),
    /// The URL of a JSON Web Key Set: its server, and its path. Key `jwks`.
    Url(Box<OriginConfig>, String),
}

/// A signature algorithm of tokens (RFC 7518 §3.1, RFC 8037 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenAlgorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// HMAC with SHA-384.
    Hs384,
    /// HMAC with SHA-512.
    Hs512,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

impl TokenAlgorithm {
    /// All algorithms, with their names.
    pub const ALL: [(&str, TokenAlgorithm); 12] = [
        ("HS256", TokenAlgorithm::Hs256),
        ("HS384", TokenAlgorithm::Hs384),
        ("HS512", TokenAlgorithm::Hs512),
        ("RS256", TokenAlgorithm::Rs256),
        ("RS384", TokenAlgorithm::Rs384),
        ("RS512", TokenAlgorithm::Rs512),
        ("PS256", TokenAlgorithm::Ps256),
        ("PS384", TokenAlgorithm::Ps384),
        ("PS512", TokenAlgorithm::Ps512),
        ("ES256", TokenAlgorithm::Es256),
        ("ES384", TokenAlgorithm::Es384),
        ("EdDSA", TokenAlgorithm::EdDsa),
    ];

    /// Whether the issuer and the server share the key.
    pub fn is_symmetric(self) -> bool {
        use TokenAlgorithm::{Hs256, Hs384, Hs512};
        matches!(self, Hs256 | Hs384 | Hs512)
    }

    /// The algorithms with a shared key, or those with a public one.
    pub fn all_with_symmetry(is_symmetric: bool) -> Vec<TokenAlgorithm> {
        let all = TokenAlgorithm::ALL.into_iter().map(|(_, it)| it);
        all.filter(|it| it.is_symmetric() == is_symmetric).collect()
    }
}
