//! Packets at ports, for Wireshark.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_scenario::trace::{Carries, Ecn, Event, Machine, Origin, Packet, Point, Port, Sink, Stage, Way};
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::{PcapNgBlock as _, PcapNgWriter};
use pcap_file::{DataLink, PcapError};

use super::frame::{Frame, frame};
use super::ports::{Ports, address, mac};
use crate::ReportError;

/// Time stamps in units of 10^-9 s.
const NANOSECONDS: u8 = 9;
/// The end of the name of a port's side towards its VM.
const VM_SIDE: &str = "-vm";

/// Writes packets at the ports of machines: an interface for each port, two for a port with mechanisms.
pub struct Pcapng {
    to: PathBuf,
    /// A file for each interface, in the directory `to`.
    in_files: bool,
    payload: bool,
    mtu_bytes: u32,
    ports: Ports,
    interfaces: Vec<Interface>,
    /// By machine: its interface, or that of the network's side; and that of the VM's side.
    of: Vec<[usize; 2]>,
    files: Vec<Option<Capture>>,
    packets: u64,
    failed: Option<ReportError>,
}

#[derive(Debug)]
struct Interface {
    name: String,
    describes: &'static str,
    machine: u32,
    port: Port,
}

struct Capture {
    file: PathBuf,
    writer: PcapNgWriter<BufWriter<File>>,
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// The files.
    pub files: Vec<PathBuf>,
    /// Packets in all of them.
    pub packets: u64,
}

impl Pcapng {
    /// Writes into one file; or, if `to` is a directory, into a file for each interface there. `payload`: with the
    /// bytes of payloads, all of which are 0, or only their lengths.
    pub fn new(to: &Path, payload: bool) -> Self {
        Self {
            to: to.to_owned(),
            in_files: to.is_dir(),
            payload,
            mtu_bytes: 0,
            ports: Ports::default(),
            interfaces: Vec::new(),
            of: Vec::new(),
            files: Vec::new(),
            packets: 0,
            failed: None,
        }
    }

    /// Ends the files.
    ///
    /// # Errors
    /// [`ReportError::Write`], also of what was to be written earlier.
    pub fn finish(mut self) -> Result<Captured, ReportError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut files = Vec::new();
        for Capture { file, writer } in self.files.into_iter().flatten() {
            let flushed = writer.into_inner().flush();
            flushed.map_err(|source| ReportError::Write { file: file.clone(), source })?;
            files.push(file);
        }
        Ok(Captured { files, packets: self.packets })
    }

    /// Which interface sees a packet, if one does.
    fn interface(&self, packet: &Packet) -> Option<usize> {
        let [first, vm_side] = *self.of.get(packet.machine as usize)?;
        let sees = match (self.interfaces.get(first)?.port, packet.point, packet.way) {
            (Port::None, Point::Machine, _)
            | (Port::Plain, Point::NetworkSide, Way::In)
            | (Port::Plain, Point::VmSide, Way::Out)
            | (Port::Mechanisms, Point::NetworkSide, _) => first,
            (Port::Mechanisms, Point::VmSide, _) => vm_side,
            _ => return None,
        };
        Some(sees)
    }

    fn write(&mut self, at_ns: u64, packet: &Packet) -> Result<(), ReportError> {
        let Some(interface) = self.interface(packet) else { return Ok(()) };
        let Some(Frame { bytes, length }) = frame(packet, &self.ports, self.mtu_bytes, self.payload) else {
            return Ok(());
        };
        let (place, number) = if self.in_files { (interface, 0) } else { (0, interface) };
        if self.files[place].is_none() {
            self.files[place] = Some(self.begin_file(interface)?);
        }
        let Some(Capture { file, writer }) = &mut self.files[place] else { return Ok(()) };
        let block = EnhancedPacketBlock {
            interface_id: number as u32,
            timestamp: Duration::from_nanos(at_ns),
            original_len: length,
            data: Cow::Owned(bytes),
            options: comments(packet).into_iter().map(|text| EnhancedPacketOption::Comment(text.into())).collect(),
        };
        writer.write_block(&block.into_block()).map_err(|error| failed(file, error))?;
        self.packets += 1;
        Ok(())
    }

    /// A file, with its interfaces: that one, or all.
    fn begin_file(&self, interface: usize) -> Result<Capture, ReportError> {
        let (file, interfaces) = if self.in_files {
            let one = &self.interfaces[interface..=interface];
            (self.to.join(format!("{}.pcapng", self.interfaces[interface].name)), one)
        } else {
            (self.to.clone(), &self.interfaces[..])
        };
        let opened = File::create(&file).map_err(|source| ReportError::Write { file: file.clone(), source })?;
        let writer = headers(BufWriter::new(opened), interfaces, self.mtu_bytes);
        let writer = writer.map_err(|error| failed(&file, error))?;
        Ok(Capture { file, writer })
    }
}

