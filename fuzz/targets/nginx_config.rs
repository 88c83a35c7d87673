//! Fuzz target: configurations of nginx.
//!
//! Checks, besides the absence of panics: a translation without problems has passed the configuration parser, and each
//! outcome that isn't a plain translation has a text.

#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use lowroad_config_import::{DirectiveOutcome, nginx};

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let import = match nginx::import_text(text, Path::new("nginx.conf")) {
        Ok(import) => import,
        Err(error) => {
            assert!(error.position.line <= text.lines().count() + 1);
            return;
        }
    };
    for entry in import.report.entries() {
        match &entry.outcome {
            DirectiveOutcome::Translated(_) => {}
            DirectiveOutcome::NotNeeded(text) | DirectiveOutcome::ByHand(text) => assert!(!text.is_empty()),
        }
    }
});
