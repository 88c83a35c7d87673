//! The functions that templates may call in addition to those of the template engine.

use std::borrow::Cow;

use lowroad_http::status::StatusCode;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, filters};

use super::csrf;
use super::database::{CallMode, DatabaseCall, DatabaseFault, ResultShape};
use super::render_attempt::{self, RenderAttempt, RenderStop};
use super::reply::SetCookie;
use super::statement::{self, SqlDialect};
use super::value::SqlParam;

/// The maximum number of database calls per page.
pub const CALLS_MAX: usize = 100;

/// The maximum number of values in a statement with lists; equal to the maximum number of query parameters in a
/// request.
const LIST_VALUES_MAX: usize = 1_000;

/// Adds the functions to a template environment.
pub fn add_to(environment: &mut Environment<'_>) {
    environment.add_function("query", |args: Rest<Value>, kwargs: Kwargs| {
        call("query", ResultShape::Rows, &args, &kwargs)
    });
    environment.add_function("row", |args: Rest<Value>, kwargs: Kwargs| {
        call("row", ResultShape::Row, &args, &kwargs)
    });
    environment.add_function("execute", |args: Rest<Value>, kwargs: Kwargs| {
        call("execute", ResultShape::Done, &args, &kwargs)
    });
    environment.add_function("status", status);
    environment.add_function("header", header);
    environment.add_function("redirect", redirect);
    environment.add_function("cookie", cookie);
    environment.add_function("cache", cache);
    environment.add_function("csrf_token", csrf_token);
    environment.add_function("csrf_field", csrf_field);
    environment.add_filter("int", int);
    environment.add_filter("float", float);
}

/// The engine's `int`. An invalid number usually comes from the client, so the status is 400 and not 500.
fn int(
    state: &State,
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let number = filters::int(state, value, default, base, kwargs);
    number.map_err(|error| conversion_error(value, "integer", error))
}

/// The engine's `float`; an invalid number is also answered with 400.
fn float(
    state: &State,
    value: &Value,
    default: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let number = filters::float(state, value, default, kwargs);
    number.map_err(|error| conversion_error(value, "number", error))
}

// Converts an error of the engine's `int` or `float` to 400. Errors of the template itself, such as an unknown
// argument, are returned unchanged.
fn conversion_error(value: &Value, expected: &str, error: Error) -> Error {
    // Values other than text come from the page or the database, so the client did not cause the error.
    if value.kind() != ValueKind::String || error.kind() != ErrorKind::InvalidOperation {
        return error;
    }
    let reason = format!("a text was given, which is not a valid {expected}");
    let result = render_attempt::with(|attempt| {
        attempt.stop = Some(RenderStop::Fault(DatabaseFault {
            status: StatusCode::BAD_REQUEST,
            reason: reason.clone(),
        }));
        Ok(())
    });
    result.map_or(error, |()| page_error(reason))
}

fn page_error(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.into())
}

fn call(
    function: &str,
    shape: ResultShape,
    args: &[Value],
    kwargs: &Kwargs,
) -> Result<Value, Error> {
    let name: Option<String> = kwargs.get("db")?;
    kwargs.assert_all_used()?;
    let Some((sql, params)) = args.split_first() else {
        return Err(page_error(format!("{function} requires a statement")));
    };
    let sql = sql
        .to_str()
        .ok_or_else(|| page_error("the statement is not a text"))?;
    let database = render_attempt::with(|attempt| database(attempt, name.as_deref()))?;
    // `bind_params` is called outside of `with`: iterating over the values may call functions of the page, which need
    // the attempt, too.
    let (sql, params) = bind_params(&sql, params, database.dialect)?;
    render_attempt::with(|attempt| {
        // A loop in a template could make a call for each row.
        if attempt.calls == CALLS_MAX {
            return Err(page_error(format!(
                "a page can make at most {CALLS_MAX} database calls: join tables instead"
            )));
        }
        let Some(mode) = CallMode::from_sql(&sql, database.dialect, shape, attempt.visit.safe)
        else {
            return Err(page_error(
                "GET and HEAD requests can only read, because any page can make a browser send \
                 them: write in response to a form with method=\"post\"",
            ));
        };
        let call = DatabaseCall {
            sql: sql.into(),
            params,
            shape,
            mode,
            len_max: attempt.room,
            rows_max: database.rows_max,
            timeout: database.timeout,
        };
        attempt.next_answer(database, call)
    })
}

