//! eBPF programs of a few instructions, to stand beside the agent's.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use libbpf_sys::{
    BPF_F_TEST_XDP_LIVE_FRAMES, BPF_FUNC_clone_redirect, BPF_FUNC_skb_ecn_set_ce, BPF_PROG_TYPE_SCHED_CLS,
    BPF_PROG_TYPE_XDP, bpf_insn, xdp_md,
};

/// Where a tcx program of others is attached, relative to those that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// It sees a packet first.
    Before,
    /// It sees what the others have let pass.
    After,
}

/// A loaded program.
#[derive(Debug)]
pub struct Program(OwnedFd);

/// A program's place on a device, until this is dropped.
#[derive(Debug)]
pub struct Link(OwnedFd);

impl Drop for Link {
    /// Detaches explicitly: a child that another thread has forked and that has not yet executed has the descriptor,
    /// too; until then, closing this one would leave the program there.
    fn drop(&mut self) {
        // SAFETY: the descriptor is a link's. The device may have gone before: nothing is left to take off then.
        unsafe { libbpf_sys::bpf_link_detach(self.0.as_raw_fd()) };
    }
}

/// `struct __sk_buff` of linux/bpf.h.
mod skb {
    pub(super) const MARK: i16 = 8;
    pub(super) const PRIORITY: i16 = 32;
    pub(super) const TC_INDEX: i16 = 44;
    pub(super) const CB: [i16; 5] = [48, 52, 56, 60, 64];
}

fn instruction(code: u8, imm: i32) -> bpf_insn {
    bpf_insn { code, imm, ..Default::default() }
}

/// r0 = value; exit
fn answer(value: i32) -> [bpf_insn; 2] {
    [instruction(0xb7, value), instruction(0x95, 0)]
}

impl Program {
    fn load(kind: u32, name: &CStr, instructions: &[bpf_insn]) -> Self {
        // SAFETY: name, licence and instructions outlive the call; no options. What comes back is checked and owned
        // once.
        unsafe {
            let program = libbpf_sys::bpf_prog_load(
                kind,
                name.as_ptr(),
                c"GPL".as_ptr(),
                instructions.as_ptr(),
                instructions.len() as _,
                std::ptr::null_mut(),
            );
            assert!(program >= 0, "{}", io::Error::last_os_error());
            Self(OwnedFd::from_raw_fd(program))
        }
    }

    /// For tcx: every packet passes.
    pub fn empty() -> Self {
        Self::load(BPF_PROG_TYPE_SCHED_CLS, c"empty", &answer(-1))
    }

    /// For tcx: every ECN-capable packet is marked, and passes.
    pub fn mark_all() -> Self {
        let [value, exit] = answer(-1);
        Self::load(
            BPF_PROG_TYPE_SCHED_CLS,
            c"mark_all",
            &[instruction(0x85, BPF_FUNC_skb_ecn_set_ce as i32), value, exit],
        )
    }

    /// For tcx: sends a copy of every packet to a device, and it passes.
    pub fn copy_to(device: u32) -> Self {
        let argument = |register, value| {
            let mut load = instruction(0xb7, value);
            load.set_dst_reg(register);
            load
        };
        let [value, exit] = answer(-1);
        let copy = instruction(0x85, BPF_FUNC_clone_redirect as i32);
        let program = [argument(2, device as i32), argument(3, 0), copy, value, exit];
        Self::load(BPF_PROG_TYPE_SCHED_CLS, c"copy_to", &program)
    }

    /// For tcx: writes a value into every field of a packet's metadata (mark, priority, `tc_index`, control block), and
    /// the packet passes.
    pub fn scribble(value: i32) -> Self {
        let mut load = instruction(0xb7, value);
        load.set_dst_reg(2);
        let store = |offset| {
            let mut store = bpf_insn { off: offset, ..instruction(0x63, 0) };
            store.set_dst_reg(1);
            store.set_src_reg(2);
            store
        };
        let fields = [skb::MARK, skb::PRIORITY, skb::TC_INDEX].into_iter().chain(skb::CB);
        let program: Vec<_> = std::iter::once(load).chain(fields.map(store)).chain(answer(-1)).collect();
        Self::load(BPF_PROG_TYPE_SCHED_CLS, c"scribble", &program)
    }

    /// For tcx: drops SYNs without this mark, in IPv4 and IPv6 without options, extensions or VLAN tags; all else
    /// passes.
    pub fn want_mark(mark: i32) -> Self {
        const TYPE: i32 = 12;
        // r0 = byte, or two of them, of the packet (a packet that is shorter passes: the program ends with 0)
        let byte = |offset| instruction(0x30, offset);
        let word = |offset| instruction(0x28, offset);
        let jump = |code, value, skip| bpf_insn { off: skip, ..instruction(code, value) };
        let unless = |value, skip| jump(0x55, value, skip);
        let mut save = instruction(0xbf, 0);
        save.set_dst_reg(6);
        save.set_src_reg(1);
        let mut load_mark = bpf_insn { off: skb::MARK, ..instruction(0x61, 0) };
        load_mark.set_src_reg(6);
        let [drop, exit] = answer(2);
        let [pass, end] = answer(-1);
        let program = [
            save,
            word(TYPE),
            unless(0x0800, 4),
            byte(14 + 9),
            unless(6, 12),
            byte(14 + 20 + 13),
            jump(0x05, 0, 4),
            unless(0x86dd, 9),
            byte(14 + 6),
            unless(6, 7),
            byte(14 + 40 + 13),
            instruction(0x57, 2),
            jump(0x15, 0, 4),
            load_mark,
            jump(0x16, mark, 2),
            drop,
            exit,
            pass,
            end,
        ];
        Self::load(BPF_PROG_TYPE_SCHED_CLS, c"want_mark", &program)
    }

