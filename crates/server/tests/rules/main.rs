//! What a site does with a path before it looks for a file of that name, over real sockets: aliases, rewrites and
//! redirects. Who may ask for
//! what is in `site_rules`.

mod aliases;
mod place;
mod rewrites;
