//! Parses the addresses of MariaDB and MySQL servers. This module is independent of connections.

use std::path::PathBuf;

use lowroad_mysql::{LoginRequest, TlsPolicy};
use lowroad_tls::certificates::{CertificatePair, PemTexts};
use lowroad_tls::{ClientConnector, ServerTrust};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::database::address::unknown_parameter;
use crate::database::driver_error::DriverError;
use crate::database::pem::PemSource;

const PORT: u16 = 3306;

/// The names of the URL parameters, for messages.
const PARAMETERS: &str =
    "socket, ssl-mode, ssl-ca, ssl-cert, ssl-key, charset, collation and time-zone";

/// The address of a server, the login, and the settings of TLS.
pub struct MySqlAddress {
    pub endpoint: MySqlEndpoint,
    /// The host name that the server's certificate must contain.
    pub host: String,
    pub login: LoginRequest,
    mode: SslMode,
    authorities: Option<PemSource>,
    /// The client certificate and its key.
    identity: Option<(PemSource, PemSource)>,
}

/// The endpoint of a server: a Unix socket, or the host's TCP port.
pub enum MySqlEndpoint {
    Socket(PathBuf),
    Host(u16),
}

/// The parameter `ssl-mode`, with the names and meanings of MySQL's own clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SslMode {
    Disabled,
    #[default]
    Preferred,
    Required,
    VerifyCa,
    VerifyIdentity,
}

impl SslMode {
    fn parse(text: &str) -> Result<SslMode, String> {
        Ok(match &*text.to_ascii_lowercase() {
            "disabled" => SslMode::Disabled,
            "preferred" => SslMode::Preferred,
            "required" => SslMode::Required,
            "verify_ca" => SslMode::VerifyCa,
            "verify_identity" => SslMode::VerifyIdentity,
            _ => return Err(format!("unknown value {text:?} for ssl-mode")),
        })
    }
}

