//! Reading inputs. Whatever the bytes are, the answer is an input or an error that names the key.

use inflightd_core::coverage::{Reason, Sight, Source};
use inflightd_core::fact::{
    Append, Counts, Handle, Load, Meter, Peer, Phase, PortTroubles, Room, Seq, Tid, Worker,
};
use inflightd_core::{Cause, Event, Fact, Finding, Nanos};

use crate::Input;
use crate::write::{LIVES, OUTCOMES};

/// Most peers read of one append: as many as a table keeps.
const PEERS_MAX: usize = 64;

/// Why a line of a capture could not be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseError {
    /// The line has no time, no worker or no fact.
    #[error("line has no {0}")]
    Missing(&'static str),
    /// A key that the fact needs is not there.
    #[error("fact `{fact}` needs the key `{key}`")]
    NoKey {
        /// The fact.
        fact: String,
        /// The key.
        key: &'static str,
    },
    /// A value is not what the key takes.
    #[error("`{value}` is no value for `{key}`")]
    BadValue {
        /// The key.
        key: &'static str,
        /// What stood there.
        value: String,
    },
    /// A fact that this release does not know.
    #[error("unknown fact `{0}`")]
    UnknownFact(String),
    /// An error with the number of its line, from 1.
    #[error("line {line}")]
    AtLine {
        /// The line's number.
        line: usize,
        /// What is wrong with it.
        #[source]
        error: Box<Self>,
    },
}

impl ParseError {
    /// The same error with the number of its line.
    #[must_use]
    pub fn at_line(self, line: usize) -> Self {
        Self::AtLine { line, error: Box::new(self) }
    }
}

/// The words of one line after its fact.
struct Keys<'l> {
    fact: &'l str,
    words: Vec<(&'l str, &'l str)>,
}

impl<'l> Keys<'l> {
    fn find(&self, key: &'static str) -> Option<&'l str> {
        self.words.iter().find(|(of, _)| *of == key).map(|(_, value)| *value)
    }

    fn text(&self, key: &'static str) -> Result<&'l str, ParseError> {
        self.find(key).ok_or_else(|| ParseError::NoKey { fact: self.fact.to_owned(), key })
    }

    fn number<T: Number>(&self, key: &'static str) -> Result<T, ParseError> {
        let value = self.text(key)?;
        T::read(value).ok_or_else(|| ParseError::BadValue { key, value: value.to_owned() })
    }

    fn option<T: Number>(&self, key: &'static str) -> Result<Option<T>, ParseError> {
        if self.find(key).is_some() { self.number(key).map(Some) } else { Ok(None) }
    }

    fn flag(&self, key: &'static str) -> Result<bool, ParseError> {
        match self.text(key)? {
            "0" => Ok(false),
            "1" => Ok(true),
            value => Err(ParseError::BadValue { key, value: value.to_owned() }),
        }
    }

    fn word<T: Copy>(&self, key: &'static str, table: &[(T, &str)]) -> Result<T, ParseError> {
        let value = self.text(key)?;
        let found = table.iter().find(|(_, word)| *word == value).map(|(of, _)| *of);
        found.ok_or_else(|| ParseError::BadValue { key, value: value.to_owned() })
    }

    fn named<T>(
        &self,
        key: &'static str,
        from_name: fn(&str) -> Option<T>,
    ) -> Result<T, ParseError> {
        let value = self.text(key)?;
        from_name(value).ok_or_else(|| ParseError::BadValue { key, value: value.to_owned() })
    }
}

/// Numbers that stand in captures, decimal or with `0x` hexadecimal.
trait Number: Sized {
    fn read(text: &str) -> Option<Self>;
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn read(text: &str) -> Option<Self> {
                match text.strip_prefix("0x") {
                    Some(hex) => Self::from_str_radix(hex, 16).ok(),
                    None => text.parse().ok(),
                }
            }
        }
    )*};
}
number!(u32, u64, i32, i64);

