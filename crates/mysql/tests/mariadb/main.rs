//! The client with a real MariaDB, which each test starts in a separate folder.

mod connection;
#[allow(dead_code, reason = "pages are tested with PostgreSQL, too")]
#[path = "../../../sql_pages/tests/pages/servers.rs"]
mod servers;

use lowroad_mysql::{LoginRequest, MySqlError, MySqlLimits, SqlValue};

use connection::{Connection, OwnedValue};
use servers::{Kind, Server};

fn text(text: &str) -> OwnedValue {
    OwnedValue::Text(text.into())
}

const TABLE: &str = "CREATE TABLE t (i INT, u BIGINT UNSIGNED, n DECIMAL(10,2), d DOUBLE, f FLOAT, s VARCHAR(20), \
    x BLOB, day DATE, at TIME, moment DATETIME, exact DATETIME(3), ok BOOLEAN, year YEAR, bits BIT(10), \
    e ENUM('one', 'two'), small SMALLINT, medium MEDIUMINT, nothing INT)";

#[test]
fn values_of_each_type_are_sent_and_received() {
    let Some(server) = Server::start(Kind::MariaDb, "mariadb::types") else {
        return;
    };
    let mut root = Connection::root(&server.url);
    assert!(root.rows(TABLE, &[]).is_empty());
    let values = [
        SqlValue::Int(-7),
        SqlValue::UInt(u64::MAX),
        SqlValue::Text("12.50"),
        SqlValue::Float(0.25),
        SqlValue::Float(1.5),
        SqlValue::Text("O'Neil ☃"),
        SqlValue::Bytes(&[0, 255]),
        SqlValue::Text("2026-11-21"),
        SqlValue::Text("-30:00:01"),
        SqlValue::Text("2026-11-21 12:30:00"),
        SqlValue::Text("2026-11-21 12:30:00.042"),
        SqlValue::Int(1),
        SqlValue::Int(2026),
        SqlValue::UInt(513),
        SqlValue::Text("two"),
        SqlValue::Int(-300),
        SqlValue::Int(70_000),
        SqlValue::Null,
    ];
    let marks = vec!["?"; values.len()].join(",");
    let insert = format!("INSERT INTO t VALUES ({marks})");
    let done = root.execute(&insert, &values).expect("an answer");
    assert_eq!((done.failed, done.affected), (None, 1));
    let rows = root.rows("SELECT * FROM t WHERE i = ?", &[SqlValue::Int(-7)]);
    let expected = vec![
        OwnedValue::Int(-7),
        OwnedValue::UInt(u64::MAX),
        text("12.50"),
        OwnedValue::Float(0.25),
        OwnedValue::Float(1.5),
        text("O'Neil ☃"),
        OwnedValue::Bytes(vec![0, 255]),
        text("2026-11-21"),
        text("-30:00:01"),
        text("2026-11-21 12:30:00"),
        text("2026-11-21 12:30:00.042"),
        OwnedValue::Int(1),
        OwnedValue::UInt(2026),
        OwnedValue::UInt(513),
        text("two"),
        OwnedValue::Int(-300),
        OwnedValue::Int(70_000),
        OwnedValue::Null,
    ];
    assert_eq!(rows, [expected]);
    assert_eq!(
        root.rows("SELECT * FROM t WHERE i = ?", &[SqlValue::Int(8)])
            .len(),
        0
    );
    // The client's text for a value equals MariaDB's.
    for column in ["n", "day", "at", "moment", "exact", "e"] {
        let statement = format!("SELECT {column}, CONCAT({column}) FROM t");
        let rows = root.rows(&statement, &[]);
        assert_eq!(rows[0][0], rows[0][1], "{column}");
    }
}

#[test]
fn login_with_each_plugin() {
    let Some(server) = Server::start(Kind::MariaDb, "mariadb::logins") else {
        return;
    };
    let mut root = Connection::root(&server.url);
    for statement in [
        "CREATE USER native IDENTIFIED VIA mysql_native_password USING PASSWORD('geheim')",
        "CREATE USER empty IDENTIFIED BY ''",
        "INSTALL SONAME 'auth_ed25519'",
        "CREATE USER ed IDENTIFIED VIA ed25519 USING PASSWORD('geheim')",
        "CREATE USER system IDENTIFIED VIA unix_socket",
    ] {
        root.rows(statement, &[]);
    }
    let login = |user: &str, password: &str| {
        let login = LoginRequest {
            user: user.into(),
            password: password.into(),
            ..LoginRequest::default()
        };
        Connection::open(&server.url, login, MySqlLimits::default())
    };
    let mut native = login("native", "geheim")
        .map_err(|error| error.0)
        .expect("a login");
    assert!(
        matches!(&native.rows("SELECT CURRENT_USER()", &[])[0][0], OwnedValue::Text(user) if user.starts_with("native@"))
    );
    assert!(login("empty", "").is_ok());
    let refused = login("native", "wrong").err().expect("refused");
    assert_eq!(
        (refused.0, refused.1.failed.map(|it| it.0)),
        (MySqlError::LoginRefused, Some(1045))
    );
    assert!(login("nobody-such", "geheim").is_err());
    let unsupported = login("ed", "geheim").err().expect("unsupported");
    assert!(
        unsupported.0.to_string().contains("ed25519"),
        "{}",
        unsupported.0
    );
    assert!(login("system", "").is_err());
}

