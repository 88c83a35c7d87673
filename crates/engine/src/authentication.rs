//! What a service has learnt about the client of a request by authentication.

/// The result of the authentication of a request, kept with its exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authentication {
    /// The name of the user, for logs and programs.
    pub user: Option<Box<str>>,
    /// The field lines that the authentication adds to the request, with CRLFs.
    pub lines: Vec<u8>,
    /// The numbers of the rules that have admitted the request.
    pub rules: Vec<usize>,
}

impl Authentication {
    /// Appends a field line.
    pub fn push_field(&mut self, name: &str, value: &[u8]) {
        self.lines.extend_from_slice(name.as_bytes());
        self.lines.extend_from_slice(b": ");
        self.lines.extend_from_slice(value);
        self.lines.extend_from_slice(b"\r\n");
    }
}
