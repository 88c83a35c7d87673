//! Access control of the admin service: a client of the Unix socket has all permissions, a client over TCP those of its
//! token and of its TLS certificate.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lowroad_config::{AdminConfig, SecretText};
use lowroad_engine::tls_session::ClientIdentity;
use lowroad_http::status::StatusCode;
use lowroad_limits::{ClientRates, RequestRate};

use super::call::AdminClient;
use super::operations::AdminPermission;
use super::problem::AdminProblem;
use crate::secret_file;

/// Minimum length of a token; a shorter one could be guessed.
const TOKEN_LEN_MIN: usize = 16;
/// Rate limit of wrong tokens from one address. An address that exceeds it gets 429 for all requests until the rate
/// allows another attempt.
const WRONG_TOKENS: RequestRate = RequestRate {
    requests: 10,
    period_ms: 60_000,
    burst: 10,
};

/// The valid tokens and certificates, and the rate limiter of wrong tokens.
pub struct AdminAccess {
    full: Option<AdminToken>,
    read: Option<AdminToken>,
    /// The subjects (RFC 4514) of client certificates that permit everything.
    full_subjects: Vec<String>,
    wrong: ClientRates,
    refused: AtomicU64,
}

/// The credentials of a request over TCP.
pub struct AdminCredentials<'a> {
    /// The client's address.
    pub peer: IpAddr,
    /// The Authorization field.
    pub authorization: Option<&'a [u8]>,
    /// The client certificate, verified by the handshake.
    pub client: Option<&'a ClientIdentity>,
    /// Whether a page of another site has sent the request: browsers attach the certificate to it as well.
    pub is_cross_site: bool,
}

/// A token. `Debug` does not show its bytes.
struct AdminToken(Vec<u8>);

impl AdminAccess {
    /// Reads the configured tokens.
    ///
    /// # Errors
    /// A file can't be read or contains no usable token: a message with a remedy.
    pub fn new(config: &AdminConfig) -> Result<AdminAccess, String> {
        let token =
            |key: &str, text: &Option<SecretText>, file: &Option<PathBuf>| match (text, file) {
                (Some(text), _) => AdminToken::new(text.expose().as_bytes())
                    .map(Some)
                    .map_err(|problem| format!("{key}: {problem}")),
                (None, Some(file)) => AdminToken::read(file).map(Some),
                (None, None) => Ok(None),
            };
        let full = token("token", &config.token, &config.token_file)?;
        let read = token("read_token", &config.read_token, &config.read_token_file)?;
        if let (Some(full), Some(read)) = (&full, &read)
            && full.matches(&read.0)
        {
            return Err(
                "token and read_token are the same, which would permit everything; \
                 use two tokens"
                    .into(),
            );
        }
        let clients = config.tls.as_ref().and_then(|tls| tls.clients.as_ref());
        Ok(AdminAccess {
            full,
            read,
            full_subjects: clients.map_or_else(Vec::new, |it| it.full_subjects.clone()),
            wrong: ClientRates::new(WRONG_TOKENS),
            refused: AtomicU64::new(0),
        })
    }

    /// Configured values that are accepted, but expose the service.
    pub fn warnings(config: &AdminConfig) -> Vec<String> {
        let files = [&config.token_file, &config.read_token_file];
        let mut warnings: Vec<String> = files
            .into_iter()
            .flatten()
            .filter(|file| secret_file::is_open_to_others(file))
            .map(|file| {
                let file = file.display();
                format!(
                    "admin: {file}: other users can read or replace this token; chmod o-rwx {file}"
                )
            })
            .collect();
        if let Some(listen) = config.listen
            && config.tls.is_none()
            && !is_private(listen.ip())
        {
            warnings.push(format!(
                "admin.listen: {listen} may be reachable from other networks, and clients send their tokens \
                 in clear text; use a loopback or private address, or TLS (certificate and key)"
            ));
        }
        warnings
    }

    /// Checks the credentials of a client over TCP: its verified certificate and its Authorization field. Returns the
    /// client, with the greater permission.
    ///
    /// # Errors
    /// No credentials, a wrong token, too little permission, or too many wrong tokens from this address.
    pub fn check(
        &self,
        credentials: &AdminCredentials<'_>,
        needed: AdminPermission,
        now_ms: u64,
    ) -> Result<AdminClient, AdminProblem> {
        let by_token = match credentials.authorization {
            Some(authorization) => {
                Some(self.token_permission(credentials.peer, authorization, now_ms)?)
            }
            None => None,
        };
        let by_certificate = credentials.client.map(|it| self.subject_permission(it));
        // The permissions are ordered: `Full` includes `Read`.
        match (by_token.max(by_certificate), credentials.client) {
            // Not a guess, so it does not count as one: otherwise any local user could keep a scraper of the same
            // address out.
            (None, _) => Err(self.refuse(
                StatusCode::UNAUTHORIZED,
                "send Authorization: Bearer with the token or read_token of the configuration",
            )),
            (Some(_), _)
                if needed == AdminPermission::Full
                    && by_token.is_none()
                    && credentials.is_cross_site =>
            Err(self.refuse(
                StatusCode::FORBIDDEN,
                "a page of another site has sent this request with the certificate of a browser",
            )),
            (Some(permission), _) if permission >= needed => Ok(AdminClient {
                permission,
                name: client_name(credentials, by_token),
            }),
            (_, Some(client)) => Err(self.refuse(
                StatusCode::FORBIDDEN,
                &format!(
                    "the client certificate permits looking only; changes need the other token, or the subject \
                     of the certificate in full_clients: {}",
                    client.subject
                ),
            )),
            (_, None) => Err(self.refuse(
                StatusCode::FORBIDDEN,
                "read_token permits looking only; changes need token",
            )),
        }
    }

