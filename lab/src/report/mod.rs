//! The report: figures of experiments beside those of the papers.
//!
//! `model` makes figures of records, `sentence` and `beside` say what they show, `chart` draws, and
//! `html` and `markdown` set the page. None of them measures or writes results.

pub mod against;
pub mod beside;
pub mod chart;
pub mod claims;
pub mod cli;
pub mod expected;
pub mod html;
pub mod instructions;
pub mod levels;
pub mod markdown;
pub mod model;
mod parts;
pub mod scale;
pub mod sentence;
pub mod style;
pub mod svg;
pub mod verdict;
