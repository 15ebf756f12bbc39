//! The models of hosts' schedulers at work: what holds for all of them, what they cost, and whether virtual CPUs wait
//! as long under them as on the machine on which that was measured.

mod hosts;
mod machine;
mod properties;
