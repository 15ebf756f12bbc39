//! Configuration files as users write them.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::address::{ChannelSource, HostAddress};
use crate::proboscis::Proboscis;
use crate::value::Mode;
use crate::vsnoop::Proof;

fn refused(text: &str) -> String {
    Config::parse(text, Path::new("host.toml")).unwrap_err().to_string()
}

#[test]
fn the_example_is_the_default() {
    assert_eq!(Config::parse(&example(), Path::new("example")).unwrap(), Config::default());
    assert_eq!(Config::parse("", Path::new("empty")).unwrap(), Config::default());
}

#[test]
fn the_example_names_every_key_and_its_bounds() {
    let keys = toml::Table::try_from(Config::default()).unwrap();
    let text = toml::to_string(&keys).unwrap();
    for line in text.lines().filter(|l| l.contains(" = ") && !l.starts_with("port =")) {
        assert!(example().lines().any(|l| l == line), "the example lacks `{line}`");
    }
    // Its commented end works, too.
    let example = example();
    let (_, end) = example.split_once("key by key.\n#\n").unwrap();
    let end: String = end.lines().map(|l| l.strip_prefix("# ").unwrap_or(l).to_owned() + "\n").collect();
    let config = Config::parse(&end, Path::new("end")).unwrap();
    assert_eq!(config.settings("vnet7").proboscis.mode, Mode::Enforce);
    let channel = config.settings("vnet7").channel.unwrap().parse().unwrap();
    assert_eq!(channel, ChannelSource::At(HostAddress::Path("/run/evenkeel/vms/vnet7.channel".into())));
    assert_eq!(config.settings("vnet7").cera.weight.get(), 3);
    let found = Config::parse("[[port]]\nmatch = \"vnet*\"\nchannel = \"libvirt\"\n", Path::new("found")).unwrap();
    assert_eq!(found.settings("vnet7").channel.unwrap().parse(), Ok(ChannelSource::Libvirt));
    assert_eq!(config.settings("vnet8"), Config::default().settings("vnet8"));
    // Bounds in the comment above a key are those of the type: one step outside is refused, with the same words.
    let mut comment = String::new();
    let mut checked = 0;
    let mut table = "";
    let (keys, _) = example.split_once("# Settings of single ports").unwrap();
    for line in keys.lines() {
        // A key that may be left out is there as a comment.
        let is_key = |text: &str| text.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
        let line = line.strip_prefix("# ").filter(|text| is_key(text)).unwrap_or(line);
        if let Some(text) = line.strip_prefix("# ") {
            comment.push_str(text);
            comment.push(' ');
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            table = header.trim_end_matches(']');
        }
        let Some((key, _)) = line.split_once(" = ") else {
            comment.clear();
            continue;
        };
        let probe = |value: &str| refused(&format!("[{table}]\n{key} = {value}\n"));
        let units = ["_us", "_permille", "_percent", "_segments", "_mbit", "_ms", "epochs", "weight"];
        if units.iter().any(|unit| key.ends_with(unit)) {
            let error = if table.is_empty() { refused(&format!("{key} = -1\n")) } else { probe("-1") };
            let (_, bounds) = error.split_once("expected a whole number from ").unwrap_or_else(|| panic!("{error}"));
            let bounds = bounds.replace(" to ", "-");
            assert!(comment.contains(&bounds), "{key}: {bounds} is not in `{comment}`");
            checked += 1;
        } else if key == "mode" {
            assert!(probe("\"on\"").contains("expected one of `off`, `observe`, `enforce`"));
        }
        comment.clear();
    }
    assert_eq!(checked, 21);
}

#[test]
fn what_holds_for_all_ports_is_no_ports_own() {
    for key in ["uplinks = [\"eth0\"]", "high_segments = 9", "rate_mbit = 10", "shares = \"need\""] {
        let name = key.split(' ').next().unwrap();
        let error = refused(&format!("[[port]]\nmatch = \"a\"\n[port.cera]\n{key}\n"));
        let expected = format!("host.toml:4: port[0].cera.{name}: is one value for all ports; only [cera] has it");
        assert_eq!(error, expected);
    }
}

