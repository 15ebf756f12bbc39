//! Addresses and TCP ports, which simulated machines do not have.

use std::collections::HashMap;

/// The first port that a machine opens connections from, and how many there are. No dissector of Wireshark's claims any
/// of them, nor any from [`SERVICE`] on.
const FIRST: u16 = 49_152;
const COUNT: u32 = 7_168;
/// The port that it opens the first of them to. When all of a machine's ports are used, the next port follows.
const SERVICE: u16 = 49_000;

/// A machine's address in 10.0.0.0/8.
pub fn address(machine: u32) -> [u8; 4] {
    let [_, b, c, d] = (machine + 1).to_be_bytes();
    [10, b, c, d]
}

/// Its MAC address: one that is administered locally, with the address in it.
pub fn mac(machine: u32) -> [u8; 6] {
    let [a, b, c, d] = address(machine);
    [2, 0, a, b, c, d]
}

/// The ports of all connections.
#[derive(Debug, Default)]
pub struct Ports {
    /// By number of the connection: that of the opener, and the other.
    of: Vec<[u16; 2]>,
    /// How many connections two machines have had, by who opens them.
    between: HashMap<[u32; 2], u32>,
}

impl Ports {
    /// The next connection is opened, by the first of two machines.
    pub fn open(&mut self, machines: [u32; 2]) {
        let count = self.between.entry(machines).or_default();
        let service = u32::from(SERVICE) + *count / COUNT;
        self.of.push([FIRST + (*count % COUNT) as u16, service.min(u32::from(FIRST) - 1) as u16]);
        *count += 1;
    }

    /// The ports of a connection's opener and of its other end.
    pub fn of(&self, connection: u32) -> Option<[u16; 2]> {
        self.of.get(connection as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_connections_between_two_machines_have_the_same_ports() {
        let mut ports = Ports::default();
        (0..COUNT + 1).for_each(|_| ports.open([0, 1]));
        ports.open([1, 0]);
        assert_eq!(ports.of(0), Some([49_152, 49_000]));
        assert_eq!(ports.of(COUNT - 1), Some([56_319, 49_000]));
        assert_eq!(ports.of(COUNT), Some([49_152, 49_001]));
        assert_eq!(ports.of(COUNT + 1), Some([49_152, 49_000]));
        assert_eq!(ports.of(COUNT + 2), None);
    }

    #[test]
    fn machines_beyond_the_first_256_have_addresses() {
        assert_eq!(address(0), [10, 0, 0, 1]);
        assert_eq!(address(65_535), [10, 1, 0, 0]);
        assert_eq!(mac(255), [2, 0, 10, 0, 1, 0]);
    }
}
