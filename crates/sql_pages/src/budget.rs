//! How much memory a page may take while it is rendered: what it makes, and what comes of it; and how
//! much time. Knows neither templates nor databases; `guards` asks it before anything grows.
//!
//! Rendering runs on one thread and does not wait, so that the thread's own count
//! ([`lowroad_handler::memory`]) is the page's. Asking is all that is done here: nothing is refused that has been
//! taken already.

use std::cell::RefCell;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use lowroad_handler::memory::held;
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Bytes of an item in a list, and of what is around it.
const ITEM_LEN: usize = 64;
/// Bytes of a number as text.
const NUMBER_LEN: usize = 48;

/// How long a page may be rendered at a time. A step of the template engine may take long itself,
/// and holds a thread on which others wait.
pub const TIME_MAX: Duration = Duration::from_secs(30);

/// Questions that are answered without a look at the clock.
const UNCLOCKED_MAX: u32 = 15;

/// Pages that wanted more than they may have.
static OVER_MEMORY: AtomicU64 = AtomicU64::new(0);

struct Budget {
    len_max: usize,
    before: isize,
    until: Instant,
    /// Questions until the clock is looked at again.
    unclocked: u32,
    /// Left operands of operators whose right ones are still to come.
    left: Vec<Value>,
}

thread_local! {
    static CURRENT: RefCell<Option<Budget>> = const { RefCell::new(None) };
}

/// Renders with so many bytes to take, and so much time.
pub fn within<T>(len_max: usize, time: Duration, render: impl FnOnce() -> T) -> T {
    let budget = Budget {
        len_max,
        before: held(),
        until: Instant::now() + time,
        unclocked: 0,
        left: Vec::new(),
    };
    CURRENT.set(Some(budget));
    let rendered = render();
    CURRENT.set(None);
    rendered
}

/// How many more bytes this thread's page may take.
fn room() -> usize {
    CURRENT.with_borrow(|current| match current {
        Some(budget) => {
            let taken = held().wrapping_sub(budget.before).max(0).cast_unsigned();
            budget.len_max.saturating_sub(taken)
        }
        None => usize::MAX,
    })
}

/// Whether the time of this thread's page is over.
pub fn is_late() -> bool {
    CURRENT.with_borrow(|it| {
        it.as_ref()
            .is_some_and(|budget| Instant::now() >= budget.until)
    })
}

/// Looking at the clock costs more than the rest of a question, which comes many times in a millisecond.
fn is_time_to_look() -> bool {
    CURRENT.with_borrow_mut(|current| {
        current.as_mut().is_some_and(|budget| {
            let now = budget.unclocked == 0;
            budget.unclocked = if now {
                UNCLOCKED_MAX
            } else {
                budget.unclocked - 1
            };
            now
        })
    })
}

/// Whether the page may take so many bytes more, and go on.
///
/// # Errors
/// It may not; to be passed on.
pub fn ask(len: usize) -> Result<(), Error> {
    if is_time_to_look() && is_late() {
        let reason = "the page takes too long to render: let it do less";
        return Err(Error::new(ErrorKind::InvalidOperation, reason));
    }
    let room = room();
    // What is made is small mostly, and even a full budget ends somewhere.
    if len <= room && room > 0 {
        return Ok(());
    }
    count();
    let len_max = CURRENT.with_borrow(|it| it.as_ref().map_or(0, |budget| budget.len_max));
    Err(Error::new(ErrorKind::InvalidOperation, reason(len_max)))
}

/// What the operator is told.
pub fn reason(len_max: usize) -> String {
    format!(
        "the page takes more memory than {len_max} bytes: let it make less, or raise memory of the route"
    )
}

/// Counts a page that wanted too much.
pub fn count() {
    OVER_MEMORY.fetch_add(1, Relaxed);
}

/// How many pages wanted too much.
pub fn over_memory() -> u64 {
    OVER_MEMORY.load(Relaxed)
}

/// Remembers the left operand of an operator.
pub fn push(left: &Value) {
    CURRENT.with_borrow_mut(|current| {
        if let Some(budget) = current {
            budget.left.push(left.clone());
        }
    });
}

/// The left operand of the operator whose right operand is there.
pub fn pop() -> Option<Value> {
    CURRENT.with_borrow_mut(|current| current.as_mut()?.left.pop())
}

/// Bytes of a value as text; more than there is room for if it is that long.
pub fn text_len(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        ValueKind::Undefined | ValueKind::None | ValueKind::Bool | ValueKind::Number => NUMBER_LEN,
        _ => written(format_args!("{value}"), str::len),
    }
}

/// Bytes of a value as text over many lines, in quotes where it is text.
pub fn pretty_len(value: &Value) -> usize {
    written(format_args!("{value:#?}"), str::len)
}

/// Bytes of a value as JSON, on a line or over many.
pub fn json_len(value: &Value, pretty: bool) -> usize {
    match value.as_str() {
        Some(text) => json_text_len(text),
        None if pretty => written(format_args!("{value:#?}"), json_text_len),
        None => written(format_args!("{value}"), json_text_len),
    }
}

/// What may be `\u003c` in JSON for pages is six bytes long.
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

/// Bytes of a list with a value's items; 0 for what has none.
pub fn list_len(value: &Value) -> usize {
    items(value).saturating_mul(ITEM_LEN)
}

/// How many items a value has; more than there is room for if there are that many.
pub fn items(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => value.len().unwrap_or_else(|| {
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
        if sum > max {
            break;
        }
    }
    sum
}

/// Counts what would be written, each piece as `len_of` says, until it is too much.
pub fn written(text: std::fmt::Arguments<'_>, len_of: fn(&str) -> usize) -> usize {
    struct Count {
        len: usize,
        max: usize,
        len_of: fn(&str) -> usize,
    }
    impl Write for Count {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.len += (self.len_of)(text);
            match self.len > self.max {
                true => Err(std::fmt::Error),
                false => Ok(()),
            }
        }
    }
    let mut count = Count {
        len: 0,
        max: room(),
        len_of,
    };
    // An error is the end of the room.
    let _ = count.write_fmt(text);
    count.len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_so_much_time() {
        assert!(within(1, TIME_MAX, || ask(0)).is_ok());
        let late = within(1, Duration::ZERO, || ask(0)).expect_err("it is late");
        assert!(late.to_string().contains("too long"), "{late}");
    }
}
