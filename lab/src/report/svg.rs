//! XML text of drawings: escaping, and elements. Independent of charts.

use std::fmt::Write;

/// Escapes text for an element or an attribute.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML 1.0 can't represent control characters.
            control if control.is_control() && !"\n\t".contains(control) => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

/// An empty element.
#[must_use]
pub fn element(name: &str, attributes: &[(&str, &str)]) -> String {
    let mut out = format!("<{name}");
    for (key, value) in attributes {
        write!(out, " {key}=\"{}\"", escape(value)).expect("a string takes all");
    }
    out.push_str("/>");
    out
}

/// A line.
#[must_use]
pub fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> String {
    let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(coordinate);
    element(
        "line",
        &[
            ("class", class),
            ("x1", &x1),
            ("y1", &y1),
            ("x2", &x2),
            ("y2", &y2),
        ],
    )
}

/// A text; `anchor` is start, middle or end.
#[must_use]
pub fn text(class: &str, anchor: &str, position: (f64, f64), words: &str) -> String {
    format!(
        "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{}\" y=\"{}\">{}</text>",
        coordinate(position.0),
        coordinate(position.1),
        escape(words)
    )
}

/// Formats a coordinate with one decimal.
#[must_use]
pub fn coordinate(value: f64) -> String {
    // An SVG with an infinite coordinate is invalid.
    let value = if value.is_finite() { value } else { 0.0 };
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// The approximate width of a text at 12 px sans-serif, estimated rather too large.
#[must_use]
pub fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 6.8
}
