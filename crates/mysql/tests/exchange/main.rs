//! Exchanges with a simulated server, packet by packet.

mod hostile;
mod logins;
mod server;

use lowroad_mysql::{MySqlError, MySqlLimits, SqlValue, StatementRefusal};
use server::{ClientHarness, Dialect, END, EOF, OK, UNKNOWN_COLUMN, column, packet};

const ALL: [Dialect; 3] = [Dialect::Old, Dialect::New, Dialect::Caching];

/// The server's reply to preparing a statement with one `?` and one column.
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

/// The server's reply to executing this statement, with two rows.
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

/// A client that waits for the reply to the execution.
fn executing() -> ClientHarness {
    let mut harness = ClientHarness::ready(Dialect::New, MySqlLimits::default());
    harness
        .client
        .execute("SELECT ?", [SqlValue::Int(5)].into_iter())
        .expect("idle");
    harness
        .input(&answer(&prepared(Dialect::New)))
        .expect("prepared");
    harness
}

/// Encodes the packets of a reply.
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
fn statement_is_prepared_once() {
    for dialect in ALL {
        let mut harness = ClientHarness::ready(dialect, MySqlLimits::default());
        harness
            .client
            .execute("SELECT ?", [SqlValue::Int(5)].into_iter())
            .expect("idle");
        assert_eq!(harness.take_output(), packet(0, b"\x16SELECT ?"));
        harness
            .input(&answer(&prepared(dialect)))
            .expect("prepared");
        let mut execute = b"\x17\x07\0\0\0\0\x01\0\0\0\0\x01\x08\0".to_vec();
        execute.extend_from_slice(&5_u64.to_le_bytes());
        assert_eq!(harness.take_output(), packet(0, &execute));
        assert!(!harness.client.is_idle());
        harness.input(&answer(&found(dialect))).expect("rows");
        assert_eq!(harness.take_events(), ROWS);
        assert!(harness.client.is_idle());
        harness
            .client
            .execute("SELECT ?", [SqlValue::Null].into_iter())
            .expect("idle");
        assert_eq!(
            harness.take_output(),
            packet(0, b"\x17\x07\0\0\0\0\x01\0\0\0\x01\x01\x06\0")
        );
        harness.input(&answer(&found(dialect))).expect("rows");
        assert_eq!(harness.take_events(), ROWS);
    }
}

#[test]
fn input_split_at_any_position_is_processed() {
    for dialect in ALL {
        for size in 1..40 {
            let mut harness = ClientHarness::ready(dialect, MySqlLimits::default());
            harness
                .client
                .execute("SELECT ?", [SqlValue::Int(5)].into_iter())
                .expect("idle");
            for bytes in [answer(&prepared(dialect)), answer(&found(dialect))] {
                bytes
                    .chunks(size)
                    .for_each(|piece| harness.input(piece).expect("a piece"));
            }
            assert_eq!(harness.take_events(), ROWS);
        }
    }
}

#[test]
fn error_packet_at_any_point_keeps_connection_usable() {
    for dialect in ALL {
        let both = [prepared(dialect), found(dialect)];
        for (part, packets) in both.iter().enumerate() {
            for cut in 0..packets.len() {
                let mut harness = ClientHarness::ready(dialect, MySqlLimits::default());
                harness
                    .client
                    .execute("SELECT ?", [SqlValue::Int(5)].into_iter())
                    .expect("idle");
                both[..part]
                    .iter()
                    .for_each(|whole| harness.input(&answer(whole)).expect("prepared"));
                let mut packets = packets[..cut].to_vec();
                packets.push(UNKNOWN_COLUMN.to_vec());
                harness.input(&answer(&packets)).expect("an error");
                assert_eq!(
                    harness.take_events().last().expect("told"),
                    "Failed 1054 42S22 Unknown column 'x'"
                );
                harness.take_output();
                assert!(
                    harness
                        .client
                        .execute("SELECT ?", [SqlValue::Int(1)].into_iter())
                        .is_ok()
                );
            }
        }
    }
}

#[test]
fn statement_while_busy_or_before_login_is_refused() {
    let mut harness = ClientHarness::new(Default::default(), MySqlLimits::default());
    assert_eq!(
        harness.client.execute("SELECT 1", [].into_iter()),
        Err(StatementRefusal::Busy)
    );
    let mut harness = ClientHarness::ready(Dialect::New, MySqlLimits::default());
    harness
        .client
        .execute("SELECT 1", [].into_iter())
        .expect("idle");
    assert_eq!(
        harness.client.execute("SELECT 1", [].into_iter()),
        Err(StatementRefusal::Busy)
    );
}

