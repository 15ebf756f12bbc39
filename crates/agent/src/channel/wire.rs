//! The bytes on the channel: frames that begin with a magic number and carry their length and a checksum.
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 4 | magic number, [`MAGIC`] |
//! | 4 | 1 | version of the frame, [`VERSION`] |
//! | 5 | 1 | kind of the message |
//! | 6 | 2 | length of the payload, at most [`MAX_PAYLOAD`] |
//! | 8 | 4 | CRC-32 (IEEE 802.3) of bytes 4 to 8 and the payload |
//! | 12 | | payload |
//!
//! Numbers are in network byte order. A payload may grow at its end: a reader passes over what it does not know. Bytes
//! that are no frame are skipped one by one until a frame begins.

use std::time::Duration;

use super::endpoint::Reasons;

/// Begins every frame.
pub const MAGIC: [u8; 4] = [0xe7, b'e', b'k', 0x17];
/// The version of frames and messages that this evenkeel speaks.
pub const VERSION: u8 = 1;
/// Bytes before the payload.
pub const HEADER: usize = 12;
/// Longest payload, of any version.
pub const MAX_PAYLOAD: usize = 256;
/// Longest frame.
pub const MAX_FRAME: usize = HEADER + MAX_PAYLOAD;

/// Shortest and longest time between two heartbeats that an end may announce.
pub use evenkeel_settings::HEARTBEAT_MS;

/// Which end somebody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The hypervisor's agent.
    Host = 1,
    /// The guest's.
    Guest = 2,
}

/// What an end can do; bits that are not known are ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities(pub u32);

impl Capabilities {
    /// The guest has vFlood's congestion control.
    pub const VFLOOD: Self = Self(1);
    /// The guest shares out CERA's window.
    pub const CERA: Self = Self(2);

    /// Whether all of `other` are among them.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These and those.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The first word of an end, and of an agent that was started anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Who speaks.
    pub role: Role,
    /// The highest version that it speaks.
    pub version: u8,
    /// The time between its heartbeats, within [`HEARTBEAT_MS`].
    pub heartbeat_ms: u16,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Drawn at random by each agent that starts; its heartbeats count from here.
    pub session: u32,
}

impl Hello {
    /// The time between its heartbeats.
    pub fn heartbeat(&self) -> Duration {
        Duration::from_millis(u64::from(self.heartbeat_ms))
    }
}

/// Somebody is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// Counts up, and wraps.
    pub number: u32,
    /// The last number that came from the other end. If that is not recent, this heartbeat is an old one that waited
    /// somewhere.
    pub echo: u32,
    /// From a guest: the settings of vFlood that hold there; 0: none.
    pub vflood_serial: u32,
    /// From a guest: whether its sockets flood.
    pub is_flooding: bool,
    /// From a guest: the last epoch whose window was shared out; 0: none.
    pub epoch: u64,
    /// From a guest: for how much of the last seconds it had no core, 0 to 1000; nothing where it does not know.
    pub off_core_permille: Option<u16>,
    /// From a guest: what speaks against its TCP as the end of its connections; nothing where it does not say.
    pub endpoint: Option<Reasons>,
}

/// What holds for vFlood in the guest; from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vflood {
    /// Number of these settings, from 1.
    pub serial: u32,
    /// Whether the host holds packets and so the guest may flood.
    pub is_online: bool,
    /// The guest's window where nothing was granted yet, in segments.
    pub flood_segments: u32,
}

/// CERA's window for the whole VM; from the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// The epoch, which counts up from 1 as long as the controller runs.
    pub epoch: u64,
    /// Segments that all the VM's flows together may have in flight; 0: no limit any more.
    pub segments: u32,
}

/// Everything that can be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// The first word.
    Hello(Hello),
    /// Somebody is there.
    Heartbeat(Heartbeat),
    /// vFlood's settings.
    Vflood(Vflood),
    /// CERA's window.
    Window(Window),
    /// The end is going in order: what it attested ends now.
    Goodbye,
}

/// A share of time that is not known, on the wire.
const UNKNOWN_PERMILLE: u16 = u16::MAX;

const KIND_HELLO: u8 = 1;
const KIND_HEARTBEAT: u8 = 2;
const KIND_VFLOOD: u8 = 3;
const KIND_WINDOW: u8 = 4;
const KIND_GOODBYE: u8 = 5;

