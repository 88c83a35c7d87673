//! What a site does with a path before it looks for a file of that name, over real sockets: aliases, rewrites,
//! redirects, and what programs name in their place. Who may ask for
//! what is in `site_rules`.

mod aliases;
mod fields;
mod place;
mod rewrites;
mod sent;
