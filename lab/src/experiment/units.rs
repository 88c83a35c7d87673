//! Numbers for people: units with prefixes, and only significant digits.

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureUnit {
    /// Requests a second.
    RequestsPerS,
    /// Instructions.
    Instructions,
    /// Requests per 10^9 instructions.
    RequestsCounted,
    /// Connections per 10^9 instructions.
    ConnectionsCounted,
    /// Bytes per 10^9 instructions.
    BytesCounted,
    /// Bits per 10^9 instructions.
    BitsCounted,
    /// Connections a second.
    ConnectionsPerS,
    /// Bytes a second.
    BytesPerS,
    /// Bits a second.
    BitsPerS,
    /// Microseconds.
    Microseconds,
    /// A share of 1.
    Share,
}

/// A unit with a prefix: a value is divided by `divisor` and followed by `name`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaledUnit {
    /// The divisor.
    pub divisor: f64,
    /// The text behind the number.
    pub name: &'static str,
}

impl FigureUnit {
    /// The unit with the prefix that suits values up to `largest`.
    #[must_use]
    pub fn scaled(self, largest: f64) -> ScaledUnit {
        let pick = |steps: &[(f64, &'static str)]| {
            let step = steps.iter().rev().find(|(divisor, _)| largest >= *divisor);
            let (divisor, name) = *step.unwrap_or(&steps[0]);
            ScaledUnit { divisor, name }
        };
        match self {
            FigureUnit::RequestsPerS => pick(&[(1.0, "requests/s")]),
            FigureUnit::ConnectionsPerS => pick(&[(1.0, "connections/s")]),
            FigureUnit::BytesPerS => {
                pick(&[(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")])
            }
            FigureUnit::BitsPerS => pick(&[
                (1.0, "bit/s"),
                (1e3, "kbit/s"),
                (1e6, "Mbit/s"),
                (1e9, "Gbit/s"),
            ]),
            FigureUnit::Microseconds => pick(&[(1.0, "µs"), (1e3, "ms"), (1e6, "s")]),
            FigureUnit::Share => pick(&[(0.01, "%")]),
            FigureUnit::Instructions => pick(&[(1.0, "instructions")]),
            FigureUnit::RequestsCounted => pick(&[(1.0, "requests/10⁹ instructions")]),
            FigureUnit::ConnectionsCounted => pick(&[(1.0, "connections/10⁹ instructions")]),
            FigureUnit::BytesCounted => pick(&[
                (1e3, "kB/10⁹ instructions"),
                (1e6, "MB/10⁹ instructions"),
                (1e9, "GB/10⁹ instructions"),
            ]),
            FigureUnit::BitsCounted => pick(&[
                (1e3, "kbit/10⁹ instructions"),
                (1e6, "Mbit/10⁹ instructions"),
                (1e9, "Gbit/10⁹ instructions"),
            ]),
        }
    }

    /// The corresponding unit when 10^9 instructions stand for a second.
    #[must_use]
    pub fn for_instructions(self) -> FigureUnit {
        match self {
            FigureUnit::RequestsPerS => FigureUnit::RequestsCounted,
            FigureUnit::ConnectionsPerS => FigureUnit::ConnectionsCounted,
            FigureUnit::BytesPerS => FigureUnit::BytesCounted,
            FigureUnit::BitsPerS => FigureUnit::BitsCounted,
            unit => unit,
        }
    }

    /// Formats a value with its unit.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        let scaled = self.scaled(value.abs());
        let space = if scaled.name == "%" { "" } else { " " };
        format!("{}{space}{}", number(value / scaled.divisor), scaled.name)
    }
}

/// Formats a number with three significant digits, or with all digits before the decimal point, in groups of three.
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let size = value.abs();
    let decimals = match size {
        _ if size >= 100.0 || size == 0.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ if size >= 0.001 => 3,
        _ => 5,
    };
    let text = format!("{value:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    };
    grouped(&text)
}

/// Formats a size in bytes, with binary units where they are exact.
#[must_use]
pub fn size(bytes: f64) -> String {
    let is_multiple = |unit: f64| bytes >= unit && (bytes / unit).fract() == 0.0;
    match bytes {
        _ if is_multiple(1_048_576.0) => format!("{} MiB", number(bytes / 1_048_576.0)),
        _ if is_multiple(1024.0) => format!("{} KiB", number(bytes / 1024.0)),
        _ => format!("{} B", number(bytes)),
    }
}

/// Formats a time span: `45 s`, `12 min`, `1 h 05 min`.
#[must_use]
pub fn span(seconds: f64) -> String {
    let whole_s = seconds.max(0.0).round() as u64;
    match whole_s {
        0..=99 => format!("{whole_s} s"),
        100..=3599 => format!("{} min", whole_s.div_ceil(60)),
        _ => format!("{} h {:02} min", whole_s / 3600, whole_s % 3600 / 60),
    }
}

fn grouped(text: &str) -> String {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    let (integer_digits, rest) = digits
        .find('.')
        .map_or((digits, ""), |point| digits.split_at(point));
    if integer_digits.len() < 5 {
        return text.to_owned();
    }
    let first = integer_digits.len() % 3;
    let mut groups = vec![&integer_digits[..first]];
    groups.extend(
        (first..integer_digits.len())
            .step_by(3)
            .map(|start| &integer_digits[start..start + 3]),
    );
    let joined = groups
        .into_iter()
        .filter(|group| !group.is_empty())
        .collect::<Vec<_>>()
        .join(",");
    format!("{sign}{joined}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1.307, "1.31"),
            (12.34, "12.3"),
            (1000.0, "1000"),
            (39_812.4, "39,812"),
            (1_234_567.0, "1,234,567"),
            (0.25, "0.25"),
            (100.0, "100"),
            (10.0, "10"),
            (-12345.0, "-12,345"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn values_are_shown_with_prefix_and_unit() {
        assert_eq!(FigureUnit::BitsPerS.show(1.2e9), "1.2 Gbit/s");
        assert_eq!(FigureUnit::Microseconds.show(1_812_000.0), "1.81 s");
        assert_eq!(FigureUnit::Microseconds.show(0.0), "0 µs");
        assert_eq!(FigureUnit::Share.show(0.177), "17.7%");
    }

    #[test]
    fn sizes_and_spans() {
        assert_eq!(size(64.0), "64 B");
        assert_eq!(size(4096.0), "4 KiB");
        assert_eq!(size(1_048_576.0), "1 MiB");
        assert_eq!(size(10_217.0), "10,217 B");
        assert_eq!(span(45.2), "45 s");
        assert_eq!(span(700.0), "12 min");
        assert_eq!(span(3900.0), "1 h 05 min");
    }
}
