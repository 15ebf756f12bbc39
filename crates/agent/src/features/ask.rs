//! Asking the kernel.

use std::fs;
use std::path::Path;

use libbpf_rs::btf::Btf;
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use super::types::Types;
use super::{Answer, Feature, Features, trial};
use crate::tc::quietly;

impl Features {
    /// Asks this kernel. With privileges, this puts a program on `lo` and takes it off again; by clsact only where
    /// there is no tcx.
    pub fn ask() -> Self {
        let mut features = Self::asked();
        if features.answer(Feature::Tcx) != &Answer::Yes {
            features.0.insert(Feature::Clsact, quietly(trial::clsact));
        }
        features
    }

    /// As [`ask`](Self::ask), by clsact in any case.
    pub fn ask_all() -> Self {
        let mut features = Self::asked();
        features.0.insert(Feature::Clsact, quietly(trial::clsact));
        features
    }

    fn asked() -> Self {
        let types = quietly(Btf::from_vmlinux);
        let mut features = match &types {
            Ok(types) => by_types(types),
            Err(error) => {
                let why = format!("/sys/kernel/btf/vmlinux cannot be read: {error}; CONFIG_DEBUG_INFO_BTF");
                Self([(Feature::Btf, Answer::No(why))].into())
            }
        };
        // Types can only rule tcx out: a kernel without types may have it all the same.
        if features.why_not(Feature::Tcx).is_none() {
            features.0.insert(Feature::Tcx, quietly(trial::tcx));
        }
        if features.why_not(Feature::TapTypes).is_some() {
            features.0.extend(tap_types().map(|answer| (Feature::TapTypes, answer)));
        }
        features.0.extend([(Feature::BpfFs, bpf_fs()), (Feature::Modules, modules()), (Feature::Kprobes, kprobes())]);
        features
    }
}

/// Whether the kernel's own types include those of the tap driver, which is then built in.
pub fn has_tun_types() -> bool {
    quietly(Btf::from_vmlinux).is_ok_and(|types| types.has_struct("tun_struct"))
}

/// What the kernel's own types say.
pub(super) fn by_types(types: &dyn Types) -> Features {
    let asked = |is_there: bool, why: &str| if is_there { Answer::Yes } else { Answer::No(why.to_owned()) };
    let function = |name: &str| types.has_function(name);
    let mut answers = vec![
        (Feature::Btf, Answer::Yes),
        (
            Feature::Loop,
            asked(types.has_value("bpf_func_id", "BPF_FUNC_loop"), "its helpers do not include it; Linux 5.17 has it"),
        ),
        (
            Feature::TaskState,
            asked(
                function("bpf_task_from_pid") && function("bpf_task_release"),
                "it has no kfunc bpf_task_from_pid; Linux 6.2 has it",
            ),
        ),
        (
            Feature::TaskIterators,
            asked(types.has_struct("bpf_iter__task_file"), "it has no structure bpf_iter__task_file"),
        ),
        (
            Feature::TapTypes,
            asked(types.has_struct("tun_struct"), "the module tun has no types; CONFIG_DEBUG_INFO_BTF_MODULES"),
        ),
        (
            Feature::BpfQdisc,
            asked(
                function("bpf_qdisc_watchdog_schedule"),
                "it has no kfunc bpf_qdisc_watchdog_schedule; Linux 6.16 with CONFIG_NET_SCH_BPF has it",
            ),
        ),
        (Feature::Netkit, asked(types.has_struct("netkit_link"), "it has no structure netkit_link; CONFIG_NETKIT")),
        (
            Feature::CongestionControl,
            asked(
                types.has_struct("bpf_struct_ops_tcp_congestion_ops"),
                "it has no structure bpf_struct_ops_tcp_congestion_ops; CONFIG_BPF_SYSCALL and CONFIG_BPF_JIT",
            ),
        ),
    ];
    if !types.has_value("bpf_attach_type", "BPF_TCX_INGRESS") {
        let why = "its types have no BPF_TCX_INGRESS; Linux 6.6 has it".to_owned();
        answers.push((Feature::Tcx, Answer::No(why)));
    }
    Features(answers.into_iter().collect())
}

/// The answer for a tap driver that is a module; `None` if it is loaded without types.
fn tap_types() -> Option<Answer> {
    if Path::new("/sys/kernel/btf/tun").exists() {
        return Some(Answer::Yes);
    }
    let is_loaded = Path::new("/sys/module/tun").exists();
    (!is_loaded).then(|| Answer::Unknown("the module tun is not loaded; modprobe tun".to_owned()))
}

fn bpf_fs() -> Answer {
    if statfs("/sys/fs/bpf").is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC) {
        Answer::Yes
    } else {
        Answer::No("none is mounted at /sys/fs/bpf; mount -t bpf bpf /sys/fs/bpf".to_owned())
    }
}

fn modules() -> Answer {
    let is_off = fs::read_to_string("/proc/sys/kernel/modules_disabled").is_ok_and(|text| text.trim() == "1");
    match Path::new("/proc/modules").exists() {
        false => Answer::No("there is no /proc/modules; CONFIG_MODULES".to_owned()),
        true if is_off => Answer::No("kernel.modules_disabled is 1, until the next boot".to_owned()),
        true => Answer::Yes,
    }
}

fn kprobes() -> Answer {
    match fs::read_to_string("/proc/kallsyms") {
        Ok(symbols) if symbols.contains(" register_kprobe\n") => Answer::Yes,
        Ok(_) => Answer::No("its symbols have no register_kprobe; CONFIG_KPROBES".to_owned()),
        Err(error) => Answer::Unknown(format!("/proc/kallsyms cannot be read: {error}")),
    }
}
