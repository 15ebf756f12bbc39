//! What network devices say of themselves and can be told by `ioctl` (netdevice(7), linux/ethtool.h).

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;
const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;
const SPEED_UNKNOWN: u32 = u32::MAX;
/// The most words of a bit map in `struct ethtool_link_settings`.
const MAP_WORDS: usize = 127;

/// What a device or the kernel does to packets for the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offload {
    /// The device takes large packets and sends segments.
    Tso,
    /// Segments that come in are joined.
    Gro,
}

impl Offload {
    fn get(self) -> u32 {
        match self {
            Self::Tso => ETHTOOL_GTSO,
            Self::Gro => ETHTOOL_GGRO,
        }
    }

    fn set(self) -> u32 {
        match self {
            Self::Tso => ETHTOOL_STSO,
            Self::Gro => ETHTOOL_SGRO,
        }
    }
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    cmd: u32,
    data: u32,
}

/// The beginning of `struct ethtool_link_settings`, with room for three bit maps.
#[repr(C)]
struct LinkSettings {
    cmd: u32,
    speed: u32,
    bytes: [u8; 7],
    /// Words of each bit map; the kernel answers a wrong number with the negative of the right one.
    words: i8,
    more: [u8; 32],
    maps: [u32; 3 * MAP_WORDS],
}

const _: () = assert!(size_of::<LinkSettings>() == 48 + 3 * MAP_WORDS * size_of::<u32>());

/// Asks network devices, by name.
#[derive(Debug)]
pub(crate) struct NetDevices(OwnedFd);

impl NetDevices {
    /// # Errors
    /// The system's answer.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?))
    }

    /// The largest packet, without Ethernet's header.
    ///
    /// # Errors
    /// The system's answer.
    pub(crate) fn mtu_bytes(&self, name: &str) -> io::Result<u32> {
        let mut request = request(name)?;
        // SAFETY: the request is a whole `struct ifreq`, of which the kernel writes its number.
        let answer = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: that member was just written.
        Ok(u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
    }

    /// Why nothing leaves by the device, in words behind its name; none if something can.
    ///
    /// # Errors
    /// The system's answer.
    pub(crate) fn standstill(&self, name: &str) -> io::Result<Option<&'static str>> {
        let mut request = request(name)?;
        // SAFETY: the request is a whole `struct ifreq`, of which the kernel writes its flags.
        let answer = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: that member was just written.
        let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        Ok(if flags & libc::IFF_UP == 0 {
            Some("is down")
        } else if flags & libc::IFF_RUNNING == 0 {
            Some("has no carrier")
        } else {
            None
        })
    }

    /// What the link carries, in bytes per second; none if the device does not know.
    pub(crate) fn link_rate(&self, name: &str) -> Option<u64> {
        let mut settings = LinkSettings {
            cmd: ETHTOOL_GLINKSETTINGS,
            speed: 0,
            bytes: [0; 7],
            words: 0,
            more: [0; 32],
            maps: [0; 3 * MAP_WORDS],
        };
        for _ in 0..2 {
            // SAFETY: the kernel writes no more than the structure and three maps of at most 127 words.
            unsafe { self.ethtool(name, &mut settings) }.ok()?;
            if settings.words > 0 {
                let mbit = settings.speed;
                return (mbit > 0 && mbit != SPEED_UNKNOWN).then_some(u64::from(mbit) * 125_000);
            }
            settings.cmd = ETHTOOL_GLINKSETTINGS;
            settings.words = settings.words.checked_neg()?;
        }
        None
    }

    /// Whether an offload is on.
    ///
    /// # Errors
    /// The system's answer.
    pub(crate) fn offload(&self, name: &str, offload: Offload) -> io::Result<bool> {
        let mut value = Value { cmd: offload.get(), data: 0 };
        // SAFETY: these commands are of a `struct ethtool_value`.
        unsafe { self.ethtool(name, &mut value) }?;
        Ok(value.data != 0)
    }

    /// Switches an offload.
    ///
    /// # Errors
    /// The system's answer.
    pub(crate) fn set_offload(&self, name: &str, offload: Offload, is_on: bool) -> io::Result<()> {
        let mut value = Value { cmd: offload.set(), data: is_on.into() };
        // SAFETY: as above.
        unsafe { self.ethtool(name, &mut value) }
    }

    /// # Safety
    /// `value` begins with a command of ethtool's, and is all that the kernel reads and writes for it.
    unsafe fn ethtool<T>(&self, name: &str, value: &mut T) -> io::Result<()> {
        let mut request = request(name)?;
        request.ifr_ifru.ifru_data = std::ptr::from_mut(value).cast();
        // SAFETY: the request and the value outlive the call; for the value's size, see above.
        let answer = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all zeros are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_says_what_it_is() {
        let devices = NetDevices::new().unwrap();
        assert!(devices.mtu_bytes("lo").unwrap() > 1000);
        assert_eq!(devices.link_rate("lo"), None);
        assert!(devices.offload("lo", Offload::Gro).is_ok() && devices.offload("lo", Offload::Tso).is_ok());
        for name in ["no-such-device", "a-name-that-is-longer-than-any"] {
            assert!(devices.mtu_bytes(name).is_err() && devices.offload(name, Offload::Tso).is_err());
        }
    }
}
