//! What `kernel/guest/intf.h` declares, as the guest's programs know it.

#![allow(missing_docs, non_camel_case_types, non_upper_case_globals, non_snake_case, dead_code, clippy::all)]

include!(concat!(env!("OUT_DIR"), "/guest-intf.rs"));
