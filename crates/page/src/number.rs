//! Arithmetic, comparison and formatting of numbers, by minijinja's rules, except that integers have 64 bits instead of
//! 128.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt::Write;

use crate::opcode::BinaryOp;
use crate::value::MachineValue;

/// Two numbers of one type.
enum NumberPair {
    Whole(i128, i128),
    Float(f64, f64),
}

fn to_integer(value: MachineValue) -> Option<i128> {
    match value {
        MachineValue::Bool(number) => Some(i128::from(number)),
        MachineValue::Int(number) => Some(i128::from(number)),
        MachineValue::UInt(number) => Some(i128::from(number)),
        // Only a float with a value that is exactly an integer is converted; the comparison is false for NaN.
        MachineValue::Float(number) if number as i64 as f64 == number => {
            Some(i128::from(number as i64))
        }
        _ => None,
    }
}

fn float(value: MachineValue) -> Option<f64> {
    match value {
        MachineValue::Float(number) => Some(number),
        value => to_integer(value).map(|number| number as f64),
    }
}

fn number_pair(left: MachineValue, right: MachineValue) -> Option<NumberPair> {
    Some(match (left, right) {
        (MachineValue::Float(_), _) | (_, MachineValue::Float(_)) => {
            NumberPair::Float(float(left)?, float(right)?)
        }
        _ => NumberPair::Whole(to_integer(left)?, to_integer(right)?),
    })
}

/// Compares two numbers or booleans; `None` for other values.
pub fn compare(left: MachineValue, right: MachineValue) -> Option<Ordering> {
    match number_pair(left, right)? {
        NumberPair::Whole(left, right) => Some(left.cmp(&right)),
        NumberPair::Float(a, b) => match (to_integer(left), to_integer(right)) {
            // The comparison is exact if both are integers.
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            // `total_cmp` defines an order for NaN, so that sorting is well defined.
            _ => Some(a.partial_cmp(&b).unwrap_or_else(|| a.total_cmp(&b))),
        },
    }
}

/// The result of an operator on two numbers.
pub fn calculate(
    op: BinaryOp,
    left: MachineValue,
    right: MachineValue,
) -> Result<MachineValue, String> {
    let Some(pair) = number_pair(left, right) else {
        let (left, right) = (left.kind(), right.kind());
        return Err(format!("can't calculate with {left} and {right}"));
    };
    let result = match pair {
        NumberPair::Whole(left, right) => apply_whole(op, left, right),
        NumberPair::Float(left, right) => apply_float(op, left, right).map(MachineValue::Float),
    };
    result.ok_or_else(|| "the result exceeds 64 bits, or is a division by 0".to_string())
}

fn apply_whole(op: BinaryOp, left: i128, right: i128) -> Option<MachineValue> {
    match op {
        BinaryOp::Add => MachineValue::from_integer(left.checked_add(right)?),
        BinaryOp::Subtract => MachineValue::from_integer(left.checked_sub(right)?),
        BinaryOp::Multiply => MachineValue::from_integer(left.checked_mul(right)?),
        BinaryOp::FloorDivide => {
            let (quotient, remainder) = (left.checked_div(right)?, left.checked_rem(right)?);
            // The quotient is rounded towards negative infinity, as in Python; Rust rounds towards zero.
            let is_below = remainder != 0 && (remainder < 0) != (right < 0);
            MachineValue::from_integer(quotient - i128::from(is_below))
        }
        BinaryOp::Remainder => {
            let remainder = left.checked_rem(right)?;
            let is_below = remainder != 0 && (remainder < 0) != (right < 0);
            MachineValue::from_integer(if is_below {
                remainder + right
            } else {
                remainder
            })
        }
        BinaryOp::Divide if right != 0 => Some(MachineValue::Float(left as f64 / right as f64)),
        _ => None,
    }
}