impl Message {
    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend(MAGIC);
        out.extend([VERSION, self.kind(), 0, 0, 0, 0, 0, 0]);
        match self {
            Self::Hello(hello) => {
                out.extend([hello.role as u8, hello.version]);
                out.extend(hello.heartbeat_ms.to_be_bytes());
                out.extend(hello.capabilities.0.to_be_bytes());
                out.extend(hello.session.to_be_bytes());
            }
            Self::Heartbeat(beat) => {
                out.extend(beat.number.to_be_bytes());
                out.extend(beat.echo.to_be_bytes());
                out.extend(beat.vflood_serial.to_be_bytes());
                out.extend(u32::from(beat.is_flooding).to_be_bytes());
                out.extend(beat.epoch.to_be_bytes());
                out.extend(beat.off_core_permille.unwrap_or(UNKNOWN_PERMILLE).to_be_bytes());
                out.extend(Reasons::to_bits(beat.endpoint).to_be_bytes());
            }
            Self::Vflood(vflood) => {
                out.extend(vflood.serial.to_be_bytes());
                out.extend(u32::from(vflood.is_online).to_be_bytes());
                out.extend(vflood.flood_segments.to_be_bytes());
            }
            Self::Window(window) => {
                out.extend(window.epoch.to_be_bytes());
                out.extend(window.segments.to_be_bytes());
            }
            Self::Goodbye => {}
        }
        let length = (out.len() - begin - HEADER) as u16;
        out[begin + 6..begin + 8].copy_from_slice(&length.to_be_bytes());
        let checksum = checksum(&out[begin + 4..begin + 8], &out[begin + HEADER..]);
        out[begin + 8..begin + HEADER].copy_from_slice(&checksum.to_be_bytes());
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => KIND_HELLO,
            Self::Heartbeat(_) => KIND_HEARTBEAT,
            Self::Vflood(_) => KIND_VFLOOD,
            Self::Window(_) => KIND_WINDOW,
            Self::Goodbye => KIND_GOODBYE,
        }
    }

    /// Reads a payload of this version; `None` if it is too short or says something that nobody may say.
    fn read(kind: u8, payload: &[u8]) -> Option<Item> {
        let mut fields = Fields(payload);
        let message = match kind {
            KIND_HELLO => {
                let role = match fields.u8()? {
                    1 => Role::Host,
                    2 => Role::Guest,
                    _ => return None,
                };
                let hello = Hello {
                    role,
                    version: fields.u8()?,
                    heartbeat_ms: fields.u16()?,
                    capabilities: Capabilities(fields.u32()?),
                    session: fields.u32()?,
                };
                if hello.version == 0 || !HEARTBEAT_MS.contains(&hello.heartbeat_ms) {
                    return None;
                }
                Self::Hello(hello)
            }
            KIND_HEARTBEAT => Self::Heartbeat(Heartbeat {
                number: fields.u32()?,
                echo: fields.u32()?,
                vflood_serial: fields.u32()?,
                is_flooding: fields.u32()? & 1 != 0,
                epoch: fields.u64()?,
                // An evenkeel that is older than one of these fields does not send it.
                off_core_permille: fields.u16().filter(|permille| *permille <= 1000),
                endpoint: fields.u64().and_then(Reasons::from_bits),
            }),
            KIND_VFLOOD => Self::Vflood(Vflood {
                serial: fields.u32()?,
                is_online: fields.u32()? & 1 != 0,
                flood_segments: fields.u32()?,
            }),
            KIND_WINDOW => Self::Window(Window { epoch: fields.u64()?, segments: fields.u32()? }),
            KIND_GOODBYE => Self::Goodbye,
            other => return Some(Item::Unknown(other)),
        };
        Some(Item::Message(message))
    }
}

/// The fields of a payload, one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }
}

fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(payload);
    hasher.finalize()
}

/// What a decoder finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// A message.
    Message(Message),
    /// A whole frame of a kind or version that is not known: its kind.
    Unknown(u8),
    /// This many bytes that are no frame.
    Garbage(usize),
}

/// Finds frames in a stream of bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The begin of a frame that is not complete: less than [`MAX_FRAME`] bytes between calls.
    buffer: Vec<u8>,
}

impl Decoder {
    /// Takes the next bytes of the stream; what they complete goes to `items`, in order.
    pub fn decode(&mut self, bytes: &[u8], items: &mut Vec<Item>) {
        self.buffer.extend_from_slice(bytes);
        let (mut at, mut garbage) = (0, 0);
        loop {
            let (used, found) = match first(&self.buffer[at..]) {
                First::Frame(used, item) => (used, Some(item)),
                First::Garbage(used) => (used, None),
                First::Incomplete => break,
            };
            at += used;
            match found {
                None => garbage += used,
                Some(item) => {
                    if garbage > 0 {
                        items.push(Item::Garbage(garbage));
                        garbage = 0;
                    }
                    items.push(item);
                }
            }
        }
        if garbage > 0 {
            items.push(Item::Garbage(garbage));
        }
        self.buffer.drain(..at);
    }

