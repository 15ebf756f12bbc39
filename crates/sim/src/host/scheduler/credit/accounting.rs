//! Ticks, and the accounting that deals out credits.

use super::{CREDIT_PS, Credit, Priority, TIMER_ACCOUNTING};
use crate::host::scheduler::Why;
use crate::time::{Duration, Instant};

/// Credits that a virtual CPU burns in this time.
fn credits(time: Duration) -> i64 {
    (time.ps() / CREDIT_PS) as i64
}

/// Division that rounds up, as the hypervisor's does to lose no credits.
fn divided(dividend: i64, divisor: i64) -> i64 {
    (dividend + divisor - 1) / divisor
}

impl Credit {
    /// The most that a virtual CPU may save, and the most that it may owe: what it burns in a slice,
    /// `CSCHED_CREDITS_PER_TSLICE`.
    fn per_slice(&self) -> i64 {
        credits(self.slice)
    }

    /// Credits that are dealt out per core: `CSCHED_CREDITS_PER_ACCT`.
    fn per_accounting(&self) -> i64 {
        credits(self.accounting())
    }

    /// All cores' ticks: `csched_tick`.
    pub(super) fn tick(&mut self, now: Instant) {
        for core in 0..self.cores.len() {
            if let Some(vcpu) = self.cores[core].running {
                self.charge(vcpu, now);
            }
            if std::mem::replace(&mut self.cores[core].sorted, self.accountings) != self.accountings {
                // Stable: `csched_runq_sort`.
                let vcpus = &self.vcpus;
                let queue = &mut self.cores[core].queue;
                let mut front = 0;
                for at in 0..queue.len() {
                    if vcpus[queue[at] as usize].priority >= Priority::Under {
                        queue[front..=at].rotate_right(1);
                        front += 1;
                    }
                }
            }
        }
    }

    /// A tick finds a virtual CPU running: `csched_vcpu_acct`.
    fn charge(&mut self, vcpu: u32, now: Instant) {
        self.burn(vcpu, now);
        let entry = &mut self.vcpus[vcpu as usize];
        entry.priority = entry.priority.min(Priority::Under);
        if !std::mem::replace(&mut entry.active, true) {
            let number = entry.domain;
            let domain = &mut self.domains[number as usize];
            if domain.active.is_empty() {
                self.active.insert(0, number);
            }
            domain.active.insert(0, vcpu);
            self.weight += domain.weight;
        }
    }

    /// Plans the accounting while any virtual CPU takes part.
    pub(super) fn plan_accounting(&mut self, now: Instant) {
        if self.weight == 0 {
            // An accounting without participants would only forget the balance.
            self.balance = 0;
            self.timers.set(TIMER_ACCOUNTING, Instant::NEVER);
        } else if self.timers.at(TIMER_ACCOUNTING) == Instant::NEVER {
            // A virtual CPU that the tick of this very instant found takes part already.
            let before = Instant::from_ps(now.ps().saturating_sub(1));
            self.timers.set(TIMER_ACCOUNTING, self.next_multiple(before, self.accounting()));
        }
    }

    /// Deals out credits: `csched_acct`.
    pub(super) fn account(&mut self, now: Instant) {
        let (weight, debt) = (self.weight, (-self.balance).max(0));
        if weight == 0 {
            return;
        }
        let per_accounting = self.per_accounting();
        let mut total = self.cores.len() as i64 * per_accounting + debt;
        let (mut weight_left, mut balance, mut has_short) = (weight, 0, false);
        let mut turn = std::mem::take(&mut self.turn);
        turn.clone_from(&self.active);
        for number in turn.iter().copied() {
            let domain = &self.domains[number as usize];
            let count = domain.active.len() as i64;
            let (own, cap) = (domain.weight * count, domain.cap);
            weight_left -= own;
            // No more than the domain could burn, plus its part of what all together owe.
            let mut peak = count * per_accounting + divided(debt * own, weight);
            let mut cap_each = 0;
            if cap > 0 {
                let cap = divided(cap * per_accounting, 100);
                peak = peak.min(cap);
                cap_each = divided(cap, count);
            }
            let mut fair = divided(total * own, weight);
            if fair < peak {
                has_short = true;
            } else {
                if weight_left > 0 {
                    total += divided((fair - peak) * weight, weight_left);
                }
                if has_short {
                    // A surplus is spread only over the domains behind, so this one goes first next time.
                    self.active.retain(|other| *other != number);
                    self.active.insert(0, number);
                }
                fair = peak;
            }
            balance += self.deal(number, divided(fair, count), cap_each);
        }
        self.turn = turn;
        self.timers.set(TIMER_ACCOUNTING, self.next_multiple(now, self.accounting()));
        self.balance = balance;
        self.accountings += 1;
    }

    /// Gives each active virtual CPU of a domain `each` credits. Returns what they then have all together.
    fn deal(&mut self, number: u32, each: i64, cap_each: i64) -> i64 {
        let (weight, is_capped) = (self.domains[number as usize].weight, self.domains[number as usize].cap > 0);
        let (per_slice, mut sum, mut at) = (self.per_slice(), 0, 0);
        while let Some(vcpu) = self.domains[number as usize].active.get(at).copied() {
            at += 1;
            let entry = &mut self.vcpus[vcpu as usize];
            entry.credit += each;
            let credit = entry.credit;
            if credit < 0 {
                entry.priority = Priority::Over;
                entry.credit = credit.max(-per_slice);
                if is_capped && credit < -cap_each && !std::mem::replace(&mut entry.parked, true) && entry.awake {
                    self.stop_waiting(vcpu, Why::Throttled);
                }
            } else {
                entry.priority = Priority::Under;
                if entry.parked {
                    if entry.awake {
                        self.start_waiting(vcpu);
                    }
                    self.vcpus[vcpu as usize].parked = false;
                }
                if credit > per_slice {
                    let entry = &mut self.vcpus[vcpu as usize];
                    entry.active = false;
                    entry.credit = credit / 2;
                    self.weight -= weight;
                    at -= 1;
                    self.domains[number as usize].active.remove(at);
                }
            }
            sum += self.vcpus[vcpu as usize].credit;
        }
        if self.domains[number as usize].active.is_empty() {
            self.active.retain(|other| *other != number);
        }
        sum
    }
}
