//! Prints the cost of a page: `LOWROAD_COST=1 cargo test --release -p lowroad-sql-pages --test pages examples --
//! --nocapture`.

use std::time::Instant;

use futures_util::StreamExt;

use crate::harness::Site;
use crate::servers::Kind;

const PAGES: u32 = 5_000;

/// Requests the bare page repeatedly, with eight concurrent requests.
pub async fn print_cost(kind: Kind, site: &Site) {
    let name = match kind {
        Kind::MariaDb => "MariaDB",
        Kind::Postgres => "PostgreSQL",
    };
    for size in [211, 10_217, 19_248] {
        let target = format!("/bare.lrp?size={size}");
        let (start, cpu) = (Instant::now(), cpu_us());
        let asks = futures_util::stream::iter(0..PAGES).map(|_| site.get(&target).ok());
        let len: usize = asks
            .buffer_unordered(8)
            .map(|got| got.text.len())
            .fold(0, async |all, len| all + len)
            .await;
        assert_eq!(len, size * PAGES as usize);
        let wall = start.elapsed().as_micros() as f64 / f64::from(PAGES);
        let cpu = (cpu_us() - cpu) as f64 / f64::from(PAGES);
        println!("{name}, {size} bytes: {wall:.1} us a page, {cpu:.1} us of processor time here");
    }
}

/// The processor time of this process in microseconds, with a resolution of 10 ms.
fn cpu_us() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("a process");
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split(' ')
        .collect();
    let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
    (ticks(12) + ticks(13)) * 10_000
}
