//! Counters of VMs, ports and agents, under the names that they have in records: the simulator's have the same.

use evenkeel_settings::host::MECHANISMS;

/// The records' name of a port's counter. Those of mechanisms other than ProBoSCIS begin with the mechanism's name.
pub fn of_port(name: &str) -> String {
    let name = &name.replace("synacks", "syn_acks");
    let is_of = |mechanism: &str| name.strip_prefix(mechanism).is_some_and(|rest| rest.starts_with('_'));
    let has_its_own = MECHANISMS.iter().any(|(mechanism, _)| is_of(mechanism));
    camel(if has_its_own { "" } else { "Proboscis" }, name)
}

/// The records' name of a counter: `probes_sent` is `ProboscisProbesSent`.
pub fn camel(prefix: &str, name: &str) -> String {
    let word = |word: &str| word.get(..1).unwrap_or_default().to_uppercase() + word.get(1..).unwrap_or_default();
    std::iter::once(prefix.to_owned()).chain(name.split('_').map(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_counters_have_the_simulators_names() {
        assert_eq!(of_port("probes_sent"), "ProboscisProbesSent");
        assert_eq!(of_port("synacks_one_mss"), "ProboscisSynAcksOneMss");
        assert_eq!(of_port("vsnoop_early_acks"), "VsnoopEarlyAcks");
    }
}
