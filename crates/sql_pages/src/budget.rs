//! The budget of a page that is being rendered: memory for its values and output, and time. This module is independent
//! of templates and databases; `budget_guards` checks the budget before values grow.
//!
//! Rendering runs on one thread without waiting, so the memory counter of the thread ([`lowroad_handler::memory`])
//! measures the page. The budget is only checked in advance: it does not make allocations fail.

use std::cell::RefCell;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lowroad_handler::memory::allocated_bytes;
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// The assumed memory of a list item, in bytes, with overhead.
const ITEM_LEN: usize = 64;
/// The upper bound for a number as text, in bytes.
const NUMBER_LEN: usize = 48;

/// Time limit for rendering a page without interruption, since a single step of the template engine can take long and
/// occupies a thread that other pages need.
pub const TIME_MAX: Duration = Duration::from_secs(30);

/// The number of checks in a row that do not read the clock.
const UNCLOCKED_MAX: u32 = 15;

/// The number of pages that exceeded their memory limit.
static OVER_MEMORY: AtomicU64 = AtomicU64::new(0);

struct RenderBudget {
    len_max: usize,
    allocated_before: isize,
    deadline: Instant,
    /// The number of checks until the clock is read again.
    checks_until_clock: u32,
    /// A stack of left operands of operators with a right operand that is not evaluated yet.
    left: Vec<Value>,
}

thread_local! {
    static CURRENT: RefCell<Option<RenderBudget>> = const { RefCell::new(None) };
}

/// Runs `render` with a budget of `len_max` bytes and this time.
pub fn with_budget<T>(len_max: usize, time: Duration, render: impl FnOnce() -> T) -> T {
    let budget = RenderBudget {
        len_max,
        allocated_before: allocated_bytes(),
        deadline: Instant::now() + time,
        checks_until_clock: 0,
        left: Vec::new(),
    };
    // Rendering does not wait, so the thread renders no other page until this one is done.
    CURRENT.set(Some(budget));
    let rendered = render();
    CURRENT.set(None);
    rendered
}

/// The bytes that the page on this thread may still use.
fn room() -> usize {
    CURRENT.with_borrow(|current| match current {
        Some(budget) => {
            // If memory from before the page is freed, the difference is negative.
            let used = allocated_bytes()
                .wrapping_sub(budget.allocated_before)
                .max(0)
                .cast_unsigned();
            budget.len_max.saturating_sub(used)
        }
        None => usize::MAX,
    })
}

/// Whether the page on this thread has used up its time.
pub fn is_late() -> bool {
    CURRENT.with_borrow(|it| {
        it.as_ref()
            .is_some_and(|budget| Instant::now() >= budget.deadline)
    })
}

/// Whether this check must read the clock. Checks are frequent, and reading the clock costs more than the rest of a
/// check.
fn is_clock_due() -> bool {
    CURRENT.with_borrow_mut(|current| {
        current.as_mut().is_some_and(|budget| {
            let is_due = budget.checks_until_clock == 0;
            budget.checks_until_clock = if is_due {
                UNCLOCKED_MAX
            } else {
                budget.checks_until_clock - 1
            };
            is_due
        })
    })
}

/// Checks that the page may use `len` more bytes and has time left.
///
/// # Errors
/// The budget is exhausted; the error must be propagated.
pub fn check(len: usize) -> Result<(), Error> {
    // Memory is checked in every call, the time in every 16th.
    if is_clock_due() && is_late() {
        let reason = "the page takes too long to render: let it do less";
        return Err(Error::new(ErrorKind::InvalidOperation, reason));
    }
    let room = room();
    // `len` is mostly small or 0. If the budget is exhausted, calls with such a `len` must fail, too, so that rendering
    // ends.
    if len <= room && room > 0 {
        return Ok(());
    }
    count_over_memory();
    let len_max = CURRENT.with_borrow(|it| it.as_ref().map_or(0, |budget| budget.len_max));
    Err(Error::new(
        ErrorKind::InvalidOperation,
        over_memory_message(len_max),
    ))
}

