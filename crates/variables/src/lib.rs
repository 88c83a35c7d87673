//! Variables in texts of the configuration, such as `https://$host$request_uri`: the vocabulary, the parser of templates,
//! and their expansion for a request.
//!
//! A request is known only by the trait [`RequestFacts`]. A value that a client controls cannot leave its place: the
//! expansion encodes it for a field value ([`Template::write_field_value`]) or for the part of a URL in which it stands
//! ([`Template::write_url`]).

#![forbid(unsafe_code)]

mod encoding;
mod facts;
mod map_entries;
mod scope;
mod template;
mod url;
mod value_map;
mod variable;

#[cfg(test)]
mod tests;

pub use encoding::percent_encode;
pub use facts::{RequestFacts, TlsFacts};
pub use map_entries::{MapEntries, MapLineError, is_map_value};
pub use scope::TemplateScope;
pub use template::{Template, TemplateError, TemplateInput, TemplatePart};
pub use value_map::{FileEntries, MapFile, MapReference, ValueMap};
pub use variable::{Dependence, Variable};
