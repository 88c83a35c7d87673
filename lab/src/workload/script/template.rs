//! Text with places for values: `{name}`; `{{` and `}}` are braces. Knows no requests.

/// A text whose values come later.
pub struct Template {
    text: String,
    pieces: Vec<Piece>,
}

enum Piece {
    Text(String),
    Value(usize),
}

impl Template {
    /// Reads it; `values` are the names that may stand in it.
    ///
    /// # Errors
    /// It names another, or a brace is alone.
    pub fn parse(text: &str, values: &[String]) -> Result<Template, String> {
        let mut pieces = vec![Piece::Text(String::new())];
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            push(&mut pieces, &rest[..at]);
            let (brace, after) = rest[at..].split_at(1);
            if let Some(after) = after.strip_prefix(brace) {
                push(&mut pieces, brace);
                rest = after;
                continue;
            }
            let (name, after) = match brace {
                "{" => after.split_once('}'),
                _ => None,
            }
            .ok_or_else(|| format!("{text:?}: a brace that is meant as such is written twice"))?;
            let value = values
                .iter()
                .position(|known| known == name)
                .ok_or_else(|| format!("{text:?}: no step before takes {name:?}"))?;
            pieces.push(Piece::Value(value));
            rest = after;
        }
        push(&mut pieces, rest);
        Ok(Template {
            text: text.into(),
            pieces,
        })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text with these values.
    pub fn fill(&self, values: &[String]) -> String {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => &**text,
            Piece::Value(value) => &*values[*value],
        });
        pieces.collect()
    }
}

fn push(pieces: &mut Vec<Piece>, text: &str) {
    match pieces.last_mut() {
        Some(Piece::Text(last)) => last.push_str(text),
        _ => pieces.push(Piece::Text(text.into())),
    }
}
