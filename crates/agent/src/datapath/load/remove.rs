//! Takes everything off ports and removes all pins. What stays for some reason keeps nothing else.

use std::fs;
use std::path::Path;

use super::super::error::DatapathError;
use super::super::pins;
use super::super::vflood::qdisc;
use super::{Datapath, on};

/// What was taken off, and what was not.
#[derive(Debug, Default)]
pub struct Removed {
    /// Devices that programs were pinned for, and have none any more.
    pub ports: Vec<u32>,
    /// Why something stays. All that tells the next attempt what it is stays as well.
    pub left: Vec<DatapathError>,
}

impl Datapath {
    /// Takes the programs off all ports and removes all pins.
    pub fn remove(&mut self) -> Removed {
        Self::remove_pins(&self.pin_dir)
    }

    /// As [`remove`](Self::remove), without loading anything.
    pub fn remove_pins(pin_dir: &Path) -> Removed {
        let mut removed = Removed::default();
        let found = Self::recall_namespaces(pin_dir).and_then(|_| pins::ports(pin_dir));
        let ports = match found {
            Ok(ports) => ports,
            // Which devices the pins are for, and where those are, has to be known before a pin goes.
            Err(error) => {
                removed.left.push(error);
                return removed;
            }
        };
        removed.left.extend(qdisc::remove_all(pin_dir).err());
        for ifindex in ports {
            match on::take_off(pin_dir, ifindex).and_then(|()| qdisc::forget_pins(pin_dir, ifindex)) {
                Ok(()) => removed.ports.push(ifindex),
                Err(error) => removed.left.push(error),
            }
        }
        if removed.left.is_empty() && pin_dir.exists() {
            let gone = fs::remove_dir_all(pin_dir);
            removed.left.extend(
                gone.err().map(|error| DatapathError::io(format!("cannot remove {}", pin_dir.display()), error)),
            );
        }
        removed
    }
}