impl MySqlAddress {
    /// Parses an address.
    ///
    /// # Errors
    /// The reason, which does not contain the address.
    pub fn parse(url: &str) -> Result<MySqlAddress, String> {
        let url = Url::parse(url).map_err(|error| error.to_string())?;
        let host = url.host_str().filter(|host| !host.is_empty());
        // IPv6 addresses have brackets in a URL, but not in a socket address.
        let host = host.unwrap_or("localhost").trim_matches(['[', ']']);
        let mut address = MySqlAddress {
            endpoint: MySqlEndpoint::Host(url.port().unwrap_or(PORT)),
            host: host.to_owned(),
            login: LoginRequest {
                user: decode(url.username())?,
                password: decode(url.password().unwrap_or_default())?,
                database: decode(url.path().trim_start_matches('/'))?,
                trusts_key: true,
                ..LoginRequest::default()
            },
            mode: SslMode::default(),
            authorities: None,
            identity: None,
        };
        // Without a user, the default is root.
        if address.login.user.is_empty() {
            address.login.user = "root".to_owned();
        }
        let (mut certificate, mut key) = (None, None);
        for (name, value) in url.query_pairs() {
            match &*name {
                "socket" => address.endpoint = MySqlEndpoint::Socket(value.into_owned().into()),
                "sslmode" | "ssl-mode" => address.mode = SslMode::parse(&value)?,
                "sslca" | "ssl-ca" => address.authorities = Some(PemSource::new(&value)),
                "sslcert" | "ssl-cert" => certificate = Some(PemSource::new(&value)),
                "sslkey" | "ssl-key" => key = Some(PemSource::new(&value)),
                "charset" => address.login.charset = check_session_value(&name, &value)?,
                "collation" => address.login.collation = check_session_value(&name, &value)?,
                "timezone" | "time-zone" => {
                    address.login.time_zone = check_session_value(&name, &value)?
                }
                name => {
                    let query = url.query().unwrap_or_default();
                    return Err(unknown_parameter(name, query, PARAMETERS));
                }
            }
        }
        address.identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err("ssl-cert and ssl-key must be given together".to_owned()),
        };
        // The policy is set after the loop, since it depends on `socket` and `ssl-mode`, which can be in any order.
        address.login.tls = address.tls_policy();
        Ok(address)
    }

    fn tls_policy(&self) -> TlsPolicy {
        match (self.mode, &self.endpoint) {
            // Data on a Unix socket does not leave the machine.
            (SslMode::Disabled, _) | (SslMode::Preferred, MySqlEndpoint::Socket(_)) => {
                TlsPolicy::Never
            }
            (SslMode::Preferred, MySqlEndpoint::Host(_)) => TlsPolicy::IfOffered,
            (SslMode::Required | SslMode::VerifyCa | SslMode::VerifyIdentity, _) => {
                TlsPolicy::Required
            }
        }
    }

    /// Creates the TLS client for connections to this server. May block, since it reads files.
    ///
    /// # Errors
    /// A certificate or key file is unusable.
    pub fn connector(&self) -> Result<ClientConnector, DriverError> {
        let identity = match &self.identity {
            Some((certificate, key)) => Some(pair(certificate, key)?),
            None => None,
        };
        let connector = ClientConnector::new(&self.trust()?, &[], identity.as_ref(), 0, None);
        connector.map_err(DriverError::lost)
    }

    /// The certificates that are accepted: with verification, those signed by the system's CAs or the address's
    /// `ssl-ca`; without verification, all certificates.
    fn trust(&self) -> Result<ServerTrust, DriverError> {
        if !matches!(self.mode, SslMode::VerifyCa | SslMode::VerifyIdentity) {
            return Ok(ServerTrust::any_certificate());
        }
        let mut trust = ServerTrust::system();
        if let Some(authorities) = &self.authorities {
            let result = trust.add_pem(&authorities.read()?);
            result.map_err(|reason| authorities.driver_error(reason))?;
        }
        Ok(match self.mode {
            // VERIFY_CA accepts a certificate with any name.
            SslMode::VerifyCa => trust.ignoring_names(),
            _ => trust,
        })
    }
}

fn pair(certificate: &PemSource, key: &PemSource) -> Result<CertificatePair, DriverError> {
    let texts = PemTexts {
        certificates_file: certificate.path(),
        certificates: &certificate.read()?,
        key_file: key.path(),
        key: &key.read()?,
        staple: None,
    };
    // The time is needed only for warnings; the server verifies the certificate.
    let pair = CertificatePair::load(&texts, 0)
        .map_err(|problem| DriverError::lost(problem.to_string()))?;
    Ok(pair.0)
}

fn decode(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(String::from).map_err(|error| error.to_string())
}

