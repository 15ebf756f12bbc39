//! The module's parameters, checked here as well, because the kernel's own answer to a bad one is "Invalid argument".

use std::collections::BTreeMap;

use super::error::PvtcpError;

/// What a parameter may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// On or off.
    Switch,
    /// A whole number within bounds, both allowed.
    Number {
        /// The smallest.
        min: u32,
        /// The largest.
        max: u32,
    },
    /// One of these words.
    Word(&'static [&'static str]),
}

/// A parameter of the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in sysfs.
    pub name: &'static str,
    /// What it may be.
    pub kind: Kind,
}

/// All parameters, as `kernel/guest/pvtcp/settings.c` has them.
pub const PARAMETERS: &[Parameter] = &[
    Parameter { name: "mode", kind: Kind::Word(&["off", "observe", "enforce"]) },
    Parameter { name: "hold_rto", kind: Kind::Switch },
    Parameter { name: "hold_tlp", kind: Kind::Switch },
    Parameter { name: "hold_reo", kind: Kind::Switch },
    Parameter { name: "filter_rtt", kind: Kind::Switch },
    Parameter { name: "jit_segments", kind: Kind::Number { min: 0, max: 16 } },
    Parameter { name: "late_us", kind: Kind::Number { min: 200, max: 1_000_000 } },
    Parameter { name: "hold_min_us", kind: Kind::Number { min: 0, max: 20_000 } },
    Parameter { name: "hold_max_us", kind: Kind::Number { min: 0, max: 100_000 } },
];

impl Parameter {
    /// The value as sysfs shows it.
    fn canonical(&self, value: &str) -> Option<String> {
        match self.kind {
            Kind::Switch => match value {
                "on" | "Y" | "y" | "1" | "true" => Some("Y".to_owned()),
                "off" | "N" | "n" | "0" | "false" => Some("N".to_owned()),
                _ => None,
            },
            Kind::Number { min, max } => {
                value.parse::<u32>().ok().filter(|number| (min..=max).contains(number)).map(|number| number.to_string())
            }
            Kind::Word(words) => words.contains(&value).then(|| value.to_owned()),
        }
    }

    fn allowed(&self) -> String {
        match self.kind {
            Kind::Switch => "on or off".to_owned(),
            Kind::Number { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Word(words) => words.join(", "),
        }
    }
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
        let canonical = parameter.canonical(value);
        let canonical = canonical.ok_or_else(|| PvtcpError::BadValue {
            name: parameter.name,
            value: value.to_owned(),
            allowed: parameter.allowed(),
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
    }

    #[test]
    fn what_is_not_allowed_is_said_with_what_is() {
        assert_eq!(refusal("late_us", "100"), "late_us=100: a whole number from 200 to 1000000 is allowed");
        assert_eq!(refusal("late_us", "-1"), "late_us=-1: a whole number from 200 to 1000000 is allowed");
        assert_eq!(refusal("mode", "on"), "mode=on: off, observe, enforce is allowed");
        assert_eq!(refusal("hold_rto", "maybe"), "hold_rto=maybe: on or off is allowed");
        assert!(refusal("postpone", "1").starts_with("PVTCP has no parameter `postpone`; it has mode, hold_rto"));
    }

    #[test]
    fn the_table_is_the_modules() {
        let bounded: Vec<String> = PARAMETERS
            .iter()
            .filter_map(|p| match p.kind {
                Kind::Number { min, max } => Some(format!("BOUNDED_PARAM({}, {min}, {max});", p.name)),
                _ => None,
            })
            .collect();
        assert!(bounded.iter().all(|line| SOURCE.contains(line)), "{bounded:?}");
        assert_eq!(SOURCE.lines().filter(|l| l.starts_with("BOUNDED_PARAM(")).count(), bounded.len());
        let switches: Vec<_> = PARAMETERS
            .iter()
            .filter(|p| p.kind == Kind::Switch)
            .map(|p| format!("module_param_named({},", p.name))
            .collect();
        assert!(switches.iter().all(|line| SOURCE.contains(line)), "{switches:?}");
        assert_eq!(SOURCE.matches("module_param_named(").count(), switches.len());
    }
}