/// Reads one line; `Ok(None)` for an empty line or a comment.
///
/// # Errors
///
/// [`ParseError`], without the line's number.
pub fn parse_input(line: &str) -> Result<Option<Input>, ParseError> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let mut words = line.split_ascii_whitespace();
    let at = words.next().ok_or(ParseError::Missing("time"))?;
    let at = u64::read(at)
        .map(Nanos)
        .ok_or_else(|| ParseError::BadValue { key: "time", value: at.to_owned() })?;
    let whom = words.next().ok_or(ParseError::Missing("worker"))?;
    if whom == "tick" {
        return Ok(Some(Input::Tick(at)));
    }
    let worker = whom
        .strip_prefix('w')
        .and_then(u32::read)
        .map(Worker)
        .ok_or_else(|| ParseError::BadValue { key: "worker", value: whom.to_owned() })?;
    let fact = words.next().ok_or(ParseError::Missing("fact"))?;
    let words = words.filter_map(|word| word.split_once('=')).collect();
    let fact = queue_fact(&Keys { fact, words })?;
    Ok(Some(Input::Event(Event { at, worker, fact })))
}

fn queue_fact(keys: &Keys<'_>) -> Result<Fact, ParseError> {
    let seq = || keys.number("seq").map(Seq);
    let tid = || keys.number("tid").map(Tid);
    Ok(match keys.fact {
        "found" => Fact::Found,
        "unhooked" => Fact::Unhooked,
        "receives" => Fact::Receives,
        "listener_ended" => Fact::ListenerEnded,
        "load" => Fact::Load(load(keys)?),
        "ended" => Fact::Ended,
        "append" => Fact::Append(append(keys)?),
        "entry" => Fact::Entry(seq()?, counts(keys)?),
        "phase" => Fact::Phase(seq()?, keys.named("phase", Phase::from_name)?),
        "serve" => Fact::Serve(tid()?, seq()?),
        "serve_early" => Fact::ServeEarly(tid()?, Seq(keys.number("after")?)),
        "serve_end" => Fact::ServeEnd(tid()?),
        "post" => Fact::Post(seq()?, keys.number("bytes")?),
        "done" => Fact::Done(seq()?, keys.number("bytes")?, keys.flag("ok")?),
        "remove" => Fact::Remove(seq()?, keys.word("outcome", &OUTCOMES)?),
        "read" => Fact::Read,
        "beat" => Fact::Beat,
        "lose" => Fact::Lose(keys.named("source", Source::from_name)?, keys.number("count")?),
        "told" => Fact::Told(
            seq()?,
            keys.named("finding", Finding::from_name)?,
            keys.named("cause", Cause::from_name)?,
        ),
        "thread_exit" => Fact::ThreadExit(tid()?),
        "cover" => Fact::Cover(keys.named("source", Source::from_name)?, sight(keys)?),
        _ => wire_fact(keys)?,
    })
}

fn wire_fact(keys: &Keys<'_>) -> Result<Fact, ParseError> {
    let handle = || keys.number("handle").map(Handle);
    let peer = || keys.number("peer").map(Peer);
    let tid = || keys.number("tid").map(Tid);
    Ok(match keys.fact {
        "xfer_post" => Fact::XferPost {
            tid: tid()?,
            handle: handle()?,
            peer: keys.option("peer")?.map(Peer),
            bytes: keys.option("bytes")?,
            descs: keys.option("descs")?,
            room: notified(keys)?,
        },
        "xfer_ret" => Fact::XferRet(tid()?, handle()?, keys.number("status")?),
        "xfer_status" => Fact::XferStatus(handle()?, keys.number("status")?),
        "xfer_release" => Fact::XferRelease(handle()?, keys.option("status")?),
        "flush" => {
            Fact::Flush { tid: tid()?, ep: keys.number("ep")?, request: keys.number("request")? }
        }
        "flush_done" => Fact::FlushDone(keys.number("completion")?, keys.option("status")?),
        "flush_distance" => Fact::FlushDistance(keys.number("distance")?),
        "ep_error" => Fact::EpError(keys.number("ep")?, keys.number("status")?),
        "batch" => Fact::Batch(tid()?, handle()?),
        "batch_read" => Fact::BatchRead(handle()?, keys.option("bytes")?),
        "batch_end" => Fact::BatchEnd(handle()?),
        "ports" => Fact::Ports(PortTroubles {
            timeouts: keys.number("timeouts")?,
            not_ready: keys.number("not_ready")?,
            disorder: keys.number("disorder")?,
        }),
        "armed" => Fact::Armed(keys.flag("on")?),
        "operations" => Fact::Operations(keys.number("ep")?, keys.number("bytes")?),
        "wire" => Fact::Wire(peer()?, meter(keys)?),
        "history" => Fact::History(peer()?, keys.number("bytes")?, keys.flag("whole")?),
        "life" => Fact::Life(peer()?, keys.word("life", &LIVES)?),
        unknown => return Err(ParseError::UnknownFact(unknown.to_owned())),
    })
}