/// Checks a parameter that is inserted into a statement.
fn check_session_value(name: &str, value: &str) -> Result<String, String> {
    // Quotes are excluded, since the value becomes part of a SET statement.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-:/".contains(&byte);
    match !value.is_empty() && value.bytes().all(is_plain) {
        true => Ok(value.to_owned()),
        false => Err(format!("the value of {name} is invalid")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parsed_address(url: &str) -> MySqlAddress {
        MySqlAddress::parse(url).unwrap_or_else(|reason| panic!("{url}: {reason}"))
    }

    #[test]
    fn url_parts_are_decoded_and_have_defaults() {
        let address = parsed_address("mysql://m%40e:p%2Fw@db.example:3307/sh%20op");
        let login = &address.login;
        assert_eq!(
            (&*login.user, &*login.password, &*login.database),
            ("m@e", "p/w", "sh op")
        );
        assert_eq!(address.host, "db.example");
        assert!(matches!(address.endpoint, MySqlEndpoint::Host(3307)));
        let address = parsed_address("mariadb://[::1]/");
        assert_eq!((&*address.host, &*address.login.user), ("::1", "root"));
        assert!(matches!(address.endpoint, MySqlEndpoint::Host(3306)));
        let address = parsed_address("mysql://u@localhost/n?socket=/run/my%20sql.sock");
        assert!(
            matches!(&address.endpoint, MySqlEndpoint::Socket(path) if path == Path::new("/run/my sql.sock"))
        );
    }

    #[test]
    fn tls_policy_depends_on_ssl_mode_and_endpoint() {
        use TlsPolicy::{IfOffered, Never, Required};
        for (mode, tcp_policy, socket_policy) in [
            ("", IfOffered, Never),
            ("&ssl-mode=disabled", Never, Never),
            ("&sslmode=PREFERRED", IfOffered, Never),
            ("&ssl-mode=REQUIRED", Required, Required),
            ("&ssl-mode=verify_ca", Required, Required),
            ("&ssl-mode=VERIFY_IDENTITY", Required, Required),
        ] {
            let host = parsed_address(&format!("mysql://u@h/n?charset=utf8mb4{mode}"));
            let socket = parsed_address(&format!("mysql://u@h/n?socket=/s{mode}"));
            assert_eq!(
                (host.login.tls, socket.login.tls),
                (tcp_policy, socket_policy),
                "{mode}"
            );
        }
    }

    #[test]
    fn session_parameters_are_parsed() {
        let url = "mysql://u@h/n?charset=latin1&collation=latin1_bin&time-zone=%2B08:00";
        let login = parsed_address(url).login;
        assert_eq!(
            (&*login.charset, &*login.collation, &*login.time_zone),
            ("latin1", "latin1_bin", "+08:00")
        );
        assert_eq!(
            parsed_address("mysql://u@h/n?timezone=Europe/Berlin")
                .login
                .time_zone,
            "Europe/Berlin"
        );
    }

    #[test]
    fn error_of_invalid_address_does_not_contain_the_password() {
        for (url, reason) in [
            ("mysql://u:secret@h:port/", "port"),
            ("mysql://u:secret@h/?ssl-mode=maybe", "maybe"),
            ("mysql://u:secret@h/?ssl-cert=a.pem", "together"),
            ("mysql://u:secret@h/?ssl-key=a.pem", "together"),
            ("mysql://u:secret@h/?charset=", "charset"),
            ("mysql://u:secret@h/?collation=a;b", "collation"),
            ("mysql://u:secret@h/?time-zone='", "time-zone"),
        ] {
            let message = MySqlAddress::parse(url).err().expect(url);
            assert!(
                message.contains(reason) && !message.contains("secret"),
                "{message}"
            );
        }
    }

    #[test]
    fn error_of_unknown_parameter_does_not_contain_the_password() {
        // If it were ignored, the misspelt parameter would disable verification.
        let url = "mysql://u:secret@h/n?ssl-mod=verify_identity";
        let message = MySqlAddress::parse(url).err().expect(url);
        assert!(
            message.contains("\"ssl-mod\"") && message.contains("ssl-mode, ssl-ca"),
            "{message}"
        );
        assert!(!message.contains("secret"), "{message}");
        // An unescaped `?` in a password starts the query part of the URL.
        for url in ["mysql://u:12?secret@h/n", "mysql://u:p@1?secret&x=y@h/n"] {
            let message = MySqlAddress::parse(url).err().expect(url);
            assert!(
                message.contains("ssl-mode") && !message.contains("secret"),
                "{message}"
            );
        }
    }

    #[test]
    fn ca_file_is_read_only_for_verification() {
        let missing = parsed_address("mysql://u@h/?ssl-mode=verify_ca&ssl-ca=/nowhere/ca.pem");
        let failure = missing.connector().err().expect("no such file").to_string();
        assert!(failure.starts_with("/nowhere/ca.pem: "), "{failure}");
        // Without verification the file is not read.
        let unverified = parsed_address("mysql://u@h/?ssl-mode=required&ssl-ca=/nowhere/ca.pem");
        assert!(unverified.connector().is_ok());
    }
}
