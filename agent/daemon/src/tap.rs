//! Captures: everything that the ledger is given, and the names of its numbers.
//!
//! The inputs are lines of `inflightd-capture`. Lines that begin with `# ` are comments to it and
//! carry what else a replay needs to print the same lines as the agent did: `policy`, `offset`
//! (nanoseconds from monotonic to wall time), `name` (what a number stands for) and `round` (up to
//! here the agent fed the ledger before it asked what it has to say).

use std::fs::File;
use std::io::{self, BufWriter, Seek as _, Write};
use std::path::{Path, PathBuf};

use inflightd_abi::table::Ranks;
use inflightd_capture::{Input, MAGIC, write_input};
use inflightd_core::fact::{Peer, Seq, Worker};
use inflightd_core::{Nanos, Policy};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::identity::Identity;
use crate::names::{About, Named, PeerName, RoomName, WorkerName};

/// Writes a capture.
pub struct Tap {
    path: PathBuf,
    file: BufWriter<File>,
    /// Bytes at which it ends.
    max: u64,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").finish_non_exhaustive()
    }
}

impl Tap {
    /// Begins a capture that ends at the first round past `max` bytes.
    pub fn create(path: &Path, max: u64, policy: &Policy, clock: Clock) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        let arguments: Vec<String> = std::env::args().collect();
        writeln!(file, "{MAGIC}")?;
        writeln!(file, "# version {}", env!("CARGO_PKG_VERSION"))?;
        writeln!(file, "# command {}", serde_json::to_string(&arguments)?)?;
        let mut tap = Self { path: path.to_owned(), file, max };
        tap.policy(policy)?;
        tap.offset(clock)?;
        Ok(tap)
    }

    /// The deadlines from now on.
    pub fn policy(&mut self, policy: &Policy) -> io::Result<()> {
        writeln!(self.file, "# policy {}", serde_json::to_string(&PolicyLine::from(policy))?)
    }

    /// The offset from monotonic to wall time from now on.
    pub fn offset(&mut self, clock: Clock) -> io::Result<()> {
        writeln!(self.file, "# offset {}", clock.offset())
    }

    /// A number was given to a name.
    pub fn name(&mut self, named: &Named) -> io::Result<()> {
        let line = serde_json::to_string(&NameLine::from(named))?;
        writeln!(self.file, "# name {line}")
    }

    /// An input of the ledger.
    pub fn input(&mut self, input: &Input) -> io::Result<()> {
        let mut line = String::new();
        write_input(&mut line, input);
        line.push('\n');
        self.file.write_all(line.as_bytes())
    }

    /// The ledger is now asked what it has to say.
    pub fn round(&mut self) -> io::Result<()> {
        writeln!(self.file, "# round")?;
        self.file.flush()?;
        if self.file.stream_position()? < self.max {
            return Ok(());
        }
        writeln!(self.file, "# full")?;
        self.file.flush()?;
        Err(io::Error::other("it is as large as --capture-max allows"))
    }

    /// Where it is written.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A line of a capture that is no input.
#[derive(Debug, PartialEq, Eq)]
pub enum Comment {
    /// Deadlines of the ledger from here on.
    Policy(Policy),
    /// Monotonic to wall time from here on.
    Offset(Clock),
    /// What a number stands for.
    Name(Named),
    /// The ledger was asked.
    Round,
    /// Anything else: for people.
    Other,
}

/// Reads a comment line.
pub fn comment(line: &str) -> Result<Comment, serde_json::Error> {
    let text = line.strip_prefix("# ").unwrap_or_default();
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    Ok(match word {
        "policy" => Comment::Policy(serde_json::from_str::<PolicyLine>(rest)?.into()),
        "offset" => Comment::Offset(Clock::with_offset(serde_json::from_str(rest)?)),
        "name" => Comment::Name(serde_json::from_str::<NameLine>(rest)?.into()),
        "round" => Comment::Round,
        _ => Comment::Other,
    })
}

/// A policy, in nanoseconds and bytes.
#[derive(Serialize, Deserialize)]
struct PolicyLine {
    suspect: u64,
    stall: u64,
    /// Captures of the first release have none, and no room that it is for.
    #[serde(default)]
    stall_mooncake: Option<u64>,
    max_dwell: u64,
    hard_grace: u64,
    beat_fresh: u64,
    scheduler_wedged: u64,
    setup_grace: u64,
    setup_recent: u64,
    payload_min: u64,
    answer_min: u64,
    setup_bytes: u64,
    setup_answer: u64,
}

impl From<&Policy> for PolicyLine {
    fn from(policy: &Policy) -> Self {
        // Taken apart by name, so that a new field cannot be forgotten here.
        let Policy {
            suspect,
            stall,
            stall_mooncake,
            max_dwell,
            hard_grace,
            beat_fresh,
            scheduler_wedged,
            setup_grace,
            setup_recent,
            payload_min,
            answer_min,
            setup_bytes,
            setup_answer,
        } = *policy;
        Self {
            suspect: suspect.0,
            stall: stall.0,
            stall_mooncake: Some(stall_mooncake.0),
            max_dwell: max_dwell.0,
            hard_grace: hard_grace.0,
            beat_fresh: beat_fresh.0,
            scheduler_wedged: scheduler_wedged.0,
            setup_grace: setup_grace.0,
            setup_recent: setup_recent.0,
            payload_min,
            answer_min,
            setup_bytes,
            setup_answer,
        }
    }
}

