//! Parses the addresses of PostgreSQL servers with sqlx, and adds the system's CA certificates.

use std::str::FromStr;
use std::time::Duration;

use lowroad_tls::system_pem;
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use url::Url;

use crate::database::address::unknown_parameter;
use crate::database::call::PREPARED_STATEMENTS_MAX;
use crate::database::driver_error::DriverError;
use crate::database::pem::PemSource;

/// The names of the URL parameters, for messages.
const PARAMETERS: &str = "sslmode, sslrootcert, sslcert, sslkey, host, hostaddr, port, dbname, user, password, \
    application_name, options and statement-cache-capacity";

/// The address of a server, the login, and the settings of TLS.
pub struct PostgresAddress {
    options: PgConnectOptions,
    /// The certificates of further CAs besides those of the system.
    authorities: Option<PemSource>,
}

impl PostgresAddress {
    /// Parses an address. `timeout` becomes the server's time limit for the statements of each connection.
    ///
    /// # Errors
    /// The error in the address.
    pub fn parse(url: &str, timeout: Duration) -> Result<PostgresAddress, String> {
        check_parameters(url)?;
        // The server aborts the statement itself, so that it does not keep running after the client's time limit.
        let limit = [("statement_timeout", timeout.as_millis().to_string())];
        let options = PgConnectOptions::from_str(url).map_err(|error| error.to_string())?;
        let options = options
            .statement_cache_capacity(PREPARED_STATEMENTS_MAX)
            .options(limit)
            // Statements may contain data of clients, so sqlx must not log them.
            .disable_statement_logging();
        let variable = std::env::var("PGSSLROOTCERT").ok();
        let authorities = authorities(url)?.or(variable);
        Ok(PostgresAddress {
            options,
            authorities: authorities.map(|text| PemSource::new(&text)),
        })
    }

    /// Connects. With `verify-ca` and `verify-full`, sqlx trusts only the CA certificates passed to it, so the system's
    /// certificates are added here. May block, since it reads files.
    ///
    /// # Errors
    /// The error of sqlx, or of reading the CA file.
    pub async fn connect(&self) -> Result<PgConnection, DriverError> {
        let mode = self.options.get_ssl_mode();
        // The other modes do not verify certificates.
        if !matches!(mode, PgSslMode::VerifyCa | PgSslMode::VerifyFull) {
            return Ok(self.options.connect().await?);
        }
        let mut pem = system_pem().into_bytes();
        if let Some(authorities) = &self.authorities {
            pem.extend(authorities.read()?);
        }
        let options = self.options.clone().ssl_root_cert_from_pem(pem);
        Ok(options.connect().await?)
    }
}

/// Refuses parameters that sqlx would ignore.
fn check_parameters(url: &str) -> Result<(), String> {
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    let unknown = url.query_pairs().find(|(name, _)| !is_known(name));
    match unknown {
        Some((name, _)) => Err(unknown_parameter(
            &name,
            url.query().unwrap_or_default(),
            PARAMETERS,
        )),
        None => Ok(()),
    }
}

/// Whether sqlx knows a parameter.
fn is_known(name: &str) -> bool {
    let is_tls = matches!(
        name,
        "sslmode"
            | "ssl-mode"
            | "sslrootcert"
            | "ssl-root-cert"
            | "ssl-ca"
            | "sslcert"
            | "ssl-cert"
            | "sslkey"
            | "ssl-key"
    );
    let is_server = matches!(
        name,
        "host" | "hostaddr" | "port" | "dbname" | "user" | "password"
    );
    let is_session = matches!(
        name,
        "application_name" | "options" | "statement-cache-capacity"
    );
    is_tls || is_server || is_session || name.starts_with("options[")
}

/// The address parameter with the CA certificates. sqlx reads the parameter too, but does not return it.
fn authorities(url: &str) -> Result<Option<String>, String> {
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    let authority_params = url
        .query_pairs()
        .filter(|(name, _)| matches!(&**name, "sslrootcert" | "ssl-root-cert" | "ssl-ca"));
    // As in sqlx, the last of several parameters applies.
    Ok(authority_params.last().map(|(_, value)| value.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_unknown_parameter_does_not_contain_the_password() {
        let parse = |url: &str| PostgresAddress::parse(url, Duration::from_secs(1)).map(|_| ());
        let url = "postgres://u:secret@h/n?sslmod=verify-full";
        let message = parse(url).expect_err(url);
        assert!(
            message.contains("\"sslmod\"") && message.contains("sslmode"),
            "{message}"
        );
        assert!(!message.contains("secret"), "{message}");
        let url =
            "postgres://u@h/n?ssl-mode=require&ssl-ca=/a.pem&options[geqo]=off&application_name=x";
        assert_eq!(parse(url), Ok(()));
    }

    #[test]
    fn last_ca_parameter_is_used() {
        for (settings, expected) in [
            ("", None),
            ("?sslmode=verify-ca", None),
            ("?sslrootcert=/a.pem", Some("/a.pem")),
            ("?ssl-root-cert=a%20b.pem&x=y", Some("a b.pem")),
            ("?sslrootcert=/a.pem&ssl-ca=/b.pem", Some("/b.pem")),
        ] {
            let url = format!("postgres://u:p@h/n{settings}");
            assert_eq!(authorities(&url), Ok(expected.map(str::to_owned)));
        }
    }
}
