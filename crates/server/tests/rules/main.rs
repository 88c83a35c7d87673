//! A site's path rules, applied before files are looked up, over real sockets: aliases, rewrites, redirects, and
//! programs' internal redirects. `site_rules` tests access rules.

mod aliases;
mod authentication;
mod body_limits;
mod conditions;
mod early_responses;
mod fields;
mod maps;
mod place;
mod policies;
mod rewrites;
mod sent;
