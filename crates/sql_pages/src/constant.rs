//! Prevents SQL injection: the text of a statement must be a literal in the template.
//!
//! `query`, `row` and `execute` may only be called directly, with a literal text as the first argument. So a value can
//! never become part of a statement, only a parameter. A template's tokens are checked when it is loaded, before any of
//! it runs.

use minijinja::machinery::{Span, Token, tokenize};
use minijinja::syntax::SyntaxConfig;

/// The functions that take a statement as their first argument.
const FUNCTIONS: &[&str] = &["query", "row", "execute"];

/// A violation of the rule in a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleBreach {
    /// The line, counted from 1.
    pub line: usize,
    /// The violation, and how to correct it.
    pub reason: String,
}

/// Checks a template's text. Templates with syntax errors pass: the compiler reports them in more detail.
///
/// # Errors
/// The first violation.
pub fn check(template: &str) -> Result<(), RuleBreach> {
    let tokens: Result<Vec<_>, _> = tokenize(template, false, SyntaxConfig::default()).collect();
    // A template with a syntax error never runs; the compiler reports the error.
    let Ok(tokens) = tokens else { return Ok(()) };
    for (index, (token, span)) in tokens.iter().enumerate() {
        let Token::Ident(name) = token else { continue };
        // A member with such a name is not the function.
        let is_member = index > 0 && matches!(tokens[index - 1].0, Token::Dot);
        if FUNCTIONS.contains(name) && !is_member {
            check_call(name, &tokens[index + 1..]).map_err(|reason| RuleBreach {
                line: usize::from(span.start_line),
                reason,
            })?;
        }
    }
    Ok(())
}

fn check_call(name: &str, tokens_after: &[(Token<'_>, Span)]) -> Result<(), String> {
    let mut following = tokens_after.iter().map(|(token, _)| token);
    // Without a call, the function could be assigned to another name.
    if !matches!(following.next(), Some(Token::ParenOpen)) {
        return Err(format!(
            "{name} is a function for statements and can only be called, as in {name}(\"SELECT \
             …\"); rename your variable"
        ));
    }
    let is_text = matches!(following.next(), Some(Token::Str(_) | Token::String(_)));
    // With an operator after the text, the statement would be computed.
    let is_whole = matches!(following.next(), Some(Token::Comma | Token::ParenClose));
    if is_text && is_whole {
        return Ok(());
    }
    Err(format!(
        "the first argument of {name} must be a literal text; put ? in place of a value and pass \
         the value as a further argument: {name}(\"… WHERE id = ?\", id)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_statements_pass() {
        for good in [
            "",
            "{{ query('SELECT 1') }}",
            "{% set r = query(\"SELECT\\n?\", request.query, db='x') %}",
            "{% for r in query('SELECT 1',) %}{{ r.row }}{% endfor %}",
            "query and row and execute in text",
            "{# query(x) #}",
            "{% raw %}{{ query(x) }}{% endraw %}",
            "{{ 'query(x)' }}",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn computed_statements_and_renamed_functions_are_refused() {
        for bad in [
            "{{ query('SELECT ' ~ x) }}",
            "{{ query('SELECT ' + x) }}",
            "{{ query('SELECT {}'|format(x)) }}",
            "{{ query('SELECT %s' % x) }}",
            "{{ query(x) }}",
            "{{ query((x)) }}",
            "{{ query(*x) }}",
            "{{ query(**x) }}",
            "{{ query(x if x else 'SELECT 1') }}",
            "{{ query('SELECT 1' if x else x) }}",
            "{{ query('a' 'b') }}",
            "{{ query('SELECT 1'.replace('1', x)) }}",
            "{{ query('SELECT 1'[x]) }}",
            "{{ query() }}",
            "{% set f = query %}{{ f(x) }}",
            "{% set query = 1 %}",
            "{% import 'x' as row %}",
            "{% macro row(x) %}{% endmacro %}",
            "{% call query(x) %}{% endcall %}",
            "{{ [execute] }}",
            "{{ (query)(x) }}",
            "{% with f = row %}{{ f(x) }}{% endwith %}",
            "{{ x|map(query) }}",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn violation_has_its_line_number() {
        let breach = check("a\nb\n{{ query(x) }}").unwrap_err();
        assert_eq!(breach.line, 3);
    }
}
