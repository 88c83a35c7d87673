//! Arithmetic, comparison and formatting of numbers. The rules are minijinja's, but integers have 64 bits instead of
//! 128.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt::Write;

use crate::op::Binary;
use crate::value::Val;

/// Two numbers of one type.
enum Two {
    Whole(i128, i128),
    Float(f64, f64),
}

fn whole(value: Val) -> Option<i128> {
    match value {
        Val::Bool(it) => Some(i128::from(it)),
        Val::Int(it) => Some(i128::from(it)),
        Val::UInt(it) => Some(i128::from(it)),
        // Only floats with an exact integer value; NaN fails the comparison.
        Val::Float(it) if it as i64 as f64 == it => Some(i128::from(it as i64)),
        _ => None,
    }
}

fn float(value: Val) -> Option<f64> {
    match value {
        Val::Float(it) => Some(it),
        value => whole(value).map(|it| it as f64),
    }
}

fn two(left: Val, right: Val) -> Option<Two> {
    Some(match (left, right) {
        (Val::Float(_), _) | (_, Val::Float(_)) => Two::Float(float(left)?, float(right)?),
        _ => Two::Whole(whole(left)?, whole(right)?),
    })
}

/// Compares two numbers or booleans; `None` for other values.
pub fn compared(left: Val, right: Val) -> Option<Ordering> {
    match two(left, right)? {
        Two::Whole(left, right) => Some(left.cmp(&right)),
        Two::Float(a, b) => match (whole(left), whole(right)) {
            // Exact if both are integers.
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            // `total_cmp` gives NaN a place, so that sorting is well defined.
            _ => Some(a.partial_cmp(&b).unwrap_or_else(|| a.total_cmp(&b))),
        },
    }
}

/// The result of an operator on two numbers.
pub fn calculated(op: Binary, left: Val, right: Val) -> Result<Val, String> {
    let Some(two) = two(left, right) else {
        let (left, right) = (left.kind(), right.kind());
        return Err(format!("{left} and {right} can't be calculated with"));
    };
    let made = match two {
        Two::Whole(left, right) => of_whole(op, left, right),
        Two::Float(left, right) => of_float(op, left, right).map(Val::Float),
    };
    made.ok_or_else(|| "the result is no number of 64 bits, or it is divided by 0".to_string())
}

fn of_whole(op: Binary, left: i128, right: i128) -> Option<Val> {
    match op {
        Binary::Add => Val::whole(left.checked_add(right)?),
        Binary::Subtract => Val::whole(left.checked_sub(right)?),
        Binary::Multiply => Val::whole(left.checked_mul(right)?),
        Binary::FloorDivide => {
            let (quotient, remainder) = (left.checked_div(right)?, left.checked_rem(right)?);
            // Rounds towards negative infinity, as Python does; Rust rounds towards zero.
            let is_below = remainder != 0 && (remainder < 0) != (right < 0);
            Val::whole(quotient - i128::from(is_below))
        }
        Binary::Remainder => {
            let remainder = left.checked_rem(right)?;
            let is_below = remainder != 0 && (remainder < 0) != (right < 0);
            Val::whole(if is_below {
                remainder + right
            } else {
                remainder
            })
        }
        Binary::Divide if right != 0 => Some(Val::Float(left as f64 / right as f64)),
        _ => None,
    }
}

fn of_float(op: Binary, left: f64, right: f64) -> Option<f64> {
    match op {
        Binary::Add => Some(left + right),
        Binary::Subtract => Some(left - right),
        Binary::Multiply => Some(left * right),
        _ if right == 0.0 => None,
        Binary::Divide => Some(left / right),
        Binary::FloorDivide => Some(floor_divided(left, right).0),
        Binary::Remainder => Some(floor_divided(left, right).1),
        _ => None,
    }
}

/// Quotient and remainder by Python's rules.
fn floor_divided(left: f64, right: f64) -> (f64, f64) {
    let mut remainder = left % right;
    let mut quotient = (left - remainder) / right;
    // Python's divmod on floats: a zero remainder takes the divisor's sign.
    if remainder == 0.0 {
        remainder = 0.0_f64.copysign(right);
    } else if (remainder < 0.0) != (right < 0.0) {
        remainder += right;
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return (0.0_f64.copysign(left / right), remainder);
    }
    let floored = floor(quotient);
    // Corrects a quotient that the subtraction has rounded below an integer.
    let is_more = quotient - floored > 0.5;
    (if is_more { floored + 1.0 } else { floored }, remainder)
}

/// The floor function, which `core` lacks.
fn floor(number: f64) -> f64 {
    /// From here on all floats are integers.
    const WHOLE: f64 = (1_u64 << 52) as f64;
    if number.is_nan() || number.abs() >= WHOLE {
        return number;
    }
    let cut = number as i64 as f64;
    if cut > number { cut - 1.0 } else { cut }
}

pub fn negated(value: Val) -> Result<Val, String> {
    let negated = match value {
        Val::Float(it) => Some(Val::Float(-it)),
        Val::Int(it) => Val::whole(-i128::from(it)),
        Val::UInt(it) => Val::whole(-i128::from(it)),
        _ => None,
    };
    negated.ok_or_else(|| format!("{} can't be negative", value.kind()))
}

/// Rounds a number to this many decimals, by default 0.
pub fn rounded(value: Val, digits: Option<Val>) -> Result<Val, String> {
    let digits = match digits {
        None => 0,
        Some(Val::Int(digits @ 0..=100)) => digits as usize,
        Some(_) => return Err("round() wants a number of digits from 0 to 100".to_string()),
    };
    match value {
        Val::Int(_) | Val::UInt(_) => Ok(value),
        // Formatting rounds the exact decimal value.
        Val::Float(it) => Ok(Val::Float(format!("{it:.digits$}").parse().unwrap_or(it))),
        other => Err(format!("{} can't be rounded", other.kind())),
    }
}

/// Writes an integer.
#[inline]
pub fn write_whole(number: i128, to: &mut Vec<u8>) {
    // 20 digits are enough for u64::MAX.
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs() as u64;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        to.push(b'-');
    }
    to.extend_from_slice(&digits[at..]);
}

/// Writes a finite number as JSON; with an exponent below 1e-5 and from 1e16 on, as the server's serializer does.
pub fn write_json(number: f64, to: &mut String) {
    let size = number.abs();
    if (1e-5..1e-4).contains(&size) {
        // Writing to a string cannot fail.
        let _ = write!(to, "{number}");
        return;
    }
    let start = to.len();
    // `Debug` uses an exponent below 1e-4, and no plus sign.
    let _ = write!(to, "{number:?}");
    if size >= 1e16
        && let Some(at) = to[start..].find('e')
    {
        to.insert(start + at + 1, '+');
    }
}

/// Writes a single value other than text, as minijinja does.
pub fn write_plain(value: Val, to: &mut String) {
    let _ = match value {
        Val::Bool(true) => to.write_str("True"),
        Val::Bool(false) => to.write_str("False"),
        Val::Int(it) => write!(to, "{it}"),
        Val::UInt(it) => write!(to, "{it}"),
        Val::Float(it) if it.is_nan() => to.write_str("NaN"),
        Val::Float(it) if it.is_infinite() => to.write_str(if it < 0.0 { "-inf" } else { "inf" }),
        Val::Float(it) => {
            let before = to.len();
            let written = write!(to, "{it}");
            // minijinja shows whole floats with one decimal.
            if !to[before..].contains('.') {
                to.push_str(".0");
            }
            written
        }
        Val::None => to.write_str("None"),
        _ => Ok(()),
    };
}
