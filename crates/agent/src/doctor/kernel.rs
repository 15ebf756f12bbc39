//! The kernel, and why it cannot take the guest module.

use super::finding::{Finding, Level};
use super::readings::Readings;

/// The kernel's release. Other findings say what the kernel can do; its release does not.
pub(super) fn release(readings: &Readings) -> Finding {
    match &readings.release {
        None => Finding::new("kernel", Level::Problem, "its release cannot be read", "Is /proc mounted?"),
        Some(release) => Finding::new("kernel", Level::Ok, format!("Linux {release} ({})", readings.arch), ""),
    }
}

/// Why this kernel cannot take the guest module; empty if it can.
pub(super) fn obstacles(readings: &Readings) -> Vec<&'static str> {
    let word = |text: &Option<String>, wanted: &str| {
        text.as_deref().is_some_and(|t| t.split_whitespace().any(|w| w == wanted))
    };
    let all = [
        (!["x86_64", "aarch64"].contains(&readings.arch), "the module knows x86-64 and arm64 only"),
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
    fn a_release_is_not_judged() {
        let level = |text: &str| release(&Readings { release: Some(text.into()), ..Readings::default() }).level;
        assert!(["5.14.0-503.el9.x86_64", "7.4.0", "something"].map(level).iter().all(|level| *level == Level::Ok));
        assert_eq!(release(&Readings::default()).level, Level::Problem);
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
