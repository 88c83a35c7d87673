//! Formats of access log lines that operators define: text with variables, or the fields of a JSON object. A format is
//! parsed once, when the configuration is loaded, into a list of parts; [`crate::TextFormatter`] fills it in.
//!
//! Log injection: the parser decides for each variable how its value is escaped, by its place in the format. A value in
//! double quotes can't contain a quote, any other value neither a space nor the character that follows it.

use std::fmt;

use crate::variable::{self, LogVariable, NamedValue, ValueSource};

/// The longest format, in bytes.
pub const FORMAT_LEN_MAX: usize = 4096;
/// The maximum number of named values of a format, besides those with a separate variable.
pub const VALUES_MAX: usize = 32;

/// The escaping of received bytes in a format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EscapeMode {
    /// `\xHH`; a missing value is `-`.
    #[default]
    Hex,
    /// As in a JSON string; a missing value is empty.
    Json,
}

/// The escaping of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueEscape {
    /// In double quotes: `"`, `\` and everything but printable ASCII become `\xHH`.
    Quoted,
    /// Like `Quoted`; also spaces and this character.
    Word(u8),
    /// The content of a JSON string.
    Json,
}

/// A part of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormatPart {
    /// Text of the format.
    Literal(Vec<u8>),
    /// A value.
    Value(LogVariable, ValueEscape),
}

/// A parsed format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextFormat {
    pub(crate) parts: Vec<FormatPart>,
    values: Vec<NamedValue>,
}

/// A mistake in a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// Its offset in the format, in bytes.
    pub offset: usize,
    /// The mistake.
    pub reason: FormatErrorReason,
}

/// The kind of a mistake in a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatErrorReason {
    /// There is no such variable.
    UnknownVariable(String),
    /// A `$` without a name.
    MissingName,
    /// A `${` without `}`.
    OpenBrace,
    /// A `"` without another one.
    OpenQuote,
    /// A variable with text outside of double quotes, in a format with JSON escapes.
    UnquotedText(String),
    /// A variable after a backslash, in a format with JSON escapes: its first character would become an escape.
    Backslash(String),
    /// A control character, such as a line feed.
    ControlCharacter,
    /// The name of a JSON member has other characters than letters, digits and `_.@-`.
    InvalidMember(String),
    /// Two members of a JSON object have the same name.
    RepeatedMember(String),
    /// The format has no variable.
    NoVariable,
    /// The format is longer than [`FORMAT_LEN_MAX`], or has more named values than [`VALUES_MAX`].
    TooLong,
}

impl fmt::Display for FormatErrorReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatErrorReason::UnknownVariable(name) => write!(f, "unknown variable ${name}"),
            FormatErrorReason::MissingName => {
                f.write_str("a $ without the name of a variable; $$ is the character")
            }
            FormatErrorReason::OpenBrace => f.write_str("a ${ without }"),
            FormatErrorReason::OpenQuote => f.write_str("a quote that is not closed"),
            FormatErrorReason::UnquotedText(name) => write!(
                f,
                "${name} is not in double quotes, so a client could write other JSON"
            ),
            FormatErrorReason::Backslash(name) => write!(
                f,
                "a backslash before ${name} is no escape of JSON; two are the character"
            ),
            FormatErrorReason::ControlCharacter => {
                f.write_str("a control character; an entry is one line")
            }
            FormatErrorReason::InvalidMember(name) => {
                write!(f, "{name:?} is not a name of letters, digits and _.@-")
            }
            FormatErrorReason::RepeatedMember(name) => write!(f, "{name} is repeated"),
            FormatErrorReason::NoVariable => f.write_str("a format without variables"),
            FormatErrorReason::TooLong => write!(
                f,
                "more than {FORMAT_LEN_MAX} bytes, or {VALUES_MAX} fields, cookies and arguments"
            ),
        }
    }
}

