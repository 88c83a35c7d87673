//! Colour and marker of each server, the same in every figure. Colours are classes `s0` to `s9`, which the page's style
//! sheet defines for its light and dark themes.

use super::svg::{coordinate, element};

/// Number of colours.
pub const COLOURS: usize = 10;

/// Servers with a fixed colour.
const FIXED: &[&str] = &[
    "lowroad",
    "nginx",
    "apache-prefork",
    "apache-event",
    "lighttpd",
    "h2o",
    "varnish",
    "haproxy",
    "howl",
    "lowroad-softirq",
];

/// The styles of servers, in their order: colour indexes, distinct as long as there are enough.
#[must_use]
pub fn styles(servers: &[&str]) -> Vec<usize> {
    let fixed = |name: &str| FIXED.iter().position(|fixed_name| *fixed_name == name);
    let mut used: Vec<usize> = servers.iter().filter_map(|name| fixed(name)).collect();
    let mut style = |name: &&str| {
        if let Some(index) = fixed(name) {
            return index;
        }
        // A variant of a server with a fixed colour gets that colour if it is free. The first colour is Lowroad's, so
        // other servers get it last.
        let similar = FIXED
            .iter()
            .position(|fixed_name| name.starts_with(fixed_name));
        let is_free = |index: &usize| !used.contains(index);
        let index = similar
            .filter(is_free)
            .or_else(|| (1..COLOURS).chain([0]).find(is_free));
        let index = index.unwrap_or(used.len() % COLOURS);
        used.push(index);
        index
    };
    servers.iter().map(&mut style).collect()
}

/// The marker of a style at a position.
#[must_use]
pub fn marker(style: usize, x: f64, y: f64) -> String {
    let class = format!("mark s{style}");
    let polygon = |points: &[(f64, f64)]| {
        let points: Vec<String> = points
            .iter()
            .map(|(dx, dy)| format!("{},{}", coordinate(x + dx), coordinate(y + dy)))
            .collect();
        element(
            "polygon",
            &[("class", &class), ("points", &points.join(" "))],
        )
    };
    match style % 5 {
        0 => {
            let (x, y) = (coordinate(x), coordinate(y));
            element(
                "circle",
                &[("class", &class), ("cx", &x), ("cy", &y), ("r", "4")],
            )
        }
        1 => polygon(&[(-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)]),
        2 => polygon(&[(0.0, -4.8), (4.6, 3.4), (-4.6, 3.4)]),
        3 => polygon(&[(0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0)]),
        _ => polygon(&[(0.0, 4.8), (4.6, -3.4), (-4.6, -3.4)]),
    }
}

/// The class of a style's line: the second five are dashed, since there are only five markers.
#[must_use]
pub fn line_class(style: usize) -> String {
    let dashed = if style >= 5 { " dashed" } else { "" };
    format!("curve s{style}{dashed}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_distinct_stable_colours() {
        assert_eq!(styles(&["nginx", "lowroad"]), [1, 0]);
        let all = styles(&["nginx", "nginx, copying", "x", "lowroad"]);
        let mut sorted = all.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), all.len());
        assert_eq!(styles(&["nginx-php", "apache-php"])[0], 1);
        assert_eq!(styles(&["a"; 30]).len(), 30);
    }
}
