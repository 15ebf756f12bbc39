//! Taps that have just appeared on a kernel without tcx. Who makes a tap may put a qdisc on it next, as libvirt does
//! for `<bandwidth>`, and gives the VM up if one is in its place; so it is left alone at first.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a tap is left alone. libvirt is done with one in milliseconds.
const LEFT_ALONE: Duration = Duration::from_secs(2);

/// Devices that were met, by news or in a list, while they were no ports.
#[derive(Debug, Default)]
pub struct Fresh(BTreeMap<u32, Device>);

#[derive(Debug)]
struct Device {
    until: Instant,
    /// It was looked at, and is a tap.
    waits: bool,
}

impl Fresh {
    /// A device is met; only the first time counts.
    pub fn heard(&mut self, ifindex: u32, now: Instant) {
        self.0.entry(ifindex).or_insert(Device { until: now + LEFT_ALONE, waits: false });
    }

    /// A device is looked at: true if it is to be left alone for now. One that is not is fresh no more.
    pub fn puts_off(&mut self, ifindex: u32, is_tap: bool, now: Instant) -> bool {
        let device = self.0.get_mut(&ifindex).filter(|device| is_tap && now < device.until);
        let Some(device) = device else {
            self.forget(ifindex);
            return false;
        };
        device.waits = true;
        true
    }

    /// A device is gone.
    pub fn forget(&mut self, ifindex: u32) {
        self.0.remove(&ifindex);
    }

    /// Whether a device need not be looked at yet.
    pub fn waits(&self, ifindex: u32, now: Instant) -> bool {
        self.0.get(&ifindex).is_some_and(|device| device.waits && now < device.until)
    }

    /// When the first that waits is to be looked at again.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        self.0.values().filter(|device| device.waits && now < device.until).map(|device| device.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_tap_is_left_alone_once() {
        let (mut fresh, begin) = (Fresh::default(), Instant::now());
        let after = |ms| begin + Duration::from_millis(ms);
        assert!(!fresh.puts_off(3, true, begin), "it was there before");
        fresh.heard(3, begin);
        assert_eq!((fresh.waits(3, begin), fresh.due(begin)), (false, None), "it is looked at first");
        assert!(fresh.puts_off(3, true, after(1)));
        // Its carrier is news, and somebody gives it an address.
        fresh.heard(3, after(1500));
        assert!(fresh.puts_off(3, true, after(1501)) && fresh.waits(3, after(1999)));
        assert_eq!(fresh.due(after(1999)), Some(after(2000)));
        assert_eq!((fresh.waits(3, after(2000)), fresh.due(after(2000))), (false, None));
        assert!(!fresh.puts_off(3, true, after(2000)) && !fresh.puts_off(3, true, after(1)), "it is known now");
        // Another device has its index; a veth is nobody's to wait for.
        fresh.heard(3, begin);
        fresh.forget(3);
        assert!(!fresh.puts_off(3, true, begin));
        fresh.heard(4, begin);
        assert!(!fresh.puts_off(4, false, begin) && !fresh.waits(4, begin));
    }
}
