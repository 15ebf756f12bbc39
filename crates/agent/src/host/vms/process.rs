//! What the process that has a tap open says of its VM: its command line, its sockets, its cgroup.
//!
//! Only a process that may make or take over taps can be one; what it says of itself is untrusted text all the same.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use evenkeel_settings::address::PORT_NAME;
use serde_json::Value;

/// More than the command line of any VMM.
const MOST_COMMAND_BYTES: u64 = 1 << 20;
/// Unix sockets of a host, as `/proc` lists them.
const MOST_SOCKETS_BYTES: u64 = 16 << 20;
const MOST_CGROUP_BYTES: u64 = 1 << 16;
/// As for libvirt's names.
const MOST_NAME_BYTES: usize = 255;

/// A process, as far as a VM is concerned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Process {
    /// What it calls its VM.
    pub name: Option<String>,
    /// The Unix socket of the virtio port that the guest's agent has.
    pub channel: Option<PathBuf>,
}

impl Process {
    /// What the process says now; what cannot be read stays unknown.
    pub(super) fn look(id: u32) -> Self {
        let command = read(id, "cmdline", MOST_COMMAND_BYTES).map(|text| command(&text)).unwrap_or_default();
        let channel = command.channel.and_then(|chardev| match chardev {
            Chardev::Path(path) => Some(path),
            Chardev::Descriptor(fd) => {
                let link = fs::read_link(format!("/proc/{id}/fd/{fd}")).ok()?;
                socket_path(&read(id, "net/unix", MOST_SOCKETS_BYTES)?, link.to_str()?)
            }
        });
        Self { name: command.name.filter(|name| (1..=MOST_NAME_BYTES).contains(&name.len())), channel }
    }
}

/// The cgroup of the VM that this process runs: its path in the hierarchy that divides CPU time.
pub(super) fn cgroup_of(id: u32) -> Option<String> {
    cgroup(&read(id, "cgroup", MOST_CGROUP_BYTES)?)
}

/// A file of a process as text; `None` if it is longer than `most_bytes`, as a part of it may say something else.
fn read(id: u32, name: &str, most_bytes: u64) -> Option<String> {
    let mut bytes = Vec::new();
    fs::File::open(format!("/proc/{id}/{name}")).ok()?.take(most_bytes + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= most_bytes).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// What a command line says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Command {
    name: Option<String>,
    channel: Option<Chardev>,
}

/// Where a channel of QEMU is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Chardev {
    Path(PathBuf),
    /// A socket that it was given when it was started.
    Descriptor(u32),
}

/// From `/proc/PID/cmdline`: arguments that end with a zero.
fn command(text: &str) -> Command {
    let mut arguments = text.trim_end_matches('\0').split('\0');
    let program = arguments.next().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    if program.starts_with("qemu") || program == "kvm" {
        qemu(arguments)
    } else if program.starts_with("firecracker") {
        let name = options(arguments).into_iter().find(|(key, _)| *key == "id").map(|(_, value)| value.to_owned());
        Command { name, channel: None }
    } else {
        Command::default()
    }
}

/// Options with their values: `-name web1`, `--name web1` and `--name=web1`.
fn options<'a>(arguments: impl Iterator<Item = &'a str>) -> Vec<(&'a str, &'a str)> {
    let mut found = Vec::new();
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        let Some(option) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else { continue };
        match option.split_once('=') {
            Some((key, value)) if argument.starts_with("--") => found.push((key, value)),
            _ => found.extend(arguments.peek().filter(|next| !next.starts_with('-')).map(|next| (option, *next))),
        }
    }
    found
}

fn qemu<'a>(arguments: impl Iterator<Item = &'a str>) -> Command {
    let options = options(arguments);
    let all = |wanted: &'static str| options.iter().filter(move |(option, _)| *option == wanted);
    let named = |option, implied, key: &str| all(option).find_map(|(_, value)| get(&fields(value, implied), key));
    let port = all("device").map(|(_, value)| fields(value, "driver")).find(|fields| {
        get(fields, "driver").is_some_and(|driver| driver == "virtserialport" || driver == "virtconsole")
            && get(fields, "name").is_some_and(|name| name == PORT_NAME)
    });
    let chardev = port.and_then(|fields| get(&fields, "chardev"));
    let own = all("chardev").map(|(_, value)| fields(value, "backend")).find(|fields| {
        get(fields, "id") == chardev && get(fields, "backend").is_some_and(|backend| backend == "socket")
    });
    Command {
        name: named("name", "guest", "guest"),
        channel: own.filter(|_| chardev.is_some()).and_then(|fields| chardev_of(&fields)),
    }
}

