//! `lowroad image`: built images, and their responses as a process on a tap device and as a machine.

mod build;
mod cores;
mod database;
mod disk;
mod hosted;
mod lossy;
mod machine;
mod place;
mod processors;
#[path = "../../../sql_pages/tests/pages/servers.rs"]
#[allow(dead_code, reason = "pages are tested with PostgreSQL, too")]
mod servers;
mod visitors;
