//! C: what an uplink carries, by its shaper or its link.

use crate::netlink::{attribute, u32_at};

/// Where a rate was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateFrom {
    /// `rate_mbit` of the configuration.
    Config,
    /// The root qdisc.
    Shaper,
    /// The device.
    Link,
}

impl RateFrom {
    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Config => "configured",
            Self::Shaper => "shaper",
            Self::Link => "link",
        }
    }
}

// linux/pkt_sched.h
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_CEIL64: u16 = 7;
/// Of `struct tc_ratespec`, in which the rate is the last word.
const RATESPEC_BYTES: usize = 12;

fn u64_of(value: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(value.get(..8)?.try_into().ok()?))
}

/// The rate of a token bucket filter, from its options; bytes per second.
pub fn of_tbf(options: &[u8]) -> Option<u64> {
    let parameters = attribute(options, TCA_TBF_PARMS)?;
    let rate = u32_at(parameters, RATESPEC_BYTES - 4).map(u64::from);
    attribute(options, TCA_TBF_RATE64).and_then(u64_of).or(rate)
}

/// What an HTB class may take at most, from its options; bytes per second.
pub fn of_htb_class(options: &[u8]) -> Option<u64> {
    let parameters = attribute(options, TCA_HTB_PARMS)?;
    let ceil = u32_at(parameters, 2 * RATESPEC_BYTES - 4).map(u64::from);
    attribute(options, TCA_HTB_CEIL64).and_then(u64_of).or(ceil)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::{attributes, nla};

    #[test]
    fn rates_of_shapers_are_read() {
        let spec = |rate: u32| [[0; 8].as_slice(), &rate.to_ne_bytes()].concat();
        let tbf = nla(TCA_TBF_PARMS, &[spec(12_500_000), spec(1), vec![0; 12]].concat());
        assert_eq!(of_tbf(&tbf), Some(12_500_000));
        let fast = [tbf, nla(TCA_TBF_RATE64, &12_500_000_000u64.to_ne_bytes())].concat();
        assert_eq!(of_tbf(&fast), Some(12_500_000_000));
        let htb = nla(TCA_HTB_PARMS, &[spec(1), spec(25_000_000), vec![0; 20]].concat());
        assert_eq!(of_htb_class(&htb), Some(25_000_000));
        let fast = [htb, nla(TCA_HTB_CEIL64, &5_000_000_000u64.to_ne_bytes())].concat();
        assert_eq!(of_htb_class(&fast), Some(5_000_000_000));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_run_on(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(attributes(&bytes).count() <= bytes.len() / 4);
            of_tbf(&bytes);
            of_htb_class(&bytes);
        }
    }
}
