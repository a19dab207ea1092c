//! Processes that map a transfer library and no table: watched, so that their libraries carry
//! probes, and workers of their own kind once they post a transfer.

use std::collections::BTreeMap;

use inflightd_core::fact::{Room, Worker};
use inflightd_core::{Fact, Nanos, Reason, Sight, Source};

use super::Agent;
use crate::discover::Read;
use crate::hits::Seen;
use crate::names::About;
use crate::probe::is_telling;
use crate::proc::{self, Maps, lives};
use crate::worker::Removals;

/// Most processes without a table that are watched. The victim is the newcomer.
const STRANGERS_MAX: usize = 4096;
/// The index of a worker without the hook: no mark gives it.
pub(super) const UNHOOKED: u64 = u32::MAX as u64;

/// A process that maps a transfer library and no table.
#[derive(Debug)]
pub(super) struct Stranger {
    /// Start time of the process.
    pub(super) start: u64,
    seen: Seen,
}

/// The processes without a table, by id.
pub(super) type Strangers = BTreeMap<u32, Stranger>;

impl Agent {
    /// Takes note of a process that was read: whether it is one of those without a table.
    pub(super) fn note_stranger(&mut self, read: &Read) {
        let maps_library = read.maps.objects.iter().any(|object| is_telling(&object.path));
        let is_of_interest = maps_library || read.maps.load.is_some();
        if !is_of_interest || !read.maps.tables.is_empty() {
            self.loads.note(read.pid, None);
            if self.strangers.remove(&read.pid).is_some() && self.workers_of(read.pid).is_empty() {
                self.hits.forget(read.pid);
            }
            return;
        }
        if self.strangers.len() >= STRANGERS_MAX && !self.strangers.contains_key(&read.pid) {
            return;
        }
        let seen = self.hits.attach(read.pid, &read.maps, false);
        if seen.unfinished {
            self.census.hint(read.pid);
        }
        self.strangers.insert(read.pid, Stranger { start: read.start, seen });
        self.loads.note(read.pid, read.maps.load.as_ref());
    }

    /// Forgets those that have ended.
    pub(super) fn bury_unhooked(&mut self, now: Nanos) {
        let gone: Vec<u32> = self
            .strangers
            .iter()
            .filter(|(pid, stranger)| !lives(**pid, stranger.start))
            .map(|(pid, _)| *pid)
            .collect();
        for pid in gone {
            self.process_gone(pid, now);
        }
    }

    /// A process has posted a transfer: where it has no table, it becomes a worker by that.
    pub(super) fn adopt(&mut self, pid: u32, at: Nanos) {
        // An engine may have opened its table since it was last read, and the library that would say
        // so may carry no probe yet.
        match self.census.look_at(pid, at) {
            Some(read) => self.reconcile(&read, at),
            // It is about to be read anew, and has a table.
            None if self.census.is_marked(pid) => return,
            None => self.census.hint(pid),
        }
        if self.workers_of(pid).is_empty() {
            self.adopt_stranger(pid, None, at);
        }
    }

    /// A process without a table becomes a worker.
    pub(super) fn adopt_stranger(&mut self, pid: u32, role: Option<&str>, at: Nanos) {
        let Some(stranger) = self.strangers.get(&pid) else {
            return;
        };
        let read = Read { pid, start: stranger.start, maps: Maps::default() };
        let seen = stranger.seen.clone();
        let mut about = about(&proc::command_line(pid).unwrap_or_default());
        if let Some(role) = role {
            role.clone_into(&mut about.role);
        }
        let by = if role.is_some() { "its load snapshot" } else { "a transfer" };
        tracing::info!(pid, engine = about.engine, by, "a process without the hook is a worker");
        let past = self.past(&read, &about, Removals::default());
        let number = self.add(&read, None, about, past.told.clone(), at);
        if let Some(watched) = self.workers.get_mut(&number) {
            watched.hooked = false;
        }
        self.teller.meet(number, &past);
        self.tell(number, at, Fact::Unhooked);
        self.cover(number, Source::Table, Sight::Blind(Reason::NoHook), at);
        self.cover_seen(number, seen, at);
        self.resume(number, &past, at);
    }

