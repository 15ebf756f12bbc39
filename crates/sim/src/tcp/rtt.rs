//! The RTT estimate and the retransmission timeout, as Linux computes them (RFC 6298 with a variance that decays once
//! per RTT).

use super::config::TcpConfig;
use crate::time::{Duration, Instant};

/// Estimate of a path's RTT.
#[derive(Clone, Debug)]
pub(super) struct Rtt {
    /// SRTT times 8.
    srtt8: u32,
    /// Mean deviation times 4.
    mdev4: u32,
    mdev_max: u32,
    rttvar: u32,
    /// The round trip of the variance ends when this is acknowledged.
    round_end: u64,
    /// RTO, backoff included.
    pub rto: Duration,
    /// Timeouts in a row without a valid sample.
    pub backoff: u8,
    /// Least sample, for RACK; `u32::MAX` before the first.
    pub min_us: u32,
}

impl Rtt {
    pub fn new(config: &TcpConfig) -> Self {
        let rto = config.in_jiffies(config.rto_initial);
        Self { srtt8: 0, mdev4: 0, mdev_max: 0, rttvar: 0, round_end: 0, rto, backoff: 0, min_us: u32::MAX }
    }

    pub fn srtt_us(&self) -> u32 {
        self.srtt8 >> 3
    }

    pub fn mdev_us(&self) -> u32 {
        self.mdev4 >> 2
    }

    pub fn rttvar_us(&self) -> u32 {
        self.rttvar
    }

    /// Takes a sample; `snd_una` and `snd_nxt` tell when a round trip is over.
    pub fn sample(&mut self, config: &TcpConfig, sample_us: u32, snd_una: u64, snd_nxt: u64) {
        let floor = config.rto_min.us().min(u64::from(u32::MAX)) as u32;
        let sample = sample_us.clamp(1, 1 << 28);
        if self.srtt8 == 0 {
            self.srtt8 = sample << 3;
            self.mdev4 = sample << 1;
            self.rttvar = self.mdev4.max(floor);
            self.mdev_max = self.rttvar;
            self.round_end = snd_nxt;
        } else {
            let error = sample as i32 - (self.srtt8 >> 3) as i32;
            self.srtt8 = self.srtt8.saturating_add_signed(error).max(1);
            let deviation = self.mdev_us() as i32;
            let mut step = error.abs() - deviation;
            // A falling RTT would otherwise raise the RTO.
            if error < 0 && step > 0 {
                step >>= 3;
            }
            self.mdev4 = self.mdev4.saturating_add_signed(step);
            if self.mdev4 > self.mdev_max {
                self.mdev_max = self.mdev4;
                self.rttvar = self.rttvar.max(self.mdev_max);
            }
            if snd_una > self.round_end {
                if self.mdev_max < self.rttvar {
                    self.rttvar -= (self.rttvar - self.mdev_max) >> 2;
                }
                self.round_end = snd_nxt;
                self.mdev_max = floor;
            }
        }
        self.backoff = 0;
        self.rto = self.base(config);
    }

    /// The RTO without backoff.
    pub fn base(&self, config: &TcpConfig) -> Duration {
        if self.srtt8 == 0 {
            return config.in_jiffies(config.rto_initial);
        }
        let us = u64::from(self.srtt8 >> 3) + u64::from(self.rttvar);
        config.in_jiffies(Duration::from_us(us)).max(config.timeout_min()).min(config.rto_max)
    }

    /// Doubles the RTO.
    pub fn back_off(&mut self, config: &TcpConfig) {
        self.backoff = self.backoff.saturating_add(1);
        self.rto = (self.rto * 2).min(config.rto_max);
    }
}

/// What the kernel's clock shows between two instants: 2.6.32 measured in jiffies, at least one.
pub(super) fn measured_us(config: &TcpConfig, sent: Instant, now: Instant) -> u32 {
    let us = if config.generation == super::Generation::Paper && config.jiffy != Duration::ZERO {
        let jiffy = config.jiffy.ps();
        Duration::from_ps((now.ps() / jiffy - sent.ps() / jiffy).max(1) * jiffy).us()
    } else {
        now.since(sent).us()
    };
    us.min(u64::from(u32::MAX)) as u32
}
