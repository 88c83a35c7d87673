//! The callback for notices to the operator.

use std::sync::Arc;

/// Receives notices for the operator: lines of an application's stderr, abnormal exits, and failures that do not
/// prevent a response.
pub type OperatorNotice = Arc<dyn Fn(&str) + Send + Sync>;
