//! The list of tests that are expected to fail.

/// The list has paragraphs: a reason in lines that begin with `#`, followed by test IDs.
const LIST: &str = include_str!("expected.txt");

/// The tests that are expected to fail.
pub struct Expected(Vec<&'static str>);

impl Expected {
    /// Reads the list, and asserts that each test has a reason and is listed once.
    pub fn read() -> Expected {
        let mut ids = Vec::new();
        for paragraph in LIST.split("\n\n") {
            let (reason, named): (Vec<_>, Vec<_>) =
                paragraph.lines().partition(|line| line.starts_with('#'));
            for id in named.into_iter().flat_map(str::split_whitespace) {
                assert!(!reason.is_empty(), "{id} is listed without a reason");
                assert!(!ids.contains(&id), "{id} is listed twice");
                ids.push(id);
            }
        }
        Expected(ids)
    }

    /// Whether a test is listed.
    pub fn has(&self, id: &str) -> bool {
        self.0.contains(&id)
    }

    /// All listed tests.
    pub fn ids(&self) -> impl Iterator<Item = &&'static str> {
        self.0.iter()
    }
}