    /// Forgets what is not complete: the stream begins anew.
    pub fn reset(&mut self) {
        self.buffer.clear();
    }
}

/// What a stream begins with.
enum First {
    Frame(usize, Item),
    Garbage(usize),
    Incomplete,
}

fn first(bytes: &[u8]) -> First {
    let magic = bytes.iter().zip(MAGIC).take_while(|(byte, magic)| **byte == *magic).count();
    if magic < MAGIC.len() {
        if magic == bytes.len() {
            return First::Incomplete;
        }
        // To the next byte that can begin a frame.
        let next = bytes[1..].iter().position(|byte| *byte == MAGIC[0]).map_or(bytes.len(), |place| place + 1);
        return First::Garbage(next);
    }
    let Some(header) = bytes.first_chunk::<HEADER>() else { return First::Incomplete };
    let [_, _, _, _, version, kind, high, low, c0, c1, c2, c3] = *header;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_PAYLOAD {
        return First::Garbage(1);
    }
    let Some(payload) = bytes.get(HEADER..HEADER + length) else { return First::Incomplete };
    if checksum(&header[4..8], payload) != u32::from_be_bytes([c0, c1, c2, c3]) {
        return First::Garbage(1);
    }
    let used = HEADER + length;
    if version != VERSION {
        return First::Frame(used, Item::Unknown(kind));
    }
    match Message::read(kind, payload) {
        Some(item) => First::Frame(used, item),
        None => First::Garbage(used),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub fn message() -> impl Strategy<Value = Message> {
        prop_oneof![
            (any::<bool>(), 1u8.., HEARTBEAT_MS, any::<u32>(), any::<u32>()).prop_map(
                |(host, version, ms, can, session)| {
                    Message::Hello(Hello {
                        role: if host { Role::Host } else { Role::Guest },
                        version,
                        heartbeat_ms: ms,
                        capabilities: Capabilities(can),
                        session,
                    })
                }
            ),
            (
                (any::<u32>(), any::<u32>(), any::<u32>()),
                any::<bool>(),
                any::<u64>(),
                proptest::option::of(0u16..=1000),
                any::<u64>().prop_map(Reasons::from_bits)
            )
                .prop_map(
                    |((number, echo, vflood_serial), is_flooding, epoch, off_core_permille, endpoint)| {
                        let beat =
                            Heartbeat { number, echo, vflood_serial, is_flooding, epoch, off_core_permille, endpoint };
                        Message::Heartbeat(beat)
                    }
                ),
            (any::<u32>(), any::<bool>(), any::<u32>()).prop_map(|(serial, is_online, flood_segments)| {
                Message::Vflood(Vflood { serial, is_online, flood_segments })
            }),
            (any::<u64>(), any::<u32>()).prop_map(|(epoch, segments)| Message::Window(Window { epoch, segments })),
            Just(Message::Goodbye),
        ]
    }

    pub fn frame(message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        bytes
    }

    fn decode(pieces: &[&[u8]]) -> Vec<Item> {
        let (mut decoder, mut items) = (Decoder::default(), Vec::new());
        for piece in pieces {
            decoder.decode(piece, &mut items);
            assert!(decoder.buffer.len() < MAX_FRAME);
        }
        items
    }

    fn messages(items: &[Item]) -> Vec<Message> {
        items.iter().filter_map(|item| if let Item::Message(message) = item { Some(*message) } else { None }).collect()
    }

    #[test]
    fn a_frame_has_the_documented_bytes() {
        let bytes = frame(&Message::Window(Window { epoch: 5, segments: 100 }));
        assert_eq!(bytes[..8], [0xe7, 0x65, 0x6b, 0x17, 1, 4, 0, 12]);
        assert_eq!(bytes[12..], [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 100]);
        assert_eq!(bytes[8..12], crc32fast::hash(&[&bytes[4..8], &bytes[12..]].concat()).to_be_bytes());
    }

    #[test]
    fn what_comes_later_does_no_harm() {
        // A longer payload of the same version, a kind and a version that are not known.
        let again = |version: u8, kind: u8, payload: &[u8]| {
            let mut bytes = MAGIC.to_vec();
            bytes.extend([version, kind, 0, payload.len() as u8]);
            bytes.extend(checksum(&bytes[4..8], payload).to_be_bytes());
            bytes.extend(payload);
            bytes
        };
        let longer = again(1, KIND_WINDOW, &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 9, 9, 9]);
        let unknown = [again(1, 77, &[1; 200]), again(2, KIND_WINDOW, &[])].concat();
        let items = decode(&[&longer, &unknown]);
        let window = Item::Message(Message::Window(Window { epoch: 1, segments: 2 }));
        assert_eq!(items, [window, Item::Unknown(77), Item::Unknown(KIND_WINDOW)]);
        // Heartbeats from before they told of the core, with a share of it, and with an impossible share.
        for (end, permille) in [(&[][..], None), (&[3, 232], Some(1000)), (&[3, 233], None)] {
            let items = decode(&[&again(1, KIND_HEARTBEAT, &[&[0; 23], &[9][..], end].concat())]);
            let beat = Heartbeat { epoch: 9, off_core_permille: permille, ..Heartbeat::default() };
            assert_eq!(items, [Item::Message(Message::Heartbeat(beat))]);
        }
        // Heartbeats from before they gave the guest's word, with half of it or none, and with one.
        let no = Reasons::from_bits(1 << 63 | 2);
        for (end, endpoint) in [
            (&[][..], None),
            (&[0x80, 0, 0, 0], None),
            (&[0; 8], None),
            (&[0x80, 0, 0, 0, 0, 0, 0, 0], Some(Reasons::default())),
            (&[0x80, 0, 0, 0, 0, 0, 0, 2, 7, 7], no),
        ] {
            let items = decode(&[&again(1, KIND_HEARTBEAT, &[&[0; 24], &[0, 100][..], end].concat())]);
            let beat = Heartbeat { off_core_permille: Some(100), endpoint, ..Heartbeat::default() };
            assert_eq!(items, [Item::Message(Message::Heartbeat(beat))]);
        }
        // A payload that is too short, and a role that nobody has.
        assert_eq!(decode(&[&again(1, KIND_WINDOW, &[0; 11])]), [Item::Garbage(HEADER + 11)]);
        assert_eq!(
            decode(&[&again(1, KIND_HELLO, &[3, 1, 0, 200, 0, 0, 0, 0, 0, 0, 0, 0])]),
            [Item::Garbage(HEADER + 12)]
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(sent in proptest::collection::vec(message(), 0..8), cut in 1usize..64) {
            let bytes: Vec<u8> = sent.iter().flat_map(frame).collect();
            let pieces: Vec<&[u8]> = bytes.chunks(cut).collect();
            let items: Vec<Item> = sent.into_iter().map(Item::Message).collect();
            prop_assert_eq!(decode(&pieces), items);
        }

        /// Garbage that does not end in the beginning of a frame is skipped and counted to the last byte.
        #[test]
        fn a_frame_is_found_behind_garbage(
            noise in proptest::collection::vec(any::<u8>(), 1..600),
            sent in message(),
            cut in 1usize..64,
        ) {
            let bytes = [noise.clone(), vec![0; MAX_FRAME], frame(&sent)].concat();
            let items = decode(&bytes.chunks(cut).collect::<Vec<_>>());
            prop_assert_eq!(messages(&items), [sent]);
            let garbage = |item: &Item| if let Item::Garbage(bytes) = item { *bytes } else { 0 };
            let skipped: usize = items.iter().map(garbage).sum();
            prop_assert_eq!(skipped, noise.len() + MAX_FRAME);
        }

        /// A flipped bit costs the frame that it is in and no other.
        #[test]
        fn damage_is_found(
            before in message(),
            hit in message(),
            after in message(),
            bit in any::<prop::sample::Index>(),
        ) {
            let mut damaged = frame(&hit);
            let bit = bit.index(damaged.len() * 8);
            damaged[bit / 8] ^= 1 << (bit % 8);
            // A damaged length may swallow up to the longest payload of what follows.
            let bytes = [frame(&before), damaged, vec![0; MAX_FRAME], frame(&after)].concat();
            prop_assert_eq!(messages(&decode(&[&bytes])), [before, after]);
        }

        #[test]
        fn nothing_is_read_twice_or_lost(bytes in proptest::collection::vec(any::<u8>(), 0..2000), cut in 1usize..300) {
            let pieces: Vec<&[u8]> = bytes.chunks(cut).collect();
            let whole = decode(&[&bytes]);
            prop_assert_eq!(messages(&decode(&pieces)), messages(&whole));
        }
    }
}