    /// For tcx: drops a probe, by its train and index, in IPv4 without options or VLAN tags; all else passes.
    pub fn drop_probe(train: u8, index: u8) -> Self {
        const FLAGS: i32 = 14 + 20 + 13;
        const TRAIN: i32 = 14 + 20 + 20 + 7;
        // r0 = byte of the packet (a packet that is shorter passes: the program ends with 0)
        let load = |offset| instruction(0x30, offset);
        // if r0 != value goto the end
        let unless = |value, skip| {
            let mut jump = instruction(0x55, value);
            jump.off = skip;
            jump
        };
        let mut save = instruction(0xbf, 0);
        save.set_dst_reg(6);
        save.set_src_reg(1);
        let [drop, exit] = answer(2);
        let [pass, end] = answer(-1);
        let program = [
            save,
            load(FLAGS),
            unless(4, 6),
            load(TRAIN),
            unless(train.into(), 4),
            load(TRAIN + 1),
            unless(index.into(), 2),
            drop,
            exit,
            pass,
            end,
        ];
        Self::load(BPF_PROG_TYPE_SCHED_CLS, c"drop_probe", &program)
    }

    /// For XDP: every packet goes on to the stack.
    pub fn to_stack() -> Self {
        Self::load(BPF_PROG_TYPE_XDP, c"to_stack", &answer(2))
    }

    /// Pins it, so that it can be opened from a file.
    pub fn pin(&self, path: &Path) {
        let path = CString::new(path.as_os_str().as_bytes()).expect("a path has no zero in it");
        // SAFETY: the path is a string of C.
        let error = unsafe { libbpf_sys::bpf_obj_pin(self.0.as_raw_fd(), path.as_ptr()) };
        assert_eq!(error, 0, "{}", io::Error::last_os_error());
    }

    /// The kernel's number for it.
    pub fn id(&self) -> u32 {
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut bytes = size_of_val(&info) as u32;
        // SAFETY: the structure is of the size that is said, and asks for no arrays.
        let error = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(self.0.as_raw_fd(), &mut info, &mut bytes) };
        assert_eq!(error, 0, "{}", io::Error::last_os_error());
        info.id
    }

    /// Puts it on a device before the programs that are there, at `BPF_TCX_INGRESS` or `BPF_TCX_EGRESS`.
    pub fn attach(&self, device: u32, place: u32) -> Link {
        self.attach_at(device, place, Order::Before)
    }

    /// The same, before or after them.
    pub fn attach_at(&self, device: u32, place: u32, order: Order) -> Link {
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
            flags: match order {
                Order::Before => libbpf_sys::BPF_F_BEFORE,
                Order::After => libbpf_sys::BPF_F_AFTER,
            },
            ..Default::default()
        };
        // SAFETY: the options are of the size that they say. What comes back is checked and owned once.
        unsafe {
            let link = libbpf_sys::bpf_link_create(self.0.as_raw_fd(), device as i32, place, &options);
            assert!(link >= 0, "{}", io::Error::last_os_error());
            Link(OwnedFd::from_raw_fd(link))
        }
    }

    /// Mean time of one run on a frame.
    pub fn run(&self, frame: &[u8], repeat: u32) -> Duration {
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            repeat: repeat as i32,
            ..Default::default()
        };
        self.test_run(&mut options)
    }

    /// Lets real packets, copies of the frame, come in at this namespace's `lo`, and the stack process them. Returns
    /// the mean time of one, all that the stack does included. For a program of XDP.
    pub fn receive(&self, frame: &[u8], packets: u32) -> Duration {
        let context = xdp_md { data_end: frame.len() as u32, ..Default::default() };
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
            data_in: frame.as_ptr().cast(),
            data_size_in: frame.len() as u32,
            ctx_in: std::ptr::from_ref(&context).cast(),
            ctx_size_in: size_of::<xdp_md>() as u32,
            repeat: packets as i32,
            flags: BPF_F_TEST_XDP_LIVE_FRAMES,
            batch_size: 64,
            ..Default::default()
        };
        self.test_run(&mut options)
    }

    fn test_run(&self, options: &mut libbpf_sys::bpf_test_run_opts) -> Duration {
        // SAFETY: frame and context outlive the call, and lengths are theirs; nothing is written back but numbers.
        let error = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.0.as_raw_fd(), options) };
        assert_eq!(error, 0, "{}", io::Error::last_os_error());
        Duration::from_nanos(options.duration.into())
    }
}
