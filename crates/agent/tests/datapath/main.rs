//! The eBPF programs as the running kernel has them: single frames by BPF_PROG_TEST_RUN. Needs root and Linux 6.6.
//!
//! Each test runs in network and mount namespaces of its own, of which nothing is left.

mod answers;
mod cera;
mod conversation;
mod descheduled;
mod ends;
mod events;
mod gone;
mod handshake;
mod hop;
mod marks;
mod noise;
mod owned;
mod ports;
mod transfer;
mod vflood;
mod vsnoop;
