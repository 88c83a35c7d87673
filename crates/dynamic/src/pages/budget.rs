//! How much memory a page may take while it is rendered: what it makes, and what comes of it. Knows
//! neither templates nor databases; `guards` asks it before anything grows.
//!
//! Rendering runs on one thread and does not wait, so that the thread's own count
//! ([`crate::memory`]) is the page's. Asking is all that is done here: nothing is refused that has been
//! taken already.

use std::cell::RefCell;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

use crate::memory::held;

/// Bytes of an item in a list, and of what is around it.
const ITEM_LEN: usize = 64;
/// Bytes of a number as text.
const NUMBER_LEN: usize = 48;

/// Pages that wanted more than they may have.
static OVER_MEMORY: AtomicU64 = AtomicU64::new(0);

struct Budget {
    len_max: usize,
    before: isize,
    /// Left operands of operators whose right ones are still to come.
    left: Vec<Value>,
}

thread_local! {
    static CURRENT: RefCell<Option<Budget>> = const { RefCell::new(None) };
}

/// Renders with so many bytes to take.
pub fn within<T>(len_max: usize, render: impl FnOnce() -> T) -> T {
    let budget = Budget {
        len_max,
        before: held(),
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

/// Whether the page may take so many bytes more.
///
/// # Errors
/// It may not; to be passed on.
pub fn ask(len: usize) -> Result<(), Error> {
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
        ValueKind::Bytes => value.as_bytes().map_or(0, <[u8]>::len),
        ValueKind::Undefined | ValueKind::None | ValueKind::Bool | ValueKind::Number => NUMBER_LEN,
        _ => written(format_args!("{value}")),
    }
}

/// Bytes of a value as text over many lines.
pub fn pretty_len(value: &Value) -> usize {
    match value.kind() {
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::Plain => {
            written(format_args!("{value:#?}"))
        }
        _ => text_len(value),
    }
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

/// Counts what would be written, until it is too much.
fn written(text: std::fmt::Arguments<'_>) -> usize {
    struct Count {
        len: usize,
        max: usize,
    }
    impl Write for Count {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.len += text.len();
            match self.len > self.max {
                true => Err(std::fmt::Error),
                false => Ok(()),
            }
        }
    }
    let mut count = Count {
        len: 0,
        max: room(),
    };
    // An error is the end of the room.
    let _ = count.write_fmt(text);
    count.len
}
