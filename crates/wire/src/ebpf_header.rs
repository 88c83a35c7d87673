//! Constants of the eBPF programs' header, `crates/softirq/bpf/shared.h`, which documents them.

#![allow(
    missing_docs,
    dead_code,
    reason = "it is explained in the header, which has more of these names"
)]

include!(concat!(env!("OUT_DIR"), "/shared.rs"));
