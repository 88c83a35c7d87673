//! Tables of texts and numbers, which can be sorted and filtered. Texts contain only visible characters.

use lowroad_log::escape::is_invisible;

/// A column of a table. The first column is the widest one.
#[derive(Clone, Copy, Debug)]
pub struct TableColumn {
    /// The title.
    pub title: &'static str,
    /// The width in cells; the least width of a column of texts.
    pub width: u16,
    /// Whether it contains numbers, which are aligned right.
    pub is_number: bool,
}

/// A column of texts.
pub const fn text_column(title: &'static str, width: u16) -> TableColumn {
    TableColumn {
        title,
        width,
        is_number: false,
    }
}

/// A column of numbers.
pub const fn number_column(title: &'static str, width: u16) -> TableColumn {
    TableColumn {
        title,
        width,
        is_number: true,
    }
}

/// A cell: the text, and the number by which its column is sorted.
#[derive(Clone, Debug, PartialEq)]
pub struct TableCell {
    /// The text.
    pub text: String,
    number: f64,
}

impl TableCell {
    /// A text, sorted alphabetically.
    pub fn from_text(text: &str) -> TableCell {
        TableCell {
            text: visible(text),
            number: 0.0,
        }
    }

    /// A number, written as `text`.
    pub fn from_number(number: f64, text: String) -> TableCell {
        TableCell { text, number }
    }
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct TextTable {
    /// The columns, the most important ones first.
    pub columns: &'static [TableColumn],
    /// The rows, each with a cell for every column.
    pub rows: Vec<Vec<TableCell>>,
    /// The text in place of an empty table.
    pub empty: &'static str,
}

impl TextTable {
    /// Removes the rows without a cell that contains `filter`; upper and lower case do not differ.
    pub fn filter(&mut self, filter: &str) {
        let filter = filter.to_lowercase();
        self.rows.retain(|row| {
            row.iter()
                .any(|cell| cell.text.to_lowercase().contains(&filter))
        });
    }

    /// Sorts by a column: numbers from the greatest, texts alphabetically.
    pub fn sort(&mut self, column: usize) {
        let Some(is_number) = self.columns.get(column).map(|it| it.is_number) else {
            return;
        };
        // A stable sort, so that equal rows keep their order on successive pages.
        self.rows.sort_by(|a, b| match is_number {
            true => b[column].number.total_cmp(&a[column].number),
            false => a[column].text.cmp(&b[column].text),
        });
    }

    /// The number of columns that fit: narrow terminals show the first ones.
    pub fn fitting_columns(&self, width: u16) -> usize {
        let mut used = 0;
        let fitting = self.columns.iter().take_while(|column| {
            used += column.width + 1;
            used <= width + 1
        });
        fitting.count().max(1)
    }

    /// The widths of the first `count` columns in a table of this width. A last column of texts shares the remaining
    /// cells with the first column.
    pub fn widths(&self, count: usize, width: u16) -> Vec<u16> {
        let columns = &self.columns[..count];
        let mut widths: Vec<u16> = columns.iter().map(|column| column.width).collect();
        let used = widths.iter().sum::<u16>() + count.saturating_sub(1) as u16;
        let mut remaining = width.saturating_sub(used);
        if let ([first, .., last], [.., last_width]) = (columns, &mut widths[..])
            && !first.is_number
            && !last.is_number
        {
            *last_width += remaining / 2;
            remaining -= remaining / 2;
        }
        if let Some(first) = widths.first_mut() {
            *first += remaining;
        }
        widths
    }
}

/// A text that fits into some cells; one that was cut ends with an ellipsis.
pub fn fitting(text: &str, width: u16) -> String {
    let width = usize::from(width);
    match text.chars().count() <= width {
        true => text.to_owned(),
        false => {
            let start = text.chars().take(width.saturating_sub(1));
            start.chain(['\u{2026}']).collect()
        }
    }
}

/// Replaces characters that a terminal would interpret: control characters, and those that change the direction of
/// text or are invisible.
pub fn visible(text: &str) -> String {
    let shown = |it| if is_invisible(it) { '\u{fffd}' } else { it };
    text.chars().map(shown).collect()
}

/// A rate: with decimals if it is small.
pub fn rate(value: f64) -> String {
    match value {
        value if value >= 100.0 => group_thousands(value),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 0.005 => format!("{value:.2}"),
        _ => "0".into(),
    }
}

/// A rate in at most five characters.
pub fn short_rate(value: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    // The limits are those at which the rounded number would have another digit.
    match units.iter().find(|(unit, _)| value >= 0.9995 * unit) {
        Some((unit, name)) => match value / unit {
            part if part >= 99.95 => format!("{part:.0}{name}"),
            part if part >= 9.995 => format!("{part:.1}{name}"),
            part => format!("{part:.2}{name}"),
        },
        None => rate(value),
    }
}

/// A whole number with thousands separators.
fn group_thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        // Groups of three count from the right.
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A share in percent; `n/a` if there is nothing to share, such as without requests.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "n/a".into(), |share| format!("{:.1} %", 100.0 * share))
}

