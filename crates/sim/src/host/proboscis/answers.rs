//! Answers: probes ahead of a SYN-ACK, and the window in the opener's ACKs that follows from them.

use evenkeel_algo::proboscis::{Answer, Verdict as Probed};
use evenkeel_algo::window;

use super::{Proboscis, SentTrain};
use crate::host::shim::Effects;
use crate::packet::{AheadOf, ConnId, Packet, Payload};
use crate::time::Instant;

/// Counters of what was done for answers.
#[derive(Debug, Default)]
pub(super) struct Answers {
    probes_sent: u64,
    scaled: u64,
    one_mss: u64,
}

impl Proboscis {
    /// What probes ahead of the VM's SYNs ask of the other host.
    pub(super) fn ahead_of_syn(&self) -> AheadOf {
        if self.spec.answers { AheadOf::SynToProbeBack } else { AheadOf::Syn }
    }

    /// Sends probes ahead of the VM's SYN-ACK, if the SYN's probes asked for them: no more than came.
    pub(super) fn probe_back(&mut self, now: Instant, end: ConnId, synack: &Packet, effects: &mut Effects) {
        let (timers, from, is_on) = (self.spec.timers, self.guest, self.spec.answers);
        let flow = self.flow(now, end);
        let wanted = if is_on { flow.train.answer_probes(timers.probes) } else { 0 };
        if wanted == 0 {
            return;
        }
        let number = flow.answer_trains;
        flow.answer_trains = number.saturating_add(1);
        let total = self.trains.length(&timers, now.us() * 1000, wanted).min(u32::from(u8::MAX)) as u8;
        self.answers.probes_sent += u64::from(total);
        if self.enforces() {
            effects.to_network.extend(SentTrain { from, ahead_of: AheadOf::SynAck, number, total }.ahead_of(synack));
        }
    }

    /// The SYN-ACK comes for the first time.
    pub(super) fn answer_begins(&mut self, end: ConnId, first_ack: u32) {
        let (window, mss_bytes) = (self.spec.window, self.spec.mss_bytes);
        let Some(flow) = self.flows.get_mut(&end.index).filter(|_| self.spec.answers) else { return };
        let (verdict, answer) = Answer::new(&flow.answer_train, &window, mss_bytes, first_ack);
        flow.answer = answer;
        match verdict {
            Probed::NoProbes => {}
            Probed::Scaled => self.answers.scaled += 1,
            Probed::OneMss => self.answers.one_mss += 1,
        }
    }

    /// Limits the window of the VM's ACK until it acknowledges the answer's first byte.
    pub(super) fn answer_window(&mut self, end: ConnId, packet: &mut Packet) {
        let (enforces, mss_bytes) = (self.enforces(), self.spec.mss_bytes);
        let Payload::Tcp(_, segment) = &mut packet.payload else { return };
        let Some(flow) = self.flows.get_mut(&end.index).filter(|flow| flow.generation == end.generation) else {
            return;
        };
        let scale = flow.own_scale;
        let offers = window::Offers { proboscis_bytes: flow.answer.limit(segment.ack, scale), ..Default::default() };
        let (field, _) = window::arbitrate(offers, segment.window, scale, mss_bytes);
        if enforces {
            segment.window = field;
        }
    }

    /// The counters of answers; none where answers are off.
    pub(super) fn answer_counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let Answers { probes_sent, scaled, one_mss } = self.answers;
        let counters = [
            ("ProboscisAnswerProbesSent", probes_sent),
            ("ProboscisAnswersScaled", scaled),
            ("ProboscisAnswersOneMss", one_mss),
        ];
        counters.into_iter().filter(|_| self.spec.answers)
    }
}
