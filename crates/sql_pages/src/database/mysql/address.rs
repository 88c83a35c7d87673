//! Parses addresses of MariaDB and MySQL and their parameters. Independent of connections.

use std::path::PathBuf;

use lowroad_mysql::{LoginRequest, TlsPolicy};
use lowroad_tls::certificates::{CertificatePair, PemTexts};
use lowroad_tls::{ClientConnector, ServerTrust};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::database::address::unknown_parameter;
use crate::database::pem::PemSource;
use crate::database::trouble::DriverError;

const PORT: u16 = 3306;

/// The names of the parameters, for messages.
const PARAMETERS: &str =
    "socket, ssl-mode, ssl-ca, ssl-cert, ssl-key, charset, collation and time-zone";

/// A server, the account there, and TLS.
pub struct MySqlAddress {
    pub endpoint: MySqlEndpoint,
    /// The name that a certificate must be for.
    pub host: String,
    pub login: LoginRequest,
    mode: SslMode,
    authorities: Option<PemSource>,
    /// A client certificate, and its key.
    identity: Option<(PemSource, PemSource)>,
}

/// Where a server listens.
pub enum MySqlEndpoint {
    Socket(PathBuf),
    Host(u16),
}

/// `ssl-mode`, with the names and meanings of MySQL's own clients.
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
    /// Reads an address.
    ///
    /// # Errors
    /// The reason, without the address.
    pub fn parse(url: &str) -> Result<MySqlAddress, String> {
        let url = Url::parse(url).map_err(|error| error.to_string())?;
        let host = url.host_str().filter(|host| !host.is_empty());
        // IPv6 addresses are in brackets in a URL, but not in a socket address.
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
        // An address without a user means root.
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
                "charset" => address.login.charset = check_word(&name, &value)?,
                "collation" => address.login.collation = check_word(&name, &value)?,
                "timezone" | "time-zone" => address.login.time_zone = check_word(&name, &value)?,
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
        // After the loop, since it depends on `socket` and `ssl-mode` in any order.
        address.login.tls = address.tls_policy();
        Ok(address)
    }

    fn tls_policy(&self) -> TlsPolicy {
        match (self.mode, &self.endpoint) {
            // Bytes on a Unix socket do not leave the machine.
            (SslMode::Disabled, _) | (SslMode::Preferred, MySqlEndpoint::Socket(_)) => {
                TlsPolicy::Never
            }
            (SslMode::Preferred, MySqlEndpoint::Host(_)) => TlsPolicy::IfOffered,
            (SslMode::Required | SslMode::VerifyCa | SslMode::VerifyIdentity, _) => {
                TlsPolicy::Required
            }
        }
    }

    /// The TLS client of the server. May block, since it reads files.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn connector(&self) -> Result<ClientConnector, DriverError> {
        let identity = match &self.identity {
            Some((certificate, key)) => Some(pair(certificate, key)?),
            None => None,
        };
        let connector = ClientConnector::new(&self.trust()?, &[], identity.as_ref(), 0, None);
        connector.map_err(DriverError::lost)
    }

    /// The system's authorities and those of the address; without verification any certificate is accepted.
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
            // VERIFY_CA accepts any name in the certificate.
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
    // The time would only serve warnings about the certificate; verifying it is up to the server.
    let pair = CertificatePair::load(&texts, 0)
        .map_err(|problem| DriverError::lost(problem.to_string()))?;
    Ok(pair.0)
}

fn decode(text: &str) -> Result<String, String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(String::from).map_err(|error| error.to_string())
}

