//! Selecting fields: which requests a stored response answers, by the values of the fields that Vary names in the
//! original request. Read RFC 9111 §4.1 and RFC 9110 §12.5.5.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lowroad_http::forwarding;

/// The most names that are supported.
const NAMES_MAX: usize = 16;

/// A name in lower case, and the value.
type SelectingField = (Box<[u8]>, Box<[u8]>);

/// The selecting fields of a response with their values in a request; empty if Vary names none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectingFields {
    /// `None` if there are none: this is the common case, and there are many responses.
    vary_names: Option<Box<VaryNames>>,
}

/// The fields, sorted by name, without duplicates.
#[derive(Clone, Debug, PartialEq, Eq)]
struct VaryNames(Box<[SelectingField]>);

impl FromIterator<SelectingField> for SelectingFields {
    fn from_iter<I: IntoIterator<Item = SelectingField>>(fields: I) -> SelectingFields {
        let fields: Box<[SelectingField]> = fields.into_iter().collect();
        SelectingFields {
            vary_names: (!fields.is_empty()).then(|| Box::new(VaryNames(fields))),
        }
    }
}

impl SelectingFields {
    /// No selecting fields: the response depends on its key only.
    pub const ALL: SelectingFields = SelectingFields { vary_names: None };

    /// The selecting fields of a response with these values of Vary, for a request with these fields. `None` if no
    /// other request can be answered with the response: Vary has `*`, too many names or an invalid one, or a field in
    /// which proxies report the client, since a client's own value is not the one that the origin received. Reports
    /// that are part of the key, or are never sent to origins, are ignored.
    pub fn from_vary<'v, 'f, F>(
        vary: impl IntoIterator<Item = &'v [u8]>,
        request: F,
    ) -> Option<SelectingFields>
    where
        F: Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        for name in vary
            .into_iter()
            .flat_map(|value| value.split(|b| *b == b','))
        {
            let name = name.trim_ascii();
            if name.is_empty() {
                continue;
            }
            if !name
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.!#$%&'+^`|~".contains(b))
            {
                return None;
            }
            // The origin received this server's value, not the client's.
            if forwarding::is_client_report(name) {
                return None;
            }
            // Part of the key, or never sent to an origin.
            if forwarding::is_report(name) {
                continue;
            }
            names.push(name.to_ascii_lowercase().into());
            if names.len() > NAMES_MAX {
                return None;
            }
        }
        // A canonical order: Vary may list the same names differently.
        names.sort_unstable();
        names.dedup();
        let fields = names.into_iter().map(|name| {
            let value = value_of(&name, request.clone());
            (name, value)
        });
        Some(fields.collect())
    }

    /// Whether the response depends on its key only.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.vary_names.is_none()
    }

    /// Whether the response answers a request with these fields.
    pub fn matches<'f, F>(&self, request: F) -> bool
    where
        F: Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    {
        let has_same_value =
            |(name, value): &SelectingField| value_of(name, request.clone()) == *value;
        self.fields().iter().all(has_same_value)
    }

    /// The same selecting fields with the values of another request.
    #[must_use]
    pub fn select_from<'f, F>(&self, request: F) -> SelectingFields
    where
        F: Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    {
        let fields = self.fields().iter().map(|(name, _)| {
            let value = value_of(name, request.clone());
            (name.clone(), value)
        });
        fields.collect()
    }

    /// Appends an unambiguous encoding: equal bytes mean equal fields.
    pub fn write(&self, out: &mut Vec<u8>) {
        for part in self.iter().flat_map(|(name, value)| [name, value]) {
            // With length prefixes, different fields cannot yield equal bytes.
            out.extend_from_slice(&(part.len() as u64).to_le_bytes());
            out.extend_from_slice(part);
        }
    }

    /// Whether both have the same names.
    #[must_use]
    pub fn has_same_names(&self, other: &SelectingFields) -> bool {
        let count = |selecting: &SelectingFields| selecting.fields().len();
        let mut pairs = self.fields().iter().zip(other.fields());
        count(self) == count(other) && pairs.all(|((a, _), (b, _))| a == b)
    }

    /// The memory in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        let size = |(name, value): &SelectingField| name.len() + value.len() + 32;
        self.fields().iter().map(size).sum()
    }

    /// The name and value of each field.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields()
            .iter()
            .map(|(name, value)| (&**name, &**value))
    }

    fn fields(&self) -> &[SelectingField] {
        self.vary_names
            .as_ref()
            .map_or(&[], |vary_names| &vary_names.0)
    }
}

/// Whether a field is a list of preferences: case and spaces are insignificant (RFC 9110 §12.5). The order of members
/// with equal weight is insignificant, too, but many origins take the first language or type.
fn is_preference(name: &[u8]) -> bool {
    [
        &b"accept"[..],
        b"accept-charset",
        b"accept-encoding",
        b"accept-language",
    ]
    .contains(&name)
}

