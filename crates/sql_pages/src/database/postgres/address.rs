//! Addresses of PostgreSQL: sqlx's, with the system's authorities added.

use std::str::FromStr;
use std::time::Duration;

use lowroad_tls::system_pem;
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use url::Url;

use crate::database::address::unknown_parameter;
use crate::database::call::STATEMENTS_MAX;
use crate::database::pem::PemSource;
use crate::database::trouble::DriverError;

/// The names of the parameters, for messages.
const PARAMETERS: &str = "sslmode, sslrootcert, sslcert, sslkey, host, hostaddr, port, dbname, user, password, \
    application_name, options and statement-cache-capacity";

/// A server, the account there, and TLS.
pub struct PostgresAddress {
    options: PgConnectOptions,
    /// Authorities besides those of the system.
    authorities: Option<PemSource>,
}

impl PostgresAddress {
    /// Parses an address; its connections get the server's time limit for statements.
    ///
    /// # Errors
    /// The reason.
    pub fn parse(url: &str, timeout: Duration) -> Result<PostgresAddress, String> {
        check_parameters(url)?;
        // The server aborts statements itself, so that an abandoned one does not keep running.
        let limit = [("statement_timeout", timeout.as_millis().to_string())];
        let options = PgConnectOptions::from_str(url).map_err(|error| error.to_string())?;
        let options = options
            .statement_cache_capacity(STATEMENTS_MAX)
            .options(limit)
            // Statements may contain data of visitors.
            .disable_statement_logging();
        let variable = std::env::var("PGSSLROOTCERT").ok();
        let authorities = authorities(url)?.or(variable);
        Ok(PostgresAddress {
            options,
            authorities: authorities.map(|text| PemSource::new(&text)),
        })
    }

    /// Connects. With `verify-ca` and `verify-full` the driver trusts only the authorities passed to it, so the
    /// system's are added here. May block, since it reads files.
    ///
    /// # Errors
    /// The driver's error.
    pub async fn connect(&self) -> Result<PgConnection, DriverError> {
        let mode = self.options.get_ssl_mode();
        // The other modes verify nothing, so no authorities are needed.
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

/// Whether sqlx reads a parameter.
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

/// The address parameter for authorities; sqlx reads it too, but does not expose it.
fn authorities(url: &str) -> Result<Option<String>, String> {
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    let authority_params = url
        .query_pairs()
        .filter(|(name, _)| matches!(&**name, "sslrootcert" | "ssl-root-cert" | "ssl-ca"));
    // The last one, as sqlx takes it.
    Ok(authority_params.last().map(|(_, value)| value.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parameters_are_refused_without_a_password() {
        let parse = |url: &str| PostgresAddress::parse(url, Duration::from_secs(1)).map(|_| ());
        let url = "postgres://u:secret@h/n?sslmod=verify-full";
        let wrong = parse(url).expect_err(url);
        assert!(
            wrong.contains("\"sslmod\"") && wrong.contains("sslmode"),
            "{wrong}"
        );
        assert!(!wrong.contains("secret"), "{wrong}");
        let url =
            "postgres://u@h/n?ssl-mode=require&ssl-ca=/a.pem&options[geqo]=off&application_name=x";
        assert_eq!(parse(url), Ok(()));
    }

    #[test]
    fn the_last_parameter_names_the_authorities() {
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
