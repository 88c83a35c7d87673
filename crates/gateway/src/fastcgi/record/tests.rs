use super::*;

fn record(kind: u8, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
    let mut out = Vec::new();
    write_header(&mut out, kind, id, content.len());
    out[6] = padding;
    out.extend_from_slice(content);
    out.resize(out.len() + usize::from(padding), 0xee);
    out
}

/// The decoded events; contents are concatenated.
#[derive(Debug, Default, PartialEq, Eq)]
struct DecodedEvents {
    output: Vec<u8>,
    complaints: Vec<u8>,
    output_ends: usize,
    ended: Vec<(u16, FastCgiEnd)>,
    multiplexes: Vec<bool>,
}

/// Decodes input that arrives in these pieces.
fn decode<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Result<DecodedEvents, BadRecord> {
    let mut decoder = FastCgiDecoder::default();
    let mut result = DecodedEvents::default();
    let mut bytes = Vec::new();
    for piece in pieces {
        bytes.extend_from_slice(piece);
        loop {
            let (event, len) = decoder.next(&bytes)?;
            match event.clone() {
                Some(FastCgiEvent::Output(7, range)) => {
                    result.output.extend_from_slice(&bytes[range])
                }
                Some(FastCgiEvent::Stderr(7, range)) => {
                    result.complaints.extend_from_slice(&bytes[range]);
                }
                Some(FastCgiEvent::OutputEnd(7)) => result.output_ends += 1,
                Some(FastCgiEvent::End(id, ended)) => result.ended.push((id, ended)),
                Some(FastCgiEvent::Multiplexes(does)) => result.multiplexes.push(does),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            bytes.drain(..len);
            if event.is_none() {
                break;
            }
        }
    }
    Ok(result)
}

fn conversation() -> Vec<u8> {
    [
        record(STDOUT, 7, b"Status: 200\r\n\r\n", 3),
        record(STDERR, 7, b"oh", 0),
        record(STDOUT, 7, &[b'x'; 300], 255),
        record(STDOUT, 7, b"", 0),
        record(STDERR, 7, b"", 8),
        record(GET_VALUES_RESULT, 0, b"\x0f\x01FCGI_MPXS_CONNS1", 5),
        record(END_REQUEST, 7, &[0, 0, 0, 1, 0, 0, 0, 0], 2),
    ]
    .concat()
}

#[test]
fn records_decode_when_split_at_any_byte() {
    let bytes = conversation();
    let whole = decode([&bytes[..]]).expect("good records");
    assert_eq!(whole.output.len(), 15 + 300);
    assert_eq!(whole.complaints, b"oh");
    assert_eq!(whole.output_ends, 1);
    assert_eq!(whole.ended, [(7, FastCgiEnd::Complete)]);
    assert_eq!(whole.multiplexes, [true]);
    for at in 0..bytes.len() {
        let (front, back) = bytes.split_at(at);
        assert_eq!(decode([front, back]).as_ref(), Ok(&whole), "{at}");
    }
    assert_eq!(decode(bytes.chunks(1)), Ok(whole));
}

#[test]
fn invalid_records_are_refused() {
    for bytes in [
        b"HTTP/1.1 400 Bad".to_vec(),
        vec![1, 99, 0, 1, 0, 0, 0, 0],
        record(END_REQUEST, 7, &[0; 7], 0),
        record(END_REQUEST, 7, &[0, 0, 0, 0, 9, 0, 0, 0], 0),
        record(BEGIN_REQUEST, 7, &[0; 8], 0),
        record(GET_VALUES_RESULT, 0, &[0; 1025], 0),
    ] {
        assert!(decode([&bytes[..]]).is_err(), "{bytes:?}");
        assert!(decode(bytes.chunks(1)).is_err(), "{bytes:?}");
    }
}

#[test]
fn end_request_protocol_status_is_decoded() {
    for (code, ended) in [
        (1, FastCgiEnd::CannotMultiplex),
        (2, FastCgiEnd::Overloaded),
        (3, FastCgiEnd::UnknownRole),
    ] {
        let bytes = record(END_REQUEST, 9, &[0, 0, 0, 0, code, 0, 0, 0], 0);
        assert_eq!(decode([&bytes[..]]).expect("good").ended, [(9, ended)]);
    }
}

#[test]
fn get_values_result_is_decoded() {
    for (pairs, want) in [
        (&b"\x0f\x01FCGI_MPXS_CONNS1"[..], true),
        (b"\x0f\x01FCGI_MPXS_CONNS0", false),
        (b"\x01\x01ab\x0f\x01FCGI_MPXS_CONNS1", true),
        (b"\x0f\x80\x00\x00\x01FCGI_MPXS_CONNS1", true),
        (b"\x0f\x05FCGI_MPXS_CONNS1", false),
        (b"\x80", false),
        (b"", false),
    ] {
        let bytes = record(GET_VALUES_RESULT, 0, pairs, 0);
        assert_eq!(decode([&bytes[..]]).expect("good").multiplexes, [want]);
    }
    let unknown = record(UNKNOWN_TYPE, 0, &[9, 0, 0, 0, 0, 0, 0, 0], 0);
    assert_eq!(decode([&unknown[..]]).expect("good").multiplexes, [false]);
}

#[test]
fn requests_are_encoded_as_specified() {
    let mut out = Vec::new();
    write_begin_request(&mut out, 0x0102, true);
    assert_eq!(out, [1, 1, 1, 2, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
    out.clear();
    let mut params = ParamsWriter::start(&mut out, 1);
    params.write(b"a", b"bc");
    params.write(b"n", &[b'v'; 128]);
    params.finish();
    let pairs = [&b"\x01\x02abc\x01\x80\x00\x00\x80n"[..], &[b'v'; 128]].concat();
    let want = [record(PARAMS, 1, &pairs, 0), record(PARAMS, 1, b"", 0)].concat();
    assert_eq!(out, want);
    out.clear();
    write_stdin_header(&mut out, 1, 0);
    out.extend_from_slice(&abort(1));
    assert_eq!(out, [1, 5, 0, 1, 0, 0, 0, 0, 1, 2, 0, 1, 0, 0, 0, 0]);
}

#[test]
fn params_are_terminated_once_and_split_if_long() {
    let mut out = Vec::new();
    ParamsWriter::start(&mut out, 1).finish();
    assert_eq!(out, record(PARAMS, 1, b"", 0));
    out.clear();
    let mut params = ParamsWriter::start(&mut out, 1);
    for _ in 0..20 {
        params.write(b"n", &[b'v'; 10_000]);
    }
    params.finish();
    let (mut at, mut content) = (0, 0);
    while at < out.len() {
        assert_eq!(out[at..at + 4], [1, PARAMS, 0, 1]);
        let len = usize::from(u16::from_be_bytes([out[at + 4], out[at + 5]]));
        content += len;
        at += HEADER_LEN + len;
    }
    assert_eq!((at, content), (out.len(), 20 * (1 + 4 + 1 + 10_000)));
    assert_eq!(out[out.len() - 4..], [0; 4]);
}
