//! The accelerator over real sockets, between real clients and a scripted origin.

mod applications;
mod attacks;
mod compressed;
mod conditions;
mod disk;
mod encrypted;
mod faults;
mod forward;
mod front;
mod groups;
mod histories;
mod interims;
mod irregular;
mod logs;
mod others;
mod parts;
mod paths;
mod proxies;
mod purge;
mod redirects;
mod reloads;
mod rfc9111;
mod sharing;
mod stale;
mod upgrade;
mod variants;