impl TextFormat {
    /// Parses text with variables: `$name` or `${name}`; `$$` is a dollar sign.
    ///
    /// # Errors
    /// The first mistake.
    pub fn parse(text: &str, mode: EscapeMode) -> Result<TextFormat, FormatError> {
        let mut parser = FormatParser::new(mode);
        if text.len() > FORMAT_LEN_MAX {
            return Err(error(0, FormatErrorReason::TooLong));
        }
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            at += parser.step(rest, at)?;
        }
        match parser.quote_at {
            Some(offset) => Err(error(offset, FormatErrorReason::OpenQuote)),
            None => parser.finish(),
        }
    }

    /// Creates the format of a JSON object from the names of its variables. A name may follow another name for the
    /// member, and `=`: `client=remote_addr`. The offset of an error is the index of the name.
    ///
    /// # Errors
    /// The first mistake.
    pub fn json<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<TextFormat, FormatError> {
        let mut parser = FormatParser::new(EscapeMode::Json);
        let mut members = Vec::new();
        for (index, name) in names.into_iter().enumerate() {
            let (member, variable) = name.split_once('=').unwrap_or((name, name));
            let member = member.strip_prefix('$').unwrap_or(member);
            let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.@-".contains(c);
            if member.is_empty() || !member.chars().all(is_allowed) {
                let reason = FormatErrorReason::InvalidMember(member.to_owned());
                return Err(error(index, reason));
            }
            // Parsers of JSON treat repeated names differently (RFC 8259 §4).
            if members.contains(&member) {
                let reason = FormatErrorReason::RepeatedMember(member.to_owned());
                return Err(error(index, reason));
            }
            members.push(member);
            let variable = variable.strip_prefix('$').unwrap_or(variable);
            let found = parser.find(variable, index)?;
            let quote = if found.is_number() { "" } else { "\"" };
            let start = if index == 0 { '{' } else { ',' };
            parser.literal(&format!("{start}\"{member}\":{quote}"));
            parser
                .parts
                .push(FormatPart::Value(found, ValueEscape::Json));
            parser.literal(quote);
        }
        parser.literal("}");
        parser.finish()
    }

    /// The named values of the format.
    pub fn values(&self) -> &[NamedValue] {
        &self.values
    }

    /// Whether the format contains durations or fractions of a second.
    pub fn is_precise(&self) -> bool {
        self.variables().any(LogVariable::is_precise)
    }

    /// Whether the format contains the site or the route.
    pub fn has_scope(&self) -> bool {
        self.variables()
            .any(|variable| matches!(variable, LogVariable::Site | LogVariable::Route))
    }

    /// Whether the format contains the identifier of the request.
    pub fn has_request_id(&self) -> bool {
        self.variables()
            .any(|variable| variable == LogVariable::RequestId)
    }

    /// Whether the format contains identifiers of the trace.
    pub fn has_trace(&self) -> bool {
        self.variables().any(LogVariable::is_trace)
    }

    /// Whether the format contains properties of attempts at upstream servers.
    pub fn has_upstream(&self) -> bool {
        self.variables().any(LogVariable::is_upstream)
    }

    /// Whether the format contains properties of the TLS session, besides its version.
    pub fn has_tls(&self) -> bool {
        self.variables().any(LogVariable::is_tls)
    }

    /// Whether the format contains fields of the response, or the length of its head.
    pub fn has_sent_head(&self) -> bool {
        let is_sent = |value: &NamedValue| value.source == ValueSource::ResponseField;
        self.values.iter().any(is_sent) || self.variables().any(|it| it == LogVariable::BytesSent)
    }

    fn variables(&self) -> impl Iterator<Item = LogVariable> {
        self.parts.iter().filter_map(|part| match part {
            FormatPart::Value(variable, _) => Some(*variable),
            FormatPart::Literal(_) => None,
        })
    }
}

/// The state of the parser.
struct FormatParser {
    mode: EscapeMode,
    parts: Vec<FormatPart>,
    values: Vec<NamedValue>,
    /// The offset of the opening quote, within quotes.
    quote_at: Option<usize>,
    /// The previous character was a `\` of the format, so that a quote does not end the text in quotes.
    is_escaped: bool,
}

impl FormatParser {
    fn new(mode: EscapeMode) -> FormatParser {
        FormatParser {
            mode,
            parts: Vec::new(),
            values: Vec::new(),
            quote_at: None,
            is_escaped: false,
        }
    }

