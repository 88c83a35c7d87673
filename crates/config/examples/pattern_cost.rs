//! Matches a path with N patterns of four shapes, M times, to count instructions under callgrind:
//!
//! ```text
//! cargo build --release -p lowroad-config --example pattern_cost
//! valgrind --tool=callgrind target/release/examples/pattern_cost 1000 10000 /articles/2026/levels.html
//! ```
//!
//! Run it with two values of M; the difference in instructions divided by the difference of M is the cost of one match.
//! With M = 0 it counts the construction of the set.

use std::hint::black_box;
use std::time::Instant;

use lowroad_config::{MatchScope, PathPattern, PatternSetBuilder};

const SHAPES: [&str; 4] = ["/old-N/**", "/**/.hidden-N/**", "*.xN", "/shop/*/item-N"];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().and_then(|n| n.parse::<usize>().ok());
    let (Some(patterns), Some(rounds)) = (number(), number()) else {
        return eprintln!("usage: pattern_cost N M PATH");
    };
    let path = arguments.next().unwrap_or_else(|| "/".into());
    let start = Instant::now();
    let mut builder = PatternSetBuilder::default();
    for index in 0..patterns {
        let text = SHAPES[index % SHAPES.len()].replace('N', &index.to_string());
        match PathPattern::parse(&text) {
            Ok(pattern) => builder.add(&pattern, MatchScope::Access),
            Err(error) => return eprintln!("{text}: {error:?}"),
        }
    }
    let set = builder.build(["index.html"]);
    let build_time = start.elapsed();
    let mut found = 0;
    for _ in 0..rounds {
        found += black_box(&set).matches(black_box(path.as_bytes())).len();
    }
    println!("made in {build_time:?}; {found} matches");
}
