//! A wire between the agent and a collector, on which what the agent sends over gRPC can be read
//! as it was sent: a receiver's library shows a message only once it is unpacked.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What an HTTP/2 connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Kinds of HTTP/2 frames, and the flags that say what surrounds their content.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
/// Letters of the headers that are looked for, in HPACK's Huffman code (RFC 7541, appendix B).
const HUFFMAN: [(char, u128, u32); 11] = [
    ('-', 0b01_0110, 6),
    ('c', 0b0_0100, 5),
    ('d', 0b10_0100, 6),
    ('e', 0b0_0101, 5),
    ('g', 0b10_0110, 6),
    ('i', 0b0_0110, 5),
    ('n', 0b10_1010, 6),
    ('o', 0b0_0111, 5),
    ('p', 0b10_1011, 6),
    ('r', 0b10_1100, 6),
    ('z', 0b111_1011, 7),
];

/// What one connection has carried to the collector.
type Sent = Arc<Mutex<Vec<u8>>>;

/// A running relay.
pub(crate) struct Wire {
    port: u16,
    sent: Arc<Mutex<Vec<Sent>>>,
}

/// A message of gRPC as it was sent.
pub(crate) struct Message {
    /// Whether its frame says that it is packed.
    pub(crate) flag: u8,
    pub(crate) body: Vec<u8>,
}

impl Wire {
    /// Starts one that leads to a port of loopback.
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let wire = Self {
            port: listener.local_addr().unwrap().port(),
            sent: Arc::new(Mutex::new(Vec::new())),
        };
        let all = Arc::clone(&wire.sent);
        thread::spawn(move || {
            for from in listener.incoming().map_while(Result::ok) {
                let Ok(to) = TcpStream::connect(("127.0.0.1", port)) else {
                    continue;
                };
                let (back, again) = (to.try_clone().unwrap(), from.try_clone().unwrap());
                let sent = Sent::default();
                all.lock().unwrap().push(Arc::clone(&sent));
                thread::spawn(move || carry(from, to, |bytes| sent.lock().unwrap().extend(bytes)));
                thread::spawn(move || carry(back, again, |_| ()));
            }
        });
        wire
    }

    /// Where the agent is to send to.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn frames(&self) -> Vec<Vec<Frame>> {
        self.sent.lock().unwrap().iter().map(|sent| frames(&sent.lock().unwrap())).collect()
    }

    /// The gRPC messages that were sent whole.
    pub(crate) fn messages(&self) -> Vec<Message> {
        let mut found = Vec::new();
        for connection in self.frames() {
            let mut streams: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
            for frame in connection.into_iter().filter(|frame| frame.kind == DATA) {
                streams.entry(frame.stream).or_default().extend(frame.content);
            }
            for bytes in streams.values() {
                found.extend(messages(bytes));
            }
        }
        found
    }

    /// Whether the first request of every connection has this header; later ones may refer to it by
    /// a number.
    pub(crate) fn says(&self, name: &str, value: &str) -> bool {
        let wanted = [string(name), string(value)].concat();
        let has = |frames: &Vec<Frame>| {
            let first = frames.iter().find(|frame| frame.kind == HEADERS);
            first.is_some_and(|frame| frame.content.windows(wanted.len()).any(|w| w == wanted))
        };
        let connections = self.frames();
        !connections.is_empty() && connections.iter().all(has)
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, keep: impl Fn(&[u8])) {
    let mut bytes = [0; 1 << 14];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        keep(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Write));
}

/// A frame of HTTP/2, without what pads it.
struct Frame {
    kind: u8,
    stream: u32,
    content: Vec<u8>,
}

/// The whole frames of what a client has sent.
fn frames(sent: &[u8]) -> Vec<Frame> {
    let mut found = Vec::new();
    let mut rest = sent.strip_prefix(PREFACE).unwrap_or_default();
    while let [a, b, c, kind, flags, s, t, u, v, tail @ ..] = rest {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        if tail.len() < length {
            break;
        }
        let (mut content, next) = tail.split_at(length);
        if matches!(*kind, DATA | HEADERS) && flags & PADDED != 0 {
            content = &content[1..content.len() - usize::from(content[0])];
        }
        if *kind == HEADERS && flags & PRIORITY != 0 {
            content = &content[5..];
        }
        let stream = u32::from_be_bytes([*s, *t, *u, *v]);
        found.push(Frame { kind: *kind, stream, content: content.to_vec() });
        rest = next;
    }
    found
}

/// The whole messages of a stream.
fn messages(mut rest: &[u8]) -> Vec<Message> {
    let mut found = Vec::new();
    while let [flag, a, b, c, d, tail @ ..] = rest {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let Some((body, next)) = tail.split_at_checked(length) else {
            break;
        };
        found.push(Message { flag: *flag, body: body.to_vec() });
        rest = next;
    }
    found
}

/// A text as HPACK has it: its length, and its letters in the Huffman code.
fn string(text: &str) -> Vec<u8> {
    let (mut bits, mut count) = (0_u128, 0);
    for letter in text.chars() {
        let mut codes = HUFFMAN.iter();
        let (_, code, length) = codes.find(|(of, ..)| *of == letter).expect("a letter with a code");
        bits = bits << length | code;
        count += length;
    }
    // The last octet is filled up with ones.
    let padding = (8 - count % 8) % 8;
    bits = bits << padding | ((1 << padding) - 1);
    let length = (count + padding) / 8;
    let mut made = vec![0x80 | u8::try_from(length).unwrap()];
    made.extend((0..length).rev().map(|octet| (bits >> (8 * octet) & 0xff) as u8));
    made
}
