//! Selecting fields (Vary): a stored response answers only requests in which the fields named by Vary have the same
//! values as in the original request. Read RFC 9111 §4.1 and RFC 9110 §12.5.5.

use alloc::boxed::Box;
use alloc::vec::Vec;

use lowroad_http::forwarding;

/// The most field names in Vary that are supported.
const NAMES_MAX: usize = 16;

/// A field name in lower case, and the field's value in the request.
type SelectingField = (Box<[u8]>, Box<[u8]>);

/// The selecting fields of a response with their values in a request; empty if Vary names none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectingFields {
    /// `None` if Vary names no field: the common case, in which no memory is allocated.
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
    pub const NONE: SelectingFields = SelectingFields { vary_names: None };

    /// The selecting fields of a response with these Vary lines to a request with these fields. `None` if the response
    /// cannot answer any other request: Vary has `*`, too many names, an invalid name, or the name of a field in which
    /// proxies report the client (X-Forwarded-For), since the origin received this server's value and not the client's.
    /// Names of proxy fields that are part of the cache key, or are never sent to origins, are ignored.
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
            // These fields are part of the cache key, or never sent to an origin.
            if forwarding::is_report(name) {
                continue;
            }
            names.push(name.to_ascii_lowercase().into());
            if names.len() > NAMES_MAX {
                return None;
            }
        }
        // The names get a canonical order, since Vary may list them in another order.
        names.sort_unstable();
        names.dedup();
        let fields = names.into_iter().map(|name| {
            let value = value_of(&name, request.clone());
            (name, value)
        });
        Some(fields.collect())
    }

    /// Whether the response depends on its cache key only.
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

    /// The same field names with the values of another request.
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

    /// Whether `other` has the same field names.
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

