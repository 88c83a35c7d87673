//! Panics on request, for tests of the recovery of workers. Builds with optimisation don't contain it.

use lowroad_http::request::{Request, RequestTarget};

/// The environment variable with the path.
const VARIABLE: &str = "LOWROAD_PANIC_PATH";

/// The path of requests at which the worker panics.
pub(super) struct PanicPath(Option<String>);

impl PanicPath {
    /// The path that the environment names, if any.
    pub fn from_environment() -> PanicPath {
        PanicPath(std::env::var(VARIABLE).ok())
    }

    /// Panics if the request is for this path.
    pub fn check(&self, request: &Request<'_>) {
        let (
            Some(path),
            RequestTarget::Origin {
                path: requested, ..
            },
        ) = (&self.0, request.target)
        else {
            return;
        };
        assert_ne!(requested, path.as_bytes(), "{VARIABLE} is requested");
    }
}