#[test]
fn an_error_names_file_line_key_and_what_is_allowed() {
    for (text, expected) in [
        (
            "[proboscis]\nmode = \"observe\"\nb1_us = 5\n",
            "host.toml:3: proboscis.b1_us: invalid value: integer `5`, expected a whole number from 1000 to 10000000",
        ),
        (
            "[proboscis]\nb1_us = \"fast\"\n",
            "host.toml:2: proboscis.b1_us: invalid type: string \"fast\", expected a whole number from 1000 to \
             10000000",
        ),
        (
            "[proboscis]\nmode = \"on\"\n",
            "host.toml:2: proboscis.mode: unknown variant `on`, expected one of `off`, `observe`, `enforce`",
        ),
        (
            "[vsnoop]\nendpoint = \"trusted\"\n",
            "host.toml:2: vsnoop.endpoint: unknown variant `trusted`, expected `attested` or `observed`",
        ),
        ("colour = 1\n", "host.toml:1: colour: unknown field `colour`, expected one of `ports`, `netns`, `port_queue"),
        (
            "\n[[port]]\nmatch = \"a*\"\n[port.proboscis]\ngamma = 1\n",
            "host.toml:5: port[0].proboscis.gamma: unknown field",
        ),
        ("ports = [\"vnet*\", \"a[\"]\n", "host.toml:1: ports[1]: `a[` is no pattern of port names"),
        ("[[port]]\nport_queue_segments = 1\n", "host.toml:1: port[0]: missing field `match`"),
        ("ports = [\n", "host.toml:2: "),
        ("[proboscis]\nb1_us = 30000\n", "host.toml:1: proboscis.b2_us: 20000 is less than b1_us = 30000"),
        ("[proboscis]\nb1_us = 4000\nb2_us = 2000\n", "host.toml:3: proboscis.b2_us: 2000 is less than b1_us = 4000"),
        (
            "[[port]]\nmatch = \"a\"\n\n[[port]]\nmatch = \"b\"\n[port.proboscis]\nmax_time_us = 10\n",
            "host.toml:7: port[1].proboscis.max_time_us: 10 is less than b1_us = 4000; 0 (nothing is sent again) or at \
             least 4000 is allowed",
        ),
        (
            "[metrics]\nlisten = \"0.0.0.0:9464\"\n",
            "host.toml:2: metrics.listen: 0.0.0.0:9464 can be reached from other machines",
        ),
        (
            "[[port]]\nmatch = \"vnet*\"\nchannel = \"/run/vm.sock\"\n",
            "host.toml:3: port[0].channel: `vnet*` may match several ports, and a channel leads to one guest; allowed \
             are libvirt, auto, a channel with {port}",
        ),
        (
            "[[port]]\nmatch = \"a\"\nchannel = \"vm.sock\"\n",
            "host.toml:3: port[0].channel: `vm.sock` is no channel (it begins with none of them); allowed are \
             libvirt, auto, the absolute path",
        ),
        ("[cera]\nmode = \"observe\"\n", "host.toml:1: cera.uplinks: names no device"),
        (
            "[[port]]\nmatch = \"a\"\n[port.cera]\nmode = \"enforce\"\n[cera]\nepochs = 1\n",
            "host.toml:5: cera.uplinks: names no device",
        ),
        (
            "[cera]\nhigh_segments = 20\nlow_segments = 21\n",
            "host.toml:3: cera.low_segments: 21 is more than high_segments = 20; 0 to 20 is allowed",
        ),
        ("[control]\nsocket = \"host.sock\"\n", "host.toml:2: control.socket: `host.sock` is no absolute path"),
    ] {
        let error = refused(text);
        assert!(error.starts_with(expected), "{text}\n{error}\n{expected}");
    }
}

#[test]
fn ports_of_other_namespaces_are_meant_by_both_names() {
    let text = "ports = [\"tap*\"]\nnetns = [\"cni-*\"]\n[[port]]\nmatch = \"tap*\"\nport_queue_segments = 8\n\
                [[port]]\nmatch = \"*/tap1\"\nport_queue_segments = 9\n";
    let config = Config::parse(text, Path::new("host.toml")).unwrap();
    let is_port = |name: &str| config.is_port(name);
    assert!(is_port("tap0") && is_port("cni-1/tap0"));
    assert!(!is_port("cni-1") && !is_port("cni-1/eth0") && !is_port("other/tap0") && !is_port("tap0/tap0"));
    let queue = |name: &str| config.settings(name).port_queue_segments.get();
    assert_eq!([queue("tap1"), queue("cni-1/tap0"), queue("cni-1/tap1")], [8, 1000, 9]);
    assert!(!Config::default().is_port("cni-1/tap0"));
}