/// A share in percent without decimals, of at most five characters.
pub fn whole_percent(share: Option<f64>) -> String {
    share.map_or_else(|| "n/a".into(), |share| format!("{:.0} %", 100.0 * share))
}

/// A duration in a fitting unit.
pub fn duration(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".into(),
        Some(seconds) if seconds < 1e-3 => format!("{:.0} us", 1e6 * seconds),
        Some(seconds) if seconds < 0.0995 => format!("{:.1} ms", 1e3 * seconds),
        Some(seconds) if seconds < 1.0 => format!("{:.0} ms", 1e3 * seconds),
        Some(seconds) => format!("{seconds:.1} s"),
    }
}

/// A number of bytes in a fitting unit.
pub fn bytes(value: f64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match units.iter().find(|(unit, _)| value >= *unit) {
        Some((unit, name)) if value >= 99.95 * unit => format!("{:.0} {name}", value / unit),
        Some((unit, name)) => format!("{:.1} {name}", value / unit),
        // Not -0, which is the sum of no rates.
        None => format!("{:.0} B", value + 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [TableColumn; 3] = [
        text_column("name", 10),
        number_column("rate", 5),
        text_column("note", 8),
    ];

    fn table() -> TextTable {
        let row = |name, rate, note| {
            vec![
                TableCell::from_text(name),
                TableCell::from_number(rate, format!("{rate}")),
                TableCell::from_text(note),
            ]
        };
        TextTable {
            columns: &COLUMNS,
            rows: vec![row("b", 10.0, "X"), row("c", 9.0, ""), row("a", 100.0, "x")],
            empty: "",
        }
    }

    fn names(table: &TextTable) -> String {
        table.rows.iter().map(|row| &*row[0].text).collect()
    }

    #[test]
    fn rows_are_sorted_and_filtered() {
        let mut table = table();
        table.sort(1);
        assert_eq!(names(&table), "abc");
        table.sort(2);
        assert_eq!(names(&table), "cba");
        table.sort(9);
        table.filter("x");
        assert_eq!(names(&table), "ba");
        table.filter("none");
        assert!(table.rows.is_empty());
    }

    #[test]
    fn narrow_tables_have_fewer_columns() {
        let fitting = [0, 10, 15, 16, 24, 25].map(|width| table().fitting_columns(width));
        assert_eq!(fitting, [1, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn first_and_last_text_share_the_remaining_width() {
        assert_eq!(table().widths(3, 30), [13, 5, 10]);
        assert_eq!(table().widths(2, 30), [24, 5]);
        assert_eq!(table().widths(1, 4), [10]);
        assert_eq!(
            [3, 4].map(|width| fitting("abcd", width)),
            ["ab\u{2026}", "abcd"]
        );
    }

    #[test]
    fn hidden_characters_are_replaced() {
        let text = visible("a\x1b[2J\u{9b}\n\u{202e}\u{200b}\u{7f}\u{e9}");
        assert_eq!(
            text,
            "a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{e9}"
        );
    }

    #[test]
    fn numbers_have_fitting_units() {
        assert_eq!(
            [0.0, 0.5, 12.34, 1234567.0].map(rate),
            ["0", "0.50", "12.3", "1,234,567"]
        );
        let spans = [None, Some(5e-5), Some(0.02), Some(0.1234), Some(3.0)].map(duration);
        assert_eq!(spans, ["-", "50 us", "20.0 ms", "123 ms", "3.0 s"]);
        assert_eq!(
            [-0.0, 12.0, 1500.0, 123_456.0, 2e9].map(bytes),
            ["0 B", "12 B", "1.5 kB", "123 kB", "2.0 GB"]
        );
        assert_eq!(
            [0.0, 0.5, 999.4, 999.6, 12_340.0, 999_600.0, 2.5e6].map(short_rate),
            ["0", "0.50", "999", "1.00k", "12.3k", "1.00M", "2.50M"]
        );
        let shares = [None, Some(0.0), Some(0.996)].map(whole_percent);
        assert_eq!(shares, ["n/a", "0 %", "100 %"]);
    }
}
