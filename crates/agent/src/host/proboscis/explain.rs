//! What ProBoSCIS has done for a connection, in words.

use evenkeel_settings::Mode;
use evenkeel_settings::proboscis::Proboscis;

use crate::host::flow::{Answer, Ecn, Flow, Probes};

/// One sentence or two per line; none where ProBoSCIS is off.
pub(super) fn explain(flow: &Flow, proboscis: &Proboscis) -> Vec<String> {
    let mut lines = Vec::new();
    if flow.mode == Mode::Off {
        return lines;
    }
    lines.extend(first_window(flow, proboscis));
    lines.push(probes(flow, proboscis));
    lines.extend(answer(flow, proboscis));
    lines.push(ecn(flow, proboscis));
    if flow.is_elephant {
        lines.push(format!(
            "The VM has sent more than elephant_bytes = {}: ProBoSCIS leaves this connection's window alone.",
            proboscis.elephant_bytes
        ));
    }
    if flow.mode == Mode::Observe {
        lines.push("The port's mode is observe: this is what would be done, and nothing was changed.".to_owned());
    }
    lines
}

/// Only the receiver's host sets the first window, by the probes that it saw.
fn first_window(flow: &Flow, proboscis: &Proboscis) -> Option<String> {
    let Probes { seen, marked, .. } = flow.probes;
    if flow.window.synack_bytes == 0 {
        return (seen > 0).then(|| {
            format!(
                "{seen} probes came before the SYN, {marked} of them marked; the VM's own first window was not \
                above what they allow."
            )
        });
    }
    Some(format!(
        "ProBoSCIS set the first window, in the SYN-ACK, to {} bytes: {seen} probes came, {marked} of them marked; {}.",
        flow.window.synack_bytes,
        why(seen.into(), marked.into(), proboscis)
    ))
}

/// Why a first window is as large as it is.
fn why(seen: u32, marked: u32, proboscis: &Proboscis) -> String {
    if marked * 1000 / seen.max(1) > proboscis.k2_permille.get() {
        return format!("more than k2_permille = {} were marked, so it is one segment", proboscis.k2_permille);
    }
    format!(
        "it follows the unmarked share of icwnd_segments = {}, or is one segment if fewer than k_percent = {} came",
        proboscis.icwnd_segments, proboscis.k_percent
    )
}

/// Probes before the SYN-ACK, at either end.
fn answer(flow: &Flow, proboscis: &Proboscis) -> Option<String> {
    let Answer { sent, seen, marked, window_bytes } = flow.answer;
    match (flow.opened_by_vm, sent, seen, window_bytes) {
        (false, 0, ..) => None,
        (false, ..) => Some(format!("{sent} probes went before the SYN-ACK: the other host has asked for them.")),
        (true, _, 0, _) => proboscis.answers.then(|| {
            "No probes came before the SYN-ACK: what the other end sends first is left alone. Its host has no \
             evenkeel, or answers = false, or its budget was used up."
                .to_owned()
        }),
        (true, _, _, 0) => Some(format!(
            "{seen} probes came before the SYN-ACK, {marked} of them marked; the VM's own window was not above what \
             they allow, or it has sent no ACK yet."
        )),
        (true, ..) => Some(format!(
            "ProBoSCIS set the window of the VM's first ACKs, until it has the answer's first byte, to {window_bytes} \
             bytes: {seen} probes came before the SYN-ACK, {marked} of them marked; {}.",
            why(seen.into(), marked.into(), proboscis)
        )),
    }
}

fn probes(flow: &Flow, proboscis: &Proboscis) -> String {
    if !flow.opened_by_vm {
        return match flow.probes.seen {
            0 => "No probes came before the SYN: the other host has no evenkeel, no key in common, or sent none."
                .to_owned(),
            seen => format!("The other host sent {seen} probes that arrived."),
        };
    }
    match (flow.probes.sent, flow.peer_has_evenkeel || flow.peer_is_gone) {
        (0, _) if proboscis.g_probes.get() == 0 => "No probes were sent: g_probes is 0.".to_owned(),
        (0, _) if proboscis.mode == Mode::Observe => {
            "No probes were sent: the port observes (probes_sent in `evenkeel status` counts those that would have \
             been)."
                .to_owned()
        }
        (0, _) if flow.is_routed => {
            "No probes were sent: the VM's SYN goes to an address of this host, which routes it and may translate it \
             (NAT). Probes go ahead of the connection, so they would not be translated (see probes_routed in `evenkeel \
             status`)."
                .to_owned()
        }
        (0, _) => {
            "No probes were sent: there is no key, the VM's budget was used up, this peer never answers them, the VM \
            repeated its SYN to a peer that was never heard of, or its SYN had data or asked for several paths (see \
            probes_refused and probes_spared in `evenkeel status`)."
                .to_owned()
        }
        (sent, true) => format!("{sent} probes went before the SYN; the other host had evenkeel and answered."),
        (sent, false) => format!(
            "{sent} probes went before the SYN; nobody answered them, so the other host has no \
            evenkeel or no common key."
        ),
    }
}

