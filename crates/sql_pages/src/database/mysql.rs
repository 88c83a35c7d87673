//! MariaDB and MySQL. Knows how their types become a template's values.

use std::time::Duration;

use futures_util::TryStreamExt;
use lowroad_page::Value as Cell;
use sqlx::error::BoxDynError;
use sqlx::mysql::{MySqlArguments, MySqlConnectOptions, MySqlConnection, MySqlRow, MySqlValueRef};
use sqlx::{Arguments, Column, Connection, Decode, Executor, MySql, Row as _, TypeInfo, ValueRef};

use super::{Answer, Call, Rows, Trouble, Want};
use crate::table::Table;
use crate::value::{Done, Param};

/// Makes a connection on which statements end by themselves in time.
pub async fn connect(
    options: &MySqlConnectOptions,
    timeout: Duration,
) -> Result<MySqlConnection, sqlx::Error> {
    let mut link = MySqlConnection::connect_with(options).await?;
    let mariadb = format!("SET SESSION max_statement_time = {}", timeout.as_secs_f64());
    if link.execute(mariadb.as_str()).await.is_err() {
        let mysql = format!("SET SESSION max_execution_time = {}", timeout.as_millis());
        // One that knows neither is still held to the limit from our side.
        let _ = link.execute(mysql.as_str()).await;
    }
    Ok(link)
}

/// Makes a call.
pub async fn call(link: &mut MySqlConnection, call: &Call) -> Result<Answer, Trouble> {
    let mut arguments = MySqlArguments::default();
    for param in &call.params {
        add(&mut arguments, param).map_err(sqlx::Error::Encode)?;
    }
    let query = sqlx::query_with(&call.sql, arguments);
    if call.want == Want::Done {
        let done = query.execute(link).await?;
        let id = i64::try_from(done.last_insert_id())
            .ok()
            .filter(|id| *id != 0);
        let count = done.rows_affected();
        return Ok(Answer::Done(Done { count, id }));
    }
    let mut stream = query.fetch(link);
    let mut rows = Rows::of(call);
    let mut kinds: Option<Vec<Kind>> = None;
    while let Some(row) = stream.try_next().await? {
        let kinds = kinds.get_or_insert_with(|| {
            rows.table.begin(row.columns().iter().map(Column::name));
            kinds_of(&row)
        });
        put(&row, kinds, &mut rows.table)?;
        rows.end_row()?;
    }
    Ok(rows.answer())
}

fn add(arguments: &mut MySqlArguments, param: &Param) -> Result<(), BoxDynError> {
    match param {
        Param::Null => arguments.add(None::<i64>),
        Param::Bool(value) => arguments.add(value),
        Param::Int(value) => arguments.add(value),
        Param::Float(value) => arguments.add(value),
        Param::Text(value) => arguments.add(value),
        Param::Blob(value) => arguments.add(value),
    }
}

/// How a column's values are read.
#[derive(Clone, Copy)]
enum Kind {
    Int,
    Unsigned,
    Float,
    Double,
    Text,
    /// Bytes, or text with a binary collation: the protocol does not tell them apart.
    Bytes,
    Date,
    Time,
    DateTime,
}

fn kinds_of(row: &MySqlRow) -> Vec<Kind> {
    let columns = row.columns().iter();
    columns
        .map(|column| kind(column.type_info().name()))
        .collect()
}

fn kind(name: &str) -> Kind {
    match name {
        "BIT" | "YEAR" => Kind::Unsigned,
        _ if name.ends_with(" UNSIGNED") => Kind::Unsigned,
        "BOOLEAN" | "TINYINT" | "SMALLINT" | "MEDIUMINT" | "INT" | "BIGINT" => Kind::Int,
        "FLOAT" => Kind::Float,
        "DOUBLE" => Kind::Double,
        "DATE" => Kind::Date,
        "TIME" => Kind::Time,
        "DATETIME" | "TIMESTAMP" => Kind::DateTime,
        "CHAR" | "VARCHAR" | "TINYTEXT" | "TEXT" | "MEDIUMTEXT" | "LONGTEXT" | "DECIMAL"
        | "ENUM" | "SET" | "JSON" => Kind::Text,
        _ => Kind::Bytes,
    }
}

fn put(row: &MySqlRow, kinds: &[Kind], to: &mut Table) -> Result<(), Trouble> {
    for (column, kind) in row.columns().iter().zip(kinds) {
        let raw = row.try_get_raw(column.ordinal())?;
        cell(raw, *kind, to).map_err(|error| {
            Trouble::Unknown(format!("column {} can't be read: {error}", column.name()))
        })?;
    }
    Ok(())
}

fn cell(raw: MySqlValueRef<'_>, kind: Kind, to: &mut Table) -> Result<(), BoxDynError> {
    if raw.is_null() {
        to.push(Cell::Null);
        return Ok(());
    }
    to.push(match kind {
        Kind::Int => Cell::Int(<i64 as Decode<MySql>>::decode(raw)?),
        Kind::Unsigned => Cell::UInt(<u64 as Decode<MySql>>::decode(raw)?),
        Kind::Float => Cell::Float(<f32 as Decode<MySql>>::decode(raw)?.into()),
        Kind::Double => Cell::Float(<f64 as Decode<MySql>>::decode(raw)?),
        Kind::Text => Cell::Text(<&str as Decode<MySql>>::decode(raw)?),
        Kind::Bytes => {
            let bytes = <&[u8] as Decode<MySql>>::decode(raw)?;
            std::str::from_utf8(bytes).map_or(Cell::Bytes(bytes), Cell::Text)
        }
        Kind::Date => {
            text_or_zero(<chrono::NaiveDate as Decode<MySql>>::decode(raw), to);
            return Ok(());
        }
        Kind::Time => {
            to.push(Cell::Text(&time(raw)?));
            return Ok(());
        }
        Kind::DateTime => {
            text_or_zero(<chrono::NaiveDateTime as Decode<MySql>>::decode(raw), to);
            return Ok(());
        }
    });
    Ok(())
}

/// A date as text; the zero date, which is none, as nothing.
fn text_or_zero(date: Result<impl std::fmt::Display, BoxDynError>, to: &mut Table) {
    match date {
        Ok(date) => to.push(Cell::Text(&date.to_string())),
        Err(_) => to.push(Cell::Null),
    }
}

/// A time, which may be negative and longer than a day.
fn time(raw: MySqlValueRef<'_>) -> Result<String, BoxDynError> {
    let time = <sqlx::mysql::types::MySqlTime as Decode<MySql>>::decode(raw)?;
    Ok(time.to_string())
}
