//! Tests of messages, with receivers on real sockets.

use std::io::Read;
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use super::*;
use crate::loss_report::RECOVERY;

fn fields() -> MessageFields {
    MessageFields {
        facility: 23,
        tag: "web".into(),
        host: "host".into(),
    }
}

/// An output, and its events as texts.
fn output(target: MessageTarget) -> (MessageOutput, Receiver<String>) {
    let (sender, events) = channel();
    let on_event = move |event: MessageEvent| {
        let text = match event {
            MessageEvent::Dropping(error) => format!("dropping: {:?}", error.kind()),
            MessageEvent::SentAgain { lost } => format!("again: {lost}"),
        };
        sender.send(text).expect("a receiver");
    };
    (
        MessageOutput::new(target, fields(), Box::new(on_event)),
        events,
    )
}

/// The message without its time.
fn without_time(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(message);
    let words: Vec<&str> = text.splitn(3, ' ').collect();
    assert_eq!(words[1].len(), "2026-11-20T20:45:12.123Z".len(), "{text}");
    format!("{} {}", words[0], words[2])
}

fn expected(line: &str) -> String {
    format!("<190>1 host web {} access - {line}", std::process::id())
}

#[test]
fn syslog_over_udp_has_a_datagram_for_each_line() {
    let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let port = receiver.local_addr().expect("an address").port();
    let (mut output, _) = output(MessageTarget::SyslogUdp("127.0.0.1".into(), port));
    assert_eq!(output.write(b"one\ntwo\n"), 0);
    let mut buffer = [0; 1000];
    for line in ["one", "two"] {
        let len = receiver.recv(&mut buffer).expect("a message");
        assert_eq!(without_time(&buffer[..len]), expected(line));
    }
    // A line that no datagram can hold is lost, and the next one is sent.
    assert_eq!(
        output.write(&[&[b'x'; 70_000][..], b"\nthree\n"].concat()),
        1
    );
    let len = receiver.recv(&mut buffer).expect("a message");
    assert_eq!(without_time(&buffer[..len]), expected("three"));
}

#[test]
fn syslog_over_tcp_counts_octets() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    let (mut output, _) = output(MessageTarget::SyslogTcp("localhost".into(), port));
    assert_eq!(output.write(b"one\n"), 0);
    drop(output);
    let mut text = Vec::new();
    let (mut stream, _) = listener.accept().expect("a connection");
    stream.read_to_end(&mut text).expect("a message");
    let at = text
        .iter()
        .position(|byte| *byte == b' ')
        .expect("a length");
    let len: usize = String::from_utf8_lossy(&text[..at])
        .parse()
        .expect("a length");
    assert_eq!(text.len(), at + 1 + len);
    assert_eq!(without_time(&text[at + 1..]), expected("one"));
}

#[test]
fn missing_receiver_is_reported_once_and_tried_again() {
    let folder = std::env::temp_dir().join(format!("lowroad-syslog-{}", std::process::id()));
    let _ = std::fs::remove_file(&folder);
    let (mut output, events) = output(MessageTarget::SyslogUnix(folder.clone()));
    assert_eq!(output.write(b"one\ntwo\n"), 2);
    assert_eq!(output.write(b"three\n"), 1);
    assert_eq!(
        events.try_iter().collect::<Vec<_>>(),
        ["dropping: NotFound"]
    );
    let receiver = UnixDatagram::bind(&folder).expect("a socket");
    // A signal ends the pause.
    output.reopen(|_, error| Err(error)).expect("no error");
    let now = Instant::now();
    assert_eq!(output.send_lines(b"four\n", now, 0), 0);
    assert_eq!(events.try_iter().count(), 0);
    assert_eq!(output.send_lines(b"five\n", now + RECOVERY, 0), 0);
    assert_eq!(events.try_iter().collect::<Vec<_>>(), ["again: 3"]);
    let mut buffer = [0; 1000];
    let len = receiver.recv(&mut buffer).expect("a message");
    assert_eq!(without_time(&buffer[..len]), expected("four"));
    std::fs::remove_file(&folder).expect("removed");
}

#[test]
fn receiver_that_closes_at_once_is_reported_once() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    let (mut output, events) = output(MessageTarget::SyslogTcp("127.0.0.1".into(), port));
    let mut now = Instant::now();
    // The first message of each connection is accepted; a later one fails.
    for _ in 0..3 {
        now += Duration::from_secs(60);
        assert_eq!(output.send_lines(b"one\n", now, 0), 0);
        drop(listener.accept().expect("a connection"));
        while output.send_lines(b"two\n", now, 0) == 0 {
            std::thread::yield_now();
        }
    }
    let events: Vec<String> = events.try_iter().collect();
    assert_eq!(events.len(), 1, "{events:?}");
}

#[test]
fn receiver_that_does_not_read_delays_by_the_timeout_only() {
    let path = std::env::temp_dir().join(format!("lowroad-syslog-full-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let _receiver = UnixDatagram::bind(&path).expect("a socket");
    let (mut output, events) = output(MessageTarget::SyslogUnix(path.clone()));
    let lines = b"a line\n".repeat(100_000);
    let lost = output.write(&lines);
    assert!((1..100_000).contains(&lost), "{lost}");
    assert_eq!(
        events.try_iter().collect::<Vec<_>>(),
        ["dropping: WouldBlock"]
    );
    std::fs::remove_file(&path).expect("removed");
}

#[test]
fn journal_message_has_its_fields() {
    let mut message = Vec::new();
    journal_message(&fields(), b"a line", &mut message);
    assert_eq!(
        String::from_utf8_lossy(&message),
        "PRIORITY=6\nSYSLOG_FACILITY=23\nSYSLOG_IDENTIFIER=web\nMESSAGE=a line\n"
    );
}

#[test]
fn targets_are_shown_as_configured() {
    for (target, expected) in [
        (MessageTarget::Journal, "journald"),
        (
            MessageTarget::SyslogUnix("/dev/log".into()),
            "syslog:unix:/dev/log",
        ),
        (
            MessageTarget::SyslogUdp("127.0.0.1".into(), 18514),
            "syslog:udp:127.0.0.1:18514",
        ),
        (
            MessageTarget::SyslogTcp("2001:db8::1".into(), 514),
            "syslog:tcp:[2001:db8::1]:514",
        ),
    ] {
        assert_eq!(target.to_string(), expected);
    }
}
