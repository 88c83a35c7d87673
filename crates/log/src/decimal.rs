//! Formats decimal numbers without `core::fmt`, since most numbers of a log line are short.

/// 20 digits hold every `u64`.
const DIGITS_MAX: usize = 20;

/// Appends a number.
pub fn decimal(number: u64, out: &mut Vec<u8>) {
    padded::<1>(number, out);
}

/// Appends a number with at least `WIDTH` digits.
pub fn padded<const WIDTH: usize>(number: u64, out: &mut Vec<u8>) {
    let mut digits = [b'0'; DIGITS_MAX];
    let (mut rest, mut start) = (number, DIGITS_MAX);
    while rest > 0 {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    // There are few digits: pushing them one by one costs less than a call that copies them.
    for digit in &digits[start.min(DIGITS_MAX - WIDTH)..] {
        out.push(*digit);
    }
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
            padded::<3>(number, &mut out);
            let want = format!("{number}{number:03}");
            assert_eq!(String::from_utf8_lossy(&out), want);
        }
    }
}
