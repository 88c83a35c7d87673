//! What a program wants to be answered in place of what it says: by X-Accel-Redirect a path of the site, by X-Sendfile a file, by a
//! local redirect (RFC 3875 §6.2.2) whatever a client would get there. Knows not what is there.

use lowroad_handler::Fields;
use lowroad_handler::response::{Content, FILE_INSTEAD, PATH_INSTEAD, Response};

/// What is to be answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// This target, path and query.
    Path(Vec<u8>),
    /// This file, by its absolute path.
    File(Vec<u8>),
    /// This target, as if the client had asked for it.
    Local(Vec<u8>),
}

/// Where a response leads, if anywhere; of one that names both a path and a file, to the path.
pub fn of(response: &Response) -> Option<Elsewhere> {
    if let Content::Local(target) = &response.content {
        return Some(Elsewhere::Local(target.clone()));
    }
    let named = |name: &str| Some(response.fields.values(name).next()?.to_vec());
    let path = named(PATH_INSTEAD).map(Elsewhere::Path);
    path.or_else(|| named(FILE_INSTEAD).map(Elsewhere::File))
}

/// Whether a field of a program's response is about what it says itself, or for us: not for who gets something else.
pub fn is_own(name: &str) -> bool {
    const OWN: [&str; 9] = [
        PATH_INSTEAD,
        FILE_INSTEAD,
        "Accept-Ranges",
        "Content-Encoding",
        "Content-Length",
        "Content-Range",
        "ETag",
        "Last-Modified",
        "Location",
    ];
    OWN.iter().any(|own| name.eq_ignore_ascii_case(own))
}

/// The fields of a response that are for who gets something else.
pub fn kept(fields: &Fields) -> Fields {
    let mut kept = Fields::new();
    for (name, value) in fields.iter().filter(|(name, _)| !is_own(name)) {
        kept.push(name, value);
    }
    kept
}

/// Gives a response the fields of the one that led to it. As they are about what the client asked for, they replace those
/// of the same name; a response of an error gets cookies only.
pub fn add_fields(first: &Fields, response: &mut Response) {
    let is_error = response.status.code() >= 400;
    let fields = match is_error {
        false => joined(first, &response.fields),
        true => {
            let mut fields = response.fields.clone();
            for (name, value) in first.iter().filter(|(name, _)| adds(name)) {
                fields.push(name, value);
            }
            fields
        }
    };
    response.fields = fields;
}

/// The fields of a response that led to another, and those of the other that don't bear their names.
pub fn joined(first: &Fields, second: &Fields) -> Fields {
    let mut fields = Fields::new();
    if let Some(date) = second.date() {
        fields.set_date(*date);
    }
    for (name, value) in second.iter() {
        if adds(name) || first.values(name).next().is_none() {
            fields.push(name, value);
        }
    }
    for (name, value) in first.iter() {
        fields.push(name, value);
    }
    fields
}

/// Whether fields of this name stand beside each other.
fn adds(name: &str) -> bool {
    name.eq_ignore_ascii_case("Set-Cookie") || name.eq_ignore_ascii_case("Vary")
}
