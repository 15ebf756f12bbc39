//! The kernel, and whether the guest module can be loaded into it.

use super::finding::{Finding, Level};
use super::place::Place;
use super::readings::Readings;

/// Kernels that the lab has booted the module on: the oldest and the newest.
const OLDEST: (u32, u32) = (6, 1);
const NEWEST: (u32, u32) = (7, 3);

/// Major and minor version of a release like `6.12.107+deb13-cloud-amd64`.
pub(super) fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The kernel's release against those that the module was tested on.
pub(super) fn release(readings: &Readings) -> Finding {
    let Some(release) = &readings.release else {
        return Finding::new("kernel", Level::Problem, "its release cannot be read", "Is /proc mounted?");
    };
    let fact = format!("Linux {release} ({})", readings.arch);
    let (level, meaning) = match version(release) {
        Some(v) if v < OLDEST => (Level::Problem, "Older than 6.1, the oldest kernel that evenkeel supports."),
        Some(v) if v > NEWEST => (
            Level::Note,
            "Newer than 7.3, the newest kernel that evenkeel was tested on. Where a function does not fit, the guest module refuses to load and \
             leaves TCP as it is.",
        ),
        Some(_) => (Level::Ok, "Between 6.1 and 7.3, the kernels that evenkeel was tested on."),
        None => {
            (Level::Note, "Not a release that evenkeel can read, so it cannot tell whether this kernel was tested.")
        }
    };
    Finding::new("kernel", level, fact, meaning)
}

/// Why this kernel cannot take the guest module; empty if it can.
pub(super) fn obstacles(readings: &Readings) -> Vec<&'static str> {
    let word = |text: &Option<String>, wanted: &str| {
        text.as_deref().is_some_and(|t| t.split_whitespace().any(|w| w == wanted))
    };
    let all = [
        (readings.arch != "x86_64", "the module knows x86-64 only"),
        (!readings.has_modules, "the kernel was built without modules (CONFIG_MODULES)"),
        (
            word(&readings.modules_disabled, "1"),
            "loading modules was switched off until reboot (kernel.modules_disabled)",
        ),
        (readings.has_kprobes == Some(false), "the kernel was built without kprobes (CONFIG_KPROBES)"),
        (!readings.high_resolution, "the kernel's timers are no finer than its tick (CONFIG_HIGH_RES_TIMERS)"),
        (word(&readings.lockdown, "[confidentiality]"), "kernel lockdown forbids kprobes"),
    ];
    all.into_iter().filter(|(hit, _)| *hit).map(|(_, why)| why).collect()
}

/// The state of the guest module.
pub(super) fn pvtcp(readings: &Readings, place: &Place) -> Finding {
    const TOPIC: &str = "PVTCP module";
    if let Some(mode) = &readings.pvtcp_mode {
        let level = if place.is_protected() { Level::Ok } else { Level::Note };
        let meaning = match mode.as_str() {
            "enforce" => "Being off its core no longer looks like congestion to TCP in this VM.",
            "observe" => "It counts what it would do and changes nothing. See `evenkeel guest pvtcp status`.",
            _ => "It is loaded but does nothing.",
        };
        return Finding::new(TOPIC, level, format!("loaded, mode {mode}"), meaning);
    }
    let obstacles = obstacles(readings);
    if !obstacles.is_empty() {
        let level = if place.is_guest() { Level::Note } else { Level::Ok };
        let meaning = if place.is_guest() {
            "A stock distribution kernel takes it. It protects the machine that it is loaded on, so others can still use it."
        } else {
            "No matter: PVTCP belongs into VMs."
        };
        return Finding::new(TOPIC, level, format!("cannot be loaded: {}", obstacles.join("; ")), meaning);
    }
    if !place.is_guest() {
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
        .next("dkms install evenkeel-pvtcp/VERSION, then evenkeel guest pvtcp load")
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

    fn guest() -> Place {
        Place { hypervisor: Some("KVM".into()), steal_clock: None, pvtcp_mode: None, takes_pvtcp: true }
    }

    #[test]
    fn releases_have_versions() {
        assert_eq!(version("6.1.0-50-cloud-amd64"), Some((6, 1)));
        assert_eq!(version("7.2.12+deb13-cloud-amd64"), Some((7, 2)));
        assert_eq!(version("6.19-rc3"), Some((6, 19)));
        assert_eq!(version("next"), None);
    }

    #[test]
    fn kernels_by_age() {
        let level = |text: &str| release(&Readings { release: Some(text.into()), ..able() }).level;
        assert_eq!(level("5.15.0-100-generic"), Level::Problem);
        assert_eq!(level("6.1.0-50-cloud-amd64"), Level::Ok);
        assert_eq!(level("6.18.44"), Level::Ok);
        assert_eq!((level("7.3.4"), level("7.4.0")), (Level::Ok, Level::Note));
        assert_eq!(level("something"), Level::Note);
    }

    #[test]
    fn obstacles_are_named() {
        let finding = pvtcp(&Readings { has_modules: false, has_kprobes: Some(false), ..able() }, &guest());
        assert_eq!(finding.level, Level::Note);
        assert!(finding.fact.contains("CONFIG_MODULES") && finding.fact.contains("CONFIG_KPROBES"), "{}", finding.fact);
    }

    #[test]
    fn a_kernel_whose_symbols_are_hidden_is_given_the_benefit_of_the_doubt() {
        assert_eq!(obstacles(&Readings { has_kprobes: None, ..able() }), [""; 0]);
    }

    #[test]
    fn an_able_guest_is_told_to_load_it() {
        let finding = pvtcp(&Readings { pvtcp_installed: true, ..able() }, &guest());
        assert_eq!(finding.level, Level::Note);
        assert_eq!(finding.next.as_deref(), Some("evenkeel guest pvtcp load"));
    }

    #[test]
    fn secure_boot_is_mentioned() {
        let finding =
            pvtcp(&Readings { lockdown: Some("none [integrity] confidentiality".into()), ..able() }, &guest());
        assert!(finding.meaning.contains("mokutil"), "{}", finding.meaning);
    }

    #[test]
    fn a_host_needs_no_module() {
        let host = Place { hypervisor: None, steal_clock: None, pvtcp_mode: None, takes_pvtcp: true };
        assert_eq!(pvtcp(&able(), &host).level, Level::Ok);
        assert_eq!(pvtcp(&Readings { has_modules: false, ..able() }, &host).level, Level::Ok);
    }
}
