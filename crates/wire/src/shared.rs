//! What these rules have from the header of the eBPF programs, `crates/softirq/bpf/shared.h`, where it is
//! explained.

#![allow(
    missing_docs,
    dead_code,
    reason = "it is explained in the header, which has more of these names"
)]

include!(concat!(env!("OUT_DIR"), "/shared.rs"));