    /// Reads a variable or a character at the start of `rest`, which has this offset. Returns its length.
    fn step(&mut self, rest: &str, offset: usize) -> Result<usize, FormatError> {
        let Some(after) = rest.strip_prefix('$') else {
            return self.character(rest, offset);
        };
        let is_after_backslash = std::mem::take(&mut self.is_escaped);
        if after.starts_with('$') {
            self.literal("$");
            return Ok(2);
        }
        let (name, len) = match after.strip_prefix('{') {
            Some(inner) => {
                let end = inner.find('}');
                let end = end.ok_or(error(offset, FormatErrorReason::OpenBrace))?;
                (&inner[..end], end + 3)
            }
            None => {
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
                (&after[..end], end + 1)
            }
        };
        if name.is_empty() {
            return Err(error(offset, FormatErrorReason::MissingName));
        }
        let variable = self.find(name, offset)?;
        if is_after_backslash && self.mode == EscapeMode::Json {
            return Err(error(offset, FormatErrorReason::Backslash(name.to_owned())));
        }
        let escape = match (self.mode, self.quote_at) {
            (EscapeMode::Json, None) if !variable.is_number() => {
                let reason = FormatErrorReason::UnquotedText(name.to_owned());
                return Err(error(offset, reason));
            }
            (EscapeMode::Json, _) => ValueEscape::Json,
            (EscapeMode::Hex, Some(_)) => ValueEscape::Quoted,
            (EscapeMode::Hex, None) => ValueEscape::Word(delimiter(&rest[len..])),
        };
        self.parts.push(FormatPart::Value(variable, escape));
        Ok(len)
    }

    fn character(&mut self, rest: &str, offset: usize) -> Result<usize, FormatError> {
        let Some(c) = rest.chars().next() else {
            return Ok(rest.len());
        };
        // A tab is a usual separator; it can't occur in a value.
        if c.is_control() && c != '\t' {
            return Err(error(offset, FormatErrorReason::ControlCharacter));
        }
        if c == '"' && !self.is_escaped {
            self.quote_at = match self.quote_at {
                None => Some(offset),
                Some(_) => None,
            };
        }
        self.is_escaped = c == '\\' && !self.is_escaped;
        self.literal(&rest[..c.len_utf8()]);
        Ok(c.len_utf8())
    }

    fn literal(&mut self, text: &str) {
        match self.parts.last_mut() {
            Some(FormatPart::Literal(literal)) => literal.extend_from_slice(text.as_bytes()),
            _ => self.parts.push(FormatPart::Literal(text.into())),
        }
    }

    /// Finds a variable. A named value gets an index.
    fn find(&mut self, name: &str, offset: usize) -> Result<LogVariable, FormatError> {
        if let Some((_, found)) = variable::NAMES.iter().find(|(known, _)| *known == name) {
            return Ok(*found);
        }
        let Some(value) = variable::named_value(name) else {
            let reason = FormatErrorReason::UnknownVariable(name.to_owned());
            return Err(error(offset, reason));
        };
        let known = self.values.iter().position(|known| *known == value);
        let index = known.unwrap_or(self.values.len());
        if index == VALUES_MAX {
            return Err(error(offset, FormatErrorReason::TooLong));
        }
        if known.is_none() {
            self.values.push(value);
        }
        Ok(LogVariable::Named(index))
    }

    fn finish(self) -> Result<TextFormat, FormatError> {
        let format = TextFormat {
            parts: self.parts,
            values: self.values,
        };
        let has_variable = format.variables().next().is_some();
        has_variable
            .then_some(format)
            .ok_or(error(0, FormatErrorReason::NoVariable))
    }
}

/// The character that ends a value outside of quotes: the one that follows it, if that is a punctuation character.
fn delimiter(rest: &str) -> u8 {
    match rest.as_bytes() {
        // A dollar sign of the text, and no variable.
        [b'$', b'$', ..] => b'$',
        [first, ..] if first.is_ascii_punctuation() && *first != b'$' => *first,
        _ => b' ',
    }
}

