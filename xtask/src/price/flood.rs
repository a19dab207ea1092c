//! Marks a second of a worker on one core, without a loss.

use std::time::Duration;

use anyhow::Result;

use super::Row;
use super::agent::Agent;
use super::load::Load;
use crate::say;

/// Rates tried, in marks a second.
const RATES: [u32; 8] = [100_000, 200_000, 300_000, 400_000, 500_000, 600_000, 700_000, 800_000];
/// Seconds of each.
const SECONDS: f64 = 5.0;
const GOAL: f64 = 500_000.0;

pub(super) fn measure() -> Result<Vec<Row>> {
    let marks = highest("marks")?;
    let stays = highest("stays")?;
    Ok(vec![
        Row::new(
            "marks a second of a worker on one core (posts and dones), nothing lost in 5 s",
            marks.to_string(),
        )
        .goal("≥ 500,000", marks.rate >= GOAL),
        Row::new(
            "the same in whole stays of 8 marks, each stay told in two lines",
            stays.to_string(),
        ),
    ])
}

/// The highest rate without a loss.
#[derive(Clone, Copy, Default)]
struct Highest {
    /// Marks a second as they were, not as they were asked for.
    rate: f64,
    /// Share of a core that the agent used at it.
    share: f64,
}

impl std::fmt::Display for Highest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.0} at {:.0} % of a core", self.rate, self.share * 100.0)
    }
}

fn highest(verb: &str) -> Result<Highest> {
    let mut best = Highest::default();
    for rate in RATES {
        // A fresh pair for each rate: what one has lost must not be laid to the next.
        let mut load = Load::start()?;
        load.tell("pin 0")?;
        // Not pinned: on a machine with other work a core of its own is one that it must wait for.
        let agent = Agent::start(&[load.pid()], 600.0)?;
        let before = agent.usage()?;
        let said = load.tell(&format!("{verb} {rate} {SECONDS}"))?;
        let share = agent.usage()?.share_since(&before);
        // What was lost is said when the ring has been read.
        std::thread::sleep(Duration::from_secs(2));
        let lost = agent.lost();
        let reached = said.get("marks")? / said.get("seconds")?;
        say::line(format_args!(
            "  {verb}: {reached:.0} a second, {lost} lost, agent {:.0} % of a core",
            share * 100.0
        ));
        if lost > 0 {
            break;
        }
        if reached > best.rate {
            best = Highest { rate: reached, share };
        }
        if reached < 0.9 * f64::from(rate) {
            // The worker's core has no more to give.
            break;
        }
    }
    Ok(best)
}
