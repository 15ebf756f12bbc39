//! Packet captures: taken at the ports of VMs ([`live`]), read back ([`packets`]), and made to tell ([`analyze`]).

pub mod analyze;
pub mod live;
mod mmsg;
pub mod packets;
