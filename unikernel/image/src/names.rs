//! Builds the symbol table that `lowroad_kernel::symbols` reads, with demangled names.

/// Builds the table; `functions` must be sorted by address.
pub fn table(functions: &[(u32, &[u8])]) -> Vec<u8> {
    let mut names = Vec::new();
    let mut table = (functions.len() as u32).to_le_bytes().to_vec();
    for (address, name) in functions {
        table.extend(address.to_le_bytes());
        table.extend((names.len() as u32).to_le_bytes());
        names.extend(readable(name));
        names.push(0);
    }
    table.extend(names);
    table
}

/// Demangles `_ZN4core3fmt5write17h0123456789abcdefE` to `core::fmt::write`; other names stay unchanged.
fn readable(name: &[u8]) -> Vec<u8> {
    path(name).unwrap_or_else(|| name.to_vec())
}

fn path(name: &[u8]) -> Option<Vec<u8>> {
    let mut rest = name.strip_prefix(b"_ZN")?;
    let mut parts = Vec::new();
    while rest != b"E" && !rest.starts_with(b"E.") {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let len: usize = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
        parts.push(rest.get(digits..digits.checked_add(len)?)?);
        rest = &rest[digits + len..];
    }
    // A mangled name ends with a hash, which is of no use in a stack trace.
    if parts
        .last()
        .is_some_and(|hash| hash.len() == 17 && hash[0] == b'h')
    {
        parts.pop();
    }
    Some(parts.join(&b"::"[..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_names_are_demangled() {
        assert_eq!(
            readable(b"_ZN4core3fmt5write17h0123456789abcdefE"),
            b"core::fmt::write"
        );
        assert_eq!(
            readable(b"_ZN4core3fmt5write17h0123456789abcdefE.llvm.12"),
            b"core::fmt::write"
        );
        for odd in [
            &b"memcpy"[..],
            b"_ZN",
            b"_ZN9999999999999999999999aE",
            b"_ZN5coreE",
            b"",
        ] {
            assert_eq!(readable(odd), odd);
        }
    }
}
