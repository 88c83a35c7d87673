//! Parses the addresses of databases, and opens connections with the right driver.

use std::str::FromStr;
use std::time::Duration;

use futures_util::TryFutureExt;
use futures_util::future::BoxFuture;
use lowroad_handler::secrets;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{ConnectOptions, Connection, Executor};

use super::answer::DatabaseAnswer;
use super::call::{DatabaseCall, PREPARED_STATEMENTS_MAX};
use super::driver_error::DriverError;
use super::mysql::{MySqlAddress, MySqlLink};
use super::postgres;
use super::postgres::PostgresAddress;
use super::sqlite::SqliteLink;
use crate::statement::SqlDialect;

/// The address of a database: its server or file, and the connection's options.
pub enum DatabaseAddress {
    Sqlite(SqliteConnectOptions),
    MySql(MySqlAddress, Duration),
    Postgres(PostgresAddress),
}

/// An open connection.
pub enum DatabaseConnection {
    Sqlite(SqliteLink),
    MySql(Box<MySqlLink>),
    Postgres(PgConnection),
}

impl DatabaseAddress {
    /// Parses an address (`url`). `${NAME}` stands for an environment variable.
    ///
    /// # Errors
    /// The error. The message never contains the address, which may include a password.
    pub fn parse(url: &str, timeout: Duration) -> Result<DatabaseAddress, String> {
        // Variables are expanded first, since one may contain the whole address.
        let url = expand(url, secrets::variable)?;
        let scheme = url.split(':').next().unwrap_or_default();
        match scheme {
            "sqlite" => sqlite(&url, timeout).map_err(|error| error.to_string()),
            "mysql" | "mariadb" => {
                MySqlAddress::parse(&url).map(|address| DatabaseAddress::MySql(address, timeout))
            }
            "postgres" | "postgresql" => {
                PostgresAddress::parse(&url, timeout).map(DatabaseAddress::Postgres)
            }
            _ => {
                return Err(
                    "its url must begin with sqlite:, mysql:, mariadb: or postgres:".into(),
                );
            }
        }
        .map_err(|error| format!("its url is invalid: {error}"))
    }

    /// The SQL dialect of the database.
    pub fn dialect(&self) -> SqlDialect {
        match self {
            DatabaseAddress::Sqlite(_) => SqlDialect::Sqlite,
            DatabaseAddress::MySql(..) => SqlDialect::MySql,
            DatabaseAddress::Postgres(_) => SqlDialect::PostgreSql,
        }
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// The driver's error.
    pub async fn connect(&self) -> Result<DatabaseConnection, DriverError> {
        Ok(match self {
            DatabaseAddress::Sqlite(options) => {
                DatabaseConnection::Sqlite(SqliteLink::connect(options).await?)
            }
            DatabaseAddress::MySql(address, timeout) => {
                DatabaseConnection::MySql(Box::new(MySqlLink::connect(address, *timeout).await?))
            }
            DatabaseAddress::Postgres(address) => {
                DatabaseConnection::Postgres(address.connect().await?)
            }
        })
    }
}

/// The message for an unknown parameter of an address. If it were ignored, a misspelt parameter could disable
/// verification.
pub(super) fn unknown_parameter(name: &str, query: &str, known_names: &str) -> String {
    // An unescaped `?` in a password makes the rest of the password, up to the `@` before the host, look like
    // parameters.
    let message = match query.contains('@') {
        true => "a parameter is unknown".to_owned(),
        false => format!("unknown parameter {name:?}"),
    };
    format!("{message}; the parameters are {known_names}")
}

fn sqlite(url: &str, timeout: Duration) -> Result<DatabaseAddress, sqlx::Error> {
    let mut options = SqliteConnectOptions::from_str(url)?
        .statement_cache_capacity(PREPARED_STATEMENTS_MAX)
        .busy_timeout(timeout);
    // With a mode in the address, such as `ro`, the operator decides about creating the file and its journal.
    let has_mode = url.contains("mode=");
    if !has_mode {
        // WAL mode allows reads during a write, which a site needs.
        options = options
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal);
    }
    // Statements may contain data of clients, so sqlx must not log them.
    Ok(DatabaseAddress::Sqlite(options.disable_statement_logging()))
}