impl Sink for Pcapng {
    fn begin(&mut self, stage: &Stage) {
        self.mtu_bytes = stage.mtu_bytes;
        for (number, Machine { name, port }) in (0..).zip(&stage.machines) {
            let mut add = |name: String, describes| {
                self.interfaces.push(Interface { name, describes, machine: number, port: *port });
                self.interfaces.len() - 1
            };
            let own = match port {
                Port::None => add(name.clone(), "the machine's network card"),
                Port::Plain => add(name.clone(), "the VM's port on its host"),
                Port::Mechanisms => add(name.clone(), "the VM's port on its host, on the network's side of mechanisms"),
            };
            let vm_side = match port {
                Port::None | Port::Plain => own,
                Port::Mechanisms => {
                    add(format!("{name}{VM_SIDE}"), "the VM's port on its host, on the VM's side of mechanisms")
                }
            };
            self.of.push([own, vm_side]);
        }
        self.files.resize_with(self.interfaces.len().max(1), || None);
    }

    fn take(&mut self, at_ns: u64, event: &Event) {
        match event {
            Event::Opened { machines, .. } => self.ports.open(*machines),
            Event::Packet(packet) if self.failed.is_none() => self.failed = self.write(at_ns, packet).err(),
            _ => {}
        }
    }
}

fn failed(file: &Path, error: PcapError) -> ReportError {
    let source = match error {
        PcapError::IoError(source) => source,
        other => io::Error::other(other),
    };
    ReportError::Write { file: file.to_owned(), source }
}

fn headers(
    file: BufWriter<File>,
    interfaces: &[Interface],
    mtu_bytes: u32,
) -> Result<PcapNgWriter<BufWriter<File>>, PcapError> {
    let program = concat!("evenkeel ", env!("CARGO_PKG_VERSION"));
    let section = SectionHeaderBlock {
        options: vec![
            SectionHeaderOption::Comment("Simulated: time counts from the beginning of the run.".into()),
            SectionHeaderOption::UserApplication(program.into()),
        ],
        ..SectionHeaderBlock::default()
    };
    let mut writer = PcapNgWriter::with_section_header(file, section)?;
    for interface in interfaces {
        let mut own_address = address(interface.machine).to_vec();
        own_address.extend([255, 0, 0, 0]);
        let block = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            // Packets that others will cut into segments are longer than the MTU.
            snaplen: mtu_bytes.max(1 << 18),
            options: vec![
                InterfaceDescriptionOption::IfName(interface.name.clone().into()),
                InterfaceDescriptionOption::IfDescription(interface.describes.into()),
                InterfaceDescriptionOption::IfIpv4Addr(own_address.into()),
                InterfaceDescriptionOption::IfMacAddr(mac(interface.machine).to_vec().into()),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        };
        writer.write_block(&block.into_block())?;
    }
    Ok(writer)
}

/// What the headers do not say.
fn comments(packet: &Packet) -> Vec<String> {
    let mut comments = Vec::new();
    if packet.ecn == Ecn::Ce {
        comments.push("marked: it met a queue at or above its threshold".to_owned());
    }
    match (packet.origin, packet.carries) {
        (Origin::Held(ns), _) => {
            comments.push(format!("held by vFlood for {}.{:06} ms", ns / 1_000_000, ns % 1_000_000));
        }
        (Origin::EarlyAck, _) => comments.push("early ACK: vSnoop acknowledges on the VM's behalf".to_owned()),
        (Origin::Host, Carries::Tcp(segment)) if segment.syn.is_some() => {
            comments.push("held or sent again by the host".to_owned());
        }
        (Origin::Host, Carries::Tcp(_)) => comments.push("made by the host".to_owned()),
        _ => {}
    }
    if let Carries::Probe(probe) = packet.carries {
        comments.push(match probe.report {
            None => format!("ProBoSCIS: probe {} of {} of train {}", probe.index + 1, probe.total, probe.train),
            Some([seen, marked]) => format!("ProBoSCIS: report of {seen} probes, {marked} of them marked"),
        });
    }
    comments
}
