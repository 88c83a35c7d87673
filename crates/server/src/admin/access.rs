//! Access control of the admin service: a client of the Unix socket has all permissions, a client over TCP those of its
//! token.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lowroad_config::AdminConfig;
use lowroad_http::status::StatusCode;
use lowroad_limits::{ClientRates, RequestRate};

use super::operations::AdminPermission;
use super::problem::AdminProblem;

/// Minimum length of a token; a shorter one could be guessed.
const TOKEN_LEN_MIN: usize = 16;
/// Maximum length of a token; a longer one suggests a wrong file.
const TOKEN_LEN_MAX: usize = 4096;
/// Rate limit of wrong tokens from one address. An address that exceeds it gets 429 for all requests until the rate
/// allows another attempt.
const WRONG_TOKENS: RequestRate = RequestRate {
    requests: 10,
    period_ms: 60_000,
    burst: 10,
};

/// The valid tokens, and the rate limiter of wrong ones.
pub struct AdminAccess {
    full: Option<AdminToken>,
    read: Option<AdminToken>,
    wrong: ClientRates,
    refused: AtomicU64,
}

/// A token. `Debug` does not show its bytes.
struct AdminToken(Vec<u8>);

impl AdminAccess {
    /// Reads the configured token files.
    ///
    /// # Errors
    /// A file can't be read or contains no usable token: a message with a remedy.
    pub fn new(config: &AdminConfig) -> Result<AdminAccess, String> {
        let token = |file: &Option<std::path::PathBuf>| match file {
            Some(file) => AdminToken::read(file).map(Some),
            None => Ok(None),
        };
        Ok(AdminAccess {
            full: token(&config.token_file)?,
            read: token(&config.read_token_file)?,
            wrong: ClientRates::new(WRONG_TOKENS),
            refused: AtomicU64::new(0),
        })
    }

    /// Checks the Authorization field of a client over TCP.
    ///
    /// # Errors
    /// The token is missing or wrong, permits too little, or the client has sent too many wrong ones.
    pub fn check(
        &self,
        peer: IpAddr,
        authorization: Option<&[u8]>,
        needed: AdminPermission,
        now_ms: u64,
    ) -> Result<(), AdminProblem> {
        // Taken before the comparison: a client that exceeds its rate must not learn whether its token is right.
        if let Err(retry_after_ms) = self.wrong.take(peer, now_ms) {
            self.refused.fetch_add(1, Relaxed);
            let detail = "too many wrong tokens from this address";
            return Err(AdminProblem {
                retry_after_s: Some(retry_after_ms.div_ceil(1000)),
                ..AdminProblem::new(StatusCode::TOO_MANY_REQUESTS, detail)
            });
        }
        if authorization.is_none() {
            // Not a guess: otherwise any local user could keep a scraper of the same address out.
            self.wrong.refund(peer, now_ms);
        }
        let permitted = bearer(authorization).and_then(|token| self.permission(token));
        match permitted {
            Some(permission) => {
                // Only wrong tokens use up the rate.
                self.wrong.refund(peer, now_ms);
                // The permissions are ordered: `Full` includes `Read`.
                if permission >= needed {
                    return Ok(());
                }
                self.refused.fetch_add(1, Relaxed);
                let detail =
                    "this token permits looking only; changes need the token of token_file";
                Err(AdminProblem::new(StatusCode::FORBIDDEN, detail))
            }
            None => {
                self.refused.fetch_add(1, Relaxed);
                let detail =
                    "send Authorization: Bearer with the token of token_file or read_token_file";
                Err(AdminProblem::new(StatusCode::UNAUTHORIZED, detail))
            }
        }
    }

    /// Number of refused requests.
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn permission(&self, token: &[u8]) -> Option<AdminPermission> {
        // The token is always compared with both, so that the duration does not reveal which one is configured.
        let is_full = self.full.as_ref().is_some_and(|known| known.matches(token));
        let is_read = self.read.as_ref().is_some_and(|known| known.matches(token));
        match (is_full, is_read) {
            (true, _) => Some(AdminPermission::Full),
            (false, true) => Some(AdminPermission::Read),
            (false, false) => None,
        }
    }
}

impl AdminToken {
    fn read(file: &Path) -> Result<AdminToken, String> {
        let bytes = read_bounded(file).map_err(|error| format!("{}: {error}", file.display()))?;
        // Editors and `openssl rand` end the file with a line break, which is no part of the token.
        let token = bytes.trim_ascii();
        let is_printable = token.iter().all(u8::is_ascii_graphic);
        if token.len() < TOKEN_LEN_MIN || !is_printable {
            return Err(format!(
                "{}: a token is one word of at least {TOKEN_LEN_MIN} printable characters; \
                 `openssl rand -hex 32` makes one",
                file.display()
            ));
        }
        Ok(AdminToken(token.to_vec()))
    }