/// Where QEMU listens, if it does.
fn chardev_of(fields: &[(String, String)]) -> Option<Chardev> {
    let listens = get(fields, "server").is_some_and(|value| value != "off" && value != "no");
    if !listens {
        return None;
    }
    match (get(fields, "path"), get(fields, "fd")) {
        (Some(path), _) if path.starts_with('/') => Some(Chardev::Path(path.into())),
        (None, Some(fd)) => fd.parse().ok().map(Chardev::Descriptor),
        _ => None,
    }
}

fn get(fields: &[(String, String)], key: &str) -> Option<String> {
    // Of several, the last one counts.
    fields.iter().rev().find(|(own, _)| own == key).map(|(_, value)| value.clone())
}

/// Parses an option's value in QEMU's two forms: JSON, or `key=value` separated by commas, where two commas are a
/// literal one. The first field may lack its key, a flag (`server`) its value.
fn fields(text: &str, implied: &str) -> Vec<(String, String)> {
    if text.starts_with('{') {
        let Ok(Value::Object(object)) = serde_json::from_str(text) else { return Vec::new() };
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        return object.iter().map(|(key, value)| (key.clone(), plain(value))).collect();
    }
    let mut parts = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == ',' && letters.next_if_eq(&',').is_none() {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    let field = |(place, part): (usize, &String)| match part.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None if place == 0 => (implied.to_owned(), part.clone()),
        None => (part.clone(), "on".to_owned()),
    };
    parts.iter().enumerate().map(field).collect()
}

/// The path of a socket that `/proc/PID/fd/N` links to (`socket:[INODE]`), from `/proc/PID/net/unix`.
fn socket_path(text: &str, link: &str) -> Option<PathBuf> {
    let inode = link.strip_prefix("socket:[")?.strip_suffix(']')?;
    text.lines().find_map(|line| {
        // Num RefCount Protocol Flags Type St Inode Path; a short inode has blanks before it.
        let (own, path) = after_words(line, 6)?.trim_start().split_once(' ')?;
        (own == inode && path.starts_with('/')).then(|| path.into())
    })
}

fn after_words(line: &str, words: usize) -> Option<&str> {
    (0..words).try_fold(line, |rest, _| rest.trim_start().split_once(' ').map(|(_, rest)| rest))
}

