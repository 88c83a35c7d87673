//! Formats decimal numbers without `core::fmt`, since most numbers of a log line are short.

/// The digits of the numbers below 1000, left-aligned, and their count.
static DIGITS: [[u8; 4]; 1000] = digits();

const fn digits() -> [[u8; 4]; 1000] {
    let mut table = [[0; 4]; 1000];
    let mut number = 0;
    while number < 1000 {
        let [hundreds, tens, ones] = three_digits(number as u64);
        table[number] = match number {
            0..10 => [ones, 0, 0, 1],
            10..100 => [tens, ones, 0, 2],
            _ => [hundreds, tens, ones, 3],
        };
        number += 1;
    }
    table
}

const fn three_digits(number: u64) -> [u8; 3] {
    [
        b'0' + (number / 100 % 10) as u8,
        b'0' + (number / 10 % 10) as u8,
        b'0' + (number % 10) as u8,
    ]
}

/// Appends a number.
pub fn decimal(number: u64, out: &mut Vec<u8>) {
    if number >= 1000 {
        decimal(number / 1000, out);
        return thousandths(number % 1000, out);
    }
    let digits = DIGITS[number as usize];
    // A copy of constant length is a single store, unlike one of the length of the number.
    let len = out.len() + usize::from(digits[3]);
    out.extend_from_slice(&digits);
    out.truncate(len);
}

/// Appends the last three digits of a number.
pub fn thousandths(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&three_digits(number));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_equals_core_fmt() {
        let powers = (0..20).map(|power| 10_u64.pow(power));
        let numbers = powers.flat_map(|power| [power - 1, power, power + 1]);
        for number in numbers.chain([u64::MAX - 1, u64::MAX]) {
            let mut out = Vec::new();
            decimal(number, &mut out);
            thousandths(number, &mut out);
            let want = format!("{number}{:03}", number % 1000);
            assert_eq!(String::from_utf8_lossy(&out), want);
        }
    }
}
