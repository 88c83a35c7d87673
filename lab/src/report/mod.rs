//! The report: the figures of experiments compared with those of the papers.
//!
//! `model` aggregates records into figures, `sentence` and `beside` describe them, `chart` draws, and `html` and
//! `markdown` lay out the pages. None of them measures or writes results.

pub mod against;
pub mod beside;
pub mod chart;
pub mod claims;
pub mod cli;
pub mod expected;
pub mod html;
pub mod instructions;
pub mod levels;
pub mod log_sizes;
pub mod markdown;
pub mod model;
mod parts;
pub mod scale;
pub mod sentence;
pub mod style;
pub mod svg;
pub mod verdict;