fn apply_float(op: BinaryOp, left: f64, right: f64) -> Option<f64> {
    match op {
        BinaryOp::Add => Some(left + right),
        BinaryOp::Subtract => Some(left - right),
        BinaryOp::Multiply => Some(left * right),
        _ if right == 0.0 => None,
        BinaryOp::Divide => Some(left / right),
        BinaryOp::FloorDivide => Some(floor_divided(left, right).0),
        BinaryOp::Remainder => Some(floor_divided(left, right).1),
        _ => None,
    }
}

/// Quotient and remainder by Python's rules.
fn floor_divided(left: f64, right: f64) -> (f64, f64) {
    let mut remainder = left % right;
    let mut quotient = (left - remainder) / right;
    // As in Python's divmod on floats, a zero remainder has the sign of the divisor.
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
    // The subtraction may have rounded the quotient to a value just below an integer.
    let needs_increment = quotient - floored > 0.5;
    (
        if needs_increment {
            floored + 1.0
        } else {
            floored
        },
        remainder,
    )
}

/// The floor function, which `core` lacks.
fn floor(number: f64) -> f64 {
    /// All floats from this value on are integers.
    const WHOLE: f64 = (1_u64 << 52) as f64;
    if number.is_nan() || number.abs() >= WHOLE {
        return number;
    }
    let truncated = number as i64 as f64;
    if truncated > number {
        truncated - 1.0
    } else {
        truncated
    }
}

pub fn negated(value: MachineValue) -> Result<MachineValue, String> {
    let negated = match value {
        MachineValue::Float(number) => Some(MachineValue::Float(-number)),
        MachineValue::Int(number) => MachineValue::from_integer(-i128::from(number)),
        MachineValue::UInt(number) => MachineValue::from_integer(-i128::from(number)),
        _ => None,
    };
    negated.ok_or_else(|| format!("can't negate {}", value.kind()))
}

/// Rounds a number to `digits` decimals, 0 by default.
pub fn rounded(value: MachineValue, digits: Option<MachineValue>) -> Result<MachineValue, String> {
    let digits = match digits {
        None => 0,
        Some(MachineValue::Int(digits @ 0..=100)) => digits as usize,
        Some(_) => return Err("round() takes a number of digits from 0 to 100".to_string()),
    };
    match value {
        MachineValue::Int(_) | MachineValue::UInt(_) => Ok(value),
        // Formatting is used because it rounds the exact decimal value.
        MachineValue::Float(number) => Ok(MachineValue::Float(
            format!("{number:.digits$}").parse().unwrap_or(number),
        )),
        other => Err(format!("can't round {}", other.kind())),
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

/// Writes a finite number as JSON. As in the server's serializer, numbers below 1e-5 and from 1e16 on have an exponent.
pub fn write_json(number: f64, to: &mut String) {
    let size = number.abs();
    if (1e-5..1e-4).contains(&size) {
        // Writing to a string cannot fail.
        let _ = write!(to, "{number}");
        return;
    }
    let start = to.len();
    // `Debug` uses an exponent for numbers below 1e-4, and no plus sign.
    let _ = write!(to, "{number:?}");
    if size >= 1e16
        && let Some(at) = to[start..].find('e')
    {
        to.insert(start + at + 1, '+');
    }
}

/// Writes a value other than text or a container, as minijinja does.
pub fn write_plain(value: MachineValue, to: &mut String) {
    let _ = match value {
        MachineValue::Bool(true) => to.write_str("True"),
        MachineValue::Bool(false) => to.write_str("False"),
        MachineValue::Int(number) => write!(to, "{number}"),
        MachineValue::UInt(number) => write!(to, "{number}"),
        MachineValue::Float(number) if number.is_nan() => to.write_str("NaN"),
        MachineValue::Float(number) if number.is_infinite() => {
            to.write_str(if number < 0.0 { "-inf" } else { "inf" })
        }
        MachineValue::Float(number) => {
            let start = to.len();
            let written = write!(to, "{number}");
            // minijinja writes floats with an integer value with one decimal.
            if !to[start..].contains('.') {
                to.push_str(".0");
            }
            written
        }
        MachineValue::None => to.write_str("None"),
        _ => Ok(()),
    };
}
