//! A connection of whatever kind, as a descriptor that never blocks.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use evenkeel_settings::address::HostAddress;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrLike, SockaddrStorage, UnixAddr, VsockAddr, connect, getsockopt, socket,
    sockopt,
};
use tokio::io::unix::AsyncFd;

/// How long connecting over a network may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long to pause when the other end is closed: a virtio-serial port with nobody there is ready at all times, and
/// takes nothing.
const CLOSED_PAUSE: Duration = Duration::from_millis(100);

/// Who has to listen at a Unix socket for it to be the guest's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Listener {
    /// Any process: the configuration says where the socket is.
    #[default]
    Anybody,
    /// This process.
    Process(u32),
    /// This process, or root's for it: libvirt opens sockets for QEMU.
    ProcessOrRoot(u32),
}

/// The process that listens at a Unix socket, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Who {
    /// Its number; 0 if it cannot be seen from here.
    pub process: i32,
    /// Whose it is.
    pub user: u32,
}

impl Listener {
    /// Checks who listens at an address; `None` where that cannot be known.
    ///
    /// # Errors
    /// Who listens instead.
    pub fn admits(self, address: &HostAddress, who: Option<Who>) -> Result<(), String> {
        match (who, address) {
            (Some(Who { process, user }), _) => self.check(process, user),
            (None, HostAddress::Path(_)) if self != Self::Anybody => Err("it is no Unix socket".to_owned()),
            (None, _) => Ok(()),
        }
    }

    fn check(self, process: i32, user: u32) -> Result<(), String> {
        let (Self::Process(wanted) | Self::ProcessOrRoot(wanted)) = self else { return Ok(()) };
        let is_process = u32::try_from(process) == Ok(wanted);
        let is_root = matches!(self, Self::ProcessOrRoot(_)) && user == 0;
        if is_process || is_root {
            return Ok(());
        }
        Err(format!("process {process} of user {user} listens there, and process {wanted} has the VM's tap"))
    }
}

/// Where a guest is found, and by what it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Where it is.
    pub address: HostAddress,
    /// Who has to listen there.
    pub listener: Listener,
}

impl From<HostAddress> for Target {
    fn from(address: HostAddress) -> Self {
        Self { address, listener: Listener::Anybody }
    }
}

/// An open connection.
#[derive(Debug)]
pub struct Pipe(AsyncFd<OwnedFd>);

impl Pipe {
    /// Of a descriptor that does not block.
    ///
    /// # Errors
    /// If it cannot be waited for: a regular file, say.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: the `AsyncFd` owns the descriptor, so it stays open for as long as it is registered.
        unsafe { AsyncFd::register(fd) }.map(Self).map_err(Into::into)
    }

    /// Connects to a guest; says who listens there, where that can be known. A character device is only opened if
    /// `may_be_anybody`: whose it is cannot be known.
    ///
    /// # Errors
    /// The system's.
    pub async fn connect(address: &HostAddress, may_be_anybody: bool) -> io::Result<(Self, Option<Who>)> {
        let pipe = match address {
            HostAddress::Path(path) => {
                let kind = std::fs::metadata(path)?.file_type();
                if kind.is_socket() {
                    let pipe = Self::reach(AddressFamily::Unix, &UnixAddr::new(path)?).await?;
                    let peer = getsockopt(pipe.0.get_ref(), sockopt::PeerCredentials)?;
                    return Ok((pipe, Some(Who { process: peer.pid(), user: peer.uid() })));
                }
                if !kind.is_char_device() || !may_be_anybody {
                    return Err(io::Error::other("it is neither a Unix socket nor a character device"));
                }
                open_device(path)?
            }
            HostAddress::Vsock { cid, port } => Self::reach(AddressFamily::Vsock, &VsockAddr::new(*cid, *port)).await?,
            HostAddress::Tcp(address) => {
                let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
                Self::reach(family, &SockaddrStorage::from(*address)).await?
            }
        };
        Ok((pipe, None))
    }

    async fn reach(family: AddressFamily, address: &dyn SockaddrLike) -> io::Result<Self> {
        let fd = socket(family, SockType::Stream, SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC, None)?;
        let is_under_way = match connect(fd.as_raw_fd(), address) {
            Ok(()) => false,
            Err(Errno::EINPROGRESS) => true,
            Err(errno) => return Err(errno.into()),
        };
        if family == AddressFamily::Inet || family == AddressFamily::Inet6 {
            // Windows are worth nothing when they come late.
            nix::sys::socket::setsockopt(&fd, sockopt::TcpNoDelay, &true)?;
        }
        let pipe = Self::new(fd)?;
        if is_under_way {
            let ready = tokio::time::timeout(TIMEOUT, pipe.0.writable()).await;
            drop(ready.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??);
            match getsockopt(&pipe.0.get_ref().as_fd(), sockopt::SocketError)? {
                0 => {}
                error => return Err(io::Error::from_raw_os_error(error)),
            }
        }
        Ok(pipe)
    }

    /// Reads what is there; 0 if nobody is at the other end any more.
    ///
    /// # Errors
    /// The system's.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.readable().await?;
            let is_closed = ready.ready().is_read_closed();
            let outcome = ready.try_io(|fd| Ok(nix::unistd::read(fd.as_raw_fd(), buffer)?));
            if let Ok(outcome) = outcome {
                return outcome;
            }
            if is_closed {
                tokio::time::sleep(CLOSED_PAUSE).await;
            }
        }
    }

    /// Waits until something can be written, and writes as much as fits.
    ///
    /// # Errors
    /// The system's.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.0.writable().await?;
            let is_closed = ready.ready().is_write_closed();
            let outcome = ready.try_io(|fd| Ok(nix::unistd::write(fd, bytes)?));
            if let Ok(outcome) = outcome {
                return outcome;
            }
            if is_closed {
                tokio::time::sleep(CLOSED_PAUSE).await;
            }
        }
    }

    /// Writes as much as fits now; `None` if nothing does.
    ///
    /// # Errors
    /// The system's.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        match nix::unistd::write(self.0.get_ref(), bytes) {
            Ok(written) => Ok(Some(written)),
            Err(Errno::EAGAIN) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits until something can be written, or until a write would show that nothing can.
    ///
    /// # Errors
    /// The system's.
    pub async fn writable(&self) -> io::Result<()> {
        let mut ready = self.0.writable().await?;
        // Readiness stays set until it is cleared, which `try_write` does not do.
        ready.clear_ready();
        Ok(())
    }

    /// Writes without waiting, for a last word.
    pub fn write_now(&self, bytes: &[u8]) {
        // An end that misses the message notices the silence.
        let _ = nix::unistd::write(self.0.get_ref(), bytes);
    }
}

