//! Renders the bare page N times, with one row or more, to count instructions under callgrind:
//!
//! ```text
//! cargo build --release -p lowroad-page --example page_cost
//! valgrind --tool=callgrind target/release/examples/page_cost 10000 [rows]
//! ```
//!
//! Run it with two values of N; the difference divided by the difference of N is the cost of one rendering.

use std::net::IpAddr;

use lowroad_page::{CompiledPage, PageLimits, PageRequest, PageRun, PageValue, RunStep};

struct Visit;

impl PageRequest for Visit {
    fn method(&self) -> &str {
        "GET"
    }
    fn path(&self) -> &[u8] {
        b"/bare.lrp"
    }
    fn target(&self) -> &[u8] {
        b"/bare.lrp"
    }
    fn host(&self) -> &[u8] {
        b"example.org"
    }
    fn query(&self) -> &[u8] {
        b""
    }
    fn peer(&self) -> IpAddr {
        IpAddr::from([192, 0, 2, 7])
    }
    fn field(&self, _: &str) -> Option<&[u8]> {
        None
    }
}

#[inline(never)]
fn render(run: &mut PageRun, page: &CompiledPage, row_count: usize, out: &mut Vec<u8>) {
    run.begin(page);
    loop {
        match run.step(page, &Visit, out) {
            RunStep::Query { values, .. } => {
                std::hint::black_box(values.count());
            }
            RunStep::Done => return,
            RunStep::Failed(failure) => panic!("{failure}"),
        }
        run.columns(std::iter::once("text"));
        for _ in 0..row_count {
            run.value(PageValue::Text("bare metal!"));
            run.row_end();
        }
        run.finish_query();
    }
}

fn main() {
    let source = include_str!("../../../examples/pages/www/bare.lrp");
    let page = CompiledPage::parse(source).expect("a page");
    let mut run = PageRun::new(PageLimits::default());
    let mut out = Vec::new();
    let argument = |at| std::env::args().nth(at).and_then(|n| n.parse().ok());
    let row_count = argument(2).unwrap_or(1);
    for _ in 0..argument(1).unwrap_or(1) {
        out.clear();
        render(&mut run, &page, row_count, &mut out);
    }
    println!("{} bytes", out.len());
}
