//! The runner inside a VM: takes [`crate::proto`] calls, runs workloads, samples sockets.
