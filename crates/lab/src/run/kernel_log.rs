//! What guests' kernels complain of.

/// Lines of a kernel log that report a bug, a stall or a corrupted list.
pub fn complaints(log: &str) -> impl Iterator<Item = &str> {
    const SIGNS: [&str; 10] = [
        "WARNING:",
        "BUG:",
        "Oops",
        "general protection",
        "kernel panic",
        "rcu_sched",
        "soft lockup",
        "hung_task",
        "refcount_t:",
        "NETDEV WATCHDOG",
    ];
    log.lines().filter(|line| SIGNS.iter().any(|sign| line.contains(sign)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_no_healthy_kernel_writes_is_a_complaint() {
        let log = "eth0: link up\nWARNING: CPU: 0 PID: 1\nrcu: rcu_sched self-detected stall\nBUG: bad page\n";
        assert_eq!(complaints(log).count(), 3);
        assert_eq!(complaints("eth0: link up\n").next(), None);
    }
}