/// Whether a field is a list of preferences (Accept-Encoding), in which upper case and spaces are insignificant (RFC
/// 9110 §12.5). The order of members with equal weight is insignificant, too, but many origins take the first language
/// or media type.
pub fn is_preference(name: &[u8]) -> bool {
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

/// Normalizes a list of preferences; a list with quoted strings is unchanged. `has_order`: the order of members is
/// significant.
fn normalised(list: &[u8], has_order: bool) -> Vec<u8> {
    if list.contains(&b'"') {
        return list.to_vec();
    }
    // Spaces inside a part are preserved: they make it malformed, and an origin does not interpret `d e` as `de`.
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

/// The values of all lines of a field, combined into one list (RFC 9110 §5.3, RFC 6265 §5.4); `None` for an absent field.
/// `name` is in lower case.
pub fn combined_value<'f>(
    name: &[u8],
    request: impl Iterator<Item = (&'f [u8], &'f [u8])>,
) -> Option<Vec<u8>> {
    // RFC 6265 §5.4: cookies are joined by a semicolon.
    let separator: &[u8] = if name == b"cookie" { b"; " } else { b", " };
    let mut lines = request.filter(|(field_name, _)| field_name.eq_ignore_ascii_case(name));
    let mut value = lines.next()?.1.trim_ascii().to_vec();
    for (_, line) in lines {
        value.extend_from_slice(separator);
        value.extend_from_slice(line.trim_ascii());
    }
    Some(match may_be_list(name) && value.contains(&b',') {
        true => normalise_spaces(&value),
        false => value,
    })
}

/// The combined value of a field as responses are selected by it. An absent field gives the empty string, and an empty
/// field a space, which is not a possible value: RFC 9111 §4.1 distinguishes the two.
fn value_of<'f>(name: &[u8], request: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Box<[u8]> {
    match combined_value(name, request) {
        None => [].into(),
        Some(value) if is_preference(name) => {
            let value = normalised(&value, name != b"accept-encoding");
            // An empty preference is not the same as none.
            if value.is_empty() {
                [b' '].into()
            } else {
                value.into()
            }
        }
        Some(value) if value.is_empty() => [b' '].into(),
        Some(value) => value.into(),
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
    fn response_matches_requests_with_equal_selecting_fields() {
        let german: &[Given] = &[(b"Accept-Language", b"de"), (b"Cookie", b"a=b")];
        let selecting_fields = selecting(&[b"accept-language"], german).expect("it may be stored");
        assert!(selecting_fields.matches(german.iter().copied()));
        let other: &[Given] = &[(b"ACCEPT-LANGUAGE", b" de "), (b"Cookie", b"other")];
        assert!(selecting_fields.matches(other.iter().copied()));
        let english: &[Given] = &[(b"Accept-Language", b"en")];
        assert!(!selecting_fields.matches(english.iter().copied()));
        assert!(!selecting_fields.matches([].into_iter()));
    }

    #[test]
    fn multiple_field_lines_are_combined() {
        let two: &[Given] = &[(b"Accept", b"a"), (b"X", b"1"), (b"accept", b"b")];
        let selecting_fields = selecting(&[b"Accept"], two).expect("it may be stored");
        let one: &[Given] = &[(b"Accept", b"a, b")];
        assert!(selecting_fields.matches(one.iter().copied()));
        let turned: &[Given] = &[(b"Accept", b"b, a")];
        assert!(
            !selecting_fields.matches(turned.iter().copied()),
            "origins take the first"
        );
    }

    #[test]
    fn malformed_values_do_not_match_well_formed_ones() {
        // A client could otherwise store a variant under the values of well-formed requests.
        let broken: &[Given] = &[(b"Accept-Language", b"d e ; q=1 , x")];
        let selecting_fields = selecting(&[b"Accept-Language"], broken).expect("it may be stored");
        let right: &[Given] = &[(b"Accept-Language", b"de;q=1,x")];
        assert!(!selecting_fields.matches(right.iter().copied()));
        let same: &[Given] = &[(b"Accept-Language", b"D e;q=1,  x")];
        assert!(selecting_fields.matches(same.iter().copied()));
    }

    #[test]
    fn spaces_around_commas_in_lists_are_ignored() {
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
            let selecting_fields =
                SelectingFields::from_vary([name], [(name, one)].into_iter()).expect("storable");
            assert_eq!(
                selecting_fields.matches([(name, other)].into_iter()),
                same,
                "{name:?} {other:?}"
            );
        }
    }

    #[test]
    fn empty_lines_are_combined_like_others() {
        let two: &[Given] = &[(b"X", b""), (b"X", b"fr")];
        let selecting_fields = selecting(&[b"X"], two).expect("it may be stored");
        let one: &[Given] = &[(b"X", b"fr")];
        assert!(!selecting_fields.matches(one.iter().copied()));
        let cookies: &[Given] = &[(b"Cookie", b"a"), (b"Cookie", b"b")];
        let selecting_fields = selecting(&[b"Cookie"], cookies).expect("it may be stored");
        let joined: &[Given] = &[(b"Cookie", b"a; b")];
        assert!(selecting_fields.matches(joined.iter().copied()));
    }

    #[test]
    fn empty_field_differs_from_absent_field() {
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
    fn vary_on_forwarded_client_is_not_storable() {
        // Otherwise a forged field would select another user's response.
        for name in [
            "X-Forwarded-User",
            "x-forwarded-for",
            "X-Real-IP",
            "CF-Visitor",
        ] {
            let forged: &[Given] = &[(b"X-Forwarded-User", b"alice")];
            let selecting_fields =
                SelectingFields::from_vary([name.as_bytes()], forged.iter().copied());
            assert_eq!(selecting_fields, None, "{name}");
        }
        // Scheme and host are part of the cache key, and Forwarded is never sent to an origin.
        let selecting_fields_known =
            selecting(&[b"X-Forwarded-Proto, X-Forwarded-Host, Forwarded"], &[]);
        assert_eq!(selecting_fields_known, Some(SelectingFields::NONE));
    }

    #[test]
    fn response_without_vary_matches_all_requests() {
        let selecting_fields =
            selecting(&[b"", b" , "], &[(b"A", b"b")]).expect("it may be stored");
        assert!(
            selecting_fields.is_empty()
                && selecting_fields.matches([(&b"A"[..], &b"c"[..])].into_iter())
        );
    }

    #[test]
    fn has_same_names_compares_field_names() {
        let request: &[Given] = &[(b"A", b"1"), (b"B", b"2")];
        let one = selecting(&[b"B, a", b"A"], request).expect("it may be stored");
        let two = selecting(&[b"a,b"], &[]).expect("it may be stored");
        assert!(one.has_same_names(&two) && one != two);
        let three = selecting(&[b"a"], request).expect("it may be stored");
        assert!(!one.has_same_names(&three));
    }

    #[test]
    fn select_from_takes_the_values_of_another_request() {
        let selecting_fields = selecting(&[b"a, b"], &[(b"A", b"1")]).expect("it may be stored");
        let written = |request: &[Given]| {
            let mut bytes = Vec::new();
            let of_request = selecting_fields.select_from(request.iter().copied());
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
    fn vary_star_or_invalid_names_are_not_storable() {
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
