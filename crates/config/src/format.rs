//! The canonical form of a configuration file: even spacing, one blank line before a table, simple notation of strings.
//!
//! Comments, and the order of keys and tables, are kept.

use std::fmt;
use toml::de::DeTable;
use toml_edit::{
    Array, DocumentMut, Formatted, InlineTable, Item, KeyMut, RawString, Table, Value,
};

/// The maximum length of a line with an array; longer arrays have a line for each element.
const LINE_LEN_MAX: usize = 100;
/// The indent of the elements of an array.
const INDENT: &str = "    ";

/// A file that can't be formatted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// The text is not TOML: line and column from 1, and the message.
    Syntax(usize, usize, String),
    /// The result would have other values, so it is not used.
    Changed,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatError::Syntax(line, column, message) => write!(f, "{line}:{column}: {message}"),
            FormatError::Changed => f.write_str(
                "the formatted text would have other values, a fault of lowroad; the file is unchanged",
            ),
        }
    }
}

/// The text in its canonical form.
///
/// # Errors
/// The text is not TOML.
pub fn format(text: &str) -> Result<String, FormatError> {
    let before = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let (line, column) = crate::reader::position(text.as_bytes(), offset);
        FormatError::Syntax(line, column, error.message().to_owned())
    })?;
    let document: Result<DocumentMut, _> = text.parse();
    let mut document = document.map_err(|error| FormatError::Syntax(1, 1, error.to_string()))?;
    let trailing = comment_lines(document.trailing().as_str().unwrap_or_default());
    let mut is_first = true;
    format_table(document.as_table_mut(), &mut is_first);
    // Blank lines at the end are dropped.
    document.set_trailing(trailing.trim_end().to_owned());
    let mut formatted = document.to_string().trim_end().to_owned();
    if !formatted.is_empty() {
        formatted.push('\n');
    }
    let is_equal = DeTable::parse(&formatted).is_ok_and(|after| {
        crate::document::table_to_json(after.get_ref())
            == crate::document::table_to_json(before.get_ref())
    });
    match is_equal {
        true => Ok(formatted),
        false => Err(FormatError::Changed),
    }
}

/// Formats the keys of a table, and its subtables. `is_first`: nothing precedes in the file.
fn format_table(table: &mut Table, is_first: &mut bool) {
    for (mut key, item) in table.iter_mut() {
        match item {
            Item::Value(value) => format_pair(&mut key, value, is_first),
            Item::Table(table) => {
                format_key(&mut key);
                if !table.is_dotted() && !table.is_implicit() {
                    format_header(table, is_first);
                }
                format_table(table, is_first);
            }
            Item::ArrayOfTables(tables) => {
                format_key(&mut key);
                for table in tables.iter_mut() {
                    format_header(table, is_first);
                    format_table(table, is_first);
                }
            }
            Item::None => {}
        }
    }
}

fn format_header(table: &mut Table, is_first: &mut bool) {
    let decor = table.decor_mut();
    let prefix = comment_lines(raw(decor.prefix()));
    let blank = if *is_first { "" } else { "\n" };
    decor.set_prefix(format!("{blank}{}", prefix.trim_start_matches('\n')));
    let suffix = line_comment(raw(decor.suffix()));
    decor.set_suffix(suffix);
    *is_first = false;
}

/// Formats a key in a header or in front of a dot.
fn format_key(key: &mut KeyMut<'_>) {
    key.dotted_decor_mut().clear();
    key.leaf_decor_mut().clear();
}

fn format_pair(key: &mut KeyMut<'_>, value: &mut Value, is_first: &mut bool) {
    let prefix = comment_lines(raw(key.leaf_decor().prefix()));
    let prefix = match *is_first {
        true => prefix.trim_start_matches('\n').to_owned(),
        false => prefix,
    };
    let decor = key.leaf_decor_mut();
    decor.set_prefix(prefix);
    decor.set_suffix(" ");
    key.dotted_decor_mut().clear();
    let suffix = line_comment(raw(value.decor().suffix()));
    let room = LINE_LEN_MAX.saturating_sub(key.get().chars().count() + " = ".len());
    format_value(value, room);
    value.decor_mut().set_prefix(" ");
    value.decor_mut().set_suffix(suffix);
    *is_first = false;
}

