//! Templates: texts with variables.

use std::fmt;
use std::sync::Arc;

use crate::encoding;
use crate::facts::RequestFacts;
use crate::scope::TemplateScope;
use crate::value_map::{MapReference, ValueMap};
use crate::variable::{Dependence, Variable, is_name_byte};

/// A text with variables: `$name` or `${name}`; `$$` is a dollar sign.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Template {
    text: String,
    parts: Vec<TemplatePart>,
    is_secret: bool,
}

/// A part of a template. No two texts are adjacent, and none is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TemplatePart {
    /// Text for the result.
    Text(String),
    /// A variable.
    Variable(Variable),
}

/// The source of the values of a template's variables.
#[derive(Clone, Copy)]
pub struct TemplateInput<'a> {
    /// The request.
    pub facts: &'a dyn RequestFacts,
    /// The captures; a missing one is empty.
    pub captures: &'a [&'a [u8]],
}

/// A mistake in a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// The offset of the variable in the text, in bytes.
    pub offset: usize,
    /// The problem, in one line.
    pub message: String,
    /// The allowed variables, as a list.
    pub allowed: String,
}

impl Template {
    /// Reads a text with variables other than maps.
    ///
    /// # Errors
    /// See [`TemplateError`].
    pub fn parse(text: &str, scope: TemplateScope) -> Result<Template, TemplateError> {
        Template::parse_with(text, scope, &[])
    }

    /// Reads a text with variables, which may be these maps.
    ///
    /// # Errors
    /// See [`TemplateError`].
    pub fn parse_with(
        text: &str,
        scope: TemplateScope,
        maps: &[Arc<ValueMap>],
    ) -> Result<Template, TemplateError> {
        let (mut parts, mut literal, mut at) = (Vec::new(), String::new(), 0);
        while let Some(offset) = text[at..].find('$') {
            let dollar = at + offset;
            literal.push_str(&text[at..dollar]);
            let rest = &text[dollar + 1..];
            if rest.starts_with('$') {
                literal.push('$');
                at = dollar + 2;
                continue;
            }
            let fail = |message: String| TemplateError {
                offset: dollar,
                message,
                allowed: scope.list(),
            };
            let (name, len) = name_of(rest).map_err(|problem| fail(problem.to_string()))?;
            let variable = variable(name, scope, maps).map_err(fail)?;
            if !literal.is_empty() {
                parts.push(TemplatePart::Text(std::mem::take(&mut literal)));
            }
            parts.push(TemplatePart::Variable(variable));
            at = dollar + 1 + len;
        }
        literal.push_str(&text[at..]);
        if !literal.is_empty() {
            parts.push(TemplatePart::Text(literal));
        }
        Ok(Template {
            text: text.to_string(),
            parts,
            is_secret: false,
        })
    }

    /// A template without variables; a dollar sign is an ordinary character.
    pub fn literal(text: &str) -> Template {
        let part = TemplatePart::Text(text.to_string());
        Template {
            // The text is shown in the notation of templates.
            text: text.replace('$', "$$"),
            parts: Vec::from_iter((!text.is_empty()).then_some(part)),
            is_secret: false,
        }
    }

    /// A template without variables, with a text that must not be shown.
    pub fn secret(text: &str) -> Template {
        Template {
            is_secret: true,
            ..Template::literal(text)
        }
    }

    /// Whether the text must not be shown.
    pub fn is_secret(&self) -> bool {
        self.is_secret
    }

    /// The text as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The parts in their order.
    pub fn parts(&self) -> &[TemplatePart] {
        &self.parts
    }

