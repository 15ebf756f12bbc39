//! The host agent as a user meets it: the real binary in a network namespace of its own, with veth ports for VMs. Needs
//! root, Linux 6.6, iproute2; `window` needs QEMU as well.
//!
//! Every test takes its own network and mount namespaces, which its thread hands down to what it starts. Nothing is
//! left when the last process in them ends.

mod agent;
mod bed;
mod behind;
mod both;
mod cera;
mod clsact;
mod devices;
mod endpoint;
mod events;
mod flood;
mod foreign;
mod forgotten;
mod gone;
mod late;
mod namespaces;
mod netfilter;
mod offline;
mod others;
mod promises;
mod reload;
mod rest;
mod signed;
mod silence;
mod trial;
mod trouble;
mod upload;
mod vflood;
mod vlans;
mod vsnoop;
mod window;
