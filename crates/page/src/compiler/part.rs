//! `{% include %}`: the operations of another file are inserted here. As in minijinja, the included file sees the same
//! names, and its assignments remain.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::PageCompiler;
use crate::error::ParseError;
use crate::lexer::{self, PageToken};

/// The most files of a page; a line number has room for as many.
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
        // Recursive includes add no file; the nesting limit ends them.
        if self.names.len() == PARTS_MAX {
            return self.fail(format!("a page includes more than {PARTS_MAX} templates"));
        }
        let Some(source) = (self.find)(&name) else {
            return self.fail(format!("template {name} not found"));
        };
        // A file included twice has one name for its lines.
        let existing = self.names.iter().position(|existing| *existing == name);
        let part = existing.unwrap_or(self.names.len());
        if existing.is_none() {
            self.names.push(name);
        }
        let tokens = lexer::tokens(source).map_err(|error| self.named_error(part, error))?;
        // The part is compiled in place with its own tokens; the outer position is restored afterwards.
        let tokens = core::mem::replace(&mut self.tokens, tokens);
        let at = core::mem::take(&mut self.at);
        let outer = core::mem::replace(&mut self.part, part);
        self.body(&[])?;
        (self.tokens, self.at, self.part) = (tokens, at, outer);
        Ok(())
    }

    /// An error with the name of its part.
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

/// The name of a part referred to by another: relative to the site's folder if it begins with `/`, otherwise to the
/// referring part's folder. Names that lead outside are left unchanged, and not found.
fn resolve_part_name(name: &str, parent: &str) -> String {
    let folder = parent.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = match name.starts_with('/') || folder.is_empty() {
        true => Vec::new(),
        false => folder.split('/').collect(),
    };
    for part in name.trim_start_matches('/').split('/') {
        match part {
            "." => {}
            // A name that leads outside of the site is not found under any normalized name.
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
    fn names_are_taken_from_the_folder_of_who_names_them() {
        assert_eq!(resolve_part_name("_b.lrp", "x/a.lrp"), "x/_b.lrp");
        assert_eq!(resolve_part_name("/_b.lrp", "x/a.lrp"), "_b.lrp");
        assert_eq!(resolve_part_name("../_b.lrp", "x/a.lrp"), "_b.lrp");
        assert_eq!(resolve_part_name("./_b.lrp", "a.lrp"), "_b.lrp");
        assert_eq!(resolve_part_name("../../_b.lrp", "x/a.lrp"), "../../_b.lrp");
    }
}
