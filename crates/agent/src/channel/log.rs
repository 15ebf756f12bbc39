//! Bounds what the log says of a channel: its other end comes and goes as often as it likes, and must not fill the log.

use std::time::Instant;

use super::budget::Budget;

/// What a line costs of the budget per second and at once: it allows ten lines, and then one every ten seconds.
const LINE: usize = 10;
const BUDGET: (u32, u32) = (1, 100);

/// The lines of one channel.
#[derive(Debug, Clone)]
pub struct ChannelLog {
    budget: Budget,
    left_out: u64,
}

impl ChannelLog {
    /// None was said yet.
    pub fn new(now: Instant) -> Self {
        Self { budget: Budget::new(BUDGET.0, BUDGET.1, now), left_out: 0 }
    }

    /// Says a line, unless the channel's budget is used up. `line` is given how many lines were left out before it, if
    /// any.
    pub fn say(&mut self, now: Instant, line: impl FnOnce(Option<u64>)) {
        if self.budget.afford(LINE, now) {
            let left_out = std::mem::take(&mut self.left_out);
            line((left_out > 0).then_some(left_out));
        } else {
            self.left_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ten_lines_and_then_one_in_ten_seconds() {
        let begin = Instant::now();
        let mut words = ChannelLog::new(begin);
        let mut said = Vec::new();
        let mut turn = |ms| {
            let at = Duration::from_millis(ms);
            words.say(begin + at, |left_out| said.push((at.as_secs(), left_out)));
        };
        (0..60_000).step_by(500).for_each(&mut turn);
        turn(600_000);
        assert_eq!(said[..9], [0, 0, 1, 1, 2, 2, 3, 3, 4].map(|s| (s, None)));
        assert_eq!(said[9..11], [(4, None), (10, Some(10))]);
        assert_eq!(said[11..], [20, 30, 40, 50, 600].map(|s| (s, Some(19))));
    }
}
