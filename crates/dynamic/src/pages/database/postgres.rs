//! PostgreSQL. Knows how its types become a template's values, and values its types: it wants each
//! parameter in the form of the type that it gave to the place.

use std::fmt::Write;
use std::sync::Arc;

use bigdecimal::BigDecimal;
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use futures_util::TryStreamExt;
use minijinja::Value;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArguments, PgConnection, PgRow, PgValueRef};
use sqlx::{
    Arguments, Column, Decode, Either, Executor, Postgres, Row as _, Statement, TypeInfo, ValueRef,
};

use super::{Answer, Call, Rows, Trouble, Want};
use crate::pages::statement;
use crate::pages::value::{Columns, Done, Param};

/// Makes a call.
pub async fn call(link: &mut PgConnection, call: &Call) -> Result<Answer, Trouble> {
    let sql = statement::numbered(&call.sql);
    let arguments = arguments(link, &sql, &call.params).await?;
    let query = sqlx::query_with(&sql, arguments);
    if call.want == Want::Done {
        let count = query.execute(link).await?.rows_affected();
        return Ok(Answer::Done(Done { count, id: None }));
    }
    let mut stream = query.fetch(link);
    let mut rows = Rows::of(call);
    let mut columns = None;
    while let Some(row) = stream.try_next().await? {
        let columns = columns.get_or_insert_with(|| columns_of(&row));
        rows.push(columns, cells(&row, columns)?)?;
    }
    Ok(rows.answer())
}

/// The parameters in the forms that the statement wants; it stays prepared.
async fn arguments(
    link: &mut PgConnection,
    sql: &str,
    params: &[Param],
) -> Result<PgArguments, Trouble> {
    let mut arguments = PgArguments::default();
    if params.is_empty() {
        return Ok(arguments);
    }
    let prepared = link.prepare(sql).await?;
    let Some(Either::Left(types)) = prepared.parameters() else {
        return Ok(arguments);
    };
    for (at, (param, wanted)) in params.iter().zip(types).enumerate() {
        add(&mut arguments, param, wanted.name()).map_err(|reason| {
            Trouble::Unfit(format!("parameter {} of the statement: {reason}", at + 1))
        })?;
    }
    Ok(arguments)
}

fn add(to: &mut PgArguments, param: &Param, wanted: &str) -> Result<(), String> {
    if *param == Param::Null {
        return to.add(None::<String>).map_err(|error| error.to_string());
    }
    let added = match wanted {
        "BOOL" => to.add(truth(param).ok_or_else(|| unfit(param, wanted))?),
        "INT2" => to.add(parsed::<i16>(param, wanted)?),
        "INT4" => to.add(parsed::<i32>(param, wanted)?),
        "INT8" => to.add(parsed::<i64>(param, wanted)?),
        "FLOAT4" => to.add(parsed::<f32>(param, wanted)?),
        "FLOAT8" => to.add(parsed::<f64>(param, wanted)?),
        "NUMERIC" => to.add(parsed::<BigDecimal>(param, wanted)?),
        "DATE" => to.add(parsed::<NaiveDate>(param, wanted)?),
        "TIME" => to.add(parsed::<NaiveTime>(param, wanted)?),
        "TIMESTAMP" => to.add(moment(param, wanted)?),
        "TIMESTAMPTZ" => to.add(moment(param, wanted)?.and_utc()),
        "BYTEA" => to.add(bytes(param)),
        "TEXT" | "VARCHAR" | "CHAR" | "BPCHAR" | "NAME" | "UNKNOWN" | "\"CHAR\"" => {
            to.add(text(param).ok_or_else(|| unfit(param, wanted))?)
        }
        _ => {
            return Err(format!(
                "its type is {wanted}: write CAST(CAST(? AS text) AS {wanted})"
            ));
        }
    };
    added.map_err(|error| error.to_string())
}

fn unfit(param: &Param, wanted: &str) -> String {
    format!("{} was given that is no {wanted}", param.kind())
}

/// A parameter as text, if it has one.
fn text(param: &Param) -> Option<String> {
    match param {
        Param::Null | Param::Blob(_) => None,
        Param::Bool(value) => Some(value.to_string()),
        Param::Int(value) => Some(value.to_string()),
        Param::Float(value) => Some(value.to_string()),
        Param::Text(value) => Some(value.clone()),
    }
}

fn bytes(param: &Param) -> Vec<u8> {
    match param {
        Param::Blob(value) => value.clone(),
        other => text(other).unwrap_or_default().into_bytes(),
    }
}