/// Checks a value that is inserted into a statement.
fn check_word(name: &str, value: &str) -> Result<String, String> {
    // Excludes quotes, since the value becomes part of a SET statement.
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

    fn parsed(url: &str) -> MySqlAddress {
        MySqlAddress::parse(url).unwrap_or_else(|reason| panic!("{url}: {reason}"))
    }

    #[test]
    fn parts_are_decoded_and_have_defaults() {
        let address = parsed("mysql://m%40e:p%2Fw@db.example:3307/sh%20op");
        let login = &address.login;
        assert_eq!(
            (&*login.user, &*login.password, &*login.database),
            ("m@e", "p/w", "sh op")
        );
        assert_eq!(address.host, "db.example");
        assert!(matches!(address.endpoint, MySqlEndpoint::Host(3307)));
        let address = parsed("mariadb://[::1]/");
        assert_eq!((&*address.host, &*address.login.user), ("::1", "root"));
        assert!(matches!(address.endpoint, MySqlEndpoint::Host(3306)));
        let address = parsed("mysql://u@localhost/n?socket=/run/my%20sql.sock");
        assert!(
            matches!(&address.endpoint, MySqlEndpoint::Socket(path) if path == Path::new("/run/my sql.sock"))
        );
    }

    #[test]
    fn tls_depends_on_the_mode_and_the_place() {
        use TlsPolicy::{IfOffered, Never, Required};
        for (mode, by_host, by_socket) in [
            ("", IfOffered, Never),
            ("&ssl-mode=disabled", Never, Never),
            ("&sslmode=PREFERRED", IfOffered, Never),
            ("&ssl-mode=REQUIRED", Required, Required),
            ("&ssl-mode=verify_ca", Required, Required),
            ("&ssl-mode=VERIFY_IDENTITY", Required, Required),
        ] {
            let host = parsed(&format!("mysql://u@h/n?charset=utf8mb4{mode}"));
            let socket = parsed(&format!("mysql://u@h/n?socket=/s{mode}"));
            assert_eq!(
                (host.login.tls, socket.login.tls),
                (by_host, by_socket),
                "{mode}"
            );
        }
    }

    #[test]
    fn parameters_of_the_session_are_words() {
        let url = "mysql://u@h/n?charset=latin1&collation=latin1_bin&time-zone=%2B08:00";
        let login = parsed(url).login;
        assert_eq!(
            (&*login.charset, &*login.collation, &*login.time_zone),
            ("latin1", "latin1_bin", "+08:00")
        );
        assert_eq!(
            parsed("mysql://u@h/n?timezone=Europe/Berlin")
                .login
                .time_zone,
            "Europe/Berlin"
        );
    }

    #[test]
    fn wrong_addresses_have_a_reason_without_the_password() {
        for (url, reason) in [
            ("mysql://u:secret@h:port/", "port"),
            ("mysql://u:secret@h/?ssl-mode=maybe", "maybe"),
            ("mysql://u:secret@h/?ssl-cert=a.pem", "together"),
            ("mysql://u:secret@h/?ssl-key=a.pem", "together"),
            ("mysql://u:secret@h/?charset=", "charset"),
            ("mysql://u:secret@h/?collation=a;b", "collation"),
            ("mysql://u:secret@h/?time-zone='", "time-zone"),
        ] {
            let wrong = MySqlAddress::parse(url).err().expect(url);
            assert!(
                wrong.contains(reason) && !wrong.contains("secret"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn unknown_parameters_are_refused_without_a_password() {
        // Ignored, the misspelt name would turn verification off.
        let url = "mysql://u:secret@h/n?ssl-mod=verify_identity";
        let wrong = MySqlAddress::parse(url).err().expect(url);
        assert!(
            wrong.contains("\"ssl-mod\"") && wrong.contains("ssl-mode, ssl-ca"),
            "{wrong}"
        );
        assert!(!wrong.contains("secret"), "{wrong}");
        // A raw `?` in a password begins the parameters.
        for url in ["mysql://u:12?secret@h/n", "mysql://u:p@1?secret&x=y@h/n"] {
            let wrong = MySqlAddress::parse(url).err().expect(url);
            assert!(
                wrong.contains("ssl-mode") && !wrong.contains("secret"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn authorities_are_read_if_they_are_needed() {
        let missing = parsed("mysql://u@h/?ssl-mode=verify_ca&ssl-ca=/nowhere/ca.pem");
        let trouble = missing.connector().err().expect("no such file").to_string();
        assert!(trouble.starts_with("/nowhere/ca.pem: "), "{trouble}");
        // Without verification the file is not read.
        let unverified = parsed("mysql://u@h/?ssl-mode=required&ssl-ca=/nowhere/ca.pem");
        assert!(unverified.connector().is_ok());
    }
}
