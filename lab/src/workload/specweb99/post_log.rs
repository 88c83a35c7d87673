//! The dynamic program's log of POSTed forms: its reset, and its check after a run. Builds request targets and parses
//! responses; uses no sockets.

/// A log without records, which consists only of their number, 10 characters wide.
pub(super) const EMPTY: &[u8; 11] = b"         0\n";

/// Length of a record.
const RECORD: usize = 139;

/// Maximum share of missing records: 1.0 %, rounded.
const MISSING_MAX: f64 = 0.0105;

/// The target of the request that creates new ads and users and empties the log, for a run of this many seconds
/// (warm-up, run and ramp-down). `first_over` is the first expired ad, below 360.
pub fn reset_target(script: &str, connections: u32, run_s: u64, first_over: u32) -> String {
    let (first, second) = (first_over % 360, (first_over + 100) % 360);
    let (low, high) = (first.min(second), first.max(second));
    format!(
        "{script}?command/Reset&maxload={connections}&pttime={run_s}&maxthread={connections}\
         &exp={low},{high}&urlroot=/file_set/"
    )
}

/// The target of the request that returns the log.
pub fn fetch_target(script: &str) -> String {
    format!("{script}?command/Fetch")
}

/// A parsed log without contradictions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostLog {
    /// Number of records by file class.
    pub by_class: [u64; 4],
}

impl PostLog {
    /// Parses the page that shows the log, or the log itself.
    ///
    /// # Errors
    /// The text names the fault and its position.
    pub fn parse(page: &[u8]) -> Result<PostLog, String> {
        // The program shows the log within a page; without the tag the input is the log itself.
        let begin = find(page, b"<pre>\n").map_or(0, |offset| offset + 6);
        let log = &page[begin..];
        let (count, records) = log
            .split_at_checked(EMPTY.len())
            .ok_or("post.log: no first line")?;
        let count: usize = number(count).ok_or("post.log: its first line is not a number")?;
        let records = count.checked_mul(RECORD).and_then(|len| records.get(..len));
        let records = records.ok_or_else(|| {
            format!("post.log: contains fewer than the {count} records it announces")
        })?;
        let remainder = log.len() - EMPTY.len() - records.len();
        // The page continues after the log, so a remainder shorter than a record is normal.
        if remainder >= RECORD {
            return Err(format!(
                "post.log: contains more than the {count} records it announces"
            ));
        }
        let mut parsed = PostLog { by_class: [0; 4] };
        for (index, record) in records.chunks(RECORD).enumerate() {
            let class = check(record, index as u64 + 1)
                .map_err(|error| format!("post.log: record {}: {error}", index + 1))?;
            parsed.by_class[class] += 1;
        }
        Ok(parsed)
    }

    /// Number of all records.
    pub fn records(&self) -> u64 {
        self.by_class.iter().sum()
    }

    /// Checks the number of forms in the log since its reset: at least nearly as many as were answered, and at most as
    /// many as were sent (`u64::MAX` if unknown).
    ///
    /// # Errors
    /// The text has both numbers.
    pub fn compare(&self, answered: u64, sent: u64) -> Result<(), String> {
        let records = self.records();
        if (records as f64) < answered as f64 * (1.0 - MISSING_MAX) {
            return Err(format!(
                "post.log: {records} records, but {answered} forms were answered"
            ));
        }
        if records > sent {
            return Err(format!(
                "post.log: {records} records, but {sent} forms were sent"
            ));
        }
        Ok(())
    }
}

fn check(record: &[u8], due: u64) -> Result<usize, String> {
    let text = std::str::from_utf8(record).map_err(|_| "not text")?;
    let columns: Vec<&str> = text.split_ascii_whitespace().collect();
    let [
        number,
        _time,
        process,
        dir,
        class,
        file,
        _client,
        name,
        process_again,
        _user,
    ] = columns[..]
    else {
        return Err(format!("{} columns, not 10", columns.len()));
    };
    if !text.ends_with('\n') || number != due.to_string() {
        return Err(format!("has the number {number}"));
    }
    if process != process_again {
        return Err("its two process numbers differ: two writers at a time".to_string());
    }
    if !name.ends_with(&format!("dir{dir:0>5}/class{class}_{file}")) {
        return Err(format!(
            "its file is {name}, but its numbers are {dir}, {class}, {file}"
        ));
    }
    class
        .parse()
        .ok()
        .filter(|class| *class < 4)
        .ok_or_else(|| format!("no class {class}"))
}

fn number(text: &[u8]) -> Option<usize> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64, process: u32, again: u32) -> String {
        let name = "/file_set/dir00004/class1_3";
        format!(
            "{number:10} {:10} {process:10} {:5} {:2} {:2} {:10} {name:<60.60} {again:10} {:10}\n",
            1_700_000_000, 4, 1, 3, 2, 10_001
        )
    }

    #[test]
    fn valid_post_log_is_parsed() {
        assert_eq!(record(1, 2, 2).len(), RECORD);
        let page = format!(
            "<html>\n<pre>\n{:10}\n{}{}\n</pre>\n</body></html>\n",
            2,
            record(1, 7, 7),
            record(2, 8, 8)
        );
        let log = PostLog::parse(page.as_bytes()).expect("a right log");
        assert_eq!(log.by_class, [0, 2, 0, 0]);
        assert_eq!(log.compare(2, 2), Ok(()));
        assert_eq!(log.compare(1, u64::MAX), Ok(()));
        assert!(log.compare(1, 1).is_err() && log.compare(3, 3).is_err());
        assert_eq!(PostLog::parse(EMPTY), Ok(PostLog { by_class: [0; 4] }));
    }

    #[test]
    fn invalid_post_logs_are_rejected() {
        for (log, why) in [
            (String::new(), "first line"),
            (format!("{:10}\n", 1), "fewer than the 1 records"),
            (format!("{:10}\n{}", 0, record(1, 2, 2)), "more than"),
            (format!("{:10}\n{}", 1, record(1, 2, 3)), "two writers"),
            (format!("{:10}\n{}", 1, record(5, 2, 2)), "number 5"),
        ] {
            let error = PostLog::parse(log.as_bytes()).expect_err(why);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn reset_target_has_all_parameters() {
        assert_eq!(
            reset_target("/s", 200, 300, 300),
            "/s?command/Reset&maxload=200&pttime=300&maxthread=200&exp=40,300&urlroot=/file_set/"
        );
    }
}
