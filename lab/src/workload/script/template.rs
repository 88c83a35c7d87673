//! Text with placeholders of the form `{name}`; `{{` and `}}` are literal braces.

/// A text with placeholders.
pub struct TextTemplate {
    text: String,
    pieces: Vec<TemplatePiece>,
}

enum TemplatePiece {
    Text(String),
    Value(usize),
}

impl TextTemplate {
    /// Parses a template; `values` are the allowed names.
    ///
    /// # Errors
    /// The text has an unknown name or an unmatched brace.
    pub fn parse(text: &str, values: &[String]) -> Result<TextTemplate, String> {
        let mut pieces = vec![TemplatePiece::Text(String::new())];
        let mut rest = text;
        while let Some(brace_at) = rest.find(['{', '}']) {
            push(&mut pieces, &rest[..brace_at]);
            let (brace, rest_after_brace) = rest[brace_at..].split_at(1);
            if let Some(literal) = rest_after_brace.strip_prefix(brace) {
                push(&mut pieces, brace);
                rest = literal;
                continue;
            }
            let (name, rest_after_name) = match brace {
                "{" => rest_after_brace.split_once('}'),
                _ => None,
            }
            .ok_or_else(|| format!("{text:?}: write a literal brace twice"))?;
            let value = values
                .iter()
                .position(|value_name| value_name == name)
                .ok_or_else(|| format!("{text:?}: no earlier step takes {name:?}"))?;
            pieces.push(TemplatePiece::Value(value));
            rest = rest_after_name;
        }
        push(&mut pieces, rest);
        Ok(TextTemplate {
            text: text.into(),
            pieces,
        })
    }

    /// The source text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Fills in the values.
    pub fn fill(&self, values: &[String]) -> String {
        let pieces = self.pieces.iter().map(|piece| match piece {
            TemplatePiece::Text(text) => &**text,
            TemplatePiece::Value(value) => &*values[*value],
        });
        pieces.collect()
    }
}

fn push(pieces: &mut Vec<TemplatePiece>, text: &str) {
    match pieces.last_mut() {
        Some(TemplatePiece::Text(last)) => last.push_str(text),
        _ => pieces.push(TemplatePiece::Text(text.into())),
    }
}
