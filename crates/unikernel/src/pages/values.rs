//! Conversion of values between pages and the database.

/// Converts a value of a page to a value for a statement.
pub fn to_database(value: lowroad_page::PageValue<'_>) -> lowroad_mysql::SqlValue<'_> {
    match value {
        lowroad_page::PageValue::Null => lowroad_mysql::SqlValue::Null,
        lowroad_page::PageValue::Bool(is) => lowroad_mysql::SqlValue::Int(is.into()),
        lowroad_page::PageValue::Int(number) => lowroad_mysql::SqlValue::Int(number),
        lowroad_page::PageValue::UInt(number) => lowroad_mysql::SqlValue::UInt(number),
        lowroad_page::PageValue::Float(number) => lowroad_mysql::SqlValue::Float(number),
        lowroad_page::PageValue::Text(text) => lowroad_mysql::SqlValue::Text(text),
        lowroad_page::PageValue::Bytes(bytes) => lowroad_mysql::SqlValue::Bytes(bytes),
    }
}

/// Converts a value of the database to a value of a page.
pub fn from_database(value: lowroad_mysql::SqlValue<'_>) -> lowroad_page::PageValue<'_> {
    match value {
        lowroad_mysql::SqlValue::Null => lowroad_page::PageValue::Null,
        lowroad_mysql::SqlValue::Int(number) => lowroad_page::PageValue::Int(number),
        lowroad_mysql::SqlValue::UInt(number) => lowroad_page::PageValue::UInt(number),
        lowroad_mysql::SqlValue::Float(number) => lowroad_page::PageValue::Float(number),
        lowroad_mysql::SqlValue::Text(text) => lowroad_page::PageValue::Text(text),
        lowroad_mysql::SqlValue::Bytes(bytes) => lowroad_page::PageValue::Bytes(bytes),
    }
}