fn truth(param: &Param) -> Option<bool> {
    match param {
        Param::Bool(value) => Some(*value),
        Param::Int(value) => Some(*value != 0),
        Param::Text(value) => value.parse().ok(),
        _ => None,
    }
}

fn parsed<T: std::str::FromStr>(param: &Param, wanted: &str) -> Result<T, String> {
    let parsed = text(param).and_then(|text| text.trim().parse().ok());
    parsed.ok_or_else(|| unfit(param, wanted))
}

/// `2026-11-21 12:30:00`, with `T` or a blank, with or without a time.
fn moment(param: &Param, wanted: &str) -> Result<NaiveDateTime, String> {
    let text = text(param).unwrap_or_default().replacen('T', " ", 1);
    let moment = text
        .parse::<NaiveDate>()
        .map(|date| date.and_time(NaiveTime::MIN))
        .or_else(|_| NaiveDateTime::parse_from_str(&text, "%Y-%m-%d %H:%M:%S%.f"))
        .or_else(|_| NaiveDateTime::parse_from_str(&text, "%Y-%m-%d %H:%M"));
    moment.map_err(|_| unfit(param, wanted))
}

fn columns_of(row: &PgRow) -> Columns {
    let names = row.columns().iter().map(|column| column.name().into());
    Arc::from_iter(names)
}

fn cells(row: &PgRow, columns: &Columns) -> Result<Vec<Value>, Trouble> {
    let cell = |at: usize| {
        let raw = row.try_get_raw(at)?;
        if raw.is_null() {
            return Ok(Value::from(()));
        }
        let kind = row.column(at).type_info().name().to_string();
        cell(raw, &kind).map_err(|error| {
            let name = &columns[at];
            Trouble::Unknown(format!(
                "column {name} can't be read: {error}; write CAST({name} AS text)"
            ))
        })
    };
    (0..columns.len()).map(cell).collect()
}

fn cell(raw: PgValueRef<'_>, kind: &str) -> Result<Value, BoxDynError> {
    Ok(match kind {
        "BOOL" => Value::from(<bool as Decode<Postgres>>::decode(raw)?),
        "INT2" => Value::from(<i16 as Decode<Postgres>>::decode(raw)?),
        "INT4" => Value::from(<i32 as Decode<Postgres>>::decode(raw)?),
        "INT8" => Value::from(<i64 as Decode<Postgres>>::decode(raw)?),
        "FLOAT4" => Value::from(<f32 as Decode<Postgres>>::decode(raw)?),
        "FLOAT8" => Value::from(<f64 as Decode<Postgres>>::decode(raw)?),
        "NUMERIC" => shown(numeric(raw)?),
        "DATE" => shown(<NaiveDate as Decode<Postgres>>::decode(raw)?),
        "TIME" => shown(<NaiveTime as Decode<Postgres>>::decode(raw)?),
        "TIMESTAMP" => shown(<NaiveDateTime as Decode<Postgres>>::decode(raw)?),
        "TIMESTAMPTZ" => shown(<DateTime<Utc> as Decode<Postgres>>::decode(raw)?.naive_utc()),
        "BYTEA" => Value::from_bytes(raw.as_bytes()?.to_vec()),
        "UUID" => Value::from(uuid(raw.as_bytes()?)),
        // One byte, the version, comes before the text.
        "JSONB" => Value::from(std::str::from_utf8(
            raw.as_bytes()?.get(1..).unwrap_or_default(),
        )?),
        "TEXT" | "VARCHAR" | "CHAR" | "BPCHAR" | "NAME" | "\"CHAR\"" | "JSON" | "UNKNOWN" => {
            Value::from(raw.as_str()?)
        }
        "VOID" => Value::from(()),
        other => return Err(format!("its type {other} is not known here").into()),
    })
}

/// A number with as many digits after the point as the database shows.
fn numeric(raw: PgValueRef<'_>) -> Result<String, BoxDynError> {
    let scale = raw
        .as_bytes()?
        .get(6..8)
        .map_or(0, |bytes| i64::from(bytes[0]) << 8 | i64::from(bytes[1]));
    let number = <BigDecimal as Decode<Postgres>>::decode(raw)?;
    Ok(number.with_scale(scale).to_plain_string())
}

fn shown(value: impl std::fmt::Display) -> Value {
    Value::from(value.to_string())
}

fn uuid(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        let _ = write!(out, "{byte:02x}");
    }
    out
}