/// The statement with one `?` per value. A list takes several placeholders; see [`statement::expand_lists`].
fn bind_params<'s>(
    sql: &'s str,
    values: &[Value],
    dialect: SqlDialect,
) -> Result<(Cow<'s, str>, Vec<SqlParam>), Error> {
    let expected_count = statement::parameters(sql, dialect);
    if expected_count != values.len() {
        return Err(page_error(format!(
            "the statement has {expected_count} placeholders (?), but {} values are given",
            values.len()
        )));
    }
    let (mut params, mut counts) = (Vec::with_capacity(values.len()), Vec::new());
    for (index, value) in values.iter().enumerate() {
        let convert = |value: &Value| {
            SqlParam::from_value(value)
                .map_err(|reason| page_error(format!("value {} {reason}", index + 1)))
        };
        if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
            params.push(convert(value)?);
            continue;
        }
        let first = params.len();
        for item in value.try_iter()? {
            // The limit applies to all lists of the statement together.
            if params.len() >= LIST_VALUES_MAX {
                return Err(page_error(format!(
                    "a statement with lists takes at most {LIST_VALUES_MAX} values"
                )));
            }
            params.push(convert(&item)?);
        }
        // The number is rounded up to a power of two, so that lists of client data lead to few different statements
        // that the database must prepare.
        let count = (params.len() - first).checked_next_power_of_two();
        let count = count.filter(|_| params.len() > first).unwrap_or(0);
        // The padding repeats the last value, which does not change the result of IN.
        if let Some(last) = params.last().cloned() {
            params.resize(first + count, last);
        }
        counts.push((index, count));
    }
    let sql = statement::expand_lists(sql, &counts, dialect).map_err(|parameter| {
        page_error(format!(
            "value {} is a list; a list is allowed only in IN (?)",
            parameter + 1
        ))
    })?;
    Ok((sql, params))
}

fn database(
    attempt: &RenderAttempt,
    name: Option<&str>,
) -> Result<std::sync::Arc<super::database::PageDatabase>, Error> {
    match name {
        None => attempt.database.clone().ok_or_else(|| {
            page_error(
                "the route has no database: set pages = \"NAME\" in the route, or pass db=\"NAME\" here",
            )
        }),
        Some(name) => attempt.databases.find(name).cloned().ok_or_else(|| {
            page_error(format!(
                "no database is named {name:?}: add it as [[database]]"
            ))
        }),
    }
}

fn status(code: u16) -> Result<Value, Error> {
    render_attempt::with(|attempt| attempt.reply.status(code).map_err(page_error))?;
    Ok(Value::from(""))
}

fn header(name: &str, value: &str) -> Result<Value, Error> {
    render_attempt::with(|attempt| attempt.reply.field(name, value).map_err(page_error))?;
    Ok(Value::from(""))
}

fn redirect(target: &str, kwargs: Kwargs) -> Result<Value, Error> {
    // With 303, the browser requests the target with GET, so that a reload does not send the form again (RFC 9110
    // §15.4.4).
    let code = kwargs.get::<Option<u16>>("status")?.unwrap_or(303);
    let outside = kwargs.get::<Option<bool>>("outside")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    render_attempt::with(|attempt| {
        attempt
            .reply
            .redirect(target, code, outside)
            .map_err(page_error)?;
        Err(attempt.end(RenderStop::Ended))
    })
}

fn cookie(name: &str, value: Value, kwargs: Kwargs) -> Result<Value, Error> {
    let path: Option<String> = kwargs.get("path")?;
    let same_site: Option<String> = kwargs.get("same_site")?;
    let cookie = SetCookie {
        name,
        value: &value.to_string(),
        max_age: kwargs.get("max_age")?,
        path: path.as_deref().unwrap_or("/"),
        // By default, the cookie is not sent with forms of other sites, and is hidden from scripts.
        same_site: same_site.as_deref().unwrap_or("Lax"),
        http_only: kwargs.get::<Option<bool>>("http_only")?.unwrap_or(true),
        secure: kwargs.get::<Option<bool>>("secure")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    render_attempt::with(|attempt| attempt.reply.cookie(&cookie).map_err(page_error))?;
    Ok(Value::from(""))
}

fn cache(seconds: u64, kwargs: Kwargs) -> Result<Value, Error> {
    let tags = kwargs
        .get::<Option<Vec<String>>>("tags")?
        .unwrap_or_default();
    kwargs.assert_all_used()?;
    render_attempt::with(|attempt| attempt.reply.set_caching(seconds, tags).map_err(page_error))?;
    Ok(Value::from(""))
}

fn csrf_token() -> Result<Value, Error> {
    token().map(Value::from)
}

fn csrf_field() -> Result<Value, Error> {
    let field = format!(
        r#"<input type="hidden" name="{}" value="{}">"#,
        csrf::FIELD,
        token()?
    );
    // The field is marked as safe: the markup is created here, and a token has hexadecimal digits only.
    Ok(Value::from_safe_string(field))
}

fn token() -> Result<String, Error> {
    render_attempt::with(|attempt| {
        let token = attempt.visit.token().map_err(page_error)?;
        // The cookie is set once, even if the page has several forms.
        if !attempt.reply.has_token
            && let Some(value) = &token.new_cookie
        {
            let cookie = SetCookie {
                name: csrf::COOKIE,
                value,
                max_age: None,
                path: "/",
                same_site: "Lax",
                http_only: true,
                // The cookie is not Secure, since sites without TLS would not receive it.
                secure: false,
            };
            attempt.reply.cookie(&cookie).map_err(page_error)?;
        }
        attempt.reply.has_token = true;
        Ok(token.token)
    })
}
