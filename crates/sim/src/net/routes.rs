//! Routes: through which port a switch sends a packet.

use evenkeel_scenario::sweep::splitmix64;

use super::link::{Label, Peer};
use super::topology::{PortRole, Shape};
use crate::event::{Onward, PortId};
use crate::footprint::of_vec;
use crate::packet::HostId;

/// Switches are numbered in this order: leaves (or the only switch, or the dumbbell's two), spines, core switches;
/// leaves and spines pod by pod.
#[derive(Debug)]
pub(super) struct Routes {
    leaf_of: Vec<u32>,
    /// By leaf.
    pod_of: Vec<u32>,
    switches: Vec<Switch>,
    leaves: u32,
    /// The first core switch.
    cores: u32,
}

#[derive(Clone, Copy, Debug)]
struct Switch {
    /// A spine's port to leaf 0, as if the spine led to all leaves; a core switch's port to the first pod.
    down: u32,
    /// The first of the ports up.
    up: u32,
    /// How many ports up there are.
    ups: u32,
    /// Decides between the ports up.
    salt: u32,
    /// A spine's pod.
    pod: u32,
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
        let tiers = shape.tiers();
        let pod_of: Vec<u32> = (0..leaves).map(|leaf| leaf / tiers.leaves.max(1)).collect();
        let cores = leaves + tiers.pods * tiers.spines;
        let mut routes = Self { leaf_of, pod_of, switches: Vec::new(), leaves, cores };
        for leaf in 0..leaves {
            let up = places.len() as u32;
            let spines = routes.pod_of[leaf as usize] * tiers.spines;
            match shape {
                Shape::Star { .. } => {}
                Shape::Dumbbell { .. } => places.push(PortRole::Middle(leaf)),
                Shape::LeafSpine { .. } | Shape::FatTree { .. } => {
                    places.extend((spines..spines + tiers.spines).map(|spine| PortRole::Up { leaf, spine }));
                }
            }
            routes.add(seed, (0, up, &places), 0);
        }
        for spine in 0..tiers.pods * tiers.spines {
            let (pod, place) = (spine / tiers.spines, spine % tiers.spines);
            let (below, above) = (pod * tiers.leaves, place * tiers.cores_per_spine);
            // May wrap; it wraps back when the leaf's number is added.
            let down = (places.len() as u32).wrapping_sub(below);
            places.extend((below..below + tiers.leaves).map(|leaf| PortRole::Down { spine, leaf }));
            let up = places.len() as u32;
            places.extend((above..above + tiers.cores_per_spine).map(|core| PortRole::CoreUp { spine, core }));
            routes.add(seed, (down, up, &places), pod);
        }
        for core in 0..tiers.spines * tiers.cores_per_spine {
            let down = places.len() as u32;
            let spine = |pod: u32| pod * tiers.spines + core / tiers.cores_per_spine;
            places.extend((0..tiers.pods).map(|pod| PortRole::CoreDown { core, spine: spine(pod) }));
            routes.add(seed, (down, places.len() as u32, &places), 0);
        }
        (routes, places)
    }

    /// Adds the next switch, with its first ports down and up; its last port up is the last in `places`.
    fn add(&mut self, seed: u64, (down, up, places): (u32, u32, &[PortRole]), pod: u32) {
        let salt = (splitmix64(seed ^ ((self.switches.len() as u64) << 32)) >> 32) as u32;
        self.switches.push(Switch { down, up, ups: places.len() as u32 - up, salt, pod });
    }

    /// Bytes that the routes have allocated.
    pub fn bytes(&self) -> u64 {
        of_vec(&self.leaf_of) + of_vec(&self.pod_of) + of_vec(&self.switches)
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

    /// The number of a core switch among the switches.
    pub fn core(&self, core: u32) -> u32 {
        self.cores + core
    }

    /// What is at the other end of a port's link.
    pub fn peer(&self, place: PortRole) -> Peer {
        let switch = match place {
            PortRole::Edge(_) => return Peer::HOST,
            PortRole::Nic(host) => self.leaf_of(host),
            PortRole::Up { spine, .. } | PortRole::CoreDown { spine, .. } => self.spine(spine),
            PortRole::Down { leaf, .. } => leaf,
            PortRole::CoreUp { core, .. } => self.core(core),
            PortRole::Middle(from) => 1 - from,
        };
        Peer::of_switch(switch)
    }

    /// Where a packet goes at the other end of a link.
    #[inline]
    pub fn onward(&self, to: Peer, label: &Label) -> Onward {
        match to.switch() {
            None => Onward::host(label.packet),
            Some(switch) => Onward::port(PortId(self.port(switch, label.dst, label.flow_hash))),
        }
    }

    /// The port through which a switch sends a packet.
    #[inline]
    pub fn port(&self, switch: u32, dst: HostId, flow_hash: u32) -> u32 {
        let leaf = self.leaf_of(dst);
        if switch == leaf {
            return self.hosts() + dst.0;
        }
        let Switch { down, up, ups, salt, pod } = self.switches[switch as usize];
        if switch >= self.leaves {
            let leads_to = self.pod_of[leaf as usize];
            if switch >= self.cores {
                return down + leads_to;
            }
            if pod == leads_to {
                return down.wrapping_add(leaf);
            }
        }
        up + pick(flow_hash, salt, ups)
    }
}

