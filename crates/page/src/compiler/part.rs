//! Compiles `{% include %}`: inserts the operations of another file at the tag. As in minijinja, the included file uses
//! the variables of the including file, and its assignments remain effective after the tag.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::PageCompiler;
use crate::error::ParseError;
use crate::lexer::{self, PageToken};

/// The maximum number of files of a page, including the page itself.
const PARTS_MAX: usize = 256;

impl PageCompiler<'_, '_> {
    /// Compiles the rest of an `include` tag.
    pub fn include(&mut self) -> Result<(), ParseError> {
        let Some(PageToken::Text(name)) = self.peek().cloned() else {
            return self.unexpected("expected the name of a template as a literal text");
        };
        self.at += 1;
        self.expect_end()?;
        let name = resolve_part_name(&name, &self.names[self.part]);
        // Recursive includes add no file; they are stopped by the limit on nesting.
        if self.names.len() == PARTS_MAX {
            return self.fail(format!("a page includes more than {PARTS_MAX} templates"));
        }
        let Some(source) = (self.find)(&name) else {
            return self.fail(format!("template {name} not found"));
        };
        // A file that is included twice has one entry in the names, which source lines refer to.
        let existing = self.names.iter().position(|existing| *existing == name);
        let part = existing.unwrap_or(self.names.len());
        if existing.is_none() {
            self.names.push(name);
        }
        let tokens = lexer::tokens(source).map_err(|error| self.named_error(part, error))?;
        // The part is compiled in place, from the tokens of the part; the position in the outer tokens is restored
        // afterwards.
        let tokens = core::mem::replace(&mut self.tokens, tokens);
        let at = core::mem::take(&mut self.at);
        let outer = core::mem::replace(&mut self.part, part);
        self.body(&[])?;
        (self.tokens, self.at, self.part) = (tokens, at, outer);
        Ok(())
    }

    /// Prefixes an error with the name of its part.
    pub fn named_error(&self, part: usize, error: ParseError) -> ParseError {
        match part {
            0 => error,
            part => ParseError {
                message: format!("in {}: {}", self.names[part], error.message),
                ..error
            },
        }
    }
}

/// Resolves the name of a part in another part: relative to the site's folder if the name begins with `/`, else to the
/// folder of the part that contains the tag. Names that lead outside of the site are returned unchanged, so they are
/// not found.
fn resolve_part_name(name: &str, parent: &str) -> String {
    let folder = parent.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = match name.starts_with('/') || folder.is_empty() {
        true => Vec::new(),
        false => folder.split('/').collect(),
    };
    for part in name.trim_start_matches('/').split('/') {
        match part {
            "." => {}
            // A name that leads outside of the site matches no normalized name, so it is not found.
            ".." if parts.pop().is_none() => return name.to_string(),
            ".." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::resolve_part_name;

    #[test]
    fn part_names_are_relative_to_the_including_part() {
        assert_eq!(resolve_part_name("_b.lrp", "x/a.lrp"), "x/_b.lrp");
        assert_eq!(resolve_part_name("/_b.lrp", "x/a.lrp"), "_b.lrp");
        assert_eq!(resolve_part_name("../_b.lrp", "x/a.lrp"), "_b.lrp");
        assert_eq!(resolve_part_name("./_b.lrp", "a.lrp"), "_b.lrp");
        assert_eq!(resolve_part_name("../../_b.lrp", "x/a.lrp"), "../../_b.lrp");
    }
}
