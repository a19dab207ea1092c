//! Rooms that are failed on purpose, and the search for bytes that came too late.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::super::force::ask_to_fail;
use super::super::step::{Reused, Who};
use super::{ANSWER, World};
use crate::clock::Moment;

/// How often the decode's memory is searched.
const LOOK: Duration = Duration::from_millis(200);

impl World<'_> {
    /// The prefill gives a transfer under way up, and uses its memory anew.
    pub(in crate::cases) fn abandon(&mut self, room: &str) -> Result<()> {
        let room = self.expect_victim(room);
        self.prefill.tell(&json!({"do": "abandon", "room": room}))?;
        self.await_event("prefill", "abandoned", ANSWER).map(drop)
    }

    /// Asks the agent to fail a room. Another answer than the right one is a fault of the agent's.
    pub(in crate::cases) fn fail(
        &mut self,
        name: &str,
        (decision, refused): (&str, Option<&str>),
    ) -> Result<()> {
        let room = self.expect_victim(name);
        let (program, right) = (self.view.agent.as_deref(), (decision, refused));
        if let Some(wrong) = ask_to_fail(program, self.scratch, room, right)? {
            self.record.agent_faults.push(format!("{name}: {wrong}"));
        }
        Ok(())
    }

    /// Waits until enough of a range is written, then looks for bytes that came too late.
    pub(in crate::cases) fn found(
        &mut self,
        who: Who,
        (offset, bytes): (u64, u64),
        written: u64,
        reused: Reused,
    ) -> Result<()> {
        let end = Moment::now().plus(ANSWER);
        loop {
            self.decode(who).tell(&json!({"do": "find", "offset": offset, "size": bytes}))?;
            let found = self.await_event(who.name(), "found", ANSWER)?;
            if found.bytes < written && Moment::now() < end {
                self.wait(LOOK, |_| false)?;
                continue;
            }
            let right = match reused {
                Reused::None => found.wrong == 0,
                Reused::Some => found.wrong > 0,
            };
            if !right || found.bytes < written {
                let text = format!(
                    "at {offset} of {}: {} bytes written, {} of them from memory that was another's",
                    who.name(),
                    found.bytes,
                    found.wrong
                );
                self.record.agent_faults.push(text);
            }
            return Ok(());
        }
    }
}
