//! Texts with variables of requests, as lists of their parts.

use std::fmt;

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextPart {
    /// Characters that stand for themselves.
    Literal(String),
    /// A variable of the request, by its name in Lowroad: `header_user_agent`, `1`.
    Variable(String),
    /// The value of a map, by the name of its table.
    Map(String),
}

/// A text with variables. Its display is the notation of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestText {
    parts: Vec<TextPart>,
}

impl RequestText {
    /// Adds a part. Neighbouring literals become one.
    pub fn push(&mut self, part: TextPart) {
        match (self.parts.last_mut(), part) {
            (_, TextPart::Literal(text)) if text.is_empty() => {}
            (Some(TextPart::Literal(last)), TextPart::Literal(text)) => last.push_str(&text),
            (_, part) => self.parts.push(part),
        }
    }

    /// The parts.
    pub fn parts(&self) -> &[TextPart] {
        &self.parts
    }

    /// Whether the text depends on the request.
    pub fn has_variables(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| !matches!(part, TextPart::Literal(_)))
    }

    /// The names of the maps in it.
    pub fn maps(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TextPart::Map(name) => Some(name.as_str()),
            _ => None,
        })
    }
}

impl fmt::Display for RequestText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.parts.iter().enumerate() {
            let (prefix, name) = match part {
                TextPart::Literal(text) => {
                    write!(f, "{}", text.replace('$', "$$"))?;
                    continue;
                }
                TextPart::Variable(name) => ("", name),
                TextPart::Map(name) => ("map_", name),
            };
            // Without braces, a name ends at the first character that names don't have.
            let continues = |text: &String| {
                text.starts_with(|it: char| it.is_ascii_alphanumeric() || it == '_')
            };
            match self.parts.get(index + 1) {
                Some(TextPart::Literal(next)) if continues(next) => {
                    write!(f, "${{{prefix}{name}}}")?;
                }
                _ => write!(f, "${prefix}{name}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_braces_where_they_would_continue() {
        let mut text = RequestText::default();
        text.push(TextPart::Variable("host".into()));
        text.push(TextPart::Literal("_a$".into()));
        text.push(TextPart::Literal("}".into()));
        text.push(TextPart::Map("kind".into()));
        text.push(TextPart::Variable("path".into()));
        assert_eq!(text.to_string(), "${host}_a$$}$map_kind$path");
        assert_eq!(text.maps().collect::<Vec<_>>(), ["kind"]);
        assert!(text.has_variables());
    }
}
