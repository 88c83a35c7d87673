//! The field `tracestate` (W3C Trace Context, level 1, §3.3): data of tracing systems, which each participant passes
//! on. Lowroad adds no member.

/// The name of the field.
pub const TRACESTATE: &str = "tracestate";

/// Maximum number of members.
const MEMBER_COUNT_MAX: usize = 32;
/// Maximum length of a list that is passed on, the length that §3.3.1.5 requires.
pub const TRACE_STATE_LEN_MAX: usize = 512;
/// Of a longer list, members longer than this are removed first (§3.3.1.5).
const LONG_MEMBER_LEN: usize = 128;
/// Maximum length of keys and values.
const TEXT_LEN_MAX: usize = 256;
/// Maximum length of the parts of a key of several tenants.
const TENANT_LEN_MAX: usize = 241;
const SYSTEM_LEN_MAX: usize = 14;

/// The members of all field lines as one list. `None` if there are no members, or if the list is invalid: then the
/// whole list is discarded (§3.3.1.4).
pub fn combine<'v>(lines: impl Iterator<Item = &'v [u8]>) -> Option<Box<str>> {
    let mut members: Vec<&str> = Vec::new();
    for line in lines {
        for member in line.split(|byte| *byte == b',') {
            let member = trim(member);
            // Empty members are allowed.
            if member.is_empty() {
                continue;
            }
            if !is_member(member) || members.len() == MEMBER_COUNT_MAX {
                return None;
            }
            members.push(str::from_utf8(member).ok()?);
        }
    }
    shorten(&mut members);
    (!members.is_empty()).then(|| members.join(",").into())
}

/// Removes members until the list has the maximum length.
fn shorten(members: &mut Vec<&str>) {
    let len = |members: &Vec<&str>| members.iter().map(|member| member.len() + 1).sum::<usize>();
    while len(members) > TRACE_STATE_LEN_MAX + 1 {
        let long = members.iter().rposition(|it| it.len() > LONG_MEMBER_LEN);
        // The members of the nearest systems are at the start.
        members.remove(long.unwrap_or(members.len() - 1));
    }
}

/// Without the surrounding spaces and tabs.
fn trim(member: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = member.iter().position(|byte| !is_blank(byte));
    let end = member.iter().rposition(|byte| !is_blank(byte));
    start
        .zip(end)
        .map_or(b"", |(start, end)| &member[start..=end])
}

/// Whether this is `key=value`.
fn is_member(member: &[u8]) -> bool {
    let Some(equals) = member.iter().position(|byte| *byte == b'=') else {
        return false;
    };
    is_key(&member[..equals]) && is_value(&member[equals + 1..])
}

fn is_key(key: &[u8]) -> bool {
    let is_key_byte =
        |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/');
    let is_part = |part: &[u8], len_max: usize, may_start_with_digit: bool| {
        let starts = part.first().is_some_and(|byte| {
            byte.is_ascii_lowercase() || may_start_with_digit && byte.is_ascii_digit()
        });
        starts && part.len() <= len_max && part.iter().all(is_key_byte)
    };
    match key.iter().position(|byte| *byte == b'@') {
        None => is_part(key, TEXT_LEN_MAX, false),
        Some(at) => {
            is_part(&key[..at], TENANT_LEN_MAX, true)
                && is_part(&key[at + 1..], SYSTEM_LEN_MAX, false)
        }
    }
}

fn is_value(value: &[u8]) -> bool {
    // The caller has removed spaces at the end, and split at commas.
    let is_value_byte = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'=';
    (1..=TEXT_LEN_MAX).contains(&value.len()) && value.iter().all(is_value_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn combined(lines: &[&str]) -> Option<String> {
        let lines = lines.iter().map(|line| line.as_bytes());
        combine(lines).map(String::from)
    }

    #[test]
    fn examples_of_the_specification_are_passed_on() {
        for list in [
            "rojo=00f067aa0ba902b7",
            "congo=t61rcWkgMzE",
            "congo=ucfJifl5GOE,rojo=00f067aa0ba902b7",
            "fw529a3039@dt=FfZvW1hU,0t@s=1",
            "a_-*/0=!#$%&'()*+-./:;<>?@[]^_`{|}~ b",
        ] {
            assert_eq!(combined(&[list]).as_deref(), Some(list));
        }
    }

    #[test]
    fn lines_are_combined_and_blanks_removed() {
        assert_eq!(
            combined(&["foo=1 \t , \t bar=2", "", "rojo=1,,", ","]).as_deref(),
            Some("foo=1,bar=2,rojo=1")
        );
        assert_eq!(combined(&["", " , "]), None);
        assert_eq!(combined(&[]), None);
    }

    #[test]
    fn one_invalid_member_invalidates_the_list() {
        for member in [
            "foo",
            "=1",
            "foo=",
            "foo =1",
            "FOO=1",
            "foo.bar=1",
            "foo@=1",
            "@foo=1",
            "foo@@bar=1",
            "foo@bar@baz=1",
            "0foo=1",
            "foo@0s=1",
            "foo=1=2",
            "foo=\u{7f}",
            "foo=\u{e9}",
            "foo=1\t2",
        ] {
            assert_eq!(combined(&["ok=1", member]), None, "{member}");
        }
        let long = |key: usize, value: usize| format!("{}={}", "k".repeat(key), "v".repeat(value));
        assert_eq!(combined(&[&long(257, 1)]), None);
        assert_eq!(combined(&[&long(1, 257)]), None);
        assert_eq!(combined(&[&format!("{}@v=1", "t".repeat(242))]), None);
        assert_eq!(combined(&[&format!("t@{}=1", "v".repeat(15))]), None);
        assert!(combined(&[&format!("{}@{}=1", "t".repeat(241), "v".repeat(14))]).is_some());
    }

    #[test]
    fn more_than_32_members_invalidate_the_list() {
        let members: Vec<String> = (0..33).map(|number| format!("k{number}=1")).collect();
        assert!(combined(&[&members[..32].join(",")]).is_some());
        assert_eq!(combined(&[&members.join(",")]), None);
    }

    #[test]
    fn long_list_loses_long_members_and_then_the_last_ones() {
        // 1000 bytes: a long member, and nine of 89 bytes.
        let long = format!("long={}", "x".repeat(185));
        let short: Vec<String> = (0..9).map(|n| format!("s{n}={}", "y".repeat(86))).collect();
        let list = format!("{},{long},{}", short[..2].join(","), short[2..].join(","));
        assert_eq!(list.len(), 1000);
        let kept = combined(&[&list]).expect("a list");
        assert_eq!(kept, short[..5].join(","));
        assert!(kept.len() <= TRACE_STATE_LEN_MAX);
        let exact = format!("a={},b={}", "x".repeat(126), "y".repeat(253));
        assert_eq!(combined(&[&exact]).as_deref(), Some(&*exact));
    }
}