    /// Workers without the hook that are over: their process has opened a table, or does not map
    /// a transfer library any more.
    pub(super) fn outgrown(&self, read: &Read) -> Vec<Worker> {
        let is_stranger = self.strangers.contains_key(&read.pid);
        self.workers
            .values()
            .filter(|watched| watched.pid == read.pid && !watched.hooked && !is_stranger)
            .map(|watched| watched.number)
            .collect()
    }
}

/// What a process's command line says of its engine.
fn about(command: &str) -> About {
    let engine = ["sglang", "vllm", "dynamo"].into_iter().find(|name| command.contains(name));
    let mut words = command.split(['\0', ' ', '=']);
    let mode = words.find(|word| *word == "--disaggregation-mode").and_then(|_| words.next());
    let role = mode.filter(|mode| ["prefill", "decode"].contains(mode));
    let mut about = About::unread();
    about.index = UNHOOKED;
    if let Some(engine) = engine {
        engine.clone_into(&mut about.engine);
    }
    if let Some(role) = role {
        role.clone_into(&mut about.role);
    }
    about
}

/// The room that a NIXL notification names, and whether it is the one of the room's last
/// transfer: `{room}_kv_{chunk}_{last}`, then, by version of SGLang, a rank, and `part_{i}_{n}`
/// where a chunk goes in several transfers. Other notifications (`{room}_aux`, `_state_…`,
/// `_stg_…`) belong to transfers beside the room's payload.
pub(super) fn notified(text: &str) -> Option<(Room, bool)> {
    let number = |text: &str| {
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| text.parse::<u64>().ok()).flatten()
    };
    let mut fields = text.split('_');
    let room = number(fields.next()?)?;
    if fields.next()? != "kv" {
        return None;
    }
    number(fields.next()?)?;
    let last = match fields.next()? {
        "0" | "False" => false,
        "1" | "True" => true,
        _ => return None,
    };
    let rest: Vec<&str> = fields.collect();
    let whole = match rest.as_slice() {
        [.., "part", part, parts] => number(part)?.saturating_add(1) >= number(parts)?,
        [] => true,
        [rank] => number(rank).map(|_| true)?,
        _ => return None,
    };
    Some((Room(room), last && whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_names_its_room() {
        let room = |text| notified(text).map(|(Room(room), last)| (room, last));
        assert_eq!(room("12345_kv_0_1"), Some((12345, true)));
        assert_eq!(room("12345_kv_0_0_3"), Some((12345, false)));
        assert_eq!(room("0_kv_17_True"), Some((0, true)));
        assert_eq!(room("18446744073709551615_kv_0_1_0"), Some((u64::MAX, true)));
        assert_eq!(room("7_kv_2_1_0_part_0_2"), Some((7, false)));
        assert_eq!(room("7_kv_2_1_0_part_1_2"), Some((7, true)));
        for other in [
            "",
            "_",
            "7",
            "7_aux",
            "7_aux_nokv_0_3",
            "7_state_0_1",
            "7_stg_0_1_0_0_5_9_agent",
            "7_kv",
            "7_kv_0",
            "7_kv_0_2",
            "7_kv_x_1",
            "7_kv_0_1_x",
            "7_kv_0_1_2_3",
            "+7_kv_0_1",
            "-7_kv_0_1",
            "18446744073709551616_kv_0_1",
            "7_kv_0_1_part_0_",
            "kv_7_0_1",
            "é_kv_0_1",
        ] {
            assert_eq!(room(other), None, "{other}");
        }
    }

    #[test]
    fn a_command_line_tells_the_engine() {
        let of = |command: &str| {
            let about = about(command);
            (about.engine, about.role)
        };
        let words = |engine: &str, role: &str| (engine.to_owned(), role.to_owned());
        let line = "python\0-m\0sglang.launch_server\0--disaggregation-mode\0prefill\0";
        assert_eq!(of(line), words("sglang", "prefill"));
        assert_eq!(of("vllm serve --disaggregation-mode=decode"), words("vllm", "decode"));
        assert_eq!(of("x --disaggregation-mode null"), words("unknown", "unknown"));
        assert_eq!(of(""), words("unknown", "unknown"));
        assert_eq!(about("").index, UNHOOKED);
    }
}
