//! Exchanges with a simulated server, packet by packet.

mod hostile;
mod logins;
mod server;

use lowroad_mysql::{MySqlError, MySqlLimits, SqlValue, StatementRefusal};
use server::{Dialect, END, EOF, OK, Talk, UNKNOWN_COLUMN, column, packet};

const ALL: [Dialect; 3] = [Dialect::Old, Dialect::New, Dialect::Caching];

/// A server's reply to the preparation of a statement with one `?` and one column.
fn prepared(dialect: Dialect) -> Vec<Vec<u8>> {
    let mut packets = vec![
        vec![0, 7, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0],
        column("?", 253, 0),
    ];
    packets.extend((dialect == Dialect::Old).then(|| EOF.to_vec()));
    packets.push(column("name", 253, 0));
    packets.extend((dialect == Dialect::Old).then(|| EOF.to_vec()));
    packets
}

/// Its reply to the execution of the statement, with two rows.
fn found(dialect: Dialect) -> Vec<Vec<u8>> {
    let mut packets = vec![vec![1]];
    match dialect {
        Dialect::Old => packets.extend([column("name", 253, 0), EOF.to_vec()]),
        Dialect::New => packets.push(column("name", 253, 0)),
        Dialect::Caching => packets[0].push(0),
    }
    packets.extend([b"\0\0\x03one".to_vec(), b"\0\x04".to_vec()]);
    packets.push(if dialect == Dialect::Old { EOF } else { END }.to_vec());
    packets
}

/// A client that waits for the reply to a statement.
fn executing() -> Talk {
    let mut talk = Talk::ready(Dialect::New, MySqlLimits::default());
    talk.client
        .execute("SELECT ?", [SqlValue::Int(5)].into_iter())
        .expect("idle");
    talk.input(&answer(&prepared(Dialect::New)))
        .expect("prepared");
    talk
}

/// Packets of a reply as bytes.
fn answer(packets: &[Vec<u8>]) -> Vec<u8> {
    (1..)
        .zip(packets)
        .flat_map(|(sequence, payload)| packet(sequence, payload))
        .collect()
}

const ROWS: [&str; 6] = [
    "Columns name",
    "Text(\"one\")",
    "RowEnd",
    "Null",
    "RowEnd",
    "Done 0 0",
];

#[test]
fn a_statement_is_prepared_once_and_then_only_executed() {
    for dialect in ALL {
        let mut talk = Talk::ready(dialect, MySqlLimits::default());
        talk.client
            .execute("SELECT ?", [SqlValue::Int(5)].into_iter())
            .expect("idle");
        assert_eq!(talk.said(), packet(0, b"\x16SELECT ?"));
        talk.input(&answer(&prepared(dialect))).expect("prepared");
        let mut execute = b"\x17\x07\0\0\0\0\x01\0\0\0\0\x01\x08\0".to_vec();
        execute.extend_from_slice(&5_u64.to_le_bytes());
        assert_eq!(talk.said(), packet(0, &execute));
        assert!(!talk.client.is_idle());
        talk.input(&answer(&found(dialect))).expect("rows");
        assert_eq!(talk.told(), ROWS);
        assert!(talk.client.is_idle());
        talk.client
            .execute("SELECT ?", [SqlValue::Null].into_iter())
            .expect("idle");
        assert_eq!(
            talk.said(),
            packet(0, b"\x17\x07\0\0\0\0\x01\0\0\0\x01\x01\x06\0")
        );
        talk.input(&answer(&found(dialect))).expect("rows");
        assert_eq!(talk.told(), ROWS);
    }
}

#[test]
fn bytes_may_come_in_pieces_of_any_size() {
    for dialect in ALL {
        for size in 1..40 {
            let mut talk = Talk::ready(dialect, MySqlLimits::default());
            talk.client
                .execute("SELECT ?", [SqlValue::Int(5)].into_iter())
                .expect("idle");
            for bytes in [answer(&prepared(dialect)), answer(&found(dialect))] {
                bytes
                    .chunks(size)
                    .for_each(|piece| talk.input(piece).expect("a piece"));
            }
            assert_eq!(talk.told(), ROWS);
        }
    }
}