/// Formats a value; its decor is the caller's. `room` is the length that remains of the line.
fn format_value(value: &mut Value, room: usize) {
    match value {
        Value::String(text) => format_string(text),
        Value::Array(array) => format_array(array, room),
        Value::InlineTable(table) => format_inline_table(table),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => {}
    }
}

/// A literal string becomes a basic one where nothing needs an escape.
fn format_string(text: &mut Formatted<String>) {
    let is_literal = text
        .as_repr()
        .and_then(|repr| repr.as_raw().as_str())
        .is_some_and(|raw| raw.starts_with('\'') && !raw.starts_with("'''"));
    let needs_escape = text
        .value()
        .contains(|it: char| matches!(it, '"' | '\\') || it.is_control());
    if is_literal && !needs_escape {
        // The default notation of such a text is a basic string.
        text.fmt();
    }
}

fn format_array(array: &mut Array, room: usize) {
    let has_comma = array.trailing_comma();
    let has_comment = array_text(array).contains('#') && has_comments(array);
    array
        .iter_mut()
        .for_each(|item| format_value(item, usize::MAX));
    if !has_comment {
        array.fmt();
        let is_short = array_text(array).chars().count() <= room;
        if is_short || array.is_empty() {
            return;
        }
    }
    // Comments behind the last element belong to the end of the array, if there is no comma between them.
    let mut end = array.trailing().as_str().unwrap_or_default().to_owned();
    let last = array.len().checked_sub(1);
    if let Some(last) = last
        .and_then(|last| array.get_mut(last))
        .filter(|_| !has_comma)
    {
        end = format!("{}{end}", raw(last.decor().suffix()));
        last.decor_mut().set_suffix("");
    }
    // Each element has a separate line, after the comments in front of it.
    for item in array.iter_mut() {
        let prefix = element_prefix(raw(item.decor().prefix()));
        item.decor_mut().set_prefix(prefix);
        // A comment in front of the comma moves behind it with the next element, so it stays where it is.
        let suffix = raw(item.decor().suffix()).to_owned();
        if !suffix.contains('#') {
            item.decor_mut().set_suffix("");
        }
    }
    let trailing = element_prefix(&end);
    let trailing = trailing
        .strip_suffix(INDENT)
        .unwrap_or(&trailing)
        .to_owned();
    array.set_trailing(trailing);
    array.set_trailing_comma(true);
}

fn format_inline_table(table: &mut InlineTable) {
    // Comments within inline tables (TOML 1.1) are left alone.
    let text = table.to_string();
    if text.contains('\n') {
        return;
    }
    for (_, value) in table.iter_mut() {
        format_value(value, usize::MAX);
    }
    table.fmt();
}

fn array_text(array: &Array) -> String {
    let mut array = array.clone();
    array.decor_mut().clear();
    array.to_string()
}

fn has_comments(array: &Array) -> bool {
    let in_items = array.iter().any(|item| {
        let decor = item.decor();
        let in_decor = [raw(decor.prefix()), raw(decor.suffix())]
            .iter()
            .any(|text| text.contains('#'));
        in_decor || item.as_array().is_some_and(has_comments)
    });
    in_items
        || array
            .trailing()
            .as_str()
            .is_some_and(|text| text.contains('#'))
}

/// The text in front of an element: a comment on the line before, then comments, then the indent.
fn element_prefix(text: &str) -> String {
    let mut lines = text.split('\n');
    let mut prefix = String::new();
    // The first line is still that of the previous element.
    if let Some(comment) = lines
        .next()
        .map(str::trim)
        .filter(|line| line.starts_with('#'))
    {
        prefix += &format!(" {comment}");
    }
    for line in lines.map(str::trim).filter(|line| !line.is_empty()) {
        prefix += &format!("\n{INDENT}{line}");
    }
    format!("{prefix}\n{INDENT}")
}

