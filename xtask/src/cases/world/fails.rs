//! Rooms that are failed on purpose, and the search for bytes that came too late.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::super::agent::binary;
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
        let program = self.view.agent.clone().unwrap_or_else(binary);
        let mut command = Command::new(program);
        command.args(["fail", &room.to_string(), "--yes", "--json", "--state-dir"]);
        let output =
            command.arg(self.scratch.path("state")).output().context("asking the agent")?;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let answer: Value = serde_json::from_str(&told).unwrap_or_default();
        let fail = answer.get("fail");
        let word = |key: &str| fail.and_then(|fail| fail.get(key)?.as_str());
        let code = fail.and_then(|fail| fail.get("refused")?.get("code")?.as_str());
        if word("decision") != Some(decision) || code != refused {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let text =
                format!("{name}: asked to fail it: {told}{said}, expected {decision} {refused:?}");
            self.record.agent_faults.push(text);
        }
        Ok(())
    }

    /// Clears a range of a decode's memory.
    pub(in crate::cases) fn erase(&mut self, who: Who, offset: u64, bytes: u64) -> Result<()> {
        self.decode(who).tell(&json!({"do": "clear", "offset": offset, "size": bytes}))?;
        self.await_event(who.name(), "cleared", ANSWER).map(drop)
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
