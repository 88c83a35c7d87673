//! Notices for the operator.

use std::sync::Arc;

/// Receives notices for the operator: lines of a program's stderr, abnormal exits, and failures beside a
/// response.
pub type OperatorNotice = Arc<dyn Fn(&str) + Send + Sync>;
