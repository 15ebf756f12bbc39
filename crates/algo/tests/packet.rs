//! The parser against a second one, and against noise.

use etherparse::{NetHeaders, PacketBuilder, PacketHeaders, TcpOptionElement, TransportHeader};
use evenkeel_algo::packet::{self, HEAD_BYTES, Kind};
use proptest::prelude::*;

/// Frames that both parsers are to read alike.
fn seeds() -> Vec<Vec<u8>> {
    let options = [
        TcpOptionElement::MaximumSegmentSize(1460),
        TcpOptionElement::SelectiveAcknowledgementPermitted,
        TcpOptionElement::Timestamp(1, 2),
        TcpOptionElement::Noop,
        TcpOptionElement::WindowScale(7),
    ];
    let v4 = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
    let v6 = PacketBuilder::ethernet2([1; 6], [2; 6]).ipv6([1; 16], [2; 16], 64);
    let tagged = PacketBuilder::ethernet2([1; 6], [2; 6]).single_vlan(etherparse::VlanId::try_new(5).unwrap()).ipv4(
        [10, 0, 0, 1],
        [10, 0, 0, 2],
        64,
    );
    [v4, v6, tagged]
        .into_iter()
        .map(|builder| {
            let tcp = builder.tcp(40000, 80, 7, 1000).syn().ack(9).options(&options).unwrap();
            let mut frame = Vec::new();
            tcp.write(&mut frame, b"data").unwrap();
            frame
        })
        .collect()
}

#[test]
fn what_it_reads_is_what_etherparse_reads() {
    for frame in seeds() {
        let Kind::Tcp(packet, Some(options)) = packet::parse(&frame) else { panic!("{frame:02x?}") };
        let other = PacketHeaders::from_ethernet_slice(&frame).unwrap();
        let Some(TransportHeader::Tcp(tcp)) = other.transport else { panic!() };
        assert_eq!((packet.source_port, packet.destination_port), (tcp.source_port, tcp.destination_port));
        assert_eq!(
            (packet.seq, packet.ack, packet.window),
            (tcp.sequence_number, tcp.acknowledgment_number, tcp.window_size)
        );
        assert_eq!((packet.flags, usize::from(packet.tcp_bytes)), (0x12, tcp.header_len()));
        assert_eq!(packet.payload_bytes, 4);
        assert_eq!((options.mss, options.wscale, options.has_timestamps), (Some(1460), Some(7), true));
        match other.net.unwrap() {
            NetHeaders::Ipv4(ip, _) => assert_eq!((packet.version, &packet.source[12..]), (4, &ip.source[..])),
            NetHeaders::Ipv6(ip, _) => assert_eq!((packet.version, packet.source), (6, ip.source)),
            NetHeaders::Arp(_) => panic!(),
        }
    }
}

#[test]
fn fragments_and_other_protocols_are_not_tcp() {
    let mut frame = seeds().remove(0);
    frame[21] = 1;
    assert_eq!(packet::parse(&frame), Kind::Other, "a later fragment");
    frame[20..22].copy_from_slice(&[0x20, 0]);
    assert_eq!(packet::parse(&frame), Kind::Other, "a first fragment");
    frame[20..22].fill(0);
    frame[23] = 17;
    assert_eq!(packet::parse(&frame), Kind::Other);
    assert_eq!(packet::parse(&[0; 13]), Kind::Broken);
}

#[test]
fn sack_blocks_are_hidden_and_nothing_else_changes() {
    let mut options = [1, 1, 8, 10, 0, 0, 5, 5, 0, 5, 10, 5, 1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 9, 2, 4, 5, 180];
    let before = options;
    assert!(packet::hide_sack(&mut options));
    assert_eq!((&options[..14], &options[24..]), (&before[..14], &before[24..]));
    assert_eq!(options[14..24], [1; 10]);
    assert!(!packet::hide_sack(&mut options));
    // SACK permitted is another option; behind the end of the list there is none.
    let mut others = [4, 2, 0, 5, 10];
    assert!(!packet::hide_sack(&mut others));
    assert_eq!(others, [4, 2, 0, 5, 10]);
}

