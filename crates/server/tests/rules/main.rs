//! A site's path rules before the look-up of a file, over real sockets: aliases, rewrites, redirects, and programs'
//! internal redirects. Access rules are in `site_rules`.

mod aliases;
mod fields;
mod place;
mod rewrites;
mod sent;
