//! Checks the budget while a page is rendered: at operators and loops, where `template_budget` has inserted calls; when
//! a value is written; and in the engine's filters, after computing an upper bound for the size of their result.

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, State, filters, functions};

use super::budget::{self, check, items, list_len, pretty_len, text_len, texts_len, written_len};

/// The longest escape sequence of one character.
const ESCAPED_LEN_MAX: usize = 6;

/// Adds the checks to a template environment.
pub fn add_to(environment: &mut Environment<'_>) {
    environment.add_function("_lowroad_step", || check(0).map(|()| Value::from("")));
    environment.add_filter("_lowroad_made", |value: Value| check(0).map(|()| value));
    environment.add_function("debug", |state: &State, args: Rest<Value>| {
        check(debug_len(state, &args))?;
        Ok::<_, Error>(functions::debug(state, args))
    });
    // The left operand is evaluated first, so a stack also fits nested operators.
    environment.add_filter("_lowroad_left", |left: Value| {
        budget::push(&left);
        left
    });
    operator(environment, "_lowroad_add", add_len);
    operator(environment, "_lowroad_concat", |left, right| {
        text_len(left).saturating_add(text_len(right))
    });
    operator(environment, "_lowroad_mul", mul_len);
    texts(environment);
    lists(environment);
}

/// Checks that a value may be written; it is escaped unless marked as safe.
pub fn emit(value: &Value) -> Result<(), Error> {
    check(escaped_len(value))
}

/// Returns an upper bound for the size of an operator's result.
type BinarySizeBound = fn(&Value, &Value) -> usize;
/// Returns an upper bound for the size of a filter's result; the first argument is the filtered value.
type FilterSizeBound = fn(&[Value]) -> usize;

