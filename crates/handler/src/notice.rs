//! Who hears what an operator should know. It knows nothing of logs.

use std::sync::Arc;

/// Takes what an operator should know: a program's complaints, how it ended, what failed beside a
/// response.
pub type Notice = Arc<dyn Fn(&str) + Send + Sync>;
