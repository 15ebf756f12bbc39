//! Reads a configuration file; an error names the file, the line, the key and what is allowed.

use std::path::Path;

use super::Config;
use crate::address::PORT_WORD;
use crate::cera::Cera;
use crate::error::{ConfigError, parse};
use crate::table::Table;
use crate::value::Mode;

impl Config {
    /// Checks the text of a configuration. `file` is what errors call it.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`]
    pub fn parse(text: &str, file: &Path) -> Result<Self, ConfigError> {
        let config: Self = parse(text, file)?;
        let invalid =
            |line, key: String, message: String| ConfigError::Invalid { file: file.to_owned(), line, key, message };
        config.check().map_err(|(key, message)| invalid(line_of(text, &key), key, message))?;
        Ok(config)
    }

    /// What no single value shows: the key at fault, and what is wrong.
    fn check(&self) -> Result<(), (String, String)> {
        self.proboscis.check().map_err(|(key, why)| (format!("proboscis.{key}"), why))?;
        for (index, over) in self.overrides.iter().enumerate() {
            // The settings as that override leaves them, whatever follows.
            over.proboscis
                .over(self.proboscis.clone())
                .check()
                .map_err(|(key, why)| (format!("port[{index}].proboscis.{key}"), why))?;
            if let Some(key) = over.cera.keys_set().find(|key| !is_of_ports::<Cera>(key)) {
                let why = "is one value for all ports; only [cera] has it".to_owned();
                return Err((format!("port[{index}].cera.{key}"), why));
            }
            if over.channel.as_ref().is_some_and(|c| !c.differs_by_port()) && !over.pattern.is_one_name() {
                let why = format!(
                    "`{}` may match several ports, and a channel leads to one guest; allowed are libvirt, auto, a \
                     channel with {PORT_WORD} in it, which stands for the port's name, and a match of one name",
                    over.pattern.as_str()
                );
                return Err((format!("port[{index}].channel"), why));
            }
        }
        self.cera.check().map_err(|(key, why)| (format!("cera.{key}"), why))?;
        let is_on = |mode: Option<Mode>| mode.is_some_and(|mode| mode != Mode::Off);
        if self.cera.uplinks.is_empty()
            && (is_on(Some(self.cera.mode)) || self.overrides.iter().any(|over| is_on(over.cera.mode)))
        {
            let why = "names no device; CERA needs the network cards that lead out of this host, as in [\"eth0\"]";
            return Err(("cera.uplinks".to_owned(), why.to_owned()));
        }
        if self.metrics.enabled && !self.metrics.listen.ip().is_loopback() && !self.metrics.allow_remote {
            let why = format!(
                "{} can be reached from other machines; allowed are 127.0.0.1:PORT and [::1]:PORT, others with \
                 allow_remote = true",
                self.metrics.listen
            );
            return Err(("metrics.listen".to_owned(), why));
        }
        for (key, path) in [("control.socket", &self.control.socket), ("probe_key_file", &self.probe_key_file)] {
            if !path.is_absolute() {
                return Err((
                    key.to_owned(),
                    format!("`{}` is no absolute path; only those are allowed", path.display()),
                ));
            }
        }
        Ok(())
    }
}

/// Whether single ports may have a key of their own.
fn is_of_ports<T: Table>(name: &str) -> bool {
    T::keys().iter().any(|key| key.name == name && key.scope.is_of_ports())
}

/// Line of a dotted key, or of the table that it is not written in.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let (table, name) = key.rsplit_once('.').map_or(("", key), |(table, name)| (table, name));
    let (mut here, mut ports) = (String::new(), 0);
    let mut nearest = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.starts_with("[[port]]") {
            here = format!("port[{ports}]");
            ports += 1;
        } else if let Some(header) = line.strip_prefix('[').and_then(|l| l.split(']').next()) {
            here = match header.trim().strip_prefix("port.") {
                Some(below) => format!("port[{}].{below}", ports.max(1) - 1),
                None => header.trim().to_owned(),
            };
        } else if here == table && line.split(['=', ' ']).next() == Some(name) {
            return Some(index + 1);
        }
        if nearest.is_none() && !here.is_empty() && table.starts_with(&here) {
            nearest = Some(index + 1);
        }
    }
    nearest
}