fn operator(environment: &mut Environment<'_>, name: &'static str, len: BinarySizeBound) {
    // The left operand was evaluated before and pushed.
    environment.add_filter(name, move |right: Value| {
        if let Some(left) = budget::pop() {
            check(len(&left, &right))?;
        }
        Ok::<_, Error>(right)
    });
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

fn add_len(left: &Value, right: &Value) -> usize {
    match (left.kind(), right.kind()) {
        (ValueKind::String, ValueKind::String) => text_len(left).saturating_add(text_len(right)),
        // The engine concatenates lists lazily, but when the result is used, all items are copied.
        _ if is_list(left) && is_list(right) => list_len(left).saturating_add(list_len(right)),
        _ => 0,
    }
}

fn mul_len(left: &Value, right: &Value) -> usize {
    let repeated_len = |repeated: &Value, times: &Value| {
        let len = match repeated.kind() {
            ValueKind::String => text_len(repeated),
            _ if is_list(repeated) => list_len(repeated),
            _ => return 0,
        };
        len.saturating_mul(times.as_usize().unwrap_or(0))
    };
    // Either operand can be the number.
    repeated_len(left, right).max(repeated_len(right, left))
}

/// The length of a value when written.
fn escaped_len(value: &Value) -> usize {
    // These are the characters that the engine escapes in HTML.
    let special = |byte: &u8| matches!(byte, b'<' | b'>' | b'&' | b'"' | b'\'' | b'/');
    match value.as_str() {
        Some(text) if !value.is_safe() => {
            // A special byte becomes an escape sequence of up to six bytes.
            text.len() + text.bytes().filter(|byte| special(byte)).count() * (ESCAPED_LEN_MAX - 1)
        }
        _ => text_len(value),
    }
}

/// Registers `$filter` under these names, preceded by a check of the size `$len`.
macro_rules! guard {
    ($environment:ident, $($name:literal)|+ => $filter:path, $len:expr) => {{
        let len: FilterSizeBound = $len;
        $(
            // After the check, the engine's own filter runs with the same arguments.
            let original = Value::from_function($filter);
            let filter = move |state: &mut State, args: Rest<Value>, named: Kwargs| {
                let mut args = args.0;
                // The engine expects named arguments last, as one value.
                if named.args().next().is_some() {
                    args.push(Value::from(named));
                }
                check(len(&args))?;
                original.call(state, &args)
            };
            $environment.add_filter($name, filter);
        )+
    }};
}

/// Filters that return text.
fn texts(environment: &mut Environment<'_>) {
    let first_text: FilterSizeBound = |args| args.first().map_or(0, text_len);
    guard!(environment, "string" => filters::string, first_text);
    guard!(environment, "safe" => filters::safe, first_text);
    guard!(environment, "trim" => filters::trim, first_text);
    // A few letters are longer in the other case, at most by half.
    let twice_text: FilterSizeBound = |args| args.first().map_or(0, text_len).saturating_mul(2);
    guard!(environment, "upper" => filters::upper, twice_text);
    guard!(environment, "lower" => filters::lower, twice_text);
    guard!(environment, "title" => filters::title, twice_text);
    guard!(environment, "capitalize" => filters::capitalize, twice_text);
    guard!(environment, "escape" | "e" => filters::escape, |args| {
        args.first().map_or(0, escaped_len)
    });
    guard!(environment, "urlencode" => filters::urlencode, |args| {
        // A byte becomes at most `%` and two digits.
        args.first().map_or(0, text_len).saturating_mul(3)
    });
    guard!(environment, "pprint" => filters::pprint, |args| {
        args.first().map_or(0, pretty_len)
    });
    guard!(environment, "tojson" => filters::tojson, json_len);
    guard!(environment, "indent" => filters::indent, indented_len);
    guard!(environment, "replace" => filters::replace, replaced_len);
    guard!(environment, "join" => filters::join, joined_len);
    guard!(environment, "format" => filters::format, formatted_len);
}

/// Filters that return lists.
fn lists(environment: &mut Environment<'_>) {
    let first_list: FilterSizeBound = |args| args.first().map_or(0, list_len);
    guard!(environment, "list" => filters::list, first_list);
    guard!(environment, "items" => filters::items, first_list);
    guard!(environment, "dictsort" => filters::dictsort, first_list);
    guard!(environment, "reverse" => filters::reverse, first_list);
    guard!(environment, "unique" => filters::unique, first_list);
    guard!(environment, "select" => filters::select, first_list);
    guard!(environment, "reject" => filters::reject, first_list);
    guard!(environment, "selectattr" => filters::selectattr, first_list);
    guard!(environment, "rejectattr" => filters::rejectattr, first_list);
    guard!(environment, "map" => filters::map, first_list);
    guard!(environment, "min" => filters::min, first_list);
    guard!(environment, "max" => filters::max, first_list);
    // These filters create keys in addition to the items.
    let twice_list: FilterSizeBound = |args| args.first().map_or(0, list_len).saturating_mul(2);
    guard!(environment, "sort" => filters::sort, twice_list);
    guard!(environment, "groupby" => filters::groupby, twice_list);
    let all: FilterSizeBound = |args| args.iter().map(list_len).fold(0, usize::saturating_add);
    guard!(environment, "chain" => filters::chain, all);
    guard!(environment, "zip" => filters::zip, all);
    // These filters can pad lists, or create empty lists.
    let by_number: FilterSizeBound = |args| {
        let padding = number(args).unwrap_or(0).saturating_mul(64);
        args.first()
            .map_or(0, list_len)
            .saturating_mul(2)
            .saturating_add(padding)
    };
    guard!(environment, "batch" => filters::batch, by_number);
    guard!(environment, "slice" => filters::slice, by_number);
    // Each piece is allocated as a separate text.
    guard!(environment, "split" => filters::split, |args| {
        let Some(text) = args.first().and_then(Value::as_str) else { return 0 };
        let pieces = match args.get(1).and_then(Value::as_str) {
            // An empty separator splits at whitespace or characters, so that each byte can become a piece.
            Some(by) if !by.is_empty() => text.matches(by).count(),
            _ => text.len(),
        };
        text.len().saturating_add((pieces + 1).saturating_mul(64))
    });
    guard!(environment, "lines" => filters::lines, |args| {
        let Some(text) = args.first().and_then(Value::as_str) else { return 0 };
        text.len() + (lines(text) + 1) * 64
    });
    // With a text as initial value, `sum` concatenates texts.
    guard!(environment, "sum" => filters::sum, |args| match args.len() {
        0 | 1 => 0,
        _ => args.iter().map(texts_len).fold(0, usize::saturating_add),
    });
}

fn lines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

/// The largest number among a filter's arguments, including named arguments, except the filtered value.
fn number(args: &[Value]) -> Option<usize> {
    let kwargs = args
        .iter()
        .skip(1)
        .filter(|value| value.kind() == ValueKind::Map);
    let named_values = kwargs.flat_map(|kwargs| {
        let names = kwargs.try_iter().into_iter().flatten();
        names
            .filter_map(|name| kwargs.get_item(&name).ok())
            .collect::<Vec<_>>()
    });
    let all = args.iter().skip(1).cloned().chain(named_values);
    all.filter_map(|value| value.as_usize()).max()
}

fn json_len(args: &[Value]) -> usize {
    // The length is computed for the indentation of 4 in `{:#?}`; a wider indentation scales the result.
    let indent = number(args).unwrap_or(0) / 4 + 1;
    let pretty = indent > 1 || args.len() > 1;
    let len = args
        .first()
        .map_or(0, |value| budget::json_len(value, pretty));
    len.saturating_mul(indent)
}

/// The size of the output of `debug`: without arguments it prints all variables of the page.
fn debug_len(state: &State<'_, '_>, args: &[Value]) -> usize {
    match args {
        [] => written_len(format_args!("{state:#?}"), str::len),
        all => all.iter().map(pretty_len).fold(0, usize::saturating_add),
    }
}

fn indented_len(args: &[Value]) -> usize {
    let Some(text) = args.first().and_then(Value::as_str) else {
        return 0;
    };
    let width = number(args).unwrap_or(4);
    // The first line may be indented too, and the text may lack a final line break.
    (lines(text) + 2)
        .saturating_mul(width)
        .saturating_add(text.len())
}

fn replaced_len(args: &[Value]) -> usize {
    let [value, from, to, ..] = args else {
        return 0;
    };
    let (Some(text), Some(from)) = (value.as_str(), from.as_str()) else {
        return 0;
    };
    // An empty text matches before and after every character.
    let found = match from.is_empty() {
        true => text.len() + 1,
        false => text.matches(from).count(),
    };
    escaped_len(value).saturating_add(found.saturating_mul(escaped_len(to)))
}

fn joined_len(args: &[Value]) -> usize {
    let Some(value) = args.first() else { return 0 };
    // Any argument can be the separator.
    let separator_len = args.iter().skip(1).map(text_len).max().unwrap_or(0);
    let separators_len = items(value).saturating_mul(separator_len);
    texts_len(value).saturating_add(separators_len)
}

/// The upper bound for text formatted as by printf(3): widths and precisions are added in full.
fn formatted_len(args: &[Value]) -> usize {
    let Some(text) = args.first().and_then(Value::as_str) else {
        return 0;
    };
    // Each field can display the longest argument.
    let longest = args.iter().skip(1).map(escaped_len).max().unwrap_or(0);
    let mut sum = text.len();
    for field in text.split('%').skip(1) {
        let field = match field.strip_prefix('(') {
            // `%(name)s` refers to a named value; the rest of the specification follows the parenthesis.
            Some(tail) => tail.split_once(')').map_or("", |(_, rest)| rest),
            None => field,
        };
        let end = field.find(|c: char| !c.is_ascii_digit() && !"-+ #.*".contains(c));
        let spec = &field[..end.unwrap_or(field.len())];
        let numbers = spec.split(|c: char| !c.is_ascii_digit());
        for digits in numbers.filter(|digits| !digits.is_empty()) {
            // A number that is too large to parse exceeds any budget.
            sum = sum.saturating_add(digits.parse().unwrap_or(usize::MAX));
        }
        sum = sum.saturating_add(longest);
    }
    sum
}