/// The message for the operator about a page that exceeds its memory limit.
pub fn over_memory_message(len_max: usize) -> String {
    format!(
        "the page takes more memory than {len_max} bytes: reduce its output, or raise memory of the route"
    )
}

/// Counts a page that exceeded its memory limit.
pub fn count_over_memory() {
    OVER_MEMORY.fetch_add(1, Relaxed);
}

/// The number of pages that exceeded their memory limit.
pub fn over_memory() -> u64 {
    OVER_MEMORY.load(Relaxed)
}

/// Pushes the left operand of an operator.
pub fn push(left: &Value) {
    CURRENT.with_borrow_mut(|current| {
        if let Some(budget) = current {
            budget.left.push(left.clone());
        }
    });
}

/// Pops the left operand of the operator with the right operand that has just been evaluated.
pub fn pop() -> Option<Value> {
    CURRENT.with_borrow_mut(|current| current.as_mut()?.left.pop())
}

/// The length of a value as text. Counting stops once it exceeds the remaining budget.
pub fn text_len(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        ValueKind::Undefined | ValueKind::None | ValueKind::Bool | ValueKind::Number => NUMBER_LEN,
        // Other values are formatted only to count their length; the text is not stored.
        _ => written_len(format_args!("{value}"), str::len),
    }
}

/// The length of a value as pretty-printed text, with quotes around strings.
pub fn pretty_len(value: &Value) -> usize {
    written_len(format_args!("{value:#?}"), str::len)
}

/// The upper bound for the length of a value as JSON, compact or pretty-printed.
pub fn json_len(value: &Value, pretty: bool) -> usize {
    match value.as_str() {
        Some(text) => json_text_len(text),
        None if pretty => written_len(format_args!("{value:#?}"), json_text_len),
        None => written_len(format_args!("{value}"), json_text_len),
    }
}

/// The length of a text within JSON; characters such as `<` take six bytes (`\u003c`).
fn json_text_len(text: &str) -> usize {
    let escaped = |byte: &u8| byte.is_ascii_control() || b"<>&'".contains(byte);
    let quoted = |byte: &u8| matches!(byte, b'"' | b'\\');
    let len = |byte: u8| match byte {
        byte if escaped(&byte) => 6,
        byte if quoted(&byte) => 2,
        _ => 1,
    };
    text.bytes().map(len).sum()
}

/// The memory of a list of a value's items; 0 for values without items.
pub fn list_len(value: &Value) -> usize {
    items(value).saturating_mul(ITEM_LEN)
}

/// The number of a value's items. Counting stops once the items exceed the remaining budget.
pub fn items(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => value.len().unwrap_or_else(|| {
            // An iterator without a known length is counted by iterating; the limit ends endless iterators.
            let max = (room() / ITEM_LEN).saturating_add(1);
            value.try_iter().map_or(0, |items| items.take(max).count())
        }),
        _ => 0,
    }
}

/// The total length of all items as text.
pub fn texts_len(value: &Value) -> usize {
    let max = room();
    let mut sum = 0;
    for item in value.try_iter().into_iter().flatten() {
        sum += text_len(&item);
        // The loop stops early, since the length of a hostile list can take long to compute.
        if sum > max {
            break;
        }
    }
    sum
}

/// Sums `len_of` over the written text, until the sum exceeds the remaining budget.
pub fn written_len(text: std::fmt::Arguments<'_>, len_of: fn(&str) -> usize) -> usize {
    struct BudgetCounter {
        len: usize,
        max: usize,
        len_of: fn(&str) -> usize,
    }
    impl Write for BudgetCounter {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.len += (self.len_of)(text);
            match self.len > self.max {
                true => Err(std::fmt::Error),
                false => Ok(()),
            }
        }
    }
    let mut count = BudgetCounter {
        len: 0,
        max: room(),
        len_of,
    };
    // An error only means that the remaining budget was exceeded.
    let _ = count.write_fmt(text);
    count.len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_fails_after_deadline() {
        assert!(with_budget(1, TIME_MAX, || check(0)).is_ok());
        let late = with_budget(1, Duration::ZERO, || check(0)).expect_err("it is late");
        assert!(late.to_string().contains("too long"), "{late}");
    }
}
