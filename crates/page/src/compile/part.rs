//! `{% include %}`: the steps of another file at this place, as if they stood here. minijinja gives what is
//! included the same names, too, and keeps what it sets.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::Compiler;
use crate::error::ParseError;
use crate::lexer::{self, Token};

/// Files that a page may be made of; as many as a line's number has room for.
const PARTS_MAX: usize = 256;

impl Compiler<'_, '_> {
    /// What follows `include`.
    pub fn include(&mut self) -> Result<(), ParseError> {
        let Some(Token::Text(name)) = self.peek().cloned() else {
            return self.unexpected("the name of a part, written out, is expected");
        };
        self.at += 1;
        self.expect_end()?;
        let name = joined(&name, &self.names[self.part]);
        if self.names.len() == PARTS_MAX {
            return self.wrong(format!("a page is made of more than {PARTS_MAX} parts"));
        }
        let Some(source) = (self.find)(&name) else {
            return self.wrong(format!("there is no part {name}"));
        };
        let known = self.names.iter().position(|known| *known == name);
        let part = known.unwrap_or(self.names.len());
        if known.is_none() {
            self.names.push(name);
        }
        let tokens = lexer::tokens(source).map_err(|error| self.named_error(part, error))?;
        let tokens = core::mem::replace(&mut self.tokens, tokens);
        let at = core::mem::take(&mut self.at);
        let outer = core::mem::replace(&mut self.part, part);
        self.body(&[])?;
        (self.tokens, self.at, self.part) = (tokens, at, outer);
        Ok(())
    }

    /// An error that says in which part it is.
    pub fn named_error(&self, part: usize, error: ParseError) -> ParseError {
        match part {
            0 => error,
            part => ParseError {
                what: format!("in {}: {}", self.names[part], error.what),
                ..error
            },
        }
    }
}

/// The name of a part that another one names: from the site's folder if it begins with `/`, else from the folder
/// of the one that names it. What leads out is left as it is, and not found.
fn joined(name: &str, parent: &str) -> String {
    let folder = parent.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = match name.starts_with('/') || folder.is_empty() {
        true => Vec::new(),
        false => folder.split('/').collect(),
    };
    for part in name.trim_start_matches('/').split('/') {
        match part {
            "." => {}
            ".." if parts.pop().is_none() => return name.to_string(),
            ".." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn names_are_taken_from_the_folder_of_who_names_them() {
        assert_eq!(joined("_b.lrp", "x/a.lrp"), "x/_b.lrp");
        assert_eq!(joined("/_b.lrp", "x/a.lrp"), "_b.lrp");
        assert_eq!(joined("../_b.lrp", "x/a.lrp"), "_b.lrp");
        assert_eq!(joined("./_b.lrp", "a.lrp"), "_b.lrp");
        assert_eq!(joined("../../_b.lrp", "x/a.lrp"), "../../_b.lrp");
    }
}