fn ecn(flow: &Flow, proboscis: &Proboscis) -> String {
    match flow.ecn {
        Ecn::Guests if flow.has_accurate_ecn => {
            "The guests use accurate ECN, or asked for it: their ACKs count marks, so none is sent early, kept or \
             held, and marks and counters pass untouched."
                .to_owned()
        }
        Ecn::Guests => "The guests agreed on ECN: marks and echoes are theirs, and pass untouched.".to_owned(),
        Ecn::Hosts => {
            "The guests have no ECN: the hosts mark their data as capable of it, echo the marks and hide both."
                .to_owned()
        }
        Ecn::None if !proboscis.ecn_for_guests => {
            "No ECN: the guests did not agree on it, and ecn_for_guests is false.".to_owned()
        }
        Ecn::None if flow.peer_is_gone => {
            "No ECN: the other host's packets show that it does not see to it, or no more, so this host has let go for \
             good."
                .to_owned()
        }
        Ecn::None => {
            "No ECN: the guests did not agree on it, and the other host is not known to have evenkeel.".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::intf;

    fn flow(entry: intf::ek_flow) -> (Flow, String) {
        flow_in(Mode::Enforce, entry)
    }

    fn flow_in(mode: Mode, entry: intf::ek_flow) -> (Flow, String) {
        let proboscis = Proboscis { mode, ..Proboscis::default() };
        let flow = Flow::of(&intf::ek_flow_key::default(), &entry, "vnet0", &proboscis, 5_000_000_000);
        let words = explain(&flow, &proboscis).join("\n");
        (flow, words)
    }

    #[test]
    fn probes_that_were_answered_are_counted() {
        let flags = intf::EK_FLOW_VM_OPENED | intf::EK_FLOW_PEER;
        let (_, words) = flow(intf::ek_flow { flags, probes_sent: 10, ..Default::default() });
        assert!(words.contains("10 probes went before the SYN"), "{words}");
    }

    #[test]
    fn a_port_that_observes_is_said_to_send_none() {
        let entry = intf::ek_flow { flags: intf::EK_FLOW_VM_OPENED, ..Default::default() };
        let words = |mode| flow_in(mode, entry).1;
        assert!(words(Mode::Observe).contains("No probes were sent: the port observes"), "{}", words(Mode::Observe));
        assert!(words(Mode::Enforce).contains("there is no key"), "{}", words(Mode::Enforce));
    }

    #[test]
    fn a_host_that_sees_to_ecn_no_more_is_said_to_be_gone() {
        let flags = intf::EK_FLOW_VM_OPENED | intf::EK_FLOW_PEER_GONE;
        let (flow, words) = flow(intf::ek_flow { flags, probes_sent: 10, ..Default::default() });
        assert_eq!((flow.ecn, flow.peer_has_evenkeel), (Ecn::None, false));
        assert!(words.contains("evenkeel and answered") && words.contains("let go for good"), "{words}");
    }

    #[test]
    fn a_connection_that_this_host_routes_is_said_to_have_no_probes() {
        let flags = intf::EK_FLOW_VM_OPENED | intf::EK_FLOW_ROUTED;
        let (flow, words) = flow(intf::ek_flow { flags, ..Default::default() });
        assert!(flow.is_routed && words.contains("may translate it (NAT)"), "{words}");
    }

    #[test]
    fn accurate_ecn_is_the_guests() {
        let flags = intf::EK_FLOW_NATIVE_ECN | intf::EK_FLOW_ACCURATE_ECN | intf::EK_FLOW_PEER;
        let (flow, words) = flow(intf::ek_flow { flags, ..Default::default() });
        assert_eq!((flow.ecn, flow.has_accurate_ecn), (Ecn::Guests, true));
        assert!(words.contains("their ACKs count marks"), "{words}");
    }

    #[test]
    fn a_first_window_is_explained_by_probes() {
        let entry =
            intf::ek_flow { probes_seen: 10, probes_marked: 8, synack_window_bytes: 1448, ..Default::default() };
        let (_, words) = flow(entry);
        assert!(
            words.contains("to 1448 bytes: 10 probes came, 8 of them marked; more than k2_permille = 500"),
            "{words}"
        );
    }

    #[test]
    fn an_answers_window_is_explained_at_both_ends() {
        let flags = intf::EK_FLOW_VM_OPENED | intf::EK_FLOW_PEER;
        let entry = intf::ek_flow { flags, probes_sent: 10, answer_seen: 10, answer_marked: 3, ..Default::default() };
        let (_, words) = flow(intf::ek_flow { answer_window_bytes: 10_240, ..entry });
        assert!(words.contains("to 10240 bytes: 10 probes came before the SYN-ACK, 3 of them marked; it"), "{words}");
        let (_, words) = flow(entry);
        assert!(words.contains("own window was not above"), "{words}");
        let (_, words) = flow(intf::ek_flow { answer_sent: 7, probes_seen: 7, ..Default::default() });
        assert!(words.contains("7 probes went before the SYN-ACK"), "{words}");
        let (_, words) = flow(intf::ek_flow { flags, ..Default::default() });
        assert!(!words.contains("before the SYN-ACK"), "it is off: {words}");
    }

    #[test]
    fn observing_says_that_nothing_was_changed() {
        let entry = intf::ek_flow::default();
        let flow = Flow::of(&intf::ek_flow_key::default(), &entry, "vnet0", &Proboscis::default(), 0);
        assert!(explain(&flow, &Proboscis::default()).last().unwrap().contains("nothing was changed"));
    }
}