/// Opens a character device; a terminal's line discipline is switched off, or it would read our bytes as its own.
///
/// # Errors
/// The system's.
pub fn open_device(path: &Path) -> io::Result<Pipe> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let fd: OwnedFd = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?.into();
    // SAFETY: all zeroes is a valid termios, which tcgetattr() fills and the others read.
    unsafe {
        let mut modes: libc::termios = std::mem::zeroed();
        if libc::tcgetattr(fd.as_raw_fd(), &raw mut modes) == 0 {
            libc::cfmakeraw(&raw mut modes);
            libc::tcsetattr(fd.as_raw_fd(), libc::TCSANOW, &raw const modes);
        }
    }
    Pipe::new(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_to_listen_is_believed() {
        let ok = |listener: Listener, process, user| listener.check(process, user).is_ok();
        assert!(ok(Listener::Anybody, 7, 1000));
        assert!(ok(Listener::Process(7), 7, 1000) && !ok(Listener::Process(7), 8, 0));
        assert!(ok(Listener::ProcessOrRoot(7), 8, 0) && !ok(Listener::ProcessOrRoot(7), 8, 1000));
        // The kernel says 0 for a process in a namespace that cannot be seen from here.
        assert!(!ok(Listener::Process(7), 0, 1000));
        let why = Listener::Process(7).check(8, 64055).unwrap_err();
        assert_eq!(why, "process 8 of user 64055 listens there, and process 7 has the VM's tap");
    }

    #[test]
    fn the_kernel_says_who_listens() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let address = HostAddress::Path(path);
        let (_pipe, who) = runtime.block_on(Pipe::connect(&address, false)).unwrap();
        let own = std::process::id();
        assert_eq!(Listener::Process(own).admits(&address, who), Ok(()));
        let why = Listener::Process(own + 1).admits(&address, who).unwrap_err();
        assert!(why.starts_with(&format!("process {own} of user")), "{why}");
    }

    #[test]
    fn whose_a_device_is_nobody_knows() {
        let address = HostAddress::Path("/dev/null".into());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let why = runtime.block_on(Pipe::connect(&address, false)).unwrap_err().to_string();
        assert_eq!(why, "it is neither a Unix socket nor a character device");
        assert!(
            Listener::Anybody.admits(&address, None).is_ok() && Listener::Process(7).admits(&address, None).is_err()
        );
        let vsock = HostAddress::Vsock { cid: 3, port: 1024 };
        assert!(Listener::Anybody.admits(&vsock, None).is_ok());
    }
}
