//! Hostile servers: exchanges with random changes. The client must not panic, and its events and memory must stay
//! within the limits.

use lowroad_mysql::{LoginRequest, MySqlEvent, MySqlLimits, SqlValue, TlsPolicy};

use crate::server::{
    ClientHarness, Dialect, END, EOF, OK, UNKNOWN_COLUMN, column, greeting, packet,
};
use crate::{ALL, answer, found, prepared};

/// A small random number generator (xorshift64*); failures print the seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }

    fn byte(&mut self) -> u8 {
        const LIKELY: [u8; 8] = [0, 1, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff];
        match self.below(2) {
            0 => LIKELY[self.below(LIKELY.len())],
            _ => self.below(256) as u8,
        }
    }
}

const LIMITS: MySqlLimits = MySqlLimits {
    packet_len_max: 4_096,
    column_count_max: 16,
    row_count_max: 50,
    statement_count_max: 2,
};

/// A result with a column of every type.
fn wide(dialect: Dialect) -> Vec<Vec<u8>> {
    const KINDS: [u8; 16] = [1, 2, 3, 8, 4, 5, 6, 10, 11, 12, 16, 253, 252, 246, 13, 7];
    let mut packets = vec![vec![16]];
    if dialect == Dialect::Caching {
        packets[0].push(1);
    }
    packets.extend(KINDS.iter().map(|kind| column("c", *kind, 0)));
    packets.extend((dialect == Dialect::Old).then(|| EOF.to_vec()));
    // The last value is NULL.
    let mut row = vec![0, 0, 0, 2];
    row.extend_from_slice(&[
        1, 2, 2, 3, 3, 3, 3, 8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 5,
    ]);
    row.extend_from_slice(&[
        4, 0xea, 7, 11, 23, 8, 1, 1, 0, 0, 0, 6, 0, 1, 7, 0xea, 7, 11, 23, 8, 5, 9,
    ]);
    row.extend_from_slice(b"\x02\x01\x02\x03abc\x02\xff\0\x0412.5\xea\x07");
    packets.push(row);
    packets.push(if dialect == Dialect::Old { EOF } else { END }.to_vec());
    packets
}

/// A server's reply to the client's output.
fn reply(said: &[u8], dialect: Dialect, random: &mut Random) -> Vec<u8> {
    match said.get(4) {
        None => {
            let plugin = ["mysql_native_password", "caching_sha2_password"][random.below(2)];
            packet(0, &greeting(dialect, plugin))
        }
        // The client's reply to the greeting has sequence number 1; its commands have 0.
        Some(_) if said[3] == 1 => match random.below(4) {
            0 => packet(2, b"\xfemysql_native_password\0abcdefghijabcdefghij\0"),
            1 => packet(2, &[1, 3 + random.below(2) as u8]),
            _ => packet(2, OK),
        },
        Some(0x03) => packet(1, OK),
        Some(0x16) => answer(&prepared(dialect)),
        Some(0x17) => match random.below(4) {
            0 => packet(1, UNKNOWN_COLUMN),
            1 => answer(&wide(dialect)),
            _ => answer(&found(dialect)),
        },
        Some(_) => packet(said[3].wrapping_add(1), OK),
    }
}

fn change(bytes: &mut Vec<u8>, random: &mut Random) {
    // Most replies stay unchanged, so that exchanges get beyond the login.
    let count = random.below(12).saturating_sub(8);
    for _ in 0..count {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len());
        match random.below(5) {
            0 | 1 => bytes[at] = random.byte(),
            2 => {
                bytes.remove(at);
            }
            3 => bytes.insert(at, random.byte()),
            _ => {
                let end = (at + random.below(20)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
        }
    }
}

fn exchange(seed: u64) -> u32 {
    let mut random = Random(seed * 2 + 1);
    let dialect = ALL[random.below(3)];
    let login = LoginRequest {
        password: "geheim".into(),
        trusts_key: random.below(2) == 0,
        tls: [TlsPolicy::Never, TlsPolicy::IfOffered][random.below(2)],
        ..LoginRequest::default()
    };
    let mut client = ClientHarness::new(login, LIMITS).client;
    let (mut rows, mut values, mut done) = (0_u32, 0_usize, 0);
    for _ in 0..30 {
        let said = client.output().to_vec();
        assert!(said.len() < 2_000, "{} bytes of output", said.len());
        client.sent(said.len());
        let mut part = reply(&said, dialect, &mut random);
        change(&mut part, &mut random);
        // Input is split at random, so that incomplete packets are tested, too.
        let size = 1 + random.below(60);
        for piece in part.chunks(size) {
            let taken = client.input(piece, &mut |event| match event {
                MySqlEvent::Columns(columns) => {
                    assert!(columns.len() <= LIMITS.column_count_max);
                    (rows, values) = (0, 0);
                }
                MySqlEvent::Value(_) => {
                    values += 1;
                    assert!(values <= LIMITS.column_count_max);
                }
                MySqlEvent::RowEnd => {
                    rows += 1;
                    values = 0;
                    assert!(rows <= LIMITS.row_count_max);
                }
                MySqlEvent::Done { .. } => done += 1,
                MySqlEvent::StartTls | MySqlEvent::Ready | MySqlEvent::Failed(_) => {}
            });
            if taken.is_err() {
                // After an error, the client must not send anything.
                assert!(client.output().is_empty() && !client.is_idle());
                return done;
            }
        }
        if client.is_idle() {
            let text = ["SELECT ?", "SELECT a", "SELECT b"][random.below(3)];
            client
                .execute(text, [SqlValue::Int(1)].into_iter())
                .expect("idle");
        }
    }
    done
}

#[test]
fn row_with_every_type_is_parsed() {
    for dialect in ALL {
        let mut harness = ClientHarness::ready(dialect, LIMITS);
        harness
            .client
            .execute("SELECT ?", [SqlValue::Int(1)].into_iter())
            .expect("idle");
        harness
            .input(&answer(&prepared(dialect)))
            .expect("prepared");
        harness.input(&answer(&wide(dialect))).expect("rows");
        let event_texts = harness.take_events().join(" ");
        assert!(
            event_texts
                .contains("Text(\"2026-11-23\") Text(\"-30:00:01\") Text(\"2026-11-23 08:05:09\")"),
            "{event_texts}"
        );
        assert!(event_texts.ends_with("UInt(258) Text(\"abc\") Bytes([255, 0]) Text(\"12.5\") Int(2026) Null RowEnd Done 0 0"), "{event_texts}");
    }
}

#[test]
fn corrupted_exchanges_cause_no_panic() {
    // The number of completed statements shows that exchanges get beyond the login.
    let mut done = 0;
    for seed in 0..30_000 {
        done +=
            std::panic::catch_unwind(|| exchange(seed)).unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert!(
        done > 1_000,
        "most changes are too wild to find anything: {done} statements"
    );
}
