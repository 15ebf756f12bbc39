//! The initramfs: busybox, the network's tools, the kernel modules that the lab needs, the guest module and evenkeel.
//!
//! It is not compressed: a VM without KVM would spend a second or two on unpacking it. It is two archives, one after
//! the other: the base, which is kept per kernel, and evenkeel with `/init`, which change more often.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::cache::{self, Cache};
use super::cpio::Archive;
use super::error::{PrepareError, Trying};
use super::kernel::Kernel;
use super::module::MODULE;
use super::root::Root;

/// Programs from the root, besides busybox. Their shared libraries come along.
///
/// The applets of Debian's busybox that start programs prefer other applets: its `sh -c ip` is never iproute2's. So the
/// shell and the programs that run others are real ones too.
const PROGRAMS: [&str; 20] = [
    "ip",
    "tc",
    "ss",
    "nstat",
    "iperf3",
    "nginx",
    "memcached",
    "ethtool",
    "tcpdump",
    "kmod", //
    "dash",
    "env",
    "timeout",
    "nice",
    "nohup",
    "setsid",
    "taskset",
    "chrt",
    "unshare",
    "xargs",
];

/// Libraries that no program names, because they are loaded when a thread is cancelled.
const LIBRARIES: [&str; 1] = ["/lib/x86_64-linux-gnu/libgcc_s.so.1"];

/// The names that kmod is called by.
const KMOD_NAMES: [&str; 6] = ["modprobe", "insmod", "rmmod", "lsmod", "modinfo", "depmod"];

/// Kernel modules to bring with those they depend on. A kernel has each as a module, built in, or not at all.
const MODULES: [&str; 28] = [
    // devices
    "virtio_pci",
    "virtio_console",
    "virtio_net",
    "virtio_rng",
    "ptp_kvm",
    // TCP, and ss
    "tcp_dctcp",
    "tcp_bbr",
    "tcp_vegas",
    "tcp_diag",
    "inet_diag",
    // queues
    "sch_fq",
    "sch_netem",
    "sch_tbf",
    "sch_htb",
    "sch_red",
    "sch_codel",
    "sch_fq_codel",
    "sch_prio",
    "sch_ingress",
    "cls_bpf",
    "cls_u32",
    "act_mirred",
    // links
    "bridge",
    "tun",
    "ifb",
    "veth",
    "8021q",
    "dummy",
];

/// A change of this number rebuilds every base.
const FORMAT: u32 = 1;

const INIT: &str = include_str!("init.sh");

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\ntcpdump:x:100:100::/tmp:/bin/false\n";
const GROUP: &str = "root:x:0:\ntcpdump:x:100:\n";
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files\n";

/// Checks that a program runs without shared libraries.
pub(super) fn check_static(path: &Path) -> Result<(), PrepareError> {
    match interpreter(&cache::read(path)?) {
        Some(None) => Ok(()),
        Some(Some(interpreter)) => Err(PrepareError::NotStatic { path: path.to_path_buf(), interpreter }),
        None => Err(PrepareError::NotElf { path: path.to_path_buf() }),
    }
}

/// What an initramfs is made of.
pub(super) struct Parts<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// PVTCP's module for it.
    pub module: &'a Path,
    /// The program that runs in the guest.
    pub evenkeel: &'a Path,
}

/// The initramfs of these parts, made if need be.
pub(super) fn build(
    cache: &Cache,
    root: &Root,
    parts: &Parts<'_>,
    progress: &dyn Fn(&str),
) -> Result<PathBuf, PrepareError> {
    let Parts { kernel, module, evenkeel } = *parts;
    let base_key = cache::key([
        kernel.dir.as_os_str().as_encoded_bytes(),
        module.as_os_str().as_encoded_bytes(),
        root.key()?.as_bytes(),
        format!("{FORMAT} {PROGRAMS:?} {LIBRARIES:?} {MODULES:?}").as_bytes(),
    ]);
    let base = cache.path("bases").join(format!("{}-{base_key}.cpio", kernel.release));

    // Hashing a large binary takes longer than all the rest: its inode, size and time identify it as well.
    let meta = fs::metadata(evenkeel).trying(|| format!("look at {}", evenkeel.display()))?;
    let identity =
        format!("{} {} {} {}", meta.dev(), meta.ino(), meta.len(), meta.mtime_nsec() + meta.mtime() * 1_000_000_000);
    let key = cache::key([base_key.as_bytes(), identity.as_bytes(), INIT.as_bytes()]);
    let image = cache.path("images").join(format!("{}-{key}.cpio", kernel.release));
    if image.exists() {
        cache::touch(&base);
        cache::touch(&image);
        return Ok(image);
    }

    progress(&format!("building the initramfs for {}", kernel.release));
    let scratch = cache.scratch("initramfs")?;
    if base.exists() {
        cache::touch(&base);
    } else {
        let made = scratch.join("base");
        cache::write(&made, build_base(&scratch, root, kernel, module)?)?;
        cache.publish(&made, &base)?;
    }

    let mut top = Archive::default();
    top.file("bin/evenkeel", 0o755, &stripped(&scratch, root, evenkeel)?);
    top.file("init", 0o755, INIT.as_bytes());
    let mut bytes = cache::read(&base)?;
    bytes.extend(top.finish());
    let made = scratch.join("image");
    cache::write(&made, bytes)?;
    cache.publish(&made, &image)?;
    Ok(image)
}