/// Picks one of `among`, the same for all packets of a flow.
#[inline]
fn pick(flow_hash: u32, salt: u32, among: u32) -> u32 {
    // The workload's hash may be weak in some bits (consecutive ports); the multiplications (MurmurHash3's) spread them
    // over all bits.
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

    const TREE: Shape = Shape::FatTree { pods: 3, leaves: 2, spines: 4, cores_per_spine: 4, hosts_per_leaf: 2 };

    /// The spine and the core switch that a flow takes from leaf 0.
    fn way(routes: &Routes, places: &[PortRole], dst: HostId, flow: u32) -> (u32, u32) {
        let PortRole::Up { leaf: 0, spine } = places[routes.port(0, dst, flow) as usize] else { panic!("not up") };
        let PortRole::CoreUp { spine: at, core } = places[routes.port(routes.spine(spine), dst, flow) as usize] else {
            panic!("not to a core switch")
        };
        assert_eq!((at, core / 4), (spine, spine), "a core switch of another spine's");
        (spine, core)
    }

    #[test]
    fn in_a_fat_tree_flows_spread_evenly_over_all_ways_to_another_pod() {
        let (routes, places) = Routes::new(TREE, 1);
        let mut counts = [0u32; 16];
        for flow in 0..32_000 {
            let (_, core) = way(&routes, &places, HostId(11), flow);
            counts[core as usize] += 1;
            assert_eq!(way(&routes, &places, HostId(11), flow).1, core);
        }
        // 2,000 each, and 45 of them by chance.
        assert!(counts.iter().all(|n| (1800..2200).contains(n)), "{counts:?}");
    }

    #[test]
    fn in_a_fat_tree_the_ways_down_lead_to_the_pod_and_the_leaf() {
        let (routes, places) = Routes::new(TREE, 1);
        let role = |switch, dst| places[routes.port(switch, HostId(dst), 9) as usize];
        assert_eq!(role(routes.core(13), 8), PortRole::CoreDown { core: 13, spine: 11 });
        assert_eq!(role(routes.core(2), 3), PortRole::CoreDown { core: 2, spine: 0 });
        assert_eq!(role(routes.spine(11), 11), PortRole::Down { spine: 11, leaf: 5 });
        assert_eq!(role(routes.spine(5), 4), PortRole::Down { spine: 5, leaf: 2 });
        assert_eq!(role(4, 9), PortRole::Edge(HostId(9)));
        assert_eq!(places.len() as u64, 12 + TREE.switch_ports());
    }

    #[test]
    fn links_of_a_fat_tree_have_two_ends() {
        let (routes, places) = Routes::new(TREE, 1);
        let end = |role| routes.peer(role).switch();
        for role in places {
            let (near, back) = match role {
                PortRole::Up { leaf, spine } => (leaf, PortRole::Down { spine, leaf }),
                PortRole::CoreUp { spine, core } => (routes.spine(spine), PortRole::CoreDown { core, spine }),
                _ => continue,
            };
            assert_eq!(end(back), Some(near), "{role:?}");
        }
    }
}