/// Whether a field may be a list (RFC 9110 §5.6.1), with insignificant spaces around commas.
fn may_be_list(name: &[u8]) -> bool {
    ![
        &b"authorization"[..],
        b"cookie",
        b"origin",
        b"referer",
        b"user-agent",
    ]
    .contains(&name)
}

/// Normalizes a list to one space after each comma; a list with quoted strings is unchanged.
fn normalise_spaces(list: &[u8]) -> Vec<u8> {
    if list.contains(&b'"') {
        return list.to_vec();
    }
    let members = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    members.collect::<Vec<_>>().join(&b", "[..])
}

/// Normalizes a list of preferences; a list with quoted strings is unchanged. `has_order`: the order is significant.
fn normalised(list: &[u8], has_order: bool) -> Vec<u8> {
    if list.contains(&b'"') {
        return list.to_vec();
    }
    // Spaces inside a part make it malformed: an origin does not read `d e` as `de`, so they stay.
    let normalise_member = |member: &[u8]| -> Vec<u8> {
        let parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let parts: Vec<Vec<u8>> = parts.map(<[u8]>::to_ascii_lowercase).collect();
        parts.join(&b";"[..])
    };
    let mut members: Vec<Vec<u8>> = list
        .split(|byte| *byte == b',')
        .map(normalise_member)
        .collect();
    // RFC 9110 §5.6.1: empty members are ignored.
    members.retain(|member| !member.is_empty());
    if !has_order {
        members.sort_unstable();
    }
    members.dedup();
    members.join(&b","[..])
}

