//! Addresses of PostgreSQL: sqlx's, with the system's authorities added.

use std::str::FromStr;
use std::time::Duration;

use lowroad_tls::system_pem;
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use url::Url;

use crate::database::call::STATEMENTS_MAX;
use crate::database::pem::PemSource;
use crate::database::trouble::DriverError;

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

/// The address parameter for authorities; sqlx reads it too, but does not expose it.
fn authorities(url: &str) -> Result<Option<String>, String> {
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    let named = url
        .query_pairs()
        .filter(|(name, _)| matches!(&**name, "sslrootcert" | "ssl-root-cert" | "ssl-ca"));
    // The last one, as sqlx takes it.
    Ok(named.last().map(|(_, value)| value.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