/// The initramfs with PostgreSQL and a cluster in `/var/lib/postgres` behind it, made if need be.
pub(super) fn with_database(
    cache: &Cache,
    root: &Root,
    initramfs: &Path,
    progress: &dyn Fn(&str),
) -> Result<PathBuf, PrepareError> {
    let key = cache::key([root.key()?.as_bytes(), DATABASE.as_bytes(), format!("{FORMAT}").as_bytes()]);
    let database = cache.path("bases").join(format!("database-{key}.cpio"));
    let of_image = cache::key([initramfs.as_os_str().as_encoded_bytes(), key.as_bytes()]);
    let image = cache.path("images").join(format!("database-{of_image}.cpio"));
    if image.exists() {
        cache::touch(&database);
        cache::touch(&image);
        return Ok(image);
    }
    progress("building the initramfs of the database");
    let scratch = cache.scratch("database")?;
    if database.exists() {
        cache::touch(&database);
    } else {
        let made = scratch.join("archive");
        cache::write(&made, build_database(&scratch, root)?)?;
        cache.publish(&made, &database)?;
    }
    let mut bytes = cache::read(initramfs)?;
    bytes.extend(cache::read(&database)?);
    let made = scratch.join("image");
    cache::write(&made, bytes)?;
    cache.publish(&made, &image)?;
    Ok(image)
}