    /// The permission of an Authorization field.
    fn token_permission(
        &self,
        peer: IpAddr,
        authorization: &[u8],
        now_ms: u64,
    ) -> Result<AdminPermission, AdminProblem> {
        // Taken before the comparison: a client that exceeds its rate must not learn whether its token is right.
        if let Err(retry_after_ms) = self.wrong.take(peer, now_ms) {
            let detail = "too many wrong tokens from this address";
            return Err(AdminProblem {
                retry_after_s: Some(retry_after_ms.div_ceil(1000)),
                ..self.refuse(StatusCode::TOO_MANY_REQUESTS, detail)
            });
        }
        let permission = bearer(authorization).and_then(|token| self.permission(token));
        let Some(permission) = permission else {
            return Err(self.refuse(
                StatusCode::UNAUTHORIZED,
                "the token is neither token nor read_token of the configuration, as the server read \
                 them at its start; send it as Authorization: Bearer TOKEN",
            ));
        };
        // Only wrong tokens use up the rate.
        self.wrong.refund(peer, now_ms);
        Ok(permission)
    }

    /// The permission of a certificate that the handshake has verified.
    fn subject_permission(&self, client: &ClientIdentity) -> AdminPermission {
        match self.full_subjects.iter().any(|it| **it == *client.subject) {
            true => AdminPermission::Full,
            false => AdminPermission::Read,
        }
    }

    fn refuse(&self, status: StatusCode, detail: &str) -> AdminProblem {
        self.refused.fetch_add(1, Relaxed);
        AdminProblem::new(status, detail)
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
        let bytes =
            secret_file::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        AdminToken::new(&bytes).map_err(|problem| format!("{}: {problem}", file.display()))
    }

    fn new(text: &[u8]) -> Result<AdminToken, String> {
        // Editors and `openssl rand` end the file with a line break, which is no part of the token.
        let token = text.trim_ascii();
        let is_printable = token.iter().all(u8::is_ascii_graphic);
        if token.len() < TOKEN_LEN_MIN || !is_printable {
            return Err(format!(
                "a token is one word of at least {TOKEN_LEN_MIN} printable characters; \
                 `openssl rand -hex 32` makes one"
            ));
        }
        Ok(AdminToken(token.to_vec()))
    }

    fn matches(&self, other: &[u8]) -> bool {
        is_same_secret(&self.0, other)
    }
}

