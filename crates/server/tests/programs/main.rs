//! Handlers over real sockets: programs of each kind behind routes, with clients, operators and faults. The crates
//! `lowroad-gateway` and `lowroad-module-host` test each handler separately.

mod admin;
mod applications;
mod bodies;
mod changes;
mod client;
mod compressed;
mod drain;
mod faults;
mod files;
mod forwarded;
mod fpm;
mod hidden;
mod host;
mod import;
mod import_caddy;
mod import_sites;
mod kept;
mod kinds;
mod paths;
mod readers;
mod shared;
mod streams;
mod talk;
mod templates;
mod uploads;
