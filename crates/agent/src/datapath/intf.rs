//! What `kernel/host/intf.h` declares: settings, flows, counters and events, as the eBPF programs know them.

#![allow(missing_docs, non_camel_case_types, non_upper_case_globals, non_snake_case, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/intf.rs"));