/// The values of a field joined as one list (RFC 9110 §5.3, RFC 6265 §5.4). Empty if the field is missing; a space,
/// which no value can be, if the field is empty: RFC 9111 §4.1 distinguishes the two.
fn value_of<'f>(name: &[u8], request: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Box<[u8]> {
    let mut value = Vec::new();
    // RFC 6265 §5.4: cookies are joined by a semicolon.
    let separator: &[u8] = if name == b"cookie" { b"; " } else { b", " };
    let lines = request.filter(|(field_name, _)| field_name.eq_ignore_ascii_case(name));
    let mut is_missing = true;
    for (at, (_, line)) in lines.enumerate() {
        is_missing = false;
        if at > 0 {
            value.extend_from_slice(separator);
        }
        value.extend_from_slice(line.trim_ascii());
    }
    let value = match is_preference(name) {
        true => normalised(&value, name != b"accept-encoding"),
        false if may_be_list(name) && value.contains(&b',') => normalise_spaces(&value),
        false => value,
    };
    match value.is_empty() && !is_missing {
        true => [b' '].into(),
        false => value.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Given = (&'static [u8], &'static [u8]);

    fn selecting(vary: &[&'static [u8]], request: &[Given]) -> Option<SelectingFields> {
        SelectingFields::from_vary(vary.iter().copied(), request.iter().copied())
    }

    #[test]
    fn a_response_answers_who_asks_in_the_same_way() {
        let german: &[Given] = &[(b"Accept-Language", b"de"), (b"Cookie", b"a=b")];
        let made = selecting(&[b"accept-language"], german).expect("it may be stored");
        assert!(made.matches(german.iter().copied()));
        let other: &[Given] = &[(b"ACCEPT-LANGUAGE", b" de "), (b"Cookie", b"other")];
        assert!(made.matches(other.iter().copied()));
        let english: &[Given] = &[(b"Accept-Language", b"en")];
        assert!(!made.matches(english.iter().copied()));
        assert!(!made.matches([].into_iter()));
    }

    #[test]
    fn lines_of_one_field_are_one_list() {
        let two: &[Given] = &[(b"Accept", b"a"), (b"X", b"1"), (b"accept", b"b")];
        let made = selecting(&[b"Accept"], two).expect("it may be stored");
        let one: &[Given] = &[(b"Accept", b"a, b")];
        assert!(made.matches(one.iter().copied()));
        let turned: &[Given] = &[(b"Accept", b"b, a")];
        assert!(
            !made.matches(turned.iter().copied()),
            "origins take the first"
        );
    }

    #[test]
    fn what_is_malformed_is_not_taken_for_what_is_well_formed() {
        // A client could otherwise store a variant under the values of well-formed requests.
        let broken: &[Given] = &[(b"Accept-Language", b"d e ; q=1 , x")];
        let made = selecting(&[b"Accept-Language"], broken).expect("it may be stored");
        let right: &[Given] = &[(b"Accept-Language", b"de;q=1,x")];
        assert!(!made.matches(right.iter().copied()));
        let same: &[Given] = &[(b"Accept-Language", b"D e;q=1,  x")];
        assert!(made.matches(same.iter().copied()));
    }

    #[test]
    fn spaces_around_commas_of_a_list_mean_nothing() {
        // RFC 9110 §5.6.1; only fields that may be lists are normalized.
        for (name, one, other, same) in [
            (&b"Foo"[..], &b"1,2"[..], &b"1,  2"[..], true),
            (b"Foo", b"1 ,\t2", b"1, 2", true),
            (b"Foo", b"1 2", b"12", false),
            (b"Foo", b"1, 2", b"2, 1", false),
            // Not a list of preferences: its origin may count empty members.
            (b"Foo", b"1,,2", b"1,2", false),
            (b"Foo", b"\"1,2\"", b"\"1, 2\"", false),
            (b"Cookie", b"a=1,2", b"a=1, 2", false),
            (b"User-Agent", b"a (b,c)", b"a (b, c)", false),
        ] {
            let made =
                SelectingFields::from_vary([name], [(name, one)].into_iter()).expect("storable");
            assert_eq!(
                made.matches([(name, other)].into_iter()),
                same,
                "{name:?} {other:?}"
            );
        }
    }

    #[test]
    fn an_empty_line_is_a_line() {
        let two: &[Given] = &[(b"X", b""), (b"X", b"fr")];
        let made = selecting(&[b"X"], two).expect("it may be stored");
        let one: &[Given] = &[(b"X", b"fr")];
        assert!(!made.matches(one.iter().copied()));
        let cookies: &[Given] = &[(b"Cookie", b"a"), (b"Cookie", b"b")];
        let made = selecting(&[b"Cookie"], cookies).expect("it may be stored");
        let joined: &[Given] = &[(b"Cookie", b"a; b")];
        assert!(made.matches(joined.iter().copied()));
    }

    #[test]
    fn an_empty_field_is_no_missing_field() {
        // RFC 9111 §4.1 distinguishes absent fields.
        for name in [&b"X"[..], b"Accept", b"Cookie"] {
            let with = SelectingFields::from_vary([name], [(name, &b""[..])].into_iter())
                .expect("storable");
            let without = SelectingFields::from_vary([name], [].into_iter()).expect("storable");
            assert!(with.matches([(name, &b""[..])].into_iter()) && !with.matches([].into_iter()));
            assert!(!without.matches([(name, &b""[..])].into_iter()));
        }
    }

    #[test]
    fn what_depends_on_the_client_that_proxies_report_answers_nobody_else() {
        // A forged field would otherwise select another user's response.
        for name in [
            "X-Forwarded-User",
            "x-forwarded-for",
            "X-Real-IP",
            "CF-Visitor",
        ] {
            let forged: &[Given] = &[(b"X-Forwarded-User", b"alice")];
            let made = SelectingFields::from_vary([name.as_bytes()], forged.iter().copied());
            assert_eq!(made, None, "{name}");
        }
        // The key has scheme and host, and Forwarded is never sent to an origin.
        let known = selecting(&[b"X-Forwarded-Proto, X-Forwarded-Host, Forwarded"], &[]);
        assert_eq!(known, Some(SelectingFields::ALL));
    }

    #[test]
    fn without_vary_it_answers_everybody() {
        let made = selecting(&[b"", b" , "], &[(b"A", b"b")]).expect("it may be stored");
        assert!(made.is_empty() && made.matches([(&b"A"[..], &b"c"[..])].into_iter()));
    }

    #[test]
    fn names_are_told_apart_by_what_they_are() {
        let request: &[Given] = &[(b"A", b"1"), (b"B", b"2")];
        let one = selecting(&[b"B, a", b"A"], request).expect("it may be stored");
        let two = selecting(&[b"a,b"], &[]).expect("it may be stored");
        assert!(one.has_same_names(&two) && one != two);
        let three = selecting(&[b"a"], request).expect("it may be stored");
        assert!(!one.has_same_names(&three));
    }

    #[test]
    fn a_request_is_told_from_others_by_the_same_fields() {
        let made = selecting(&[b"a, b"], &[(b"A", b"1")]).expect("it may be stored");
        let written = |request: &[Given]| {
            let mut bytes = Vec::new();
            let of_request = made.select_from(request.iter().copied());
            assert!(of_request.matches(request.iter().copied()));
            of_request.write(&mut bytes);
            bytes
        };
        let one = written(&[(b"a", b"x"), (b"b", b"y"), (b"C", b"1")]);
        assert_eq!(one, written(&[(b"B", b"y"), (b"A", b"x")]));
        assert_ne!(one, written(&[(b"a", b"xy"), (b"b", b"")]));
        assert_ne!(one, written(&[(b"a", b"x")]));
    }

    #[test]
    fn what_depends_on_everything_answers_nobody() {
        assert_eq!(selecting(&[b"*"], &[]), None);
        assert_eq!(selecting(&[b"accept", b"a, *"], &[]), None);
        assert_eq!(selecting(&[b"a b"], &[]), None);
        let many = (0..17)
            .map(|n| alloc::format!("x{n}"))
            .collect::<Vec<_>>()
            .join(",");
        assert_eq!(
            SelectingFields::from_vary([many.as_bytes()], [].into_iter()),
            None
        );
    }
}