fn error(offset: usize, reason: FormatErrorReason) -> FormatError {
    FormatError { offset, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(text: &str, mode: EscapeMode) -> (usize, FormatErrorReason) {
        let error = TextFormat::parse(text, mode).expect_err(text);
        (error.offset, error.reason)
    }

    #[test]
    fn variables_are_escaped_by_their_place() {
        let text = r#"$$${host}|"$request \"$uri" $status$args$uri$$"#;
        let format = TextFormat::parse(text, EscapeMode::Hex).expect("a format");
        let literal = |text: &str| FormatPart::Literal(text.into());
        let word = |variable, delimiter| FormatPart::Value(variable, ValueEscape::Word(delimiter));
        let quoted = |variable| FormatPart::Value(variable, ValueEscape::Quoted);
        let expected = [
            literal("$"),
            word(LogVariable::Host, b'|'),
            literal("|\""),
            quoted(LogVariable::Request),
            literal(" \\\""),
            quoted(LogVariable::Uri),
            literal("\" "),
            word(LogVariable::Status, b' '),
            word(LogVariable::Args, b' '),
            word(LogVariable::Uri, b'$'),
            literal("$"),
        ];
        assert_eq!(format.parts, expected);
    }

    #[test]
    fn mistakes_are_found_with_their_offset() {
        use FormatErrorReason as Reason;
        for (text, offset, expected) in [
            ("$a", 0, Reason::UnknownVariable("a".into())),
            ("$status $http_", 8, Reason::UnknownVariable("http_".into())),
            ("ü $ x", 3, Reason::MissingName),
            ("$status${}", 7, Reason::MissingName),
            ("${status", 0, Reason::OpenBrace),
            ("$status \"$host", 8, Reason::OpenQuote),
            ("$status\n", 7, Reason::ControlCharacter),
            ("status", 0, Reason::NoVariable),
        ] {
            assert_eq!(reason(text, EscapeMode::Hex), (offset, expected), "{text}");
        }
        let unquoted = Reason::UnquotedText("host".into());
        assert_eq!(
            reason("{\"s\":$status,\"h\":$host}", EscapeMode::Json),
            (17, unquoted)
        );
        let backslash = Reason::Backslash("args".into());
        assert_eq!(
            reason(r#""a\$args""#, EscapeMode::Json),
            (3, backslash.clone())
        );
        assert_eq!(reason(r#""\\\${args}""#, EscapeMode::Json), (4, backslash));
        let even = TextFormat::parse(r#""\\$args \"$uri""#, EscapeMode::Json);
        assert!(even.is_ok(), "{even:?}");
        let long = "$http_a".repeat(FORMAT_LEN_MAX);
        assert_eq!(reason(&long, EscapeMode::Hex), (0, Reason::TooLong));
    }

    #[test]
    fn named_values_are_counted_once_and_bounded() {
        let text = "$http_a $arg_a $http_b $http_a $http_host";
        let format = TextFormat::parse(text, EscapeMode::Hex).expect("a format");
        let names = format.values().iter().map(|value| &value.name[..]);
        assert_eq!(names.collect::<Vec<_>>(), ["a", "a", "b"]);
        let many: String = (0..=VALUES_MAX)
            .map(|number| format!("$http_x{number} "))
            .collect();
        let (_, reason) = reason(&many, EscapeMode::Hex);
        assert_eq!(reason, FormatErrorReason::TooLong);
    }

    #[test]
    fn json_members_are_checked() {
        use FormatErrorReason as Reason;
        for (names, offset, expected) in [
            (
                &["status", "a\"b=uri"][..],
                1,
                Reason::InvalidMember("a\"b".into()),
            ),
            (
                &["uri", "uri=args"],
                1,
                Reason::RepeatedMember("uri".into()),
            ),
            (&["u=urj"], 0, Reason::UnknownVariable("urj".into())),
            (&[], 0, Reason::NoVariable),
        ] {
            let error = TextFormat::json(names.iter().copied()).expect_err("a mistake");
            assert_eq!((error.offset, error.reason), (offset, expected));
        }
    }
}
