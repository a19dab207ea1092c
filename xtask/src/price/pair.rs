//! A real NIXL pair: bare, bare again, with the hook, and with hook and agent.

use anyhow::Result;

use super::Row;
use super::sample::change;
use crate::cases::bench;

pub(super) fn measure() -> Result<Vec<Row>> {
    let [bare, again, hook, agent] = bench::run()?;
    let against = |rooms: f64| change(bare.rooms_per_s, rooms);
    let load = bench::load();
    Ok(vec![
        Row::new(
            format!("rooms a second of a NIXL pair ({load}), hook and agent against bare"),
            format!(
                "{:+.1} % (hook alone {:+.1} %, bare again {:+.1} %)",
                against(agent.rooms_per_s),
                against(hook.rooms_per_s),
                against(again.rooms_per_s)
            ),
        ),
        Row::new(
            "time in the queue there, bare and with hook and agent",
            format!(
                "p50 {:.1} and {:.1} ms, p99 {:.1} and {:.1} ms",
                bare.dwell_ms, agent.dwell_ms, bare.dwell_p99_ms, agent.dwell_p99_ms
            ),
        ),
        Row::new(
            format!("the agent itself there, at {:.0} rooms a second", agent.rooms_per_s),
            format!("{:.1} % of a core, {:.0} MiB", agent.agent_cpu * 100.0, agent.agent_mib),
        ),
    ])
}
