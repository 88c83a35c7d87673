//! Numbers with their nouns, for messages.

/// A number with the text for one or for several: `1 entry`, `2 entries`.
pub fn quantity(count: u64, one: &str, several: &str) -> String {
    let text = if count == 1 { one } else { several };
    format!("{count} {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        let entries = |count| quantity(count, "entry was dropped", "entries were dropped");
        assert_eq!(entries(0), "0 entries were dropped");
        assert_eq!(entries(1), "1 entry was dropped");
        assert_eq!(entries(2), "2 entries were dropped");
    }
}