#[test]
fn too_long_statement_is_not_started() {
    let limits = MySqlLimits {
        packet_len_max: 200,
        ..MySqlLimits::default()
    };
    let mut harness = ClientHarness::ready(Dialect::New, limits);
    let long = "x".repeat(200);
    assert_eq!(
        harness.client.execute(&long, [].into_iter()),
        Err(StatementRefusal::TooLong)
    );
    let value = [SqlValue::Text(&long)];
    assert_eq!(
        harness.client.execute("SELECT ?", value.iter().copied()),
        Err(StatementRefusal::TooLong)
    );
    assert!(harness.take_output().is_empty() && harness.client.is_idle());
    harness
        .client
        .execute("SELECT ?", [SqlValue::Int(5)].into_iter())
        .expect("idle");
    harness
        .input(&answer(&prepared(Dialect::New)))
        .expect("prepared");
    harness.input(&answer(&found(Dialect::New))).expect("rows");
    harness.take_output();
    assert_eq!(
        harness.client.execute("SELECT ?", value.iter().copied()),
        Err(StatementRefusal::TooLong)
    );
    assert!(harness.take_output().is_empty() && harness.client.is_idle());
}

#[test]
fn wrong_number_of_values_fails_without_execution() {
    let mut harness = ClientHarness::ready(Dialect::New, MySqlLimits::default());
    harness
        .client
        .execute("SELECT ?", [].into_iter())
        .expect("idle");
    harness.take_output();
    harness
        .input(&answer(&prepared(Dialect::New)))
        .expect("prepared");
    assert!(harness.take_events()[0].starts_with("Failed 2031"));
    assert!(harness.take_output().is_empty() && harness.client.is_idle());
}

#[test]
fn evicted_statement_is_closed() {
    let limits = MySqlLimits {
        statement_count_max: 1,
        ..MySqlLimits::default()
    };
    let mut harness = ClientHarness::ready(Dialect::New, limits);
    for (id, statement) in [(1, "SELECT 1"), (2, "SELECT 2")] {
        harness
            .client
            .execute(statement, [].into_iter())
            .expect("idle");
        harness.take_output();
        harness
            .receive_packet(1, &[0, id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
            .expect("prepared");
        let said = harness.take_output();
        let closes = said.starts_with(&packet(0, &[0x19, 1, 0, 0, 0]));
        assert_eq!(closes, id == 2);
        assert!(said.ends_with(&packet(0, &[0x17, id, 0, 0, 0, 0, 1, 0, 0, 0])));
        harness
            .receive_packet(1, &[0, 3, 9, 2, 0, 0, 0])
            .expect("done");
        assert_eq!(harness.take_events(), ["Done 3 9"]);
    }
}

#[test]
fn command_is_not_prepared_and_must_return_no_rows() {
    let mut harness = ClientHarness::ready(Dialect::New, MySqlLimits::default());
    harness.client.command("BEGIN").expect("idle");
    assert_eq!(harness.client.command("BEGIN"), Err(StatementRefusal::Busy));
    assert_eq!(harness.take_output(), b"\x06\0\0\0\x03BEGIN");
    harness.receive_packet(1, OK).expect("an answer");
    assert_eq!(harness.take_events(), ["Done 0 0"]);
    harness.client.command("x").expect("idle");
    harness
        .receive_packet(1, UNKNOWN_COLUMN)
        .expect("an answer");
    assert_eq!(
        harness.take_events(),
        ["Failed 1054 42S22 Unknown column 'x'"]
    );
    harness.client.command("SELECT 1").expect("idle");
    assert!(matches!(
        harness.receive_packet(1, &[1]),
        Err(MySqlError::Protocol(_))
    ));
}

#[test]
fn procedure_returns_results_then_done() {
    let mut harness = executing();
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
    harness.input(&answer(&packets)).expect("results");
    let told = [
        "Columns a",
        "Text(\"x\")",
        "RowEnd",
        "Columns a b",
        "Done 0 0",
    ];
    assert_eq!(harness.take_events(), told);
    assert!(harness.client.is_idle());
}

#[test]
fn unsupported_or_malformed_result_ends_the_connection() {
    let rows = |packets: &[Vec<u8>]| {
        let mut harness = executing();
        let error = harness.input(&answer(packets)).expect_err("an error");
        assert_eq!(harness.input(b"x"), Err(MySqlError::Ended));
        assert_eq!(
            harness.client.execute("SELECT ?", [].into_iter()),
            Err(StatementRefusal::Busy)
        );
        assert!(harness.take_output().is_empty());
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
fn packet_sequence_numbers_are_checked() {
    let mut harness = ClientHarness::ready(Dialect::New, MySqlLimits::default());
    harness
        .client
        .execute("SELECT 1", [].into_iter())
        .expect("idle");
    assert!(
        matches!(harness.receive_packet(2, OK), Err(MySqlError::Protocol(why)) if why.contains("number"))
    );
    let mut harness = ClientHarness::ready(Dialect::New, MySqlLimits::default());
    assert_eq!(
        harness.receive_packet(0, UNKNOWN_COLUMN),
        Err(MySqlError::SessionClosed),
        "nobody has asked"
    );
}

#[test]
fn packet_of_16_mib_is_refused_from_its_header() {
    let limits = MySqlLimits {
        packet_len_max: usize::MAX,
        ..MySqlLimits::default()
    };
    let mut harness = ClientHarness::ready(Dialect::New, limits);
    harness
        .client
        .execute("SELECT 1", [].into_iter())
        .expect("idle");
    assert_eq!(
        harness.input(&[0xff, 0xff, 0xff, 1]),
        Err(MySqlError::PacketTooLong)
    );
}
