//! The guest agent as a user meets it: the real binary in real VMs with kernels of three ages, and a host's end of the
//! channel outside. The host's agent, too, as far as a kernel may refuse it. Needs root, QEMU, iproute2 and iperf3.

mod bed;
mod endpoint;
mod host;
mod life;
mod relay;