#[test]
fn an_error_at_any_point_leaves_the_connection_usable() {
    for dialect in ALL {
        let both = [prepared(dialect), found(dialect)];
        for (part, packets) in both.iter().enumerate() {
            for cut in 0..packets.len() {
                let mut talk = Talk::ready(dialect, MySqlLimits::default());
                talk.client
                    .execute("SELECT ?", [SqlValue::Int(5)].into_iter())
                    .expect("idle");
                both[..part]
                    .iter()
                    .for_each(|whole| talk.input(&answer(whole)).expect("prepared"));
                let mut packets = packets[..cut].to_vec();
                packets.push(UNKNOWN_COLUMN.to_vec());
                talk.input(&answer(&packets)).expect("an error");
                assert_eq!(
                    talk.told().last().expect("told"),
                    "Failed 1054 42S22 Unknown column 'x'"
                );
                talk.said();
                assert!(
                    talk.client
                        .execute("SELECT ?", [SqlValue::Int(1)].into_iter())
                        .is_ok()
                );
            }
        }
    }
}

#[test]
fn one_statement_at_a_time_and_none_before_the_login() {
    let mut talk = Talk::new(Default::default(), MySqlLimits::default());
    assert_eq!(
        talk.client.execute("SELECT 1", [].into_iter()),
        Err(StatementRefusal::Busy)
    );
    let mut talk = Talk::ready(Dialect::New, MySqlLimits::default());
    talk.client
        .execute("SELECT 1", [].into_iter())
        .expect("idle");
    assert_eq!(
        talk.client.execute("SELECT 1", [].into_iter()),
        Err(StatementRefusal::Busy)
    );
}

#[test]
fn what_would_be_too_long_is_not_begun() {
    let limits = MySqlLimits {
        packet_len_max: 200,
        ..MySqlLimits::default()
    };
    let mut talk = Talk::ready(Dialect::New, limits);
    let long = "x".repeat(200);
    assert_eq!(
        talk.client.execute(&long, [].into_iter()),
        Err(StatementRefusal::TooLong)
    );
    let value = [SqlValue::Text(&long)];
    assert_eq!(
        talk.client.execute("SELECT ?", value.iter().copied()),
        Err(StatementRefusal::TooLong)
    );
    assert!(talk.said().is_empty() && talk.client.is_idle());
    talk.client
        .execute("SELECT ?", [SqlValue::Int(5)].into_iter())
        .expect("idle");
    talk.input(&answer(&prepared(Dialect::New)))
        .expect("prepared");
    talk.input(&answer(&found(Dialect::New))).expect("rows");
    talk.said();
    assert_eq!(
        talk.client.execute("SELECT ?", value.iter().copied()),
        Err(StatementRefusal::TooLong)
    );
    assert!(talk.said().is_empty() && talk.client.is_idle());
}

#[test]
fn values_that_do_not_fit_fail_without_being_sent() {
    let mut talk = Talk::ready(Dialect::New, MySqlLimits::default());
    talk.client
        .execute("SELECT ?", [].into_iter())
        .expect("idle");
    talk.said();
    talk.input(&answer(&prepared(Dialect::New)))
        .expect("prepared");
    assert!(talk.told()[0].starts_with("Failed 2031"));
    assert!(talk.said().is_empty() && talk.client.is_idle());
}