/// The comments in front of a key or header, a line each, with at most one blank line between them.
fn comment_lines(text: &str) -> String {
    // The last piece is the indent of the key itself.
    let mut lines: Vec<&str> = text.split('\n').map(str::trim).collect();
    let last = lines.pop().unwrap_or_default();
    let mut out = String::new();
    for line in lines {
        if !line.is_empty() || !out.ends_with("\n\n") && out != "\n" {
            out += line;
            out.push('\n');
        }
    }
    // The last line of the file may have no line feed.
    out += last;
    out
}

/// A comment at the end of a line.
fn line_comment(text: &str) -> String {
    match text.trim() {
        "" => String::new(),
        comment => format!(" {comment}"),
    }
}

fn raw(text: Option<&RawString>) -> &str {
    text.and_then(RawString::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spacing_and_notation_are_even_and_comments_stay() {
        let text = "\n\n# The server.\n\n\n#two\n[server]   # here\n  workers=2# two\n\tuser   =   'www-data'\n\n\n\n# cache\n   'cache' = '1G'\n[[ site ]]\nnames=['a.example','b.example',]\nroot='C:\\x'\nerror_pages={404='/404.html',403=\"/403\"}\ntls . redirect = true\nindex = [ # first\n  \"a\", # second\n  # third\n 'b'\n # end\n]\n# tail\n\n\n";
        let expected = "# The server.\n\n#two\n[server] # here\nworkers = 2 # two\nuser = \"www-data\"\n\n# cache\n'cache' = \"1G\"\n\n[[site]]\nnames = [\"a.example\", \"b.example\"]\nroot = 'C:\\x'\nerror_pages = { 404 = \"/404.html\", 403 = \"/403\" }\ntls.redirect = true\nindex = [ # first\n    \"a\", # second\n    # third\n    \"b\",\n    # end\n]\n# tail\n";
        assert_eq!(format(text).as_deref(), Ok(expected));
        assert_eq!(format(expected).as_deref(), Ok(expected));
    }

    #[test]
    fn long_arrays_have_a_line_for_each_element() {
        let names: Vec<String> = (0..12)
            .map(|number| format!("'host-{number}.example'"))
            .collect();
        let formatted = format(&format!("names = [{}]", names.join(","))).expect("TOML");
        let lines: Vec<&str> = formatted.lines().collect();
        assert_eq!(
            (lines.len(), lines[0], lines[1], lines[13]),
            (14, "names = [", "    \"host-0.example\",", "]")
        );
        assert_eq!(format(&formatted).as_ref(), Ok(&formatted));
    }

    #[test]
    fn odd_texts_keep_their_values() {
        for text in [
            "",
            "# only a comment",
            "\n\n",
            "a = 1",
            "a.b.c = 1\na.b.d = 2\n[x.y]\n[x]\n",
            "a = \"\"\"\n  two\n\n\n  lines\"\"\"\nb = '''\n'x' '''\n",
            "a = [[1, 2], [ # c\n3]]\n[[b]]\n[[b.c]]\n[b.c.d]\n[[b]]\n",
            "a = { b = [ 1,2 ], c = { d = 'x' } }",
            "a = \"\\u00e9\\n\" # é\r\nb = 0x1F\r\n",
            "\"a b\" = 1\n['x.y'.z]\nk = 1979-05-27T07:32:00Z\n",
            "a = [ 'x' # before the comma\n, 'y' ]",
            "a = [\n\n\n# only\n\n]",
        ] {
            let formatted = format(text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert_eq!(format(&formatted).as_ref(), Ok(&formatted), "{text}");
        }
        assert_eq!(
            format("a = \nb"),
            Err(FormatError::Syntax(
                2,
                2,
                "key with no value, expected `=`".into()
            ))
        );
    }
}
