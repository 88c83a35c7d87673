//! Renders the example page with a real MariaDB. Shows how page, client and socket are combined, and checks that the
//! output equals the file stored with the data.

#[path = "../../../mysql/tests/mariadb/connection.rs"]
#[allow(dead_code, reason = "the client's tests use the rest")]
mod connection;
#[path = "../../../sql_pages/tests/pages/servers.rs"]
#[allow(dead_code, reason = "pages are tested with PostgreSQL, too")]
mod servers;

use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;

use lowroad_mysql as mysql;
use lowroad_page::{CompiledPage, PageLimits, PageRequest, PageRun, PageValue, RunStep};

use connection::Connection;
use servers::{Kind, Server};

/// A request with a query.
struct QueryRequest(&'static str);

impl PageRequest for QueryRequest {
    fn method(&self) -> &str {
        "GET"
    }
    fn path(&self) -> &[u8] {
        b"/bare.lrp"
    }
    fn target(&self) -> &[u8] {
        b"/bare.lrp"
    }
    fn host(&self) -> &[u8] {
        b"example.org"
    }
    fn query(&self) -> &[u8] {
        self.0.as_bytes()
    }
    fn peer(&self) -> IpAddr {
        IpAddr::from([192, 0, 2, 7])
    }
    fn field(&self, _: &str) -> Option<&[u8]> {
        None
    }
}

/// Converts a page's value for the database client.
fn to_database(value: PageValue<'_>) -> mysql::SqlValue<'_> {
    match value {
        PageValue::Null => mysql::SqlValue::Null,
        PageValue::Bool(it) => mysql::SqlValue::Int(i64::from(it)),
        PageValue::Int(it) => mysql::SqlValue::Int(it),
        PageValue::UInt(it) => mysql::SqlValue::UInt(it),
        PageValue::Float(it) => mysql::SqlValue::Float(it),
        PageValue::Text(it) => mysql::SqlValue::Text(it),
        PageValue::Bytes(it) => mysql::SqlValue::Bytes(it),
    }
}

/// Converts a database client's value for the page.
fn to_page(value: mysql::SqlValue<'_>) -> PageValue<'_> {
    match value {
        mysql::SqlValue::Null => PageValue::Null,
        mysql::SqlValue::Int(it) => PageValue::Int(it),
        mysql::SqlValue::UInt(it) => PageValue::UInt(it),
        mysql::SqlValue::Float(it) => PageValue::Float(it),
        mysql::SqlValue::Text(it) => PageValue::Text(it),
        mysql::SqlValue::Bytes(it) => PageValue::Bytes(it),
    }
}

/// How a statement ended.
enum End {
    Answered,
    Failed(String),
}

/// Passes an event to the run; returns how the statement ended, if it did.
fn handle_event(run: &mut PageRun, event: mysql::MySqlEvent<'_>) -> Option<End> {
    match event {
        mysql::MySqlEvent::StartTls => {}
        mysql::MySqlEvent::Ready => return Some(End::Answered),
        mysql::MySqlEvent::Columns(columns) => {
            run.columns(columns.iter().map(|column| column.name.as_str()))
        }
        mysql::MySqlEvent::Value(value) => run.value(to_page(value)),
        mysql::MySqlEvent::RowEnd => run.row_end(),
        mysql::MySqlEvent::Done { .. } => return Some(End::Answered),
        mysql::MySqlEvent::Failed(failure) => return Some(End::Failed(failure.message.into())),
    }
    None
}

struct Database {
    client: mysql::MySqlClient,
    socket: UnixStream,
}

impl Database {
    fn open(url: &str) -> Database {
        let login = mysql::LoginRequest {
            user: "root".into(),
            database: "test".into(),
            read_only: true,
            ..mysql::LoginRequest::default()
        };
        let path = url.split_once("socket=").expect("a socket").1;
        let mut database = Database {
            client: mysql::MySqlClient::new(login, mysql::MySqlLimits::default(), [9; 32]),
            socket: UnixStream::connect(path).expect("a server"),
        };
        database.wait(&mut PageRun::new(PageLimits::default()));
        database
    }

    fn wait(&mut self, run: &mut PageRun) -> End {
        let (mut end, mut bytes) = (None, vec![0; 1_460]);
        loop {
            self.socket
                .write_all(self.client.output())
                .expect("a server");
            self.client.sent(self.client.output().len());
            if let Some(end) = end.take() {
                return end;
            }
            let len = self.socket.read(&mut bytes).expect("a server");
            let input = self.client.input(&bytes[..len], &mut |event| {
                end = handle_event(run, event).or(end.take())
            });
            input.expect("an answer");
        }
    }

    fn page(&mut self, page: &CompiledPage, query: &'static str) -> Result<String, String> {
        let (mut run, mut out) = (PageRun::new(PageLimits::default()), Vec::new());
        run.begin(page);
        loop {
            match run.step(page, &QueryRequest(query), &mut out) {
                RunStep::Done => return Ok(String::from_utf8(out).expect("text")),
                RunStep::Failed(failure) => return Err(failure.to_string()),
                RunStep::Query { statement, values } => {
                    self.client
                        .execute(statement, values.map(to_database))
                        .expect("idle");
                }
            }
            match self.wait(&mut run) {
                End::Answered => run.finish_query(),
                End::Failed(reason) => run.refused(&reason),
            }
        }
    }
}

#[test]
fn example_page_matches_its_expected_output() {
    let Some(server) = Server::start(Kind::MariaDb, "page::database") else {
        return;
    };
    let mut root = Connection::root(&server.url);
    let data = std::fs::read_to_string("../../examples/pages/bare.sql").expect("a file");
    let lines: Vec<&str> = data
        .lines()
        .filter(|line| !line.starts_with("--"))
        .collect();
    for statement in lines
        .join("\n")
        .split(';')
        .filter(|it| !it.trim().is_empty())
    {
        root.rows(statement, &[]);
    }
    let mut database = Database::open(&server.url);
    let source = std::fs::read_to_string("../../examples/pages/www/bare.lrp").expect("a file");
    let page = CompiledPage::parse(&source).expect("a page");
    for _ in 0..3 {
        for (query, len) in [("", 211), ("size=10217", 10_217), ("size=19248", 19_248)] {
            let shown = database.page(&page, query).expect("a page");
            assert_eq!(shown.len(), len, "{query}");
            assert!(shown.contains("<td>bare metal!</td>") && shown.ends_with("</html>"));
        }
        let empty = database.page(&page, "size=x'%20OR%201=1").expect("a page");
        assert!(
            !empty.contains("<td>"),
            "no visitor's text becomes part of a statement"
        );
    }
    let bad = CompiledPage::parse("\n{{ row('SELECT nme FROM bare').nme }}").expect("a page");
    let reason = database.page(&bad, "").expect_err("a statement that fails");
    assert!(
        reason.starts_with("line 2: the database reports: Unknown column 'nme'"),
        "{reason}"
    );
    let writes =
        CompiledPage::parse("{{ query('WITH x AS (SELECT 1) DELETE FROM bare') | length }}")
            .expect("a page");
    assert!(
        database.page(&writes, "").is_err(),
        "the session only reads"
    );
    assert_eq!(database.page(&page, "").expect("a page").len(), 211);
}
