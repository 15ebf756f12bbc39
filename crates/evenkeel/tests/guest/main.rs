//! The guest agent as a user meets it: the real binary in real VMs with kernels of three ages, and a host's end of the
//! channel outside. Needs root, QEMU, iproute2 and iperf3.

mod bed;
mod endpoint;
mod life;
mod relay;
mod stop;
