//! The served content and the expected responses: the file of 3,593 bytes, the pages of database rows, and the programs
//! that generate these pages. Independent of servers.

use crate::workload::files;

/// The file's path.
pub const STATIC_PATH: &str = "/page.html";

/// The programs of row pages, in Lowroad's page language and in PHP.
pub const PROGRAMS: [(&str, &str); 2] = [
    (
        "/bare.lrp",
        include_str!("../../../../examples/pages/www/bare.lrp"),
    ),
    ("/rows.php", include_str!("../../../peers/php/rows.php")),
];

/// The rows as SQL for MariaDB; the account is that of the experiments, restricted to guests' addresses.
pub fn schema() -> String {
    let account = "CREATE USER 'lowroad_lab'@'198.18.0.0/255.254.0.0' IDENTIFIED BY 'lowroad_lab';\n\
         GRANT SELECT ON lowroad_lab.* TO 'lowroad_lab'@'198.18.0.0/255.254.0.0';\n";
    [
        include_str!("../../../peers/php/schema.sql"),
        account,
        include_str!("../../../../examples/pages/bare.sql"),
    ]
    .concat()
}

/// The file's content: that of the experiments.
pub fn static_page() -> Vec<u8> {
    files::file_content("bare", STATIC_PATH.trim_start_matches('/'))
        .expect("a file of the workload")
}

/// The number of rows of a page of this length, and the text of the last row; both must agree with bare.sql.
fn rows(size: u64) -> Option<(usize, &'static str)> {
    match size {
        211 => Some((1, ROW)),
        10_217 => Some((334, "and an end of 27 characters")),
        19_248 => Some((635, "and an end of 28 characters.")),
        _ => None,
    }
}

const ROW: &str = "bare metal!";
const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Bare</title></head>\n\
     <body><h1>From the database</h1><table>\n";
const TAIL: &str = "</table><p>A page of a bare machine.</p></body></html>";

/// The row page of this length.
///
/// # Errors
/// There is no such page.
pub fn rows_path(size: u64) -> Result<String, String> {
    let (count, last) = rows(size).ok_or_else(|| format!("no rows make a page of {size} bytes"))?;
    let row = |text: &str| format!("<tr><td>{text}</td></tr>\n");
    let body = row(ROW).repeat(count - 1) + &row(last);
    Ok([HEAD, &body, TAIL].concat())
}

/// Compares a body with the expected one.
///
/// # Errors
/// The bodies differ; the text names the difference.
pub fn check(path: &str, body: &[u8], expected: &[u8]) -> Result<(), String> {
    if body == expected {
        return Ok(());
    }
    let (rows, expected_rows) = (count_rows(body), count_rows(expected));
    if rows != expected_rows {
        // The start of a wrong page usually shows the error, such as one of the database.
        let text = String::from_utf8_lossy(body);
        let text: String = text.chars().take(200).collect();
        return Err(format!(
            "{path} has {rows} rows and not {expected_rows}: {text}"
        ));
    }
    let differs = body.iter().zip(expected).position(|(a, b)| a != b);
    Err(format!(
        "{path} has {} bytes and should have {}; they differ from byte {} on",
        body.len(),
        expected.len(),
        differs.unwrap_or(body.len().min(expected.len()))
    ))
}

fn count_rows(body: &[u8]) -> usize {
    memchr::memmem::find_iter(body, b"<tr>").count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_the_papers_lengths() {
        assert_eq!(static_page().len(), 3593);
        for (size, count) in [(211, 1), (10_217, 334), (19_248, 635)] {
            let page = rows_path(size).expect("a page");
            assert_eq!(page.len() as u64, size);
            assert_eq!(count_rows(page.as_bytes()), count);
        }
        assert!(rows_path(7).is_err());
    }

    #[test]
    fn page_mismatch_error_describes_the_difference() {
        let page = rows_path(10_217).expect("a page");
        assert_eq!(check("/p", page.as_bytes(), page.as_bytes()), Ok(()));
        let one = rows_path(211).expect("a page");
        let why = check("/p", one.as_bytes(), page.as_bytes()).expect_err("too few rows");
        assert!(why.contains("1 rows and not 334"), "{why}");
        let why = check("/p", b"The data base: gone", page.as_bytes()).expect_err("no page");
        assert!(why.contains("0 rows") && why.contains("gone"), "{why}");
        let other = page.replacen("metal", "METAL", 1);
        let why = check("/p", other.as_bytes(), page.as_bytes()).expect_err("another text");
        let at = page.find("metal").expect("a row");
        assert!(why.contains(&format!("from byte {at} on")), "{why}");
    }
}
