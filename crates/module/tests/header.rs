//! Checks that `lowroad.h` and the Rust API use the same numbers.

use lowroad_module::{abi, CallEvent, CallStep, HostValue, MessageLevel};

const HEADER: &str = include_str!("../include/lowroad.h");

/// The constants of the header, from lines `LOWROAD_NAME = value`.
fn numbers() -> Vec<(&'static str, i64)> {
    let text = HEADER.split([',', '{', '\n']);
    let pairs = text.filter_map(|part| part.split_once('='));
    pairs
        .filter_map(|(name, value)| {
            let name = name.trim().strip_prefix("LOWROAD_")?;
            let value = value.split([' ', '}']).find(|part| !part.is_empty());
            Some((name, value?.parse().ok()?))
        })
        .collect()
}

fn number(name: &str) -> i64 {
    let found = numbers().into_iter().find(|(known, _)| *known == name);
    found
        .unwrap_or_else(|| panic!("{name} is not in the header"))
        .1
}

/// The name of a constant in the header: `BODY_END` for `BodyEnd`.
fn constant(name: &str) -> String {
    let name = name.split('(').next().expect("there is a first part");
    let mut constant = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !constant.is_empty() {
            constant.push('_');
        }
        constant.extend(c.to_uppercase());
    }
    constant
}

#[test]
fn abi_version_in_header_matches() {
    assert!(HEADER.contains(&format!("#define LOWROAD_ABI {}\n", abi::ABI)));
}

#[test]
fn numbers_in_header_match_rust_enums() {
    let mut seen = 0;
    for event in (1..=8).map(|event| CallEvent::from_numbers(event, 0).expect("an event")) {
        let name = constant(&format!("{event:?}"));
        assert_eq!(number(&name), i64::from(event.to_numbers().0), "{name}");
        seen += 1;
    }
    for next in [CallStep::Done, CallStep::Wait, CallStep::Failed] {
        let name = constant(&format!("{next:?}"));
        assert_eq!(number(&name), i64::from(next.to_number()), "{name}");
        seen += 1;
    }
    for what in (1..=13).map(|what| HostValue::from_number(what).expect("a value")) {
        let name = constant(&format!("{what:?}"));
        assert_eq!(number(&name), what as i64, "{name}");
        seen += 1;
    }
    for level in [
        MessageLevel::Error,
        MessageLevel::Warn,
        MessageLevel::Info,
        MessageLevel::Debug,
    ] {
        let name = constant(&format!("{level:?}"));
        assert_eq!(number(&name), level as i64, "{name}");
        seen += 1;
    }
    assert_eq!(
        numbers().len(),
        seen,
        "the header has no others: {:?}",
        numbers()
    );
    assert!(CallEvent::from_numbers(9, 0).is_none() && HostValue::from_number(14).is_none());
}
