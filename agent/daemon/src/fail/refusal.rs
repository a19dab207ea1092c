//! Why a room is not failed, and what helps instead.

use inflightd_core::drain::Undrained;
use inflightd_core::{Cause, Finding};

/// Why a room is not failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nobody has it in its queue.
    #[error("no worker under watch has this room in its queue")]
    NoSuchRoom,
    /// Several engines have it.
    #[error("workers of several engines have this room in their queues: processes {}", list(.0))]
    Ambiguous(Vec<u32>),
    /// No verdict stands on it.
    #[error("no verdict stands on this room: nothing says that it is stuck")]
    NoVerdict,
    /// Its verdict is none for which a room may be failed.
    #[error("its verdict is {} / {}, for which no room is failed", .0.name(), .1.name())]
    Unfit(Finding, Cause),
    /// It waits behind one that is not stuck.
    #[error("it waits behind a room that is not known to be stuck")]
    HeadMoves,
    /// The engine spans nodes.
    #[error("the engine of process {0} spans {1} nodes: its other ranks are not seen from here")]
    OtherNodes(u32, u64),
    /// The engine has pipeline stages.
    #[error("the engine of process {0} has {1} pipeline stages, which agree in another way")]
    Pipeline(u32, u32),
    /// Ranks that decide with this one are not there.
    #[error("of the {need} ranks that decide about this room {have} have it in their queues here")]
    RanksMissing {
        /// Found.
        have: usize,
        /// Needed.
        need: usize,
    },
    /// A rank does not do what is asked of it.
    #[error("the hook of process {0} does not carry out what the agent asks for")]
    NoCommands(u32),
    /// A rank's table cannot be written.
    #[error("the table of process {0} cannot be opened for writing: {1}")]
    NotWritable(u32, String),
    /// It is held already.
    #[error("process {0} holds this room already, for an earlier attempt")]
    Held(u32),
    /// A thread works for it.
    #[error("{threads} of the threads of process {pid} work for it")]
    AtWork {
        /// The rank.
        pid: u32,
        /// How many.
        threads: u16,
    },
    /// A thread is at work whose room is not known.
    #[error(
        "thread {1} of process {0} is at work whose room is not in the queue yet: maybe this one's"
    )]
    EarlyWork(u32, u32),
    /// Threads that the table does not show.
    #[error("process {0} has threads that found no place in its table: what they do is not seen")]
    HiddenThreads(u32),
    /// More came than could be read.
    #[error("events come faster than they are read: what is known is too old")]
    Behind,
    /// Its transfers are not known to be over.
    #[error("on process {pid} its transfers are not known to be over: {}", undrained(*.why))]
    Undrained {
        /// The rank.
        pid: u32,
        /// Why.
        why: Undrained,
    },
    /// So many were failed already.
    #[error("`force_fail.{0}` allows no more at present: {1} in a minute")]
    Limited(&'static str, u32),
    /// What was to be failed was not.
    #[error("{0} rooms in a row were not failed as they should have been")]
    Broken(u32),
    /// All ranks are done.
    #[error("all its ranks have done their part: the engine only has to notice")]
    Done,
}

fn list(pids: &[u32]) -> String {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    pids.join(", ")
}

/// Why it cannot be said that its transfers are over.
fn undrained(why: Undrained) -> String {
    match why {
        Undrained::NotHere => "it is not in that queue any more".to_owned(),
        Undrained::Late => "it was in the queue before the agent came".to_owned(),
        Undrained::Exempt => "the engine moves nothing for it there".to_owned(),
        Undrained::Unseen(source) => {
            format!("{} has not seen all since it entered the queue", source.name())
        }
        Undrained::Unread => "the table could not be read anew".to_owned(),
        Undrained::Served(tid) => format!("thread {} works for it", tid.0),
        Undrained::Early(tid) => format!("thread {} is at work of a room not known", tid.0),
        Undrained::Open(open) => format!("{open} under way"),
        Undrained::NotArrived(count) => {
            format!("{count} ended otherwise than by arriving (released, cancelled or failed)")
        }
        Undrained::Miscounted { posts, dones, seen } => format!(
            "the engine counts {posts} transfer calls, {dones} of them ended, and {seen} were seen"
        ),
        Undrained::CallsFailed(0) => "one has failed".to_owned(),
        Undrained::CallsFailed(calls) => format!("the engine counts {calls} that failed"),
        Undrained::Stray => "a transfer of a room not known may be its own".to_owned(),
    }
}