    fn matches(&self, other: &[u8]) -> bool {
        is_same_secret(&self.0, other)
    }
}

/// Compares in constant time: the duration depends only on the length of `other`. `secret` is not empty.
pub fn is_same_secret(secret: &[u8], other: &[u8]) -> bool {
    let mut difference = u8::from(secret.len() != other.len());
    for (index, byte) in other.iter().enumerate() {
        // The known token repeats, so that the number of rounds depends only on the other one.
        let known = secret[index % secret.len()];
        // Prevents the compiler from ending the loop at the first difference.
        difference = std::hint::black_box(difference | (known ^ byte));
    }
    difference == 0
}

fn read_bounded(file: &Path) -> io::Result<Vec<u8>> {
    use io::Read;
    // Bounded, since the path may name a device or a huge file.
    let mut bytes = Vec::new();
    std::fs::File::open(file)?
        .take(TOKEN_LEN_MAX as u64)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The token of `Bearer TOKEN` (RFC 6750 §2.1).
fn bearer(authorization: Option<&[u8]>) -> Option<&[u8]> {
    let (scheme, token) = authorization?.split_at_checked(b"Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const FULL: &str = "0123456789abcdef";
    const READ: &str = "fedcba9876543210";

    fn access() -> AdminAccess {
        let token = |text: &str| Some(AdminToken(text.into()));
        AdminAccess {
            full: token(FULL),
            read: token(READ),
            wrong: ClientRates::new(WRONG_TOKENS),
            refused: AtomicU64::new(0),
        }
    }

    fn check(access: &AdminAccess, sent: &str, needed: AdminPermission, now_ms: u64) -> u16 {
        let sent = Some(sent.as_bytes()).filter(|sent| !sent.is_empty());
        match access.check(PEER, sent, needed, now_ms) {
            Ok(()) => 200,
            Err(problem) => problem.status.code(),
        }
    }

    #[test]
    fn read_token_permits_only_reading() {
        let access = access();
        let (full, read) = (format!("Bearer {FULL}"), format!("bearer {READ}"));
        for (sent, needed, expected) in [
            (&*full, AdminPermission::Full, 200),
            (&*full, AdminPermission::Read, 200),
            (&*read, AdminPermission::Full, 403),
            (&*read, AdminPermission::Read, 200),
            ("", AdminPermission::Read, 401),
            ("Basic abc", AdminPermission::Read, 401),
            ("Bearer ", AdminPermission::Read, 401),
            ("Bearer 0123456789abcde", AdminPermission::Read, 401),
            ("Bearer 0123456789abcdef0", AdminPermission::Read, 401),
            // A token of repeated valid bytes is wrong, although each byte is equal.
            (
                "Bearer 0123456789abcdef0123456789abcdef",
                AdminPermission::Read,
                401,
            ),
        ] {
            assert_eq!(check(&access, sent, needed, 0), expected, "{sent}");
        }
    }

    #[test]
    fn wrong_tokens_are_rate_limited() {
        let access = access();
        let right = format!("Bearer {FULL}");
        for _ in 0..WRONG_TOKENS.burst {
            assert_eq!(
                check(&access, "Bearer wrong", AdminPermission::Read, 0),
                401
            );
        }
        assert_eq!(
            check(&access, "Bearer wrong", AdminPermission::Read, 0),
            429
        );
        assert_eq!(check(&access, &right, AdminPermission::Read, 0), 429);
        let refused = access.refused();
        assert_eq!(check(&access, &right, AdminPermission::Read, 60_000), 200);
        assert_eq!(access.refused(), refused);
        // Right tokens do not use up the rate, nor do requests without a token, which guess nothing.
        for _ in 0..100 {
            assert_eq!(check(&access, "", AdminPermission::Read, 60_000), 401);
        }
        for _ in 0..100 {
            assert_eq!(check(&access, &right, AdminPermission::Read, 60_000), 200);
        }
    }

    #[test]
    fn unusable_token_files_are_refused() {
        let folder = lowroad_testkit::TempFolder::new();
        let file = folder.path().join("token");
        for (text, is_usable) in [
            ("0123456789abcdef\n", true),
            ("0123456789abcde\n", false),
            ("0123456789 abcdef", false),
            ("", false),
        ] {
            std::fs::write(&file, text).expect("a file");
            assert_eq!(AdminToken::read(&file).is_ok(), is_usable, "{text:?}");
        }
        assert!(AdminToken::read(&folder.path().join("none")).is_err());
    }
}
