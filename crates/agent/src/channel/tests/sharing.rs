//! Several ports with one guest.

use super::*;

/// A guest's end that says no to vSnoop.
fn objecting() -> GuestEnd {
    let mut end = guest_end();
    end.endpoint(Some(Reasons::from_iter([Reason::Upper])), Instant::now());
    end
}

fn objects(channels: &Channels, ifindex: u32) -> bool {
    channels.endpoint(ifindex).is_some_and(|said| !said.is_empty())
}

#[test]
fn all_ports_of_a_guest_hear_it() {
    let qemu = Qemu::new();
    let channels = Channels::start().unwrap();
    channels.set(3, "vnet3", Some(&qemu.address), HEARTBEAT_MS).unwrap();
    channels.set(4, "vnet4", Some(&qemu.address), HEARTBEAT_MS).unwrap();
    let (mut stream, mut end) = (qemu.accept(), objecting());
    guest_until(&mut stream, &mut end, |_| objects(&channels, 3) && objects(&channels, 4));
    assert_eq!(channels.session(3), channels.session(4));
    assert!(channels.status(3).unwrap().is_connected && channels.status(4).unwrap().is_connected);
    // One that comes later hears it at once.
    channels.set(5, "vnet5", Some(&qemu.address), HEARTBEAT_MS).unwrap();
    assert!(objects(&channels, 5));
    channels.set(4, "vnet4", None, HEARTBEAT_MS).unwrap();
    assert!(!objects(&channels, 4) && channels.status(4).is_none());
    // At another pace it is connected anew, for all that are left.
    channels.set(3, "vnet3", Some(&qemu.address), 2 * HEARTBEAT_MS).unwrap();
    assert!(objects(&channels, 3) && objects(&channels, 5), "what it has said");
    channels.set(5, "vnet5", Some(&qemu.address), 2 * HEARTBEAT_MS).unwrap();
    let (mut stream, mut end) = (qemu.accept(), objecting());
    guest_until(&mut stream, &mut end, |_| channels.guest(3).is_some() && channels.guest(5).is_some());
}

#[test]
fn a_guest_may_flood_while_one_of_its_ports_holds() {
    let qemu = Qemu::new();
    let channels = Channels::start().unwrap();
    for ifindex in [3, 4] {
        channels.set(ifindex, "vnet", Some(&qemu.address), HEARTBEAT_MS).unwrap();
        channels.attest(ifindex, (ifindex == 3).then_some(512));
    }
    let (mut stream, mut end) = (qemu.accept(), guest_end());
    let attested = |seen: &[Effect]| matches!(seen.last(), Some(Effect::Attested { flood_segments: 512, .. }));
    guest_until(&mut stream, &mut end, |seen| attested(seen) && channels.is_obeyed(3) && channels.is_obeyed(4));
    assert!(channels.attest(4, Some(512)) && channels.attest(3, None));
    assert!(channels.is_obeyed(3), "the guest has nothing to do: packets that come by the other port say no more");
    assert!(channels.attest(4, None));
    assert!(!channels.is_obeyed(3) && !channels.is_obeyed(4));
    guest_until(&mut stream, &mut end, |seen| {
        seen.contains(&Effect::Retracted) && channels.is_obeyed(3) && channels.is_obeyed(4)
    });
}

#[test]
fn a_guest_with_several_ports_shares_out_no_window() {
    let qemu = Qemu::new();
    let channels = Channels::start().unwrap();
    channels.set(3, "vnet3", Some(&qemu.address), HEARTBEAT_MS).unwrap();
    let (mut stream, mut end) = (qemu.accept(), guest_end());
    guest_until(&mut stream, &mut end, |_| channels.has_client(3));
    assert!(channels.window(3, 5, 77));
    guest_until(&mut stream, &mut end, |seen| seen.contains(&Effect::Share(Window { epoch: 5, segments: 77 })));
    channels.set(4, "vnet4", Some(&qemu.address), HEARTBEAT_MS).unwrap();
    guest_until(&mut stream, &mut end, |seen| seen.contains(&Effect::Released));
    assert!(!channels.has_client(3) && !channels.window(3, 6, 70) && !channels.window(4, 6, 7));
    // What holds at the port that is left.
    channels.set(4, "vnet4", None, HEARTBEAT_MS).unwrap();
    guest_until(&mut stream, &mut end, |seen| seen.contains(&Effect::Share(Window { epoch: 6, segments: 70 })));
}

#[test]
fn another_vms_port_hears_nothing_at_a_socket() {
    let qemu = Qemu::new();
    let own = std::process::id();
    let target = |process| Target { listener: Listener::Process(process), ..qemu.address.clone() };
    let channels = Channels::start().unwrap();
    // Whichever comes first.
    channels.set(4, "vnet4", Some(&target(own + 1)), HEARTBEAT_MS).unwrap();
    channels.set(3, "vnet3", Some(&target(own)), HEARTBEAT_MS).unwrap();
    channels.attest(4, Some(512));
    // The host closes a connection that was for the first port alone.
    let mut stream = loop {
        let mut stream = qemu.accept();
        stream.set_read_timeout(None).unwrap();
        if stream.read(&mut [0; 1]).unwrap() > 0 {
            break stream;
        }
    };
    stream.set_read_timeout(Some(5 * MS)).unwrap();
    let mut end = objecting();
    guest_until(&mut stream, &mut end, |_| objects(&channels, 3));
    assert!(channels.endpoint(4).is_none() && channels.guest(4).is_none() && !channels.has_client(4));
    assert!(channels.has_client(3), "it is this VM's only port");
    let status = channels.status(4).unwrap();
    assert!(!status.is_connected && status.trouble.unwrap().starts_with(&format!("process {own} of user")));
    guest_until(&mut stream, &mut end, |seen| {
        assert!(!seen.iter().any(|effect| matches!(effect, Effect::Attested { .. })), "attested by another VM's port");
        channels.is_obeyed(3)
    });
    // The connection does not outlive the port that it was for.
    channels.set(3, "vnet3", None, HEARTBEAT_MS).unwrap();
    wait_until("the refusal", || channels.status(4).unwrap().trouble.is_some());
    assert!(!channels.status(4).unwrap().is_connected);
}

#[test]
fn ports_share_a_channel_over_tcp() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target::from(HostAddress::Tcp(listener.local_addr().unwrap()));
    let channels = Channels::start().unwrap();
    channels.set(3, "vnet3", Some(&target), HEARTBEAT_MS).unwrap();
    channels.set(4, "vnet4", Some(&target), HEARTBEAT_MS).unwrap();
    let mut stream = listener.accept().unwrap().0;
    stream.set_read_timeout(Some(5 * MS)).unwrap();
    guest_until(&mut stream, &mut objecting(), |_| objects(&channels, 3) && objects(&channels, 4));
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "there is one connection");
}
