//! The module level over real sockets: programs of every kind behind routes, and what clients,
//! operators and faults do to them. How each kind of program works is tested in `lowroad-gateway` and `lowroad-module-host`.

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
mod kept;
mod kinds;
mod paths;
mod readers;
mod shared;
mod streams;
mod talk;
mod templates;
mod uploads;
