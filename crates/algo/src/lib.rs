//! The mechanisms' decisions, as the kernel module and the eBPF programs make them: this crate compiles the C headers
//! in `algo/` and gives them a safe Rust interface. [`frames`] and [`noise`] serve tests of the headers and the
//! programs.

pub mod ack_filter;
pub mod cera;
pub mod congestion;
pub mod cubic;
pub mod dctcp;
pub mod exchange;
pub mod frames;
pub mod hystart;
pub mod noise;
pub mod packet;
pub mod proboscis;
pub mod pvtcp;
pub mod reno;
pub mod rest;
pub mod seq;
pub mod siphash;
pub mod steps;
pub mod vflood;
pub mod vsnoop;
pub mod window;

#[allow(dead_code, missing_docs, non_camel_case_types, non_upper_case_globals, clippy::all)]
mod sys {
    include!(concat!(env!("OUT_DIR"), "/sys.rs"));
}