/// Makes an empty cluster that trusts its users, and says which files belong to the server.
const DATABASE: &str = "
    bin=$(ls -d /usr/lib/postgresql/*/bin)
    chown postgres /mnt
    TZ=GMT setpriv --reuid=postgres --regid=postgres --clear-groups $bin/initdb -D /mnt/cluster -A trust --no-locale \
    -E UTF8 -N --wal-segsize=1 >/dev/null
    chmod -R a+rX /mnt/cluster
    echo $bin/postgres
    ls ${bin%/bin}/lib/plpgsql.so
    command -v setpriv
    ldd $bin/postgres $(command -v setpriv) | sed -n 's|^[^/]*\\(/[^ ]*\\) (.*|\\1|p' | sort -u
    find /usr/share/postgresql/*/timezonesets -type f";

fn build_database(scratch: &Path, root: &Root) -> Result<Vec<u8>, PrepareError> {
    let mounts = [(scratch.to_path_buf(), "/mnt".to_owned())];
    let listed = root.shell(DATABASE, &mounts, &[], "make a PostgreSQL cluster")?;
    let mut archive = Archive::default();
    // In a guest, /usr/lib is /lib and so on; the server looks for other folders relative to its own.
    archive.link("share", "/usr/share");
    for path in listed.lines().map(str::trim).filter(|path| path.starts_with('/')) {
        let bytes = cache::read(&root.dir().join(path.trim_start_matches('/')))?;
        let place = ["/usr/lib/", "/usr/bin/", "/bin/"]
            .iter()
            .find_map(|start| Some(format!("{}{}", start.strip_prefix("/usr")?, path.strip_prefix(start)?)))
            .unwrap_or_else(|| path.to_owned());
        archive.file(place.trim_start_matches('/'), 0o755, &bytes);
    }
    add_tree(&mut archive, &scratch.join("cluster"), "var/lib/postgres")?;
    Ok(archive.finish())
}

/// The binary without its debug information.
fn stripped(scratch: &Path, root: &Root, evenkeel: &Path) -> Result<Vec<u8>, PrepareError> {
    let copy = scratch.join("evenkeel");
    fs::copy(evenkeel, &copy).trying(|| format!("copy {}", evenkeel.display()))?;
    let mounts = [(scratch.to_path_buf(), "/mnt".to_owned())];
    root.shell("strip --strip-all /mnt/evenkeel", &mounts, &[], "strip evenkeel")?;
    cache::read(&copy)
}

fn build_base(scratch: &Path, root: &Root, kernel: &Kernel, module: &Path) -> Result<Vec<u8>, PrepareError> {
    let mut archive = Archive::default();
    for folder in ["bin", "dev", "etc", "lib/modules", "proc", "root", "run", "sys", "usr", "var"] {
        archive.folder(folder, 0o755);
    }
    archive.folder("tmp", 0o1777);
    archive.device("dev/console", 0o600, (5, 1));
    archive.device("dev/null", 0o666, (1, 3));
    for name in ["sbin", "usr/bin", "usr/sbin"] {
        archive.link(name, "/bin");
    }
    archive.link("usr/lib", "/lib");
    archive.link("var/run", "/run");
    for (name, text) in [("passwd", PASSWD), ("group", GROUP), ("hosts", HOSTS), ("nsswitch.conf", NSSWITCH)] {
        archive.file(&format!("etc/{name}"), 0o644, text.as_bytes());
    }
    add_programs(&mut archive, root)?;
    add_modules(&mut archive, scratch, root, kernel, module)?;
    Ok(archive.finish())
}

/// busybox with its applets, and the real programs with their libraries. Applets do not shadow programs: busybox's
/// `ip` and `tc` ignore what they don't know.
fn add_programs(archive: &mut Archive, root: &Root) -> Result<(), PrepareError> {
    let script = format!(
        "for program in {}; do
            path=$(command -v $program)
            echo \"program $program $path\"
            ldd $path | sed -n 's|^[^/]*\\(/[^ ]*\\) (.*|library \\1|p'
        done
        busybox --list | sed 's/^/applet /'",
        PROGRAMS.join(" ")
    );
    let said = root.shell(&script, &[], &[], "list the programs for the guests")?;

    let mut taken: BTreeSet<&str> = BTreeSet::from(["busybox", "evenkeel", "sh"]);
    let mut libraries = BTreeSet::from(LIBRARIES);
    let mut applets = Vec::new();
    let read = |path: &str| cache::read(&root.dir().join(path.trim_start_matches('/')));
    for line in said.lines() {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["program", name, path] => {
                taken.insert(name);
                archive.file(&format!("bin/{name}"), 0o755, &read(path)?);
            }
            ["library", path] => {
                libraries.insert(path);
            }
            ["applet", name] => applets.push(name),
            _ => {}
        }
    }
    for path in libraries {
        archive.file(path.trim_start_matches('/'), 0o755, &read(path)?);
    }
    for name in KMOD_NAMES {
        taken.insert(name);
        archive.link(&format!("bin/{name}"), "kmod");
    }
    archive.link("bin/sh", "dash");
    archive.file("bin/busybox", 0o755, &read("usr/bin/busybox")?);
    for name in applets.into_iter().filter(|name| !taken.contains(name)) {
        archive.link(&format!("bin/{name}"), "busybox");
    }
    Ok(())
}

/// The wanted modules with those they depend on, the guest module, and the indices that modprobe reads.
fn add_modules(
    archive: &mut Archive,
    scratch: &Path,
    root: &Root,
    kernel: &Kernel,
    guest_module: &Path,
) -> Result<(), PrepareError> {
    let release = &kernel.release;
    let source = kernel.modules().join(release);
    // The same tree is the root for depmod, which looks for modules in /usr/lib or /lib.
    let stage = scratch.join("stage");
    let target = stage.join("lib/modules").join(release);
    cache::make_dir(&stage.join("usr"))?;
    cache::make_dir(&target)?;
    std::os::unix::fs::symlink("../lib", stage.join("usr/lib")).trying(|| "make a link".to_owned())?;

    let mut all = BTreeMap::new();
    find_modules(&source.join("kernel"), &mut all);
    let mut wanted: Vec<String> = MODULES.map(str::to_owned).to_vec();
    let mut seen = BTreeSet::new();
    while !wanted.is_empty() {
        wanted.retain(|name| seen.insert(name.clone()) && all.contains_key(name));
        let mut copied = Vec::new();
        for name in &wanted {
            let from = &all[name];
            let to = target.join(from.strip_prefix(&source).expect("it was found there"));
            cache::make_dir(to.parent().expect("it is in the stage"))?;
            fs::copy(from, &to).trying(|| format!("copy {}", from.display()))?;
            copied.push(to);
        }
        // All of a round at once: starting a program costs more than unpacking a module.
        let mounts = [(stage.clone(), "/mnt".to_owned())];
        let unpack = "find /mnt/lib/modules -name '*.ko.xz' -exec xz -d {} +";
        root.shell(unpack, &mounts, &[], format!("unpack modules of kernel {release}"))?;
        wanted = copied
            .iter()
            .map(|path| plain(path))
            .map(|path| dependencies(&path))
            .collect::<Result<Vec<_>, _>>()?
            .concat();
    }

    for name in ["modules.builtin", "modules.builtin.modinfo", "modules.order"] {
        let from = source.join(name);
        if from.exists() {
            fs::copy(&from, target.join(name)).trying(|| format!("copy {}", from.display()))?;
        }
    }
    let extra = target.join("extra");
    cache::make_dir(&extra)?;
    let own = extra.join(format!("{MODULE}.ko"));
    fs::copy(guest_module, own).trying(|| format!("copy {}", guest_module.display()))?;

    let mounts = [(stage.clone(), "/mnt".to_owned())];
    root.shell(&format!("depmod -b /mnt {release}"), &mounts, &[], format!("index modules of kernel {release}"))?;
    add_tree(archive, &stage.join("lib"), "lib")
}

