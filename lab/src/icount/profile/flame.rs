//! A flame graph as an SVG for browsers: binaries at the bottom, parts of the work above, symbols on top. No I/O.

use std::fmt::Write;

use super::super::table::thousands;
use super::SymbolShare;
use crate::report::svg::{coordinate, escape};

const WIDTH: f64 = 1200.0;
const HIGH: f64 = 20.0;
/// Minimum width of a cell that is drawn.
const LEAST: f64 = 0.4;

/// Draws the flame graph.
pub fn draw(title: &str, symbols: &[SymbolShare]) -> String {
    let all: Vec<&SymbolShare> = symbols.iter().collect();
    let total: f64 = all.iter().map(|one| one.instructions).sum();
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
    for (place, of_place) in groups(&all, |one| &one.place) {
        let mut inner = x;
        x += cell(
            &mut out,
            2,
            CellSpan {
                x,
                width: sum(&of_place) * scale,
            },
            place,
            sum(&of_place),
        );
        for (part, of_part) in groups(&of_place, |one| one.part) {
            let mut leaf = inner;
            inner += cell(
                &mut out,
                1,
                CellSpan {
                    x: inner,
                    width: sum(&of_part) * scale,
                },
                part,
                sum(&of_part),
            );
            for one in of_part {
                let span = CellSpan {
                    x: leaf,
                    width: one.instructions * scale,
                };
                leaf += cell(&mut out, 0, span, &one.name, one.instructions);
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

/// The horizontal extent of a cell.
#[derive(Clone, Copy)]
struct CellSpan {
    x: f64,
    width: f64,
}

/// Draws a cell; returns its width.
fn cell(out: &mut String, level: u32, span: CellSpan, name: &str, count: f64) -> f64 {
    let CellSpan { x, width: wide } = span;
    if wide < LEAST {
        return wide;
    }
    let y = f64::from(level) * HIGH;
    // The name is cut to the width: 11 px monospace letters are about 6.7 px wide.
    let letters = ((wide - 4.0) / 6.7).max(0.0) as usize;
    let shown: String = match letters {
        0..3 => String::new(),
        letters => name.chars().take(letters).collect(),
    };
    write!(
        out,
        "<g><title>{}: {} instructions</title><rect class=\"f{level}\" x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{HIGH}\"/>\
         <text x=\"{}\" y=\"{}\">{}</text></g>",
        escape(name),
        thousands(count.round() as u64),
        coordinate(x),
        coordinate(wide),
        coordinate(x + 3.0),
        y + 14.0,
        escape(&shown)
    )
    .expect("a string takes all");
    wide
}

fn sum(of: &[&SymbolShare]) -> f64 {
    of.iter().map(|one| one.instructions).sum()
}

/// Groups symbols by name, the largest group first.
fn groups<'a>(
    all: &[&'a SymbolShare],
    name: impl Fn(&'a SymbolShare) -> &'a str,
) -> Vec<(&'a str, Vec<&'a SymbolShare>)> {
    let mut groups: Vec<(&str, Vec<&SymbolShare>)> = Vec::new();
    for &one in all {
        match groups.iter_mut().find(|(of, _)| *of == name(one)) {
            Some((_, group)) => group.push(one),
            None => groups.push((name(one), vec![one])),
        }
    }
    groups.sort_by(|(_, a), (_, b)| sum(b).total_cmp(&sum(a)));
    groups
}
