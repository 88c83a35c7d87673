//! Formats reports as text.

use std::fmt::Write;

use lowroad_log::civil_date;
use lowroad_log::escape::escaped;

use super::{DurationHistogram, RankedCounts, RankingKey, TrafficReport};

/// The length of the longest bar.
const BAR_LEN: u64 = 40;

/// The whole report, with this many values in each ranking.
pub fn report_text(report: &TrafficReport, count: usize) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(out, "{name:<17} {value}");
    };
    line("requests", &report.requests);
    line("bytes", &report.body_bytes);
    line("cut", &report.cut);
    if let Some((first, last)) = report.period_ms {
        line("from", &civil_date::rfc3339(first));
        line("to", &civil_date::rfc3339(last));
    }
    let clients = RankingKey::ALL
        .iter()
        .position(|key| *key == RankingKey::Client);
    line(
        "clients",
        &clients.map_or(0, |place| report.rankings[place].distinct()),
    );
    out += "\nduration, ms          p50        p90        p99      p99.9    longest   requests\n";
    durations_line("all", &report.durations, &mut out);
    for (level, durations) in &report.level_durations {
        durations_line(level, durations, &mut out);
    }
    for (key, ranking) in RankingKey::ALL.into_iter().zip(&report.rankings) {
        out.push('\n');
        out += &ranking_text(ranking, key, count);
    }
    out += "\nhour, UTC     requests\n";
    let most = report
        .hours
        .iter()
        .copied()
        .max()
        .unwrap_or_default()
        .max(1);
    for (hour, requests) in report.hours.iter().enumerate() {
        let bar = "#".repeat((requests * BAR_LEN).div_ceil(most) as usize);
        let _ = writeln!(out, "{hour:02}  {requests:>18}  {bar}");
    }
    out
}

/// The values with most records: their number and share, bytes, and the mean and the longest duration.
pub fn ranking_text(ranking: &RankedCounts, key: RankingKey, count: usize) -> String {
    let mut out = String::from("  requests    share             bytes    mean ms longest ms  ");
    let _ = writeln!(out, "{} ({})", key.name(), ranking.distinct());
    // Without records the share is 0, not a division by zero.
    let all = ranking.requests().max(1);
    let mut line = |value: &[u8], totals: super::KeyTotals| {
        let share = totals.requests as f64 * 100.0 / all as f64;
        let mean_ms = totals.duration_us as f64 / 1000.0 / totals.requests.max(1) as f64;
        let longest_ms = totals.longest_us as f64 / 1000.0;
        let mut text = Vec::new();
        // Values are chosen by clients, and must not control the terminal.
        escaped(value, &mut text);
        let text = match value {
            b"" => "-".into(),
            _ => String::from_utf8_lossy(&text),
        };
        let (requests, bytes) = (totals.requests, totals.body_bytes);
        let _ = writeln!(
            out,
            "{requests:>10}  {share:>5.1} %  {bytes:>16} {mean_ms:>10.3} {longest_ms:>10.3}  {text}"
        );
    };
    for (value, totals) in ranking.top(count) {
        line(value, totals);
    }
    if ranking.beyond().requests > 0 {
        line(b"(others, too many to distinguish)", ranking.beyond());
    }
    out
}

fn durations_line(name: &str, durations: &DurationHistogram, out: &mut String) {
    // A damaged file may name any level.
    let mut text = Vec::new();
    escaped(name.as_bytes(), &mut text);
    let name = String::from_utf8_lossy(&text);
    let ms = |duration_us: u64| duration_us as f64 / 1000.0;
    let [p50, p90, p99, p999] =
        [0.5, 0.9, 0.99, 0.999].map(|share| ms(durations.percentile_us(share)));
    let (longest, total) = (ms(durations.largest_us()), durations.total());
    let _ = writeln!(
        out,
        "{name:<14} {p50:>10.3} {p90:>10.3} {p99:>10.3} {p999:>10.3} {longest:>10.3} {total:>10}"
    );
}
