//! The guest module (PVTCP): whether it is at work, and what is in its way.

use super::finding::{Finding, Level};
use super::kernel;
use super::machine::Machine;
use super::readings::Readings;

/// The state of the guest module.
pub(super) fn module(readings: &Readings, machine: &Machine) -> Finding {
    const TOPIC: &str = "PVTCP module";
    if let Some(mode) = &readings.pvtcp_mode {
        let level = if machine.is_protected() { Level::Ok } else { Level::Note };
        let meaning = match mode.as_str() {
            "enforce" => "Being off its core no longer looks like congestion to TCP in this VM.",
            "observe" => "It counts what it would do and changes nothing. See `evenkeel guest pvtcp status`.",
            _ => "It is loaded but does nothing.",
        };
        return Finding::new(TOPIC, level, format!("loaded, mode {mode}"), meaning);
    }
    let obstacles = kernel::obstacles(readings);
    if !obstacles.is_empty() {
        let level = if machine.is_guest() { Level::Note } else { Level::Ok };
        let meaning = if machine.is_guest() {
            "A stock distribution kernel takes it. It protects the machine that it is loaded on, so others can still \
             use it."
        } else {
            "No matter: PVTCP belongs into VMs."
        };
        return Finding::new(TOPIC, level, format!("cannot be loaded: {}", obstacles.join("; ")), meaning);
    }
    if !machine.is_guest() {
        return Finding::new(
            TOPIC,
            Level::Ok,
            "not loaded",
            "It belongs into VMs; on this machine there is nothing for it to do.",
        );
    }
    if readings.pvtcp_installed {
        return Finding::new(
            TOPIC,
            Level::Note,
            "installed, not loaded",
            "TCP in this VM takes being off its core for congestion.",
        )
        .next("evenkeel guest pvtcp load");
    }
    let signed = readings.sig_enforce.as_deref() == Some("Y")
        || readings.lockdown.as_deref().is_some_and(|l| l.contains("[integrity]"));
    let signature = if signed {
        " This kernel takes signed modules only: enrol the key that DKMS signs with (mokutil --import)."
    } else {
        ""
    };
    Finding::new(TOPIC, Level::Note, "not installed for this kernel", format!("This kernel can take it.{signature}"))
        .next("evenkeel guest pvtcp install, then evenkeel guest pvtcp load")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn able() -> Readings {
        Readings {
            release: Some("6.12.107+deb13-cloud-amd64".into()),
            arch: "x86_64",
            has_modules: true,
            has_kprobes: Some(true),
            high_resolution: true,
            ..Readings::default()
        }
    }

    fn guest() -> Machine {
        Machine { hypervisor: Some("KVM".into()), steal_clock: None, pvtcp_mode: None, takes_pvtcp: true }
    }

    #[test]
    fn obstacles_are_named() {
        let finding = module(&Readings { has_modules: false, has_kprobes: Some(false), ..able() }, &guest());
        assert_eq!(finding.level, Level::Note);
        assert!(finding.fact.contains("CONFIG_MODULES") && finding.fact.contains("CONFIG_KPROBES"), "{}", finding.fact);
    }

    #[test]
    fn an_able_guest_is_told_to_load_it() {
        let finding = module(&Readings { pvtcp_installed: true, ..able() }, &guest());
        assert_eq!(finding.level, Level::Note);
        assert_eq!(finding.next.as_deref(), Some("evenkeel guest pvtcp load"));
    }

    #[test]
    fn secure_boot_is_mentioned() {
        let finding =
            module(&Readings { lockdown: Some("none [integrity] confidentiality".into()), ..able() }, &guest());
        assert!(finding.meaning.contains("mokutil"), "{}", finding.meaning);
    }

    #[test]
    fn a_host_needs_no_module() {
        let host = Machine { hypervisor: None, steal_clock: None, pvtcp_mode: None, takes_pvtcp: true };
        assert_eq!(module(&able(), &host).level, Level::Ok);
        assert_eq!(module(&Readings { has_modules: false, ..able() }, &host).level, Level::Ok);
    }
}