/// What must hold of any answer.
fn check(frame: &[u8]) -> Result<(), TestCaseError> {
    if let Kind::Tcp(packet, options) = packet::parse(frame) {
        let end = usize::from(packet.l4) + usize::from(packet.tcp_bytes);
        prop_assert!(packet.l3 >= 14 && packet.l4 >= packet.l3 + 20 && packet.tcp_bytes >= 20);
        prop_assert!(end <= frame.len().min(HEAD_BYTES));
        prop_assert!(end + packet.payload_bytes as usize <= frame.len());
        if let Some(at) = options.and_then(|o| o.experiment) {
            prop_assert!(usize::from(at) + 2 <= end && at >= packet.l4 + 20 && frame[usize::from(at)] == 254);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200_000))]

    #[test]
    fn mutated_packets(
        which in 0usize..3,
        changes in prop::collection::vec((0usize..100, any::<u8>()), 0..6),
        cut in prop::option::weighted(0.2, 0usize..100),
    ) {
        let mut frame = seeds_once()[which].clone();
        for (at, byte) in changes {
            let at = at % frame.len();
            frame[at] = byte;
        }
        if let Some(length) = cut { frame.truncate(length); }
        check(&frame)?;
    }

    #[test]
    fn noise(frame in prop::collection::vec(any::<u8>(), 0..300)) {
        check(&frame)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// Options that can be read say the same afterwards, except for the SACK blocks.
    #[test]
    fn options_without_their_sack_blocks(
        mut options in prop::collection::vec(prop_oneof![Just(1u8), Just(5), Just(10), any::<u8>()], 0..=40),
    ) {
        let is_sack = |element: &TcpOptionElement| matches!(element, TcpOptionElement::SelectiveAcknowledgement(..));
        let elements = |options: &[u8]| {
            let all = etherparse::TcpOptionsIterator::from_slice(options).collect::<Result<Vec<_>, _>>();
            let stays = |element: &TcpOptionElement| *element != TcpOptionElement::Noop && !is_sack(element);
            all.map(|all| all.into_iter().filter(stays).collect::<Vec<_>>())
        };
        let before = elements(&options);
        let had = etherparse::TcpOptionsIterator::from_slice(&options).flatten().any(|element| is_sack(&element));
        let hidden = packet::hide_sack(&mut options);
        if let Ok(before) = before {
            prop_assert_eq!(hidden, had);
            prop_assert_eq!(elements(&options), Ok(before));
        }
    }
}

fn seeds_once() -> &'static [Vec<u8>] {
    static SEEDS: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
    SEEDS.get_or_init(seeds)
}

/// They are found alone and behind other options, but not where an option merely contains such a byte.
#[test]
fn signatures_counters_and_fast_open_are_found() {
    let mut frame = seeds().remove(0);
    frame.truncate(54);
    frame[16..18].copy_from_slice(&60u16.to_be_bytes());
    frame[46] = 10 << 4;
    let found = |options: &[u8]| {
        let mut frame = frame.clone();
        frame.extend(options);
        frame.resize(74, 0);
        let Kind::Tcp(_, options) = packet::parse(&frame) else { panic!("{frame:02x?}") };
        options.map(|o| (o.is_signed, o.counts_ecn, o.opens_fast))
    };
    // NOPs have no length.
    for kind in (0..=255u8).filter(|kind| *kind != 1) {
        let (is_signed, counts_ecn) = ([14, 15, 18, 19, 29].contains(&kind), [172, 174].contains(&kind));
        let expected = (is_signed, counts_ecn, [34, 254].contains(&kind));
        for options in [vec![kind, 4, 9, 9], vec![8, 10, 19, 29, 172, 174, 0, 0, 0, 0, 1, kind, 4, 19, 29]] {
            assert_eq!(found(&options), Some(expected), "{options:?}");
        }
    }
    assert_eq!(found(&[0, 19, 2]), Some((false, false, false)), "behind the end of the list there is none");
    assert_eq!(found(&[19, 1, 1, 1]), None);
}
