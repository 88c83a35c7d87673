//! Pages with real databases: SQLite in this process, and MariaDB and PostgreSQL servers that the tests start in
//! separate folders.

mod authority;
mod cost;
mod data_faults;
mod examples;
mod forms;
mod harness;
mod limits;
mod lists;
mod mariadb;
mod mariadb_tls;
mod memory;
mod postgres;
mod postgres_tls;
mod servers;
mod sqlite;
mod templates;
