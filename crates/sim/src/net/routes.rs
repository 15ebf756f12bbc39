//! Which port a switch sends a packet out of.

use evenkeel_scenario::sweep::splitmix64;

use super::link::{Label, Peer};
use super::topology::{PortRole, Shape};
use crate::event::{Onward, PortId};
use crate::packet::HostId;

/// Switches are numbered: leaves (or the only switch, or the dumbbell's two), then spines.
#[derive(Debug)]
pub(super) struct Routes {
    leaf_of: Vec<u32>,
    switches: Vec<Switch>,
    leaves: u32,
}

#[derive(Clone, Copy, Debug)]
struct Switch {
    /// A leaf's first port to a spine, or a spine's port to the first leaf.
    first: u32,
    /// A leaf's ports to spines; 0 for a spine.
    ups: u32,
    /// Decides between them.
    salt: u32,
}

impl Routes {
    /// Routes, and where each port is.
    pub fn new(shape: Shape, seed: u64) -> (Self, Vec<PortRole>) {
        let by_leaf = shape.hosts_by_leaf();
        let leaf_of: Vec<u32> = (0u32..).zip(&by_leaf).flat_map(|(leaf, &n)| (0..n).map(move |_| leaf)).collect();
        let hosts = leaf_of.len() as u32;
        let leaves = by_leaf.len() as u32;
        let mut places: Vec<PortRole> = (0..hosts).map(|host| PortRole::Nic(HostId(host))).collect();
        places.extend((0..hosts).map(|host| PortRole::Edge(HostId(host))));
        let mut switches = Vec::new();
        let spines = if let Shape::LeafSpine { spines, .. } = shape { spines } else { 0 };
        for leaf in 0..leaves {
            let first = places.len() as u32;
            match shape {
                Shape::Star { .. } => {}
                Shape::Dumbbell { .. } => places.push(PortRole::Middle(leaf)),
                Shape::LeafSpine { .. } => places.extend((0..spines).map(|spine| PortRole::Up { leaf, spine })),
            }
            let ups = places.len() as u32 - first;
            let salt = (splitmix64(seed ^ (u64::from(leaf) << 32)) >> 32) as u32;
            switches.push(Switch { first, ups, salt });
        }
        for spine in 0..spines {
            switches.push(Switch { first: places.len() as u32, ups: 0, salt: 0 });
            places.extend((0..leaves).map(|leaf| PortRole::Down { spine, leaf }));
        }
        (Self { leaf_of, switches, leaves }, places)
    }

    pub fn hosts(&self) -> u32 {
        self.leaf_of.len() as u32
    }

    pub fn switches(&self) -> u32 {
        self.switches.len() as u32
    }

    #[inline]
    pub fn leaf_of(&self, host: HostId) -> u32 {
        self.leaf_of[host.0 as usize]
    }

    /// The number of a spine among the switches.
    pub fn spine(&self, spine: u32) -> u32 {
        self.leaves + spine
    }

    /// What is at the other end of a port's link.
    pub fn peer(&self, place: PortRole) -> Peer {
        let switch = match place {
            PortRole::Edge(_) => return Peer::HOST,
            PortRole::Nic(host) => self.leaf_of(host),
            PortRole::Up { spine, .. } => self.spine(spine),
            PortRole::Down { leaf, .. } => leaf,
            PortRole::Middle(from) => 1 - from,
        };
        Peer::of_switch(switch)
    }

    /// What a packet meets at the other end of a link.
    #[inline]
    pub fn onward(&self, to: Peer, label: &Label) -> Onward {
        match to.switch() {
            None => Onward::host(label.packet),
            Some(switch) => Onward::port(PortId(self.port(switch, label.dst, label.flow_hash))),
        }
    }

    /// The port out of which a switch sends a packet.
    #[inline]
    pub fn port(&self, switch: u32, dst: HostId, flow_hash: u32) -> u32 {
        let leaf = self.leaf_of(dst);
        if switch == leaf {
            return self.hosts() + dst.0;
        }
        let Switch { first, ups, salt } = self.switches[switch as usize];
        if switch >= self.leaves { first + leaf } else { first + pick(flow_hash, salt, ups) }
    }
}

/// One of so many, the same for all packets of a flow.
#[inline]
fn pick(flow_hash: u32, salt: u32, among: u32) -> u32 {
    // The workload's hash may be weak in some bits (ports counted up): the multiplications (MurmurHash3's) spread them
    // over all.
    let mut h = flow_hash ^ salt;
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    h ^= h >> 16;
    ((u64::from(h) * u64::from(among)) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ecmp_spreads_flows_evenly_and_differs_between_leaves_and_seeds() {
        let shape = Shape::LeafSpine { leaves: 3, spines: 4, hosts_per_leaf: 2 };
        let (routes, places) = Routes::new(shape, 1);
        let (other, _) = Routes::new(shape, 2);
        let mut counts = [0u32; 4];
        let (mut by_leaf, mut by_seed) = (0, 0);
        for flow in 0..4000 {
            let PortRole::Up { leaf: 0, spine } = places[routes.port(0, HostId(4), flow) as usize] else {
                panic!("not up")
            };
            counts[spine as usize] += 1;
            by_leaf += u32::from(routes.port(1, HostId(4), flow) - routes.port(0, HostId(4), flow) != 4);
            by_seed += u32::from(routes.port(0, HostId(4), flow) != other.port(0, HostId(4), flow));
        }
        assert!(counts.iter().all(|n| (850..1150).contains(n)), "{counts:?}");
        assert!((2700..3300).contains(&by_leaf), "{by_leaf}");
        assert!((2700..3300).contains(&by_seed), "{by_seed}");
    }

    #[test]
    fn spines_lead_to_the_leaf_of_the_destination() {
        let (routes, places) = Routes::new(Shape::LeafSpine { leaves: 3, spines: 2, hosts_per_leaf: 2 }, 1);
        assert_eq!(places[routes.port(4, HostId(5), 9) as usize], PortRole::Down { spine: 1, leaf: 2 });
        assert_eq!(places[routes.port(2, HostId(5), 9) as usize], PortRole::Edge(HostId(5)));
    }
}