impl Refusal {
    /// The word for it in outputs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NoSuchRoom => "no_such_room",
            Self::Ambiguous(_) => "ambiguous",
            Self::NoVerdict => "no_verdict",
            Self::Unfit(..) => "unfit_verdict",
            Self::HeadMoves => "head_moves",
            Self::OtherNodes(..) => "other_nodes",
            Self::Pipeline(..) => "pipeline",
            Self::RanksMissing { .. } => "ranks_missing",
            Self::NoCommands(_) => "no_commands",
            Self::NotWritable(..) => "not_writable",
            Self::Held(_) => "held",
            Self::AtWork { .. } => "at_work",
            Self::EarlyWork(..) => "early_work",
            Self::HiddenThreads(_) => "hidden_threads",
            Self::Behind => "behind",
            Self::Undrained { why, .. } => why.name(),
            Self::Limited(..) => "limited",
            Self::Broken(_) => "broken",
            Self::Done => "done",
        }
    }

    /// What helps instead.
    pub fn remedy(&self) -> String {
        match self {
            Self::NoSuchRoom => "`inflightd rooms` lists what is open".to_owned(),
            Self::Ambiguous(_) => "say which with --worker PID".to_owned(),
            Self::NoVerdict | Self::Behind => "wait, and look at `inflightd rooms`".to_owned(),
            Self::Unfit(_, cause) => {
                format!("`inflightd runbook {}` says what helps", cause.name())
            }
            Self::HeadMoves => "look at the room at the head with `inflightd rooms`".to_owned(),
            Self::NoCommands(pid) => format!(
                "install the hook of this release and leave INFLIGHTD_HOOK_COMMANDS unset; until \
                 then only a restart of process {pid} frees the room"
            ),
            Self::NotWritable(pid, _) => {
                format!(
                    "give the agent the rights that deploy/README.md names; else restart process {pid}"
                )
            }
            Self::Held(_) | Self::EarlyWork(..) => "try again in a few seconds".to_owned(),
            Self::OtherNodes(pid, _) | Self::Pipeline(pid, _) | Self::HiddenThreads(pid) => {
                format!("restart the engine of process {pid}, all its ranks")
            }
            Self::RanksMissing { .. } => {
                "have the hook in every rank; else restart the engine, all its ranks".to_owned()
            }
            Self::AtWork { pid, .. } | Self::Undrained { pid, .. } => self.restart(*pid),
            Self::Limited(..) => "it is looked at again; `inflightd fail` has no limit".to_owned(),
            Self::Broken(_) => "look at their records, then send the agent SIGHUP".to_owned(),
            Self::Done => "if it stays, restart the scheduler that does not notice".to_owned(),
        }
    }

    /// Whom to restart where a transfer may be under way: then nothing but the end of a process says
    /// that its memory is not written any more.
    fn restart(&self, pid: u32) -> String {
        match self {
            Self::Undrained { why: Undrained::NotHere, .. } => {
                "nothing is left to be done there".to_owned()
            }
            Self::Undrained { why: Undrained::Unseen(_) | Undrained::Unread, .. } => {
                format!("`inflightd doctor` says what is not seen; else restart process {pid}")
            }
            Self::AtWork { .. }
            | Self::Undrained { why: Undrained::Served(_) | Undrained::Open(_), .. } => {
                format!(
                    "restart its far end (the peer that its alert names), whose end frees the thread; \
                     if that does not help, process {pid}"
                )
            }
            _ => format!("restart process {pid}, all ranks of its engine"),
        }
    }
}

#[cfg(test)]
mod tests {
    use inflightd_core::fact::Tid;

    use super::*;

    fn each() -> Vec<Refusal> {
        use Undrained::{
            CallsFailed, Early, Exempt, Late, Miscounted, NotArrived, NotHere, Open, Served, Stray,
            Unread, Unseen,
        };
        let undrained = [
            NotHere,
            Late,
            Exempt,
            Unseen(inflightd_core::Source::Transfers),
            Unread,
            Served(Tid(3)),
            Early(Tid(3)),
            Open(2),
            NotArrived(1),
            Miscounted { posts: 2, dones: 1, seen: 1 },
            CallsFailed(0),
            Stray,
        ];
        let mut each = vec![
            Refusal::NoSuchRoom,
            Refusal::Ambiguous(vec![7, 8]),
            Refusal::NoVerdict,
            Refusal::Unfit(Finding::MovingSlowly, Cause::Unknown),
            Refusal::HeadMoves,
            Refusal::OtherNodes(7, 2),
            Refusal::Pipeline(7, 2),
            Refusal::RanksMissing { have: 1, need: 2 },
            Refusal::NoCommands(7),
            Refusal::NotWritable(7, "no".to_owned()),
            Refusal::Held(7),
            Refusal::AtWork { pid: 7, threads: 1 },
            Refusal::EarlyWork(7, 9),
            Refusal::HiddenThreads(7),
            Refusal::Behind,
            Refusal::Limited("per_peer", 3),
            Refusal::Broken(2),
            Refusal::Done,
        ];
        each.extend(undrained.map(|why| Refusal::Undrained { pid: 7, why }));
        each
    }

    #[test]
    fn every_refusal_has_a_word_of_its_own_a_reason_and_a_remedy() {
        let mut names: Vec<&str> = each().iter().map(Refusal::name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        for refusal in each() {
            assert!(!refusal.to_string().is_empty() && !refusal.remedy().is_empty(), "{refusal:?}");
        }
    }

    #[test]
    fn what_is_under_way_is_ended_by_its_far_end() {
        let open = Refusal::Undrained { pid: 7, why: Undrained::Open(2) };
        assert_eq!(
            open.to_string(),
            "on process 7 its transfers are not known to be over: 2 under way"
        );
        assert!(open.remedy().starts_with("restart its far end"), "{}", open.remedy());
    }
}