impl From<PolicyLine> for Policy {
    fn from(line: PolicyLine) -> Self {
        Self {
            suspect: Nanos(line.suspect),
            stall: Nanos(line.stall),
            stall_mooncake: line.stall_mooncake.map_or(Self::DEFAULT.stall_mooncake, Nanos),
            max_dwell: Nanos(line.max_dwell),
            hard_grace: Nanos(line.hard_grace),
            beat_fresh: Nanos(line.beat_fresh),
            scheduler_wedged: Nanos(line.scheduler_wedged),
            setup_grace: Nanos(line.setup_grace),
            setup_recent: Nanos(line.setup_recent),
            payload_min: line.payload_min,
            answer_min: line.answer_min,
            setup_bytes: line.setup_bytes,
            setup_answer: line.setup_answer,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct PeerLine {
    kind: String,
    value: String,
}

impl From<&PeerName> for PeerLine {
    fn from(name: &PeerName) -> Self {
        Self { kind: name.kind.clone(), value: name.value.clone() }
    }
}

impl From<PeerLine> for PeerName {
    fn from(line: PeerLine) -> Self {
        Self { kind: line.kind, value: line.value }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum NameLine {
    Worker {
        number: u32,
        boot: String,
        pid: u32,
        start: u64,
        index: u64,
        role: String,
        engine: String,
        version: String,
        /// dp, pp, tp, cp.
        ranks: [(u32, u32); 4],
        identities: Vec<PeerLine>,
    },
    Peer {
        number: u32,
        name: PeerLine,
    },
    Room {
        worker: u32,
        seq: u64,
        rid: String,
        // Captures of agents that kept none have none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        traceparent: String,
    },
}

impl From<&Named> for NameLine {
    fn from(named: &Named) -> Self {
        match named {
            Named::Worker(number, WorkerName { identity, about }) => Self::Worker {
                number: number.0,
                boot: identity.boot.clone(),
                pid: identity.pid,
                start: identity.start,
                index: identity.index,
                role: about.role.clone(),
                engine: about.engine.clone(),
                version: about.version.clone(),
                ranks: [about.ranks.dp, about.ranks.pp, about.ranks.tp, about.ranks.cp],
                identities: about.identities.iter().map(PeerLine::from).collect(),
            },
            Named::Peer(number, name) => Self::Peer { number: number.0, name: name.into() },
            Named::Room(worker, seq, room) => Self::Room {
                worker: worker.0,
                seq: seq.0,
                rid: room.rid.clone(),
                traceparent: room.traceparent.clone(),
            },
        }
    }
}

impl From<NameLine> for Named {
    fn from(line: NameLine) -> Self {
        match line {
            NameLine::Peer { number, name } => Self::Peer(Peer(number), name.into()),
            NameLine::Room { worker, seq, rid, traceparent } => {
                Self::Room(Worker(worker), Seq(seq), RoomName { rid, traceparent })
            }
            NameLine::Worker {
                number,
                boot,
                pid,
                start,
                index,
                role,
                engine,
                version,
                ranks: [dp, pp, tp, cp],
                identities,
            } => {
                let identities = identities.into_iter().map(PeerName::from).collect();
                let ranks = Ranks { dp, pp, tp, cp };
                let about = About { index, role, engine, version, ranks, identities };
                let identity = Identity { boot, pid, start, index };
                Self::Worker(Worker(number), WorkerName { identity, about })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker() -> Named {
        let peer = PeerName::nixl(b"p \"quoted\" \n name");
        let about = About { identities: vec![peer], ..About::unread() };
        let identity = Identity { boot: "b".to_owned(), pid: 1, start: 2, index: 0 };
        Named::Worker(Worker(4), WorkerName { identity, about })
    }

    #[test]
    fn names_read_back() {
        let traceparent = "00-a-b-01".to_owned();
        let room = RoomName { rid: "r\n# round".to_owned(), traceparent };
        for named in [
            worker(),
            Named::Peer(Peer(7), PeerName::nixl(b"x")),
            Named::Room(Worker(4), Seq(9), room),
        ] {
            let line = serde_json::to_string(&NameLine::from(&named)).unwrap();
            assert!(!line.contains('\n'), "a name cannot begin a line of its own");
            assert_eq!(comment(&format!("# name {line}")).unwrap(), Comment::Name(named));
        }
    }

    #[test]
    fn a_capture_says_how_to_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("capture");
        let policy = Policy { stall: Nanos(77), ..Policy::default() };
        let mut tap = Tap::create(&path, u64::MAX, &policy, Clock::with_offset(5)).unwrap();
        tap.input(&Input::Tick(Nanos(3))).unwrap();
        tap.round().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let comments: Vec<Comment> = text
            .lines()
            .filter(|line| line.starts_with('#'))
            .map(|line| comment(line).unwrap())
            .filter(|comment| *comment != Comment::Other)
            .collect();
        assert_eq!(
            comments,
            [Comment::Policy(policy), Comment::Offset(Clock::with_offset(5)), Comment::Round]
        );
        assert!(text.starts_with(MAGIC) && text.contains("\n3 tick\n"));
    }

    #[test]
    fn a_capture_ends_at_its_bound_and_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("capture");
        let mut tap = Tap::create(&path, 2000, &Policy::default(), Clock::with_offset(5)).unwrap();
        let rounds = (0..9999).take_while(|at| {
            tap.input(&Input::Tick(Nanos(*at))).unwrap();
            tap.round().is_ok()
        });
        assert!((10..200).contains(&rounds.count()));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with("# round\n# full\n") && text.len() < 2100, "{}", text.len());
    }
}