#[test]
fn of_overrides_the_last_one_decides_key_by_key() {
    let config = Config::parse(
        "port_queue_segments = 7\n[proboscis]\ng_probes = 5\n\
         [[port]]\nmatch = \"vnet*\"\nport_queue_segments = 8\n[port.proboscis]\nmode = \"enforce\"\ng_probes = 6\n\
         [[port]]\nmatch = \"vnet1\"\n[port.proboscis]\ng_probes = 9\n[port.cera]\nweight = 5\n",
        Path::new("host.toml"),
    )
    .unwrap();
    let of = |name: &str| {
        let settings = config.settings(name);
        (settings.port_queue_segments.get(), settings.proboscis.mode, settings.proboscis.g_probes.get())
    };
    assert_eq!(of("tap0"), (7, Mode::Observe, 5));
    assert_eq!(of("vnet0"), (8, Mode::Enforce, 6));
    assert_eq!(of("vnet1"), (8, Mode::Enforce, 9));
    let cera = |name: &str| (config.settings(name).cera.mode, config.settings(name).cera.weight.get());
    assert_eq!((cera("vnet0"), cera("vnet1")), ((Mode::Off, 1), (Mode::Off, 5)));
    assert!(config.is_port("vnet12") && config.is_port("tap0") && !config.is_port("eth0"));
}

#[test]
fn what_is_enough_to_acknowledge_for_a_vm_is_a_ports_own() {
    let text = "[[port]]\nmatch = \"a*\"\n[port.vsnoop]\nendpoint = \"observed\"\n\
                [[port]]\nmatch = \"ab\"\n[port.vsnoop]\nendpoint = \"attested\"\n";
    let config = Config::parse(text, Path::new("host.toml")).unwrap();
    let of = |name: &str| config.settings(name).vsnoop.endpoint;
    assert_eq!((of("aa"), of("ab"), of("b")), (Proof::Observed, Proof::Attested, Proof::Attested));
}

#[test]
fn every_key_of_an_override_counts() {
    let mut keys = toml::Table::try_from(Proboscis::default()).unwrap();
    for (key, value) in &mut keys {
        let other = match value {
            toml::Value::Integer(number) if key.as_str() == "b2_us" => toml::Value::Integer(*number + 5000),
            toml::Value::Integer(number) => toml::Value::Integer(*number + 1),
            toml::Value::Boolean(on) => toml::Value::Boolean(!*on),
            _ => toml::Value::String("enforce".into()),
        };
        *value = other;
    }
    let text = format!("[[port]]\nmatch = \"x\"\n[port.proboscis]\n{keys}");
    let config = Config::parse(&text, Path::new("host.toml")).unwrap();
    assert_eq!(toml::Table::try_from(config.settings("x").proboscis).unwrap(), keys);
}

#[test]
fn metrics_may_be_open_to_others_if_that_is_meant() {
    Config::parse("[metrics]\nlisten = \"0.0.0.0:9464\"\nallow_remote = true\n", Path::new("host.toml")).unwrap();
    Config::parse("[metrics]\nlisten = \"[::1]:9464\"\n", Path::new("host.toml")).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_is_in_a_file_its_error_is_one_line(
        place in 0..7usize,
        name in "[a-z*\\[{=.`'\"\\\\ \n\r\t\u{1b}\u{202e}\u{e9}]{0,6}",
    ) {
        let text = toml::Value::String(name.clone()).to_string();
        let key: String = name.chars().map(|c| format!("\\U{:08x}", u32::from(c))).collect();
        let file = match place {
            0 => format!("ports = [{text}]"),
            1 => format!("probe_key_file = {text}"),
            2 => format!("[[port]]\nmatch = {text}\nchannel = {text}"),
            3 => format!("[control]\nsocket = {text}"),
            4 => format!("[proboscis]\n\"{key}\" = 1"),
            5 => format!("[proboscis]\nmode = {text}"),
            _ => format!("\"{key}\" = {text}"),
        };
        if let Err(error) = Config::parse(&file, Path::new("h\nost.toml")) {
            let message = error.to_string();
            prop_assert!(message.starts_with("h\\nost.toml:"), "{message:?}");
            prop_assert!(!message.contains(|c: char| c.is_control() || c == '\u{202e}'), "{message:?}");
        }
    }
}
