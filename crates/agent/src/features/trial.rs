//! Programs that let everything pass, put on `lo` and taken off again: types alone do not say that a kernel was built
//! with a hook, or that this process may use it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_sys::bpf_insn;

use super::Answer;
use crate::tc::{self, Side};

/// `lo`, in every network namespace.
const LOOPBACK: u32 = 1;
/// TCX_NEXT, which is TC_ACT_UNSPEC too: the next program decides.
const PASS: i32 = -1;

/// Whether a program can be put into the list of a device.
pub(super) fn tcx() -> Answer {
    answer(try_tcx())
}

/// Whether a program can be put into a filter at clsact.
pub(super) fn clsact() -> Answer {
    answer(try_clsact())
}

fn answer(tried: io::Result<()>) -> Answer {
    match tried {
        Ok(()) => Answer::Yes,
        Err(error) if [Some(libc::EPERM), Some(libc::EACCES)].contains(&error.raw_os_error()) => {
            Answer::Unknown("trying it takes root".to_owned())
        }
        Err(error) => Answer::No(format!("a program cannot be put on lo: {error}")),
    }
}

fn owned(descriptor: i32) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::from_raw_os_error(-descriptor));
    }
    // SAFETY: the kernel has just made it, for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn program() -> io::Result<OwnedFd> {
    /// r0 = imm
    const SET_R0: u8 = 0xb7;
    const EXIT: u8 = 0x95;
    let instructions = [(SET_R0, PASS), (EXIT, 0)].map(|(code, imm)| bpf_insn { code, imm, ..bpf_insn::default() });
    // SAFETY: name, licence and instructions outlive the call; no options.
    owned(unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
            c"evenkeel_trial".as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as libbpf_sys::size_t,
            std::ptr::null_mut(),
        )
    })
}

fn try_tcx() -> io::Result<()> {
    let program = program()?;
    // SAFETY: the program is open; no options.
    let link = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), LOOPBACK as i32, libbpf_sys::BPF_TCX_INGRESS, std::ptr::null())
    };
    // The last descriptor of a link takes its program off.
    owned(link).map(drop)
}

fn try_clsact() -> io::Result<()> {
    let program = program()?;
    let is_own = tc::make(LOOPBACK)?;
    let tried = tc::put(LOOPBACK, Side::Ingress, program.as_fd()).and_then(|()| tc::take(LOOPBACK, Side::Ingress));
    if is_own {
        tc::remove_empty(LOOPBACK)?;
    }
    tried
}
