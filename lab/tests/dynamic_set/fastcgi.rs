//! A minimal FastCGI client: one request at a time on a persistent connection.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const BEGIN: u8 = 1;
const END: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;

/// Sends a request and returns the program's output.
pub fn ask(client: &mut UnixStream, variables: &[(&str, String)], body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // Role: responder; flag: keep the connection.
    record(&mut out, BEGIN, &[0, 1, 1, 0, 0, 0, 0, 0]);
    let mut params = Vec::new();
    for (name, value) in variables {
        params.extend(len(name.len()));
        params.extend(len(value.len()));
        params.extend(name.as_bytes());
        params.extend(value.as_bytes());
    }
    record(&mut out, PARAMS, &params);
    record(&mut out, PARAMS, &[]);
    if !body.is_empty() {
        record(&mut out, STDIN, body);
    }
    record(&mut out, STDIN, &[]);
    client.write_all(&out).expect("the program reads");
    answer(client)
}

fn answer(client: &mut UnixStream) -> Vec<u8> {
    let mut answer = Vec::new();
    loop {
        let mut head = [0; 8];
        client.read_exact(&mut head).expect("a record");
        let content_len = usize::from(u16::from_be_bytes([head[4], head[5]]));
        let mut content = vec![0; content_len + usize::from(head[6])];
        client.read_exact(&mut content).expect("its content");
        match head[1] {
            STDOUT => answer.extend(&content[..content_len]),
            END => return answer,
            other => panic!("a record of type {other}"),
        }
    }
}

fn record(out: &mut Vec<u8>, kind: u8, content: &[u8]) {
    let len = u16::try_from(content.len()).expect("short").to_be_bytes();
    out.extend([1, kind, 0, 1, len[0], len[1], 0, 0]);
    out.extend(content);
}

fn len(len: usize) -> Vec<u8> {
    match u8::try_from(len) {
        Ok(short @ 0..=127) => vec![short],
        _ => (0x8000_0000 | u32::try_from(len).expect("short"))
            .to_be_bytes()
            .to_vec(),
    }
}
