//! Writing inputs.

use std::fmt::Write;

use inflightd_core::coverage::Sight;
use inflightd_core::fact::{Append, Counts, Life, Load, Meter, Outcome, Peer, PortTroubles};
use inflightd_core::{Event, Fact, Nanos};

use crate::Input;

/// The word for an outcome.
pub(crate) const OUTCOMES: [(Outcome, &str); 6] = [
    (Outcome::Unknown, "unknown"),
    (Outcome::Success, "success"),
    (Outcome::Failed, "failed"),
    (Outcome::Aborted, "aborted"),
    (Outcome::Requeued, "requeued"),
    (Outcome::Superseded, "superseded"),
];

/// The word for a life.
pub(crate) const LIVES: [(Life, &str); 4] = [
    (Life::Unseen, "unseen"),
    (Life::Running, "running"),
    (Life::Stopped, "stopped"),
    (Life::Gone, "gone"),
];

/// The word of a value in one of the tables above.
pub(crate) fn word<T: PartialEq>(table: &[(T, &'static str)], value: &T) -> &'static str {
    table.iter().find(|(of, _)| of == value).map_or("unknown", |(_, word)| word)
}

/// Appends one input as a line, without the line feed.
pub fn write_input(to: &mut String, input: &Input) {
    // Writing to a String cannot fail.
    let _infallible = match input {
        Input::Tick(now) => write!(to, "{} tick", now.0),
        Input::Event(event) => write_event(to, event),
    };
}

fn write_event(to: &mut String, event: &Event) -> std::fmt::Result {
    write!(to, "{} w{} ", event.at.0, event.worker.0)?;
    match &event.fact {
        Fact::Found => write!(to, "found"),
        Fact::Unhooked => write!(to, "unhooked"),
        Fact::Receives => write!(to, "receives"),
        Fact::ListenerEnded => write!(to, "listener_ended"),
        Fact::Load(load) => write_load(to, load),
        Fact::Ended => write!(to, "ended"),
        Fact::Append(append) => write_append(to, append),
        Fact::Entry(seq, counts) => {
            write!(to, "entry seq={} ", seq.0)?;
            write_counts(to, counts)
        }
        Fact::Phase(seq, phase) => write!(to, "phase seq={} phase={}", seq.0, phase.name()),
        Fact::Serve(tid, seq) => write!(to, "serve tid={} seq={}", tid.0, seq.0),
        Fact::ServeEarly(tid, after) => {
            write!(to, "serve_early tid={} after={}", tid.0, after.0)
        }
        Fact::ServeEnd(tid) => write!(to, "serve_end tid={}", tid.0),
        Fact::Post(seq, bytes) => write!(to, "post seq={} bytes={bytes}", seq.0),
        Fact::Done(seq, bytes, ok) => {
            write!(to, "done seq={} bytes={bytes} ok={}", seq.0, u8::from(*ok))
        }
        Fact::Remove(seq, outcome) => {
            write!(to, "remove seq={} outcome={}", seq.0, word(&OUTCOMES, outcome))
        }
        Fact::Read => write!(to, "read"),
        Fact::Beat => write!(to, "beat"),
        Fact::Lose(source, count) => write!(to, "lose source={} count={count}", source.name()),
        Fact::Told(seq, finding, cause) => {
            write!(to, "told seq={} finding={} cause={}", seq.0, finding.name(), cause.name())
        }
        Fact::ThreadExit(tid) => write!(to, "thread_exit tid={}", tid.0),
        Fact::Cover(source, sight) => {
            write!(to, "cover source={} ", source.name())?;
            match sight {
                Sight::Visible => write!(to, "sight=visible"),
                Sight::Degraded(why) => write!(to, "sight=degraded why={}", why.name()),
                Sight::Blind(why) => write!(to, "sight=blind why={}", why.name()),
            }
        }
        wire => write_wire(to, wire),
    }
}

/// Facts of the transfer library and of peers.
fn write_wire(to: &mut String, fact: &Fact) -> std::fmt::Result {
    match fact {
        Fact::XferPost { tid, handle, peer, bytes, descs, room } => {
            write!(to, "xfer_post tid={} handle={:#x}", tid.0, handle.0)?;
            option(to, "peer", peer.map(|peer| u64::from(peer.0)))?;
            option(to, "bytes", *bytes)?;
            option(to, "descs", *descs)?;
            option(to, "room", room.map(|(room, _)| room.0))?;
            option(to, "last", room.map(|(_, last)| u8::from(last)))
        }
        Fact::XferRet(tid, handle, status) => {
            write!(to, "xfer_ret tid={} handle={:#x} status={status}", tid.0, handle.0)
        }
        Fact::XferStatus(handle, status) => {
            write!(to, "xfer_status handle={:#x} status={status}", handle.0)
        }
        Fact::XferRelease(handle, status) => {
            write!(to, "xfer_release handle={:#x}", handle.0)?;
            option(to, "status", *status)
        }
        Fact::Flush { tid, ep, request } => {
            write!(to, "flush tid={} ep={ep:#x} request={request:#x}", tid.0)
        }
        Fact::FlushDone(completion, status) => {
            write!(to, "flush_done completion={completion:#x}")?;
            option(to, "status", *status)
        }
        Fact::FlushDistance(distance) => write!(to, "flush_distance distance={distance}"),
        Fact::EpError(ep, status) => write!(to, "ep_error ep={ep:#x} status={status}"),
        Fact::Batch(tid, batch) => write!(to, "batch tid={} handle={:#x}", tid.0, batch.0),
        Fact::BatchRead(batch, bytes) => {
            write!(to, "batch_read handle={:#x}", batch.0)?;
            option(to, "bytes", *bytes)
        }
        Fact::BatchEnd(batch) => write!(to, "batch_end handle={:#x}", batch.0),
        Fact::Ports(PortTroubles { timeouts, not_ready, disorder }) => {
            write!(to, "ports timeouts={timeouts} not_ready={not_ready} disorder={disorder}")
        }
        Fact::Armed(on) => write!(to, "armed on={}", u8::from(*on)),
        Fact::Operations(ep, bytes) => write!(to, "operations ep={ep:#x} bytes={bytes}"),
        Fact::Wire(peer, meter) => write_meter(to, *peer, meter),
        Fact::History(peer, bytes, whole) => {
            write!(to, "history peer={} bytes={bytes} whole={}", peer.0, u8::from(*whole))
        }
        Fact::Life(peer, life) => write!(to, "life peer={} life={}", peer.0, word(&LIVES, life)),
        _ => Ok(()),
    }
}

fn option<T: std::fmt::Display>(to: &mut String, key: &str, value: Option<T>) -> std::fmt::Result {
    match value {
        Some(value) => write!(to, " {key}={value}"),
        None => Ok(()),
    }
}

fn write_append(to: &mut String, append: &Append) -> std::fmt::Result {
    let Append { seq, room, expected, peers, peers_whole, late, patient } = append;
    write!(to, "append seq={} room={} expected={expected} peers=", seq.0, room.0)?;
    for (index, peer) in peers.iter().enumerate() {
        write!(to, "{}{}", if index > 0 { "," } else { "" }, peer.0)?;
    }
    write!(to, " whole={} late={}", u8::from(*peers_whole), u8::from(*late))?;
    // Left out where it is not so: older captures do not know it.
    if *patient { write!(to, " patient=1") } else { Ok(()) }
}

fn write_counts(to: &mut String, counts: &Counts) -> std::fmt::Result {
    let Counts { phase, posts, posted_bytes, dones, done_bytes, failures, first_post, last_done } =
        counts;
    write!(
        to,
        "phase={} posts={posts} posted_bytes={posted_bytes} dones={dones} \
         done_bytes={done_bytes} failures={failures}",
        phase.name()
    )?;
    option(to, "first_post", first_post.map(|Nanos(at)| at))?;
    option(to, "last_done", last_done.map(|Nanos(at)| at))
}

fn write_load(to: &mut String, load: &Load) -> std::fmt::Result {
    let Load { running, bootstrap, inflight, prealloc, transfer } = load;
    write!(
        to,
        "load running={running} bootstrap={bootstrap} inflight={inflight} prealloc={prealloc} \
         transfer={transfer}"
    )
}

fn write_meter(to: &mut String, peer: Peer, meter: &Meter) -> std::fmt::Result {
    let Meter { connections, acked, received, unsent, unacked, .. } = meter;
    write!(
        to,
        "wire peer={} connections={connections} acked={acked} received={received} \
         unsent={unsent} unacked={unacked} closed={} retransmitting={}",
        peer.0,
        u8::from(meter.window_closed),
        u8::from(meter.retransmitting),
    )?;
    option(to, "unread", meter.unread)?;
    option(to, "last_received", meter.last_received.map(|Nanos(at)| at))?;
    option(to, "broken", meter.broken.map(|Nanos(at)| at))?;
    option(to, "link_down", meter.link_down.then_some(1))
}