#[test]
fn the_oldest_statement_is_closed() {
    let limits = MySqlLimits {
        statement_count_max: 1,
        ..MySqlLimits::default()
    };
    let mut talk = Talk::ready(Dialect::New, limits);
    for (id, statement) in [(1, "SELECT 1"), (2, "SELECT 2")] {
        talk.client
            .execute(statement, [].into_iter())
            .expect("idle");
        talk.said();
        talk.hear(1, &[0, id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            .expect("prepared");
        let said = talk.said();
        let closes = said.starts_with(&packet(0, &[0x19, 1, 0, 0, 0]));
        assert_eq!(closes, id == 2);
        assert!(said.ends_with(&packet(0, &[0x17, id, 0, 0, 0, 0, 1, 0, 0, 0])));
        talk.hear(1, &[0, 3, 9, 2, 0, 0, 0]).expect("done");
        assert_eq!(talk.told(), ["Done 3 9"]);
    }
}

#[test]
fn a_command_is_not_prepared_and_gives_no_rows() {
    let mut talk = Talk::ready(Dialect::New, MySqlLimits::default());
    talk.client.command("BEGIN").expect("idle");
    assert_eq!(talk.client.command("BEGIN"), Err(StatementRefusal::Busy));
    assert_eq!(talk.said(), b"\x06\0\0\0\x03BEGIN");
    talk.hear(1, OK).expect("an answer");
    assert_eq!(talk.told(), ["Done 0 0"]);
    talk.client.command("x").expect("idle");
    talk.hear(1, UNKNOWN_COLUMN).expect("an answer");
    assert_eq!(talk.told(), ["Failed 1054 42S22 Unknown column 'x'"]);
    talk.client.command("SELECT 1").expect("idle");
    assert!(matches!(talk.hear(1, &[1]), Err(MySqlError::Protocol(_))));
}

#[test]
fn a_procedure_gives_results_and_is_done_after_them() {
    let mut talk = executing();
    let more = [0xfe, 0, 0, 10, 0, 0, 0];
    let mut packets = vec![
        vec![1],
        column("a", 253, 0),
        b"\0\0\x01x".to_vec(),
        more.to_vec(),
    ];
    packets.extend([
        vec![2],
        column("a", 253, 0),
        column("b", 8, 0),
        more.to_vec(),
    ]);
    packets.push(OK.to_vec());
    talk.input(&answer(&packets)).expect("results");
    let told = [
        "Columns a",
        "Text(\"x\")",
        "RowEnd",
        "Columns a b",
        "Done 0 0",
    ];
    assert_eq!(talk.told(), told);
    assert!(talk.client.is_idle());
}

#[test]
fn what_is_asked_for_and_not_done_ends_the_connection() {
    let rows = |packets: &[Vec<u8>]| {
        let mut talk = executing();
        let error = talk.input(&answer(packets)).expect_err("an error");
        assert_eq!(talk.input(b"x"), Err(MySqlError::Ended));
        assert_eq!(
            talk.client.execute("SELECT ?", [].into_iter()),
            Err(StatementRefusal::Busy)
        );
        assert!(talk.said().is_empty());
        error
    };
    assert!(
        matches!(rows(&[b"\xfb/etc/passwd".to_vec()]), MySqlError::Unsupported(why) if why.contains("LOCAL"))
    );
    assert_eq!(rows(&[vec![0xfd, 0, 0, 1]]), MySqlError::TooManyColumns);
    assert!(matches!(
        rows(&[vec![1], column("a", 200, 0)]),
        MySqlError::Protocol(_)
    ));
    assert!(matches!(
        rows(&[vec![1], column("a", 253, 0), b"\0\0\x09one".to_vec()]),
        MySqlError::Protocol(_)
    ));
    assert!(matches!(
        rows(&[vec![1], column("a", 253, 0), b"\0\0\x03onex".to_vec()]),
        MySqlError::Protocol(_)
    ));
    assert!(matches!(rows(&[vec![]]), MySqlError::Protocol(_)));
}

#[test]
fn numbers_of_packets_are_checked() {
    let mut talk = Talk::ready(Dialect::New, MySqlLimits::default());
    talk.client
        .execute("SELECT 1", [].into_iter())
        .expect("idle");
    assert!(matches!(talk.hear(2, OK), Err(MySqlError::Protocol(why)) if why.contains("number")));
    let mut talk = Talk::ready(Dialect::New, MySqlLimits::default());
    assert_eq!(
        talk.hear(0, UNKNOWN_COLUMN),
        Err(MySqlError::Dismissed),
        "nobody has asked"
    );
}

#[test]
fn sixteen_mebibytes_are_refused_at_their_head() {
    let limits = MySqlLimits {
        packet_len_max: usize::MAX,
        ..MySqlLimits::default()
    };
    let mut talk = Talk::ready(Dialect::New, limits);
    talk.client
        .execute("SELECT 1", [].into_iter())
        .expect("idle");
    assert_eq!(
        talk.input(&[0xff, 0xff, 0xff, 1]),
        Err(MySqlError::PacketTooLong)
    );
}
