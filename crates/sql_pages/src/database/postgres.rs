//! Calls to PostgreSQL. Converts column values to template values, and parameters to the types that PostgreSQL has
//! inferred for the parameters.

mod address;

use std::fmt::Write;

use bigdecimal::BigDecimal;
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use futures_util::TryStreamExt;
use lowroad_mysql::DataFault;
use lowroad_page::PageValue as Cell;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArguments, PgConnection, PgRow, PgValueRef};
use sqlx::{
    Arguments, Column, Decode, Either, Executor, Postgres, Row as _, Statement, TypeInfo, ValueRef,
};

pub use self::address::PostgresAddress;
use super::answer::{AnswerRows, DatabaseAnswer};
use super::call::{DatabaseCall, ResultShape};
use super::driver_error::DriverError;
use crate::statement;
use crate::table::RowTable;
use crate::value::{SqlParam, StatementResult};

/// Executes a call.
pub async fn call(
    link: &mut PgConnection,
    call: &DatabaseCall,
) -> Result<DatabaseAnswer, DriverError> {
    let sql = statement::numbered(&call.sql);
    let arguments = arguments(link, &sql, &call.params).await?;
    let query = sqlx::query_with(&sql, arguments);
    if call.shape == ResultShape::Done {
        let count = query.execute(link).await?.rows_affected();
        // PostgreSQL reports no id; statements can use RETURNING.
        return Ok(DatabaseAnswer::Done(StatementResult { count, id: None }));
    }
    let mut stream = query.fetch(link);
    let mut rows = AnswerRows::new(call);
    while let Some(row) = stream.try_next().await? {
        rows.begin_row(row.columns().iter().map(Column::name));
        push_row(&row, &mut rows.table)?;
        rows.end_row()?;
    }
    Ok(rows.answer())
}

/// Converts the parameters to the types in the statement. Prepares the statement, which stays in the driver's cache.
async fn arguments(
    link: &mut PgConnection,
    sql: &str,
    params: &[SqlParam],
) -> Result<PgArguments, DriverError> {
    let mut arguments = PgArguments::default();
    if params.is_empty() {
        return Ok(arguments);
    }
    // The driver sends values in binary format, so each must have exactly its parameter's type. Preparing the statement
    // returns the types that the server has inferred.
    let prepared = link.prepare(sql).await?;
    let Some(Either::Left(types)) = prepared.parameters() else {
        return Ok(arguments);
    };
    for (index, (param, inferred_type)) in params.iter().zip(types).enumerate() {
        add(&mut arguments, param, inferred_type.name()).map_err(|reason| {
            DriverError::ParameterMismatch(format!(
                "parameter {} of the statement: {reason}",
                index + 1
            ))
        })?;
    }
    Ok(arguments)
}

/// The kind of data error that an SQLSTATE reports (PostgreSQL's manual, appendix "PostgreSQL Error Codes").
pub fn data_fault(sqlstate: &str) -> Option<DataFault> {
    Some(match sqlstate {
        // foreign_key_violation, unique_violation, exclusion_violation
        "23503" | "23505" | "23P01" => DataFault::Conflict,
        // not_null_violation, check_violation
        "23502" | "23514" => DataFault::Invalid,
        // numeric_value_out_of_range, invalid_datetime_format, datetime_field_overflow, character_not_in_repertoire
        // (such as NUL), string_data_right_truncation, invalid_text_representation
        "22001" | "22003" | "22007" | "22008" | "22021" | "22P02" => DataFault::Invalid,
        _ => return None,
    })
}

fn add(pg_arguments: &mut PgArguments, param: &SqlParam, sql_type: &str) -> Result<(), String> {
    // NULL fits every type.
    if *param == SqlParam::Null {
        return pg_arguments
            .add(None::<String>)
            .map_err(|error| error.to_string());
    }
    let result = match sql_type {
        "BOOL" => pg_arguments.add(to_bool(param).ok_or_else(|| type_mismatch(param, sql_type))?),
        "INT2" => pg_arguments.add(parse_param::<i16>(param, sql_type)?),
        "INT4" => pg_arguments.add(parse_param::<i32>(param, sql_type)?),
        "INT8" => pg_arguments.add(parse_param::<i64>(param, sql_type)?),
        "FLOAT4" => pg_arguments.add(parse_param::<f32>(param, sql_type)?),
        "FLOAT8" => pg_arguments.add(parse_param::<f64>(param, sql_type)?),
        "NUMERIC" => pg_arguments.add(parse_param::<BigDecimal>(param, sql_type)?),
        "DATE" => pg_arguments.add(parse_param::<NaiveDate>(param, sql_type)?),
        "TIME" => pg_arguments.add(parse_param::<NaiveTime>(param, sql_type)?),
        "TIMESTAMP" => pg_arguments.add(parse_date_time(param, sql_type)?),
        "TIMESTAMPTZ" => pg_arguments.add(parse_date_time(param, sql_type)?.and_utc()),
        "BYTEA" => pg_arguments.add(bytes(param)),
        "TEXT" | "VARCHAR" | "CHAR" | "BPCHAR" | "NAME" | "UNKNOWN" | "\"CHAR\"" => {
            pg_arguments.add(text(param).ok_or_else(|| type_mismatch(param, sql_type))?)
        }
        // Types without a conversion here can be passed as text with a cast.
        _ => {
            return Err(format!(
                "its type is {sql_type}: write CAST(CAST(? AS text) AS {sql_type})"
            ));
        }
    };
    result.map_err(|error| error.to_string())
}

fn type_mismatch(param: &SqlParam, sql_type: &str) -> String {
    format!("{} was given, which is not {sql_type}", param.kind())
}

