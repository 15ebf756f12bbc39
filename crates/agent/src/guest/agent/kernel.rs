//! Which of the things that the guest's programs need a kernel has.

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Struct;

/// What the kernel's type information says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelReading {
    /// It has type information (CONFIG_DEBUG_INFO_BTF).
    pub has_btf: bool,
    /// Programs can be congestion controls (CONFIG_BPF_JIT, CONFIG_BPF_SYSCALL, Linux 5.6).
    pub has_struct_ops: bool,
    /// The beginning of a transmission is a call of its own (Linux 7.1).
    pub has_tx_start: bool,
}

impl KernelReading {
    /// Reads the running kernel's.
    pub fn take() -> Self {
        let Ok(btf) = Btf::from_vmlinux() else { return Self::default() };
        let has = |name: &str| btf.type_by_name::<Struct<'_>>(name).is_some();
        let has_member = |name: &str, member: &str| {
            let ops = btf.type_by_name::<Struct<'_>>(name);
            ops.is_some_and(|ops| ops.iter().any(|m| m.name.is_some_and(|name| name == member)))
        };
        Self {
            has_btf: true,
            has_struct_ops: has("bpf_struct_ops_tcp_congestion_ops"),
            has_tx_start: has_member("tcp_congestion_ops", "cwnd_event_tx_start"),
        }
    }

    /// What is missing for any of it, in words.
    pub fn lacking(&self) -> Option<&'static str> {
        if !self.has_btf {
            return Some("this kernel has no type information (CONFIG_DEBUG_INFO_BTF, /sys/kernel/btf/vmlinux)");
        }
        if !self.has_struct_ops {
            return Some(
                "this kernel takes no congestion control from a program (struct_ops: CONFIG_BPF_SYSCALL and \
                 CONFIG_BPF_JIT)",
            );
        }
        None
    }
}
