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

/// A virtio-serial port without anybody at its other end counts as ready at all times, and takes nothing.
const CLOSED_PAUSE: Duration = Duration::from_millis(100);

/// An open connection.
#[derive(Debug)]
pub struct Pipe(AsyncFd<OwnedFd>);

impl Pipe {
    /// Of a descriptor that does not block.
    ///
    /// # Errors
    /// If it cannot be waited for: a regular file, say.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: the descriptor is owned by what waits for it, and so open as long as that.
        unsafe { AsyncFd::register(fd) }.map(Self).map_err(Into::into)
    }

    /// Connects to a guest.
    ///
    /// # Errors
    /// The system's.
    pub async fn connect(address: &HostAddress) -> io::Result<Self> {
        match address {
            HostAddress::Path(path) => {
                let kind = std::fs::metadata(path)?.file_type();
                if kind.is_char_device() {
                    open_device(path)
                } else if kind.is_socket() {
                    Self::reach(AddressFamily::Unix, &UnixAddr::new(path)?).await
                } else {
                    Err(io::Error::other("it is neither a Unix socket nor a character device"))
                }
            }
            HostAddress::Vsock { cid, port } => Self::reach(AddressFamily::Vsock, &VsockAddr::new(*cid, *port)).await,
            HostAddress::Tcp(address) => {
                let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
                Self::reach(family, &SockaddrStorage::from(*address)).await
            }
        }
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

    /// Waits until something can be written, or somebody has to find out that nothing can.
    ///
    /// # Errors
    /// The system's.
    pub async fn writable(&self) -> io::Result<()> {
        let mut ready = self.0.writable().await?;
        // Readiness is only forgotten where a write has found none.
        ready.clear_ready();
        Ok(())
    }

    /// Writes without waiting, for a last word.
    pub fn write_now(&self, bytes: &[u8]) {
        // Whoever does not hear it finds out by the silence.
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