/// A parameter as text, if it can be written as text.
fn text(param: &SqlParam) -> Option<String> {
    match param {
        SqlParam::Null | SqlParam::Blob(_) => None,
        SqlParam::Bool(value) => Some(value.to_string()),
        SqlParam::Int(value) => Some(value.to_string()),
        SqlParam::Float(value) => Some(value.to_string()),
        SqlParam::Text(value) => Some(value.clone()),
    }
}

fn bytes(param: &SqlParam) -> Vec<u8> {
    match param {
        SqlParam::Blob(value) => value.clone(),
        other => text(other).unwrap_or_default().into_bytes(),
    }
}

fn to_bool(param: &SqlParam) -> Option<bool> {
    match param {
        SqlParam::Bool(value) => Some(*value),
        SqlParam::Int(value) => Some(*value != 0),
        SqlParam::Text(value) => value.parse().ok(),
        _ => None,
    }
}

fn parse_param<T: std::str::FromStr>(param: &SqlParam, sql_type: &str) -> Result<T, String> {
    let parsed = text(param).and_then(|text| text.trim().parse().ok());
    parsed.ok_or_else(|| type_mismatch(param, sql_type))
}

/// Parses `2026-11-21 12:30:00`, with `T` or a space before the time, or without a time.
fn parse_date_time(param: &SqlParam, sql_type: &str) -> Result<NaiveDateTime, String> {
    // Browsers send the values of `datetime-local` inputs with `T`, and without seconds or time zone.
    let text = text(param).unwrap_or_default().replacen('T', " ", 1);
    let moment = text
        .parse::<NaiveDate>()
        .map(|date| date.and_time(NaiveTime::MIN))
        .or_else(|_| NaiveDateTime::parse_from_str(&text, "%Y-%m-%d %H:%M:%S%.f"))
        .or_else(|_| NaiveDateTime::parse_from_str(&text, "%Y-%m-%d %H:%M"));
    moment.map_err(|_| type_mismatch(param, sql_type))
}

fn push_row(row: &PgRow, table: &mut RowTable) -> Result<(), DriverError> {
    for column in row.columns() {
        let raw = row.try_get_raw(column.ordinal())?;
        cell(raw, column.type_info().name(), table).map_err(|error| {
            let name = column.name();
            DriverError::UnsupportedColumn(format!(
                "column {name} can't be read: {error}; write CAST({name} AS text)"
            ))
        })?;
    }
    Ok(())
}

fn cell(raw: PgValueRef<'_>, kind: &str, table: &mut RowTable) -> Result<(), BoxDynError> {
    if raw.is_null() {
        table.push(Cell::Null);
        return Ok(());
    }
    table.push(match kind {
        "BOOL" => Cell::Bool(<bool as Decode<Postgres>>::decode(raw)?),
        "INT2" => Cell::Int(<i16 as Decode<Postgres>>::decode(raw)?.into()),
        "INT4" => Cell::Int(<i32 as Decode<Postgres>>::decode(raw)?.into()),
        "INT8" => Cell::Int(<i64 as Decode<Postgres>>::decode(raw)?),
        "FLOAT4" => Cell::Float(<f32 as Decode<Postgres>>::decode(raw)?.into()),
        "FLOAT8" => Cell::Float(<f64 as Decode<Postgres>>::decode(raw)?),
        "NUMERIC" => return push_text(table, numeric(raw)?),
        "DATE" => return push_text(table, <NaiveDate as Decode<Postgres>>::decode(raw)?),
        "TIME" => return push_text(table, <NaiveTime as Decode<Postgres>>::decode(raw)?),
        "TIMESTAMP" => return push_text(table, <NaiveDateTime as Decode<Postgres>>::decode(raw)?),
        "TIMESTAMPTZ" => {
            // The value is converted to UTC and displayed like TIMESTAMP, independently of the session's time zone.
            let moment = <DateTime<Utc> as Decode<Postgres>>::decode(raw)?;
            return push_text(table, moment.naive_utc());
        }
        "BYTEA" => Cell::Bytes(raw.as_bytes()?),
        "UUID" => return push_text(table, uuid(raw.as_bytes()?)),
        // JSONB starts with a version byte.
        "JSONB" => Cell::Text(std::str::from_utf8(
            raw.as_bytes()?.get(1..).unwrap_or_default(),
        )?),
        "TEXT" | "VARCHAR" | "CHAR" | "BPCHAR" | "NAME" | "\"CHAR\"" | "JSON" | "UNKNOWN" => {
            Cell::Text(raw.as_str()?)
        }
        "VOID" => Cell::Null,
        other => return Err(format!("its type {other} is not supported").into()),
    });
    Ok(())
}

/// A number with the number of decimals that its column has.
fn numeric(raw: PgValueRef<'_>) -> Result<String, BoxDynError> {
    // The binary format starts with four numbers of two bytes each: digit count, weight, sign, scale.
    let scale = raw
        .as_bytes()?
        .get(6..8)
        .map_or(0, |bytes| i64::from(bytes[0]) << 8 | i64::from(bytes[1]));
    // The decoder drops trailing zeros, which prices need.
    let number = <BigDecimal as Decode<Postgres>>::decode(raw)?;
    Ok(number.with_scale(scale).to_plain_string())
}

fn push_text(table: &mut RowTable, value: impl std::fmt::Display) -> Result<(), BoxDynError> {
    table.push(Cell::Text(&value.to_string()));
    Ok(())
}

fn uuid(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        // The groups of a UUID are 4, 2, 2, 2 and 6 bytes long.
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        let _ = write!(out, "{byte:02x}");
    }
    out
}
