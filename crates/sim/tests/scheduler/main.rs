//! The models of hosts' schedulers at work: what holds for all of them, what they cost, and whether virtual CPUs wait
//! as long under them as was measured on a machine.

mod hosts;
mod machine;
mod properties;
