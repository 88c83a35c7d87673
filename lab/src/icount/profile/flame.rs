//! A flame graph as an SVG for browsers: binaries at the bottom, parts of the work above them, symbols at the top. No
//! I/O.

use std::fmt::Write;

use super::super::table::thousands;
use super::SymbolShare;
use crate::report::svg::{coordinate, escape};

const WIDTH: f64 = 1200.0;
const HIGH: f64 = 20.0;
/// Minimum width of a cell that is drawn.
const WIDTH_MIN: f64 = 0.4;

/// Draws the flame graph.
pub fn draw(title: &str, symbols: &[SymbolShare]) -> String {
    let symbol_refs: Vec<&SymbolShare> = symbols.iter().collect();
    let total: f64 = symbol_refs.iter().map(|symbol| symbol.instructions).sum();
    let mut out = String::new();
    let scale = WIDTH / total.max(1.0);
    cell(
        &mut out,
        3,
        CellSpan {
            x: 0.0,
            width: WIDTH,
        },
        title,
        total,
    );
    let mut x = 0.0;
    for (binary, binary_symbols) in groups(&symbol_refs, |symbol| &symbol.binary) {
        let mut inner = x;
        x += cell(
            &mut out,
            2,
            CellSpan {
                x,
                width: sum(&binary_symbols) * scale,
            },
            binary,
            sum(&binary_symbols),
        );
        for (part, part_symbols) in groups(&binary_symbols, |symbol| symbol.part) {
            let mut leaf = inner;
            inner += cell(
                &mut out,
                1,
                CellSpan {
                    x: inner,
                    width: sum(&part_symbols) * scale,
                },
                part,
                sum(&part_symbols),
            );
            for symbol in part_symbols {
                let span = CellSpan {
                    x: leaf,
                    width: symbol.instructions * scale,
                };
                leaf += cell(&mut out, 0, span, &symbol.name, symbol.instructions);
            }
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {high}\" width=\"100%\"><style>text{{font:11px \
         monospace}}rect{{stroke:#fff;stroke-width:.5}}.f0{{fill:#f4a261}}.f1{{fill:#e9c46a}}.f2{{fill:#8ab6d6}}\
         .f3{{fill:#cfd4d8}}</style>{out}</svg>\n",
        high = HIGH * 4.0
    )
}

/// The horizontal position and width of a cell.
#[derive(Clone, Copy)]
struct CellSpan {
    x: f64,
    width: f64,
}

/// Draws a cell; returns its width.
fn cell(out: &mut String, level: u32, span: CellSpan, name: &str, count: f64) -> f64 {
    let CellSpan {
        x,
        width: cell_width,
    } = span;
    // Thousands of cells narrower than a pixel would only enlarge the file.
    if cell_width < WIDTH_MIN {
        return cell_width;
    }
    let y = f64::from(level) * HIGH;
    // The name is truncated to the width: 11 px monospace letters are about 6.7 px wide.
    let char_count = ((cell_width - 4.0) / 6.7).max(0.0) as usize;
    let label: String = match char_count {
        0..3 => String::new(),
        char_count => name.chars().take(char_count).collect(),
    };
    write!(
        out,
        "<g><title>{}: {} instructions</title><rect class=\"f{level}\" x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{HIGH}\"/>\
         <text x=\"{}\" y=\"{}\">{}</text></g>",
        escape(name),
        thousands(count.round() as u64),
        coordinate(x),
        coordinate(cell_width),
        coordinate(x + 3.0),
        y + 14.0,
        escape(&label)
    )
    .expect("a string takes all");
    cell_width
}

fn sum(symbols: &[&SymbolShare]) -> f64 {
    symbols.iter().map(|symbol| symbol.instructions).sum()
}

/// Groups symbols by name, the largest group first.
fn groups<'a>(
    symbols: &[&'a SymbolShare],
    name: impl Fn(&'a SymbolShare) -> &'a str,
) -> Vec<(&'a str, Vec<&'a SymbolShare>)> {
    let mut groups: Vec<(&str, Vec<&SymbolShare>)> = Vec::new();
    for &symbol in symbols {
        match groups
            .iter_mut()
            .find(|(group_name, _)| *group_name == name(symbol))
        {
            Some((_, group)) => group.push(symbol),
            None => groups.push((name(symbol), vec![symbol])),
        }
    }
    groups.sort_by(|(_, a), (_, b)| sum(b).total_cmp(&sum(a)));
    groups
}
