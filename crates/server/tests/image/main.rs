//! `lowroad image`: builds images, and compares the responses of images as a hosted process and as a virtual machine.

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