/// The name of a client in the audit: the certificate, if there is one, or the key of the token.
fn client_name(credentials: &AdminCredentials<'_>, by_token: Option<AdminPermission>) -> String {
    // Both are named if both were sent: each of them may be the one that was stolen.
    let mut names = Vec::new();
    match by_token {
        Some(AdminPermission::Full) => names.push("token".to_owned()),
        Some(AdminPermission::Read) => names.push("read_token".to_owned()),
        None => {}
    }
    if let Some(client) = credentials.client {
        names.push(format!("certificate {}", client.subject));
    }
    format!("{} from {}", names.join(" and "), credentials.peer)
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

/// Whether only this machine and private networks can reach an address.
fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// The token of `Bearer TOKEN` (RFC 6750 §2.1).
fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.split_at_checked(b"Bearer ".len())?;
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
            full_subjects: vec!["CN=deploy".into()],
            wrong: ClientRates::new(WRONG_TOKENS),
            refused: AtomicU64::new(0),
        }
    }

    fn check(access: &AdminAccess, sent: &str, needed: AdminPermission, now_ms: u64) -> u16 {
        check_with(access, sent, None, needed, now_ms)
    }

    fn check_with(
        access: &AdminAccess,
        sent: &str,
        subject: Option<&str>,
        needed: AdminPermission,
        now_ms: u64,
    ) -> u16 {
        let client = subject.map(|subject| ClientIdentity {
            subject: subject.into(),
            ..ClientIdentity::default()
        });
        let credentials = AdminCredentials {
            peer: PEER,
            authorization: Some(sent.as_bytes()).filter(|sent| !sent.is_empty()),
            client: client.as_ref(),
            is_cross_site: false,
        };
        match access.check(&credentials, needed, now_ms) {
            Ok(client) => {
                assert!(client.permission >= needed);
                200
            }
            Err(problem) => problem.status.code(),
        }
    }

    #[test]
    fn page_of_another_site_cannot_use_the_certificate_for_changes() {
        let access = access();
        let client = ClientIdentity {
            subject: "CN=deploy".into(),
            ..ClientIdentity::default()
        };
        let check = |needed, is_cross_site| {
            let credentials = AdminCredentials {
                peer: PEER,
                authorization: None,
                client: Some(&client),
                is_cross_site,
            };
            access.check(&credentials, needed, 0).is_ok()
        };
        assert!(check(AdminPermission::Full, false));
        assert!(!check(AdminPermission::Full, true));
        assert!(check(AdminPermission::Read, true));
    }

    #[test]
    fn client_is_named_by_its_credentials() {
        let name = |token: &str, subject: Option<&str>| {
            let client = subject.map(|subject| ClientIdentity {
                subject: subject.into(),
                ..ClientIdentity::default()
            });
            let credentials = AdminCredentials {
                peer: PEER,
                authorization: Some(token.as_bytes()).filter(|token| !token.is_empty()),
                client: client.as_ref(),
                is_cross_site: false,
            };
            let client = access().check(&credentials, AdminPermission::Read, 0);
            client.expect("a client").name
        };
        assert_eq!(
            name(&format!("Bearer {FULL}"), None),
            "token from 127.0.0.1"
        );
        assert_eq!(name("", Some("CN=x")), "certificate CN=x from 127.0.0.1");
        assert_eq!(
            name(&format!("Bearer {READ}"), Some("CN=x")),
            "read_token and certificate CN=x from 127.0.0.1"
        );
    }

    #[test]
    fn certificate_and_token_permit_the_greater_of_both() {
        let access = access();
        let (full, read) = (format!("Bearer {FULL}"), format!("Bearer {READ}"));
        for (sent, subject, needed, expected) in [
            ("", "CN=deploy", AdminPermission::Full, 200),
            ("", "CN=other", AdminPermission::Full, 403),
            ("", "CN=other", AdminPermission::Read, 200),
            // Part of a subject is another subject.
            ("", "CN=deploy,O=x", AdminPermission::Full, 403),
            (&*full, "CN=other", AdminPermission::Full, 200),
            (&*read, "CN=other", AdminPermission::Full, 403),
            (&*read, "CN=deploy", AdminPermission::Full, 200),
            // A wrong token is a mistake even with a certificate.
            ("Bearer wrong", "CN=deploy", AdminPermission::Read, 401),
        ] {
            let status = check_with(&access, sent, Some(subject), needed, 0);
            assert_eq!(status, expected, "{sent} {subject}");
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
            (&"x".repeat(4096), true),
            (&"x".repeat(4097), false),
        ] {
            std::fs::write(&file, text).expect("a file");
            assert_eq!(AdminToken::read(&file).is_ok(), is_usable, "{text:?}");
        }
        assert!(AdminToken::read(&folder.path().join("none")).is_err());
        // Opening a FIFO without a writer would block.
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).expect("a FIFO");
        for other in [&fifo, folder.path()] {
            let refusal = AdminToken::read(other).err().expect("no file");
            assert!(refusal.contains("not a regular file"), "{refusal}");
        }
    }

    #[test]
    fn equal_tokens_are_refused() {
        let folder = lowroad_testkit::TempFolder::new();
        let config = |read: &str| AdminConfig {
            token_file: Some(folder.file("full", FULL)),
            read_token_file: Some(folder.file("read", read)),
            ..AdminConfig::default()
        };
        assert!(AdminAccess::new(&config(READ)).is_ok());
        let refusal = AdminAccess::new(&config(FULL)).err().expect("equal");
        assert!(refusal.contains("are the same"), "{refusal}");
    }

    #[test]
    fn open_token_files_and_public_addresses_are_warnings() {
        use std::os::unix::fs::PermissionsExt;
        let folder = lowroad_testkit::TempFolder::new();
        let file = folder.file("full", FULL);
        let warnings = |mode: u32, listen: &str| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&file, permissions).expect("a mode");
            AdminAccess::warnings(&AdminConfig {
                listen: Some(listen.parse().expect("an address")),
                token_file: Some(file.clone()),
                ..AdminConfig::default()
            })
        };
        for (mode, listen, expected) in [
            (0o600, "127.0.0.1:1", 0),
            (0o640, "[::1]:1", 0),
            (0o600, "10.0.0.1:1", 0),
            (0o644, "127.0.0.1:1", 1),
            (0o602, "192.168.0.1:1", 1),
            (0o600, "0.0.0.0:1", 1),
            (0o644, "[::]:1", 2),
            (0o600, "192.0.2.1:1", 1),
        ] {
            let warnings = warnings(mode, listen);
            assert_eq!(warnings.len(), expected, "{mode:o} {listen}: {warnings:?}");
        }
    }
}