/// The modules under `dir` by name, as the kernel writes names.
fn find_modules(dir: &Path, all: &mut BTreeMap<String, PathBuf>) {
    for path in fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            find_modules(&path, all);
        } else if let Some((name, rest)) = path.file_name().and_then(|name| name.to_str()?.split_once('.')) {
            if rest.starts_with("ko") {
                all.insert(name.replace('-', "_"), path);
            }
        }
    }
}

/// The name of a module once it is unpacked.
fn plain(path: &Path) -> PathBuf {
    if path.extension().is_some_and(|extension| extension == "ko") {
        path.to_path_buf()
    } else {
        path.with_extension("")
    }
}

/// What a module says it needs.
fn dependencies(path: &Path) -> Result<Vec<String>, PrepareError> {
    Ok(parse_dependencies(&cache::read(path)?))
}

/// The `depends=` and `softdep=pre:` strings of a module's `.modinfo` section, which are NUL-terminated and start after
/// a NUL.
fn parse_dependencies(module: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    for text in module.split(|byte| *byte == 0) {
        if let Some(list) = text.strip_prefix(b"depends=") {
            names.extend(String::from_utf8_lossy(list).split(',').map(|name| name.replace('-', "_")));
        } else if let Some(list) = text.strip_prefix(b"softdep=pre: ") {
            names.extend(
                String::from_utf8_lossy(list)
                    .split_whitespace()
                    .take_while(|word| *word != "post:")
                    .map(|name| name.replace('-', "_")),
            );
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// All files and folders under `dir` as `name/...`.
fn add_tree(archive: &mut Archive, dir: &Path, name: &str) -> Result<(), PrepareError> {
    archive.folder(name, 0o755);
    let entries = fs::read_dir(dir).trying(|| format!("read the folder {}", dir.display()))?;
    let paths: BTreeSet<_> = entries.flatten().map(|entry| entry.path()).collect();
    for path in paths {
        let name = format!("{name}/{}", path.file_name().unwrap_or_default().to_string_lossy());
        if path.is_dir() {
            add_tree(archive, &path, &name)?;
        } else {
            archive.file(&name, 0o644, &cache::read(&path)?);
        }
    }
    Ok(())
}

/// The program interpreter of an x86-64 ELF file: `Some(None)` if it is linked statically, None if it is no such file.
fn interpreter(file: &[u8]) -> Option<Option<String>> {
    const X86_64: u64 = 62;
    const PT_INTERP: u64 = 3;
    let number = |at: usize, bytes: usize| {
        let field = file.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte)))
    };
    if !file.starts_with(b"\x7fELF\x02\x01") || number(18, 2)? != X86_64 {
        return None;
    }
    let (table, size, count) = (number(32, 8)? as usize, number(54, 2)? as usize, number(56, 2)? as usize);
    for index in 0..count {
        let header = table.checked_add(index * size)?;
        if number(header, 4)? == PT_INTERP {
            let start = number(header + 8, 8)? as usize;
            let mut name = Vec::new();
            file.get(start..)?.take(256).read_to_end(&mut name).ok()?;
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            return Some(Some(String::from_utf8_lossy(&name[..end]).into_owned()));
        }
    }
    Some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_found_in_modinfo() {
        let module = b"\x7fELF..\0license=GPL\0depends=net_failover,crc-x\0softdep=pre: a b post: c\0depends=\0";
        assert_eq!(parse_dependencies(module), ["net_failover", "crc_x", "a", "b"]);
    }

    #[test]
    fn a_script_is_no_elf_program() {
        assert_eq!(interpreter(b"#!/bin/sh\n"), None);
        assert_eq!(interpreter(b"\x7fELF\x02\x01"), None);
    }

    #[test]
    fn this_test_is_an_elf_program() {
        let program = fs::read("/proc/self/exe").expect("Linux has it");
        assert!(interpreter(&program).is_some());
    }
}
