//! The kernel, and why it cannot take the guest module.

use super::finding::{Finding, Level};
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
            "Newer than 7.3, the newest kernel that evenkeel was tested on. Where a function does not fit, the guest \
             module refuses to load and leaves TCP as it is.",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_have_versions() {
        assert_eq!(version("6.1.0-50-cloud-amd64"), Some((6, 1)));
        assert_eq!(version("7.2.12+deb13-cloud-amd64"), Some((7, 2)));
        assert_eq!(version("6.19-rc3"), Some((6, 19)));
        assert_eq!(version("next"), None);
    }

    #[test]
    fn kernels_by_age() {
        let level = |text: &str| release(&Readings { release: Some(text.into()), ..Readings::default() }).level;
        assert_eq!(level("5.15.0-100-generic"), Level::Problem);
        assert_eq!(level("6.1.0-50-cloud-amd64"), Level::Ok);
        assert_eq!(level("6.18.44"), Level::Ok);
        assert_eq!((level("7.3.4"), level("7.4.0")), (Level::Ok, Level::Note));
        assert_eq!(level("something"), Level::Note);
    }

    #[test]
    fn a_kernel_whose_symbols_are_hidden_is_given_the_benefit_of_the_doubt() {
        let readings = Readings {
            arch: "x86_64",
            has_modules: true,
            high_resolution: true,
            has_kprobes: None,
            ..Readings::default()
        };
        assert_eq!(obstacles(&readings), [""; 0]);
    }
}
