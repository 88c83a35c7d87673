//! Conversion of values between pages and the database.

/// Converts a page's value for a statement.
pub fn to_database(value: lowroad_page::Value<'_>) -> lowroad_mysql::Value<'_> {
    match value {
        lowroad_page::Value::Null => lowroad_mysql::Value::Null,
        lowroad_page::Value::Bool(is) => lowroad_mysql::Value::Int(is.into()),
        lowroad_page::Value::Int(number) => lowroad_mysql::Value::Int(number),
        lowroad_page::Value::UInt(number) => lowroad_mysql::Value::UInt(number),
        lowroad_page::Value::Float(number) => lowroad_mysql::Value::Float(number),
        lowroad_page::Value::Text(text) => lowroad_mysql::Value::Text(text),
        lowroad_page::Value::Bytes(bytes) => lowroad_mysql::Value::Bytes(bytes),
    }
}

/// Converts a database's value for a page.
pub fn from_database(value: lowroad_mysql::Value<'_>) -> lowroad_page::Value<'_> {
    match value {
        lowroad_mysql::Value::Null => lowroad_page::Value::Null,
        lowroad_mysql::Value::Int(number) => lowroad_page::Value::Int(number),
        lowroad_mysql::Value::UInt(number) => lowroad_page::Value::UInt(number),
        lowroad_mysql::Value::Float(number) => lowroad_page::Value::Float(number),
        lowroad_mysql::Value::Text(text) => lowroad_page::Value::Text(text),
        lowroad_mysql::Value::Bytes(bytes) => lowroad_page::Value::Bytes(bytes),
    }
}