    /// The variables in their order.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Variable(variable) => Some(variable),
            TemplatePart::Text(_) => None,
        })
    }

    /// The text of a template without variables.
    pub fn constant(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [TemplatePart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The parts of a request on which the result depends, other than the cache key.
    pub fn dependences(&self) -> impl Iterator<Item = Dependence<'_>> {
        let all = self.variables().flat_map(Variable::dependences);
        all.filter(|dependence| *dependence != Dependence::CacheKey)
    }

    /// The template with the name of its site in place of `$site`.
    #[must_use]
    pub fn with_site(&self, site: &str) -> Template {
        let mut parts: Vec<TemplatePart> = Vec::new();
        for part in &self.parts {
            let part = match part {
                TemplatePart::Variable(Variable::Site) => TemplatePart::Text(site.to_string()),
                part => part.clone(),
            };
            // Adjacent texts become one part, so that `constant` recognizes a template without variables.
            match (parts.last_mut(), part) {
                (Some(TemplatePart::Text(text)), TemplatePart::Text(more)) => text.push_str(&more),
                (_, part) => parts.push(part),
            }
        }
        Template {
            text: self.text.clone(),
            parts,
            is_secret: self.is_secret,
        }
    }

    /// Whether the result depends on the content of a file.
    pub fn depends_on_file(&self) -> bool {
        self.dependences().any(|it| it == Dependence::File)
    }

    /// Appends the result without any encoding.
    pub fn write_plain(&self, input: TemplateInput<'_>, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.extend_from_slice(text.as_bytes()),
                TemplatePart::Variable(variable) => out.extend_from_slice(&input.value(variable)),
            }
        }
    }

    /// Appends the result as a field value (RFC 9110 §5.5): without surrounding whitespace, and with control characters
    /// of variables percent-encoded.
    pub fn write_field_value(&self, input: TemplateInput<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.extend_from_slice(text.as_bytes()),
                TemplatePart::Variable(variable) => {
                    let value = input.value(variable);
                    encoding::percent_encode(&value, encoding::is_value_byte, out);
                }
            }
        }
        encoding::trim_value(out, start);
    }

    /// The result as a field value, see [`Template::write_field_value`].
    pub fn field_value(&self, input: TemplateInput<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.text.len() + 64);
        self.write_field_value(input, &mut out);
        out
    }
}

impl TemplateInput<'_> {
    /// The value of a variable, unencoded.
    pub(crate) fn value(&self, variable: &Variable) -> Vec<u8> {
        let mut value = Vec::new();
        match variable {
            Variable::Capture(number) => value.extend_from_slice(self.capture(*number)),
            Variable::Map(map) => return map.0.value(*self).into_bytes(),
            variable => crate::facts::append(self.facts, variable, &mut value),
        }
        value
    }

    /// The capture with this number, from 1.
    pub(crate) fn capture(&self, number: usize) -> &[u8] {
        let capture = self.captures.get(number.wrapping_sub(1));
        capture.copied().unwrap_or_default()
    }
}

impl fmt::Display for Template {
    /// The text as written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Template {
    /// The text as written, and the parts if they are different. Fingerprints of sites depend on this output.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.constant() {
            Some(text) => write!(f, "{text:?}"),
            None => write!(f, "Template({:?})", self.parts),
        }
    }
}

/// The name at the start of a text that follows a dollar sign, and the length of its notation.
fn name_of(rest: &str) -> Result<(&str, usize), &'static str> {
    if let Some(braced) = rest.strip_prefix('{') {
        let end = braced.find('}').ok_or("${ has no closing brace")?;
        return Ok((&braced[..end], end + 2));
    }
    // A capture is one digit, so that text may follow it.
    if rest.starts_with(|first: char| first.is_ascii_digit()) {
        return Ok((&rest[..1], 1));
    }
    let len = rest.bytes().take_while(|byte| is_name_byte(*byte)).count();
    match len {
        0 => Err("a $ without the name of a variable"),
        len => Ok((&rest[..len], len)),
    }
}

fn variable(name: &str, scope: TemplateScope, maps: &[Arc<ValueMap>]) -> Result<Variable, String> {
    // `parse` would also read `+1` and `01` in braces.
    let capture = name.parse().ok().filter(|_| name.len() == 1);
    let variable = match capture {
        Some(0) => None,
        Some(number) => Some(Variable::Capture(number)),
        None => match name.strip_prefix("map_") {
            Some(name) => Some(Variable::Map(find_map(name, maps)?)),
            None => Variable::from_name(name),
        },
    };
    match variable {
        Some(variable) if scope.contains(&variable) => Ok(variable),
        Some(Variable::Capture(number)) => Err(match scope.captures {
            0 => format!("${number} has no meaning here, because nothing is captured"),
            1 => format!("${number} has no meaning here: the only capture is $1"),
            captures => format!("${number} has no meaning here: the last capture is ${captures}"),
        }),
        Some(variable) => Err(format!("{variable} is not allowed here")),
        None => Err(format!("${name} is not a variable")),
    }
}

fn find_map(name: &str, maps: &[Arc<ValueMap>]) -> Result<MapReference, String> {
    // A file has few maps, and this is done once for each use.
    let map = maps.iter().find(|map| map.name == name);
    let reference = map.map(|map| MapReference(map.clone()));
    reference.ok_or_else(|| format!("there is no [map.{name}]"))
}