/// A VM's cgroup, from `/proc/PID/cgroup`: the one that divides CPU time, without libvirt's `emulator` below it.
fn cgroup(text: &str) -> Option<String> {
    let lines = || text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let old = lines().find(|(controllers, _)| controllers.split(',').any(|controller| controller == "cpu"));
    let (_, path) = old.or_else(|| lines().find(|(controllers, _)| controllers.is_empty()))?;
    let path = path.strip_suffix("/emulator").unwrap_or(path);
    Some(path.strip_suffix("/libvirt").unwrap_or(path).to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// QEMU as libvirt 9.0 has started it, one argument per line.
    const WEB1: &str = include_str!("fixtures/web1.cmdline");

    fn of(arguments: &[&str]) -> Command {
        command(&arguments.iter().map(|argument| format!("{argument}\0")).collect::<String>())
    }

    fn at(name: &str, path: &str) -> Command {
        Command { name: Some(name.to_owned()), channel: Some(Chardev::Path(path.into())) }
    }

    #[test]
    fn libvirts_qemu_is_read() {
        let expected = Command { name: Some("web1".to_owned()), channel: Some(Chardev::Descriptor(30)) };
        assert_eq!(command(&WEB1.replace('\n', "\0")), expected);
    }

    #[test]
    fn a_channel_is_that_of_the_port_of_our_name() {
        let port = "virtserialport,chardev=e,name=org.evenkeel.0";
        let socket = "socket,id=e,path=/run/evenkeel/vms/101.channel,server=on,wait=off";
        let proxmox = [
            "/usr/bin/kvm",
            "-id",
            "101",
            "-name",
            "web1,debug-threads=on",
            "-no-shutdown",
            "-chardev",
            "socket,id=qmp,path=/var/run/qemu-server/101.qmp,server=on,wait=off",
            "-mon",
            "chardev=qmp,mode=control",
            "-netdev",
            "type=tap,id=net0,ifname=tap101i0,vhost=on",
        ];
        let with = |more: &[&'static str]| of(&[&proxmox[..], more].concat());
        assert_eq!(with(&[]), Command { name: Some("web1".to_owned()), channel: None });
        let here = at("web1", "/run/evenkeel/vms/101.channel");
        assert_eq!(with(&["-chardev", socket, "-device", port]), here);
        assert_eq!(with(&["--device", port, "--chardev", socket]), here);
        let old = "socket,id=e,path=/run/evenkeel/vms/101.channel,server,nowait";
        assert_eq!(with(&["-chardev", old, "-device", port]), here);
        for (chardev, device) in [
            (socket, "virtserialport,chardev=other,name=org.evenkeel.0"),
            (socket, "virtserialport,chardev=e,name=org.qemu.guest_agent.0"),
            (socket, "virtserialport,name=org.evenkeel.0"),
            ("socket,id=e,path=/run/x,server=off,reconnect=1", port),
            ("socket,id=e,path=relative,server=on", port),
            ("pty,id=e,path=/run/x,server=on", port),
        ] {
            assert_eq!(with(&["-chardev", chardev, "-device", device]).channel, None, "{chardev} {device}");
        }
    }

    #[test]
    fn names_are_what_vmms_are_told() {
        for (arguments, name) in [
            (&["qemu-system-x86_64", "-name", "guest=a,,b=c,debug-threads=on"][..], Some("a,b=c")),
            (&["/usr/libexec/qemu-kvm", "--name", "web1"], Some("web1")),
            (&["qemu-system-x86_64", "-name", "-S"], None),
            (&["qemu-system-x86_64", "-name"], None),
            (&["/usr/bin/firecracker", "--id=fc-7", "--api-sock", "/run/fc"], Some("fc-7")),
            (&["cloud-hypervisor", "--net", "tap=tap0"], None),
            (&["openvpn", "-name", "web1"], None),
            (&[], None),
        ] {
            assert_eq!(of(arguments).name.as_deref(), name, "{arguments:?}");
        }
    }

    #[test]
    fn a_descriptor_is_a_socket_with_a_path() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    ffff8881: 00000002 00000000 00010000 0001 01   917 /run/a b.sock\n\
                    ffff8882: 00000003 00000000 00000000 0001 03 91723\n\
                    ffff8883: 00000002 00000000 00010000 0001 01 91724 /run/c.sock\n\
                    ffff8884: 00000002 00000000 00010000 0001 01 91725 @abstract\n";
        for (link, path) in [
            ("socket:[917]", Some("/run/a b.sock")),
            ("socket:[91723]", None),
            ("socket:[91724]", Some("/run/c.sock")),
            ("socket:[91725]", None),
            ("socket:[9]", None),
            ("/dev/null", None),
        ] {
            assert_eq!(socket_path(text, link), path.map(PathBuf::from), "{link}");
        }
    }

    #[test]
    fn a_cgroup_is_the_vms_own() {
        let old = "9:name=systemd:/\n8:pids:/\n3:cpuset:/machine/q/emulator\n\
                   1:cpu,cpuacct:/machine/qemu-1-web1.libvirt-qemu/emulator\n0::/\n";
        assert_eq!(cgroup(old).as_deref(), Some("/machine/qemu-1-web1.libvirt-qemu"));
        let new = "0::/machine.slice/machine-qemu\\x2d1\\x2dweb1.scope/libvirt/emulator\n";
        assert_eq!(cgroup(new).as_deref(), Some("/machine.slice/machine-qemu\\x2d1\\x2dweb1.scope"));
        assert_eq!(cgroup("0::/qemu.slice/101.scope\n").as_deref(), Some("/qemu.slice/101.scope"));
        assert_eq!((cgroup(""), cgroup("1:cpu")), (None, None));
    }

    #[test]
    fn of_this_process_a_cgroup_is_known() {
        assert!(cgroup_of(std::process::id()).is_some_and(|cgroup| cgroup.starts_with('/')));
        assert_eq!(Process::look(std::process::id()), Process::default());
        assert_eq!((cgroup_of(u32::MAX), Process::look(u32::MAX)), (None, Process::default()));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,200}", more in "[-,=\\{\\}\":a-z \0\n\\[\\]0-9]{0,200}") {
            for text in [&text, &more] {
                command(&format!("qemu\0-chardev\0{text}\0-device\0{text}\0-name\0{text}"));
                fields(text, "id");
                cgroup(text);
                socket_path(text, "socket:[7]");
            }
        }
    }
}