#[test]
fn queries_and_errors_alternate_on_one_connection() {
    let Some(server) = Server::start(Kind::MariaDb, "mariadb::many") else {
        return;
    };
    let mut root = Connection::root(&server.url);
    root.rows("CREATE TABLE n (i INT PRIMARY KEY, s TEXT)", &[]);
    for i in 0..100 {
        root.rows(
            "INSERT INTO n VALUES (?, REPEAT(?, 100))",
            &[SqlValue::Int(i), SqlValue::Text("é")],
        );
    }
    for i in 0..10_000 {
        // More statements than are cached, so that some are closed and prepared again.
        let statement = format!("SELECT i, s FROM n WHERE i = ? AND {} = {}", i % 40, i % 40);
        let rows = root.rows(&statement, &[SqlValue::Int(i % 100)]);
        assert_eq!(rows, [[OwnedValue::Int(i % 100), text(&"é".repeat(100))]]);
        if i % 100 == 0 {
            let failed = root
                .execute("SELECT nothing_such", &[])
                .expect("usable")
                .failed;
            assert_eq!(failed.map(|it| (it.0, it.1)), Some((1054, "42S22".into())));
        }
    }
    let prepared = root.rows("SHOW STATUS LIKE 'Prepared_stmt_count'", &[]);
    assert!(
        matches!(&prepared[0][1], OwnedValue::Text(count) if count.parse::<u32>().expect("a number") <= 33)
    );
    let failed = root.execute("SELECT ?", &[]).expect("usable").failed;
    assert_eq!(failed.map(|it| it.0), Some(2031));
    let failed = root
        .execute("INSERT INTO n VALUES (?, '')", &[SqlValue::Int(1)])
        .expect("usable")
        .failed;
    assert_eq!(failed.map(|it| it.0), Some(1062));
    assert_eq!(root.rows("SELECT ?", &[SqlValue::Text("x")]), [[text("x")]]);
    root.rows("ALTER TABLE n ADD COLUMN more INT DEFAULT 5", &[]);
    assert_eq!(root.rows("SELECT * FROM n WHERE i = 1", &[])[0].len(), 3);
    root.rows("ALTER TABLE n DROP COLUMN more", &[]);
    assert_eq!(
        root.rows("SELECT * FROM n WHERE i = 1", &[])[0].len(),
        2,
        "the columns are as they are now"
    );
}

#[test]
fn killed_connection_fails_and_new_one_works() {
    let Some(server) = Server::start(Kind::MariaDb, "mariadb::killed") else {
        return;
    };
    let mut root = Connection::root(&server.url);
    let mut other = Connection::root(&server.url);
    let id = other.rows("SELECT CAST(CONNECTION_ID() AS CHAR)", &[]);
    let OwnedValue::Text(id) = &id[0][0] else {
        panic!("{id:?}")
    };
    root.rows(&format!("KILL {id}"), &[]);
    let ended = other.execute("SELECT 1", &[]);
    assert!(ended.is_err() || ended.expect("an answer").failed.is_some());
    assert_eq!(
        Connection::root(&server.url).rows("SELECT 1", &[]),
        [[OwnedValue::Int(1)]]
    );
}

#[test]
fn read_only_session_with_timeout_and_limits_is_enforced() {
    let Some(server) = Server::start(Kind::MariaDb, "mariadb::reads") else {
        return;
    };
    let mut root = Connection::root(&server.url);
    root.rows("CREATE TABLE r (i INT)", &[]);
    let login = LoginRequest {
        user: "root".into(),
        database: "test".into(),
        read_only: true,
        statement_timeout_ms: 300,
        ..LoginRequest::default()
    };
    let limits = MySqlLimits {
        row_count_max: 10,
        ..MySqlLimits::default()
    };
    let open = || {
        Connection::open(&server.url, login.clone(), limits)
            .map_err(|error| error.0)
            .expect("a login")
    };
    let mut reader = open();
    let failed = reader
        .execute("INSERT INTO r VALUES (1)", &[])
        .expect("usable")
        .failed;
    assert_eq!(failed.map(|it| it.0), Some(1792));
    let failed = reader
        .execute("SELECT SLEEP(20)", &[])
        .expect("usable")
        .failed;
    assert_eq!(failed.map(|it| it.0), Some(1969));
    assert_eq!(reader.rows("SELECT seq FROM seq_1_to_10", &[]).len(), 10);
    let zone = reader.rows("SELECT @@time_zone, @@character_set_client", &[]);
    assert_eq!(zone, [[text("+00:00"), text("utf8mb4")]]);
    assert_eq!(
        reader.execute("SELECT seq FROM seq_1_to_11", &[]),
        Err(MySqlError::TooManyRows)
    );
    let mut reader = open();
    assert_eq!(
        reader.execute("SELECT REPEAT('x', 2000000)", &[]),
        Err(MySqlError::PacketTooLong)
    );
    let mut reader = open();
    let local = reader.execute("LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE r", &[]);
    assert!(local.is_err() || local.expect("an answer").failed.is_some());
}
