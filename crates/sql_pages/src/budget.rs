//! The budget of a page while it is rendered: memory for its values and output, and time. Independent of templates and
//! databases; `budget_guards` checks it before values grow.
//!
//! Rendering runs on one thread without waiting, so the thread's memory counter ([`lowroad_handler::memory`]) is the
//! page's. The budget is only checked beforehand: allocations that have happened are not refused.

use std::cell::RefCell;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lowroad_handler::memory::allocated_bytes;
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Bytes of a list item and its overhead.
const ITEM_LEN: usize = 64;
/// Bytes of a number as text.
const NUMBER_LEN: usize = 48;

/// How long a page may be rendered at a time. A step of the template engine can take long, and occupies a thread that
/// other pages wait for.
pub const TIME_MAX: Duration = Duration::from_secs(30);

/// Checks that skip the clock.
const UNCLOCKED_MAX: u32 = 15;

/// Pages that exceeded their memory.
static OVER_MEMORY: AtomicU64 = AtomicU64::new(0);

struct RenderBudget {
    len_max: usize,
    held_before: isize,
    deadline: Instant,
    /// Checks until the next look at the clock.
    checks_until_clock: u32,
    /// Left operands of operators with their right operand still to come.
    left: Vec<Value>,
}

thread_local! {
    static CURRENT: RefCell<Option<RenderBudget>> = const { RefCell::new(None) };
}

/// Runs `render` with this budget of bytes and time.
pub fn with_budget<T>(len_max: usize, time: Duration, render: impl FnOnce() -> T) -> T {
    let budget = RenderBudget {
        len_max,
        held_before: allocated_bytes(),
        deadline: Instant::now() + time,
        checks_until_clock: 0,
        left: Vec::new(),
    };
    // Rendering does not wait, so the thread serves one page until it is done.
    CURRENT.set(Some(budget));
    let rendered = render();
    CURRENT.set(None);
    rendered
}

/// The bytes left to this thread's page.
fn room() -> usize {
    CURRENT.with_borrow(|current| match current {
        Some(budget) => {
            // Freeing memory from before the page makes the difference negative.
            let used = allocated_bytes()
                .wrapping_sub(budget.held_before)
                .max(0)
                .cast_unsigned();
            budget.len_max.saturating_sub(used)
        }
        None => usize::MAX,
    })
}

/// Whether this thread's page has used up its time.
pub fn is_late() -> bool {
    CURRENT.with_borrow(|it| {
        it.as_ref()
            .is_some_and(|budget| Instant::now() >= budget.deadline)
    })
}

/// Whether to look at the clock now. Reading it costs more than the rest of a check, and checks are frequent.
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

/// Checks that the page may use this many more bytes, and has time left.
///
/// # Errors
/// It may not; the error is to be propagated.
pub fn check(len: usize) -> Result<(), Error> {
    // Memory is checked at each call, the time at every 16th.
    if is_clock_due() && is_late() {
        let reason = "the page takes too long to render: let it do less";
        return Err(Error::new(ErrorKind::InvalidOperation, reason));
    }
    let room = room();
    // Most values are small or 0 bytes long. An exhausted budget must refuse those too, so that rendering ends.
    if len <= room && room > 0 {
        return Ok(());
    }
    count();
    let len_max = CURRENT.with_borrow(|it| it.as_ref().map_or(0, |budget| budget.len_max));
    Err(Error::new(ErrorKind::InvalidOperation, reason(len_max)))
}

/// The operator's message for a page that exceeds its memory.
pub fn reason(len_max: usize) -> String {
    format!(
        "the page takes more memory than {len_max} bytes: reduce its output, or raise memory of the route"
    )
}

/// Counts a page that exceeded its memory.
pub fn count() {
    OVER_MEMORY.fetch_add(1, Relaxed);
}

/// The number of pages that exceeded their memory.
pub fn over_memory() -> u64 {
    OVER_MEMORY.load(Relaxed)
}

/// Stores the left operand of an operator.
pub fn push(left: &Value) {
    CURRENT.with_borrow_mut(|current| {
        if let Some(budget) = current {
            budget.left.push(left.clone());
        }
    });
}

/// Takes the left operand of the operator with the right operand now evaluated.
pub fn pop() -> Option<Value> {
    CURRENT.with_borrow_mut(|current| current.as_mut()?.left.pop())
}

/// Bytes of a value as text. The count stops beyond the room left.
pub fn text_len(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        ValueKind::Undefined | ValueKind::None | ValueKind::Bool | ValueKind::Number => NUMBER_LEN,
        // Other values are formatted without storing the text, only to count it.
        _ => written_len(format_args!("{value}"), str::len),
    }
}

/// Bytes of a value as pretty-printed text, with quotes around strings.
pub fn pretty_len(value: &Value) -> usize {
    written_len(format_args!("{value:#?}"), str::len)
}

/// Bytes of a value as JSON, compact or pretty-printed.
pub fn json_len(value: &Value, pretty: bool) -> usize {
    match value.as_str() {
        Some(text) => json_text_len(text),
        None if pretty => written_len(format_args!("{value:#?}"), json_text_len),
        None => written_len(format_args!("{value}"), json_text_len),
    }
}

/// Bytes of a text as JSON; characters like `<` take six bytes, as `\u003c`.
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

/// Bytes of a list of a value's items; 0 for values without items.
pub fn list_len(value: &Value) -> usize {
    items(value).saturating_mul(ITEM_LEN)
}

/// The number of a value's items. The count stops beyond the room left.
pub fn items(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        // Iterators without a known length are counted up to the room left.
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => value.len().unwrap_or_else(|| {
            // Items of an iterator without a length are counted by iterating, which must end for an endless one.
            let max = (room() / ITEM_LEN).saturating_add(1);
            value.try_iter().map_or(0, |items| items.take(max).count())
        }),
        _ => 0,
    }
}

/// Bytes of all items as text.
pub fn texts_len(value: &Value) -> usize {
    let max = room();
    let mut sum = 0;
    for item in value.try_iter().into_iter().flatten() {
        sum += text_len(&item);
        // Stops early: the sum of a hostile list may take long to compute.
        if sum > max {
            break;
        }
    }
    sum
}

/// Counts the length of written text by `len_of`, until it exceeds the room left.
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
    // An error only means that the room is used up.
    let _ = count.write_fmt(text);
    count.len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_so_much_time() {
        assert!(with_budget(1, TIME_MAX, || check(0)).is_ok());
        let late = with_budget(1, Duration::ZERO, || check(0)).expect_err("it is late");
        assert!(late.to_string().contains("too long"), "{late}");
    }
}