/// The room of a transfer's notification, and whether it is the room's last transfer.
fn notified(keys: &Keys<'_>) -> Result<Option<(Room, bool)>, ParseError> {
    let room = keys.option("room")?.map(Room);
    room.map(|room| Ok((room, keys.flag("last")?))).transpose()
}

fn load(keys: &Keys<'_>) -> Result<Load, ParseError> {
    Ok(Load {
        running: keys.number("running")?,
        bootstrap: keys.number("bootstrap")?,
        inflight: keys.number("inflight")?,
        prealloc: keys.number("prealloc")?,
        transfer: keys.number("transfer")?,
    })
}

fn append(keys: &Keys<'_>) -> Result<Append, ParseError> {
    let list = keys.text("peers")?;
    let bad = || ParseError::BadValue { key: "peers", value: list.to_owned() };
    let peers: Option<Vec<_>> = list
        .split(',')
        .filter(|number| !number.is_empty())
        .take(PEERS_MAX)
        .map(|number| u32::read(number).map(Peer))
        .collect();
    Ok(Append {
        seq: Seq(keys.number("seq")?),
        room: Room(keys.number("room")?),
        expected: keys.number("expected")?,
        peers: peers.ok_or_else(bad)?,
        peers_whole: keys.flag("whole")?,
        late: keys.flag("late")?,
        patient: keys.find("patient").is_some() && keys.flag("patient")?,
    })
}

fn counts(keys: &Keys<'_>) -> Result<Counts, ParseError> {
    Ok(Counts {
        phase: keys.named("phase", Phase::from_name)?,
        posts: keys.number("posts")?,
        posted_bytes: keys.number("posted_bytes")?,
        dones: keys.number("dones")?,
        done_bytes: keys.number("done_bytes")?,
        failures: keys.number("failures")?,
        first_post: keys.option("first_post")?.map(Nanos),
        last_done: keys.option("last_done")?.map(Nanos),
    })
}

fn meter(keys: &Keys<'_>) -> Result<Meter, ParseError> {
    Ok(Meter {
        connections: keys.number("connections")?,
        acked: keys.number("acked")?,
        received: keys.number("received")?,
        unsent: keys.number("unsent")?,
        unacked: keys.number("unacked")?,
        unread: keys.option("unread")?,
        last_received: keys.option("last_received")?.map(Nanos),
        window_closed: keys.flag("closed")?,
        retransmitting: keys.flag("retransmitting")?,
        broken: keys.option("broken")?.map(Nanos),
        link_down: keys.option::<u64>("link_down")?.is_some() && keys.flag("link_down")?,
    })
}

fn sight(keys: &Keys<'_>) -> Result<Sight, ParseError> {
    Ok(match keys.text("sight")? {
        "visible" => Sight::Visible,
        "degraded" => Sight::Degraded(keys.named("why", Reason::from_name)?),
        "blind" => Sight::Blind(keys.named("why", Reason::from_name)?),
        value => {
            return Err(ParseError::BadValue { key: "sight", value: value.to_owned() });
        }
    })
}
