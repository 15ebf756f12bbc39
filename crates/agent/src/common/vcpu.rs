//! How VMMs name the threads that are virtual CPUs.

/// QEMU: `CPU 0/KVM`, `CPU 0/TCG`, `ALL CPUs/TCG`; Cloud Hypervisor: `vcpu0`; Firecracker: `fc_vcpu 0`; crosvm:
/// `crosvm_vcpu0`.
pub(crate) fn is_name_of_one(name: &str) -> bool {
    name.starts_with("CPU ") || name.starts_with("ALL CPUs/") || name.contains("vcpu")
}
