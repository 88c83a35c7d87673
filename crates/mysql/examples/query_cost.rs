//! Executes a query for one row N times, to count the client's instructions under callgrind. The server's side is a
//! recorded reply, with or without column definitions:
//!
//! ```text
//! cargo build --release -p lowroad-mysql --example query_cost
//! valgrind --tool=callgrind target/release/examples/query_cost 10000 [columns]
//! ```
//!
//! Run it with two values of N; the difference of the counts, divided by the difference of N, is the cost of one query.

use std::hint::black_box;

use lowroad_mysql::{LoginRequest, MySqlClient, MySqlEvent, MySqlLimits, SqlValue};

const STATEMENT: &str = "SELECT text FROM bare WHERE size = ? ORDER BY line";

fn packet(to: &mut Vec<u8>, sequence: u8, payload: &[u8]) {
    to.extend_from_slice(&(payload.len() as u32).to_le_bytes()[..3]);
    to.push(sequence);
    to.extend_from_slice(payload);
}

fn greeting() -> Vec<u8> {
    let mut payload = b"\x0a10.11.19-MariaDB\0\x01\0\0\0saltsalt\0".to_vec();
    payload.extend_from_slice(&[0xfe, 0xf7, 45, 2, 0, 0xff, 0x81, 21]);
    payload.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0x1d, 0, 0, 0]);
    payload.extend_from_slice(b"saltsaltsalt\0mysql_native_password\0");
    payload
}

const COLUMN: &[u8] =
    b"\x03def\x04test\x04bare\x04bare\x04text\x04text\x0c\xe0\0\xff\0\0\0\xfd\0\0\0\0\0";
const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

#[inline(never)]
fn query(client: &mut MySqlClient, answer: &[u8]) -> usize {
    let mut len = 0;
    let values = [SqlValue::Int(211)];
    client
        .execute(STATEMENT, values.iter().copied())
        .expect("idle");
    black_box(client.output());
    client.sent(client.output().len());
    let result = client.input(answer, &mut |event| {
        if let MySqlEvent::Value(SqlValue::Text(text)) = event {
            len += text.len();
        }
    });
    result.expect("an answer");
    len
}

fn main() {
    let mut client = MySqlClient::new(LoginRequest::default(), MySqlLimits::default(), [0; 32]);
    let mut bytes = Vec::new();
    packet(&mut bytes, 0, &greeting());
    packet(&mut bytes, 2, OK);
    client.input(&bytes, &mut |_| {}).expect("a login");
    bytes.clear();
    packet(&mut bytes, 1, OK);
    client.input(&bytes, &mut |_| {}).expect("a setting");
    client
        .execute(STATEMENT, [SqlValue::Int(1)].into_iter())
        .expect("idle");
    bytes.clear();
    packet(&mut bytes, 1, &[0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0]);
    packet(&mut bytes, 2, COLUMN);
    packet(&mut bytes, 3, COLUMN);
    client.input(&bytes, &mut |_| {}).expect("prepared");
    let row = b"\0\0\x13Eins zwei drei vier";
    let (mut cached, mut sent) = (Vec::new(), Vec::new());
    packet(&mut cached, 1, &[1, 0]);
    packet(&mut cached, 2, row);
    packet(&mut cached, 3, &[0xfe, 0, 0, 2, 0, 0, 0]);
    packet(&mut sent, 1, &[1, 1]);
    packet(&mut sent, 2, COLUMN);
    packet(&mut sent, 3, row);
    packet(&mut sent, 4, &[0xfe, 0, 0, 2, 0, 0, 0]);
    client.input(&cached, &mut |_| {}).expect("an answer");
    let answer = if std::env::args().any(|arg| arg == "columns") {
        sent
    } else {
        cached
    };
    let mut len = 0;
    let rounds = std::env::args().nth(1).and_then(|n| n.parse().ok());
    for _ in 0..rounds.unwrap_or(1) {
        len = query(&mut client, &answer);
    }
    println!("{len} bytes");
}
