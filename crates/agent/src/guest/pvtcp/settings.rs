//! The module's parameters, checked here as well, because the kernel's own answer to a bad one is "Invalid argument".

use std::collections::BTreeMap;
use std::sync::LazyLock;

use evenkeel_settings::pvtcp::{Pvtcp, PvtcpOverride};
use evenkeel_settings::{Key, Table};

use super::error::PvtcpError;

/// All parameters, as `kernel/guest/pvtcp/settings.c` has them.
pub static PARAMETERS: LazyLock<Vec<Key>> = LazyLock::new(Pvtcp::keys);

/// A parameter's value as sysfs shows it, if it may have it.
fn canonical(name: &str, value: &str) -> Option<String> {
    let set = |value: toml::Value| {
        let shown = match &value {
            toml::Value::Boolean(on) => if *on { "Y" } else { "N" }.to_owned(),
            toml::Value::String(word) => word.clone(),
            other => other.to_string(),
        };
        let table = toml::Table::from_iter([(name.to_owned(), value)]);
        table.try_into::<PvtcpOverride>().ok().map(|_| shown)
    };
    let is_on = match value {
        "on" | "Y" | "y" | "1" | "true" => Some(true),
        "off" | "N" | "n" | "0" | "false" => Some(false),
        _ => None,
    };
    let number = value.parse::<u32>().ok().map(i64::from);
    let meant = [is_on.map(toml::Value::Boolean), number.map(toml::Value::Integer), Some(value.into())];
    meant.into_iter().flatten().find_map(set)
}

/// Values for some of the parameters; the others stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<&'static str, String>);

impl Settings {
    /// Adds a value.
    ///
    /// # Errors
    /// [`PvtcpError::UnknownParameter`] and [`PvtcpError::BadValue`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), PvtcpError> {
        let Some(parameter) = PARAMETERS.iter().find(|p| p.name == name) else {
            let known = PARAMETERS.iter().map(|p| p.name).collect::<Vec<_>>().join(", ");
            return Err(PvtcpError::UnknownParameter { name: name.to_owned(), known });
        };
        let canonical = canonical(parameter.name, value).ok_or_else(|| PvtcpError::BadValue {
            name: parameter.name,
            value: value.to_owned(),
            allowed: if parameter.is_switch() { "on or off".to_owned() } else { parameter.allowed_in_words() },
        })?;
        self.0.insert(parameter.name, canonical);
        Ok(())
    }

    /// Names and values as sysfs shows them.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// As arguments of the module.
    pub(super) fn arguments(&self) -> Vec<String> {
        self.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The module itself, to hold the table against.
    const SOURCE: &str = include_str!("../../../../../kernel/guest/pvtcp/settings.c");

    fn refusal(name: &str, value: &str) -> String {
        Settings::default().set(name, value).unwrap_err().to_string()
    }

    #[test]
    fn values_become_what_sysfs_shows() {
        let mut settings = Settings::default();
        for (name, value) in [("hold_tlp", "off"), ("late_us", "02000"), ("mode", "observe"), ("hold_tlp", "on")] {
            settings.set(name, value).unwrap();
        }
        assert_eq!(settings.arguments(), ["hold_tlp=Y", "late_us=2000", "mode=observe"]);
        settings.set("jit_segments", "1").unwrap();
        settings.set("hold_rto", "1").unwrap();
        assert!(settings.arguments().contains(&"jit_segments=1".to_owned()), "{settings:?}");
        assert!(settings.arguments().contains(&"hold_rto=Y".to_owned()), "{settings:?}");
    }

    #[test]
    fn what_is_not_allowed_is_said_with_what_is() {
        assert_eq!(refusal("late_us", "100"), "late_us=100: 200-1000000 us is allowed");
        assert_eq!(refusal("late_us", "-1"), "late_us=-1: 200-1000000 us is allowed");
        assert!(refusal("mode", "on").starts_with("mode=on: off (packets pass unread), observe ("));
        assert_eq!(refusal("hold_rto", "maybe"), "hold_rto=maybe: on or off is allowed");
        assert!(refusal("postpone", "1").starts_with("PVTCP has no parameter `postpone`; it has mode, late_us"));
    }

    #[test]
    fn the_table_is_the_modules() {
        let is_bounded = |key: &&Key| key.allowed.starts_with(|c: char| c.is_ascii_digit());
        let bounded = PARAMETERS.iter().filter(is_bounded);
        let bounded: Vec<String> =
            bounded.map(|p| format!("BOUNDED_PARAM({}, PVTCP_{},", p.name, p.name.to_uppercase())).collect();
        let switches = PARAMETERS.iter().filter(|key| key.is_switch());
        let switches: Vec<String> = switches.map(|p| format!("module_param_named({},", p.name)).collect();
        assert_eq!((bounded.len(), switches.len()), (4, 5));
        for (call, lines) in [("BOUNDED_PARAM(", bounded), ("module_param_named(", switches)] {
            assert!(lines.iter().all(|line| SOURCE.contains(line)), "{lines:?}");
            assert_eq!(SOURCE.matches(&format!("\n{call}")).count(), lines.len());
        }
    }
}