/// Replaces `${NAME}` with the variable, percent-encoded.
fn expand(url: &str, variable: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = url;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after
            .split_once('}')
            .ok_or("its url contains ${ without }")?;
        let value = variable(name)
            .ok_or_else(|| format!("the environment variable {name} of its url is not set"))?;
        out.push_str(before);
        // A variable at the start is a whole address; any other variable is a part of the address.
        if out.is_empty() {
            out.push_str(&value);
        } else {
            // The value is encoded, so that no character of a password is special in the URL.
            out.extend(percent_encoding::utf8_percent_encode(
                &value,
                percent_encoding::NON_ALPHANUMERIC,
            ));
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

impl DatabaseConnection {
    /// Whether the server still responds.
    pub async fn is_alive(&mut self) -> bool {
        match self {
            // SQLite runs in this process: there is no connection that could be lost.
            DatabaseConnection::Sqlite(_) => true,
            DatabaseConnection::MySql(link) => link.run("DO 1").await.is_ok(),
            DatabaseConnection::Postgres(link) => link.ping().await.is_ok(),
        }
    }

    /// Executes a call. The future is boxed, since the compiler cannot otherwise prove that it is `Send`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn call<'a>(
        &'a mut self,
        call: &'a DatabaseCall,
    ) -> BoxFuture<'a, Result<DatabaseAnswer, DriverError>> {
        match self {
            DatabaseConnection::Sqlite(link) => Box::pin(link.call(call)),
            DatabaseConnection::MySql(link) => Box::pin(link.call(call)),
            DatabaseConnection::Postgres(link) => Box::pin(postgres::call(link, call)),
        }
    }

    /// Executes a call read-only: the database rejects writes.
    ///
    /// # Errors
    /// The driver's error.
    pub async fn call_read_only(
        &mut self,
        call: &DatabaseCall,
    ) -> Result<DatabaseAnswer, DriverError> {
        let (guard, end) = match self {
            DatabaseConnection::Sqlite(_) => ("PRAGMA query_only = ON", "PRAGMA query_only = OFF"),
            DatabaseConnection::MySql(_) => ("START TRANSACTION READ ONLY", "ROLLBACK"),
            DatabaseConnection::Postgres(_) => ("BEGIN READ ONLY", "ROLLBACK"),
        };
        // The restriction must end with this call, since the connection returns to the pool.
        self.run(guard).await?;
        let answer = self.call(call).await;
        // A broken connection is closed anyway.
        if !answer.as_ref().is_err_and(DriverError::breaks_connection) {
            self.run(end).await?;
        }
        answer
    }

    /// Begins a transaction.
    pub fn begin(&mut self) -> BoxFuture<'_, Result<(), DriverError>> {
        match self {
            // IMMEDIATE takes the write lock now. A deferred transaction that later meets another writer would have to
            // restart.
            DatabaseConnection::Sqlite(_) => self.run("BEGIN IMMEDIATE"),
            DatabaseConnection::MySql(_) | DatabaseConnection::Postgres(_) => self.run("BEGIN"),
        }
    }

    /// Commits the transaction.
    pub fn commit(&mut self) -> BoxFuture<'_, Result<(), DriverError>> {
        self.run("COMMIT")
    }

    fn run(&mut self, sql: &'static str) -> BoxFuture<'_, Result<(), DriverError>> {
        match self {
            DatabaseConnection::Sqlite(link) => Box::pin(link.run(sql).map_err(DriverError::from)),
            DatabaseConnection::MySql(link) => Box::pin(link.run(sql)),
            DatabaseConnection::Postgres(link) => {
                Box::pin(link.execute(sql).map_ok(drop).map_err(DriverError::from))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_percent_encoded_in_address() {
        let variable = |name: &str| match name {
            "WORD" => Some("a@b/c".to_string()),
            "URL" => Some("mysql://x@y/z".to_string()),
            _ => None,
        };
        let expanded = expand("mysql://u:${WORD}@host/db", variable);
        assert_eq!(expanded, Ok("mysql://u:a%40b%2Fc@host/db".into()));
        assert_eq!(expand("${URL}", variable), Ok("mysql://x@y/z".into()));
        assert!(
            expand("mysql://${NONE}", variable)
                .unwrap_err()
                .contains("NONE")
        );
        assert!(expand("mysql://${NONE", variable).is_err());
    }

    #[test]
    fn error_messages_do_not_contain_the_password() {
        for url in ["http://u:secret@h/", "mysql://u:secret@h:port/", "secret"] {
            let error = DatabaseAddress::parse(url, Duration::from_secs(1))
                .err()
                .expect(url);
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
