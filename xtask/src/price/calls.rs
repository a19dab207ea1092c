//! A hook call: without an agent, with it, and with nothing but an empty uprobe on its mark.

use anyhow::{Result, ensure};

use super::agent::Agent;
use super::load::Load;
use super::printing::Tracer;
use super::sample::median;
use super::{Row, load};
use crate::say;

/// Calls of each kind in one series.
const CALLS: u32 = 20_000;
/// Calls in one series that find the caches full of other things.
const COLD_CALLS: u32 = 1_000;
/// Series of each setting, taken in turn.
const SERIES: usize = 5;
/// The calls that carry one mark each. `serve_end` is measured with the serve before it.
const NAMES: [&str; 6] = ["append", "serve", "post", "done", "phase", "remove"];

/// One setting's series: nanoseconds of each call.
type Series = Vec<Vec<f64>>;

pub(super) fn measure() -> Result<Vec<Row>> {
    let mut load = Load::start()?;
    let (mut bare, mut again, mut empty, mut full) = (empty(), empty(), empty(), empty());
    for _ in 0..SERIES {
        sample(&mut load, &mut bare)?;
        sample(&mut load, &mut again)?;
        {
            let _nothing = Tracer::start(&load::library(), "{ }")?;
            sample(&mut load, &mut empty)?;
        }
        {
            let agent = Agent::start(&[load.pid()], 600.0)?;
            sample(&mut load, &mut full)?;
            // A full ring makes a hit cheaper than it is.
            let lost = agent.lost();
            ensure!(lost == 0, "{lost} events were lost, so the cost would be too low");
        }
    }
    Ok(rows(&[bare, again, empty, full]))
}

/// Nanoseconds that the kernel takes for a hit beside the program, a trap and its return: in a loop
/// that does nothing else, and where the caches hold other things, as beside a transfer.
pub(super) fn trap() -> Result<[f64; 2]> {
    let mut load = Load::start()?;
    let mut cost = || -> Result<[f64; 2]> {
        let (mut hot, mut cold) = (Vec::new(), Vec::new());
        for _ in 0..SERIES {
            hot.push(load.tell(&format!("calls {CALLS}"))?.get("phase")?);
            cold.push(load.tell(&format!("cold {COLD_CALLS}"))?.get("phase")?);
        }
        Ok([median(&hot), median(&cold)])
    };
    let bare = cost()?;
    let _nothing = Tracer::start(&load::library(), "{ }")?;
    let with = cost()?;
    Ok([with[0] - bare[0], with[1] - bare[1]])
}

fn empty() -> Series {
    vec![Vec::new(); NAMES.len()]
}

fn sample(load: &mut Load, into: &mut Series) -> Result<()> {
    let said = load.tell(&format!("calls {CALLS}"))?;
    for (name, values) in NAMES.iter().zip(into) {
        values.push(said.get(name)?);
    }
    Ok(())
}

fn rows(settings: &[Series; 4]) -> Vec<Row> {
    say::line("  ns of CPU a call    bare   again  empty uprobe  agent");
    let mut sums = [0.0; 4];
    let mut worst: (f64, &str) = (0.0, "");
    for (index, name) in NAMES.iter().enumerate() {
        let costs = settings.each_ref().map(|series| series.get(index).map_or(0.0, |v| median(v)));
        let [bare, again, empty, full] = costs;
        say::line(format_args!("  {name:16} {bare:7.0} {again:7.0} {empty:13.0} {full:6.0}"));
        for (sum, cost) in sums.iter_mut().zip(costs) {
            *sum += cost;
        }
        if full / empty.max(1.0) > worst.0 {
            worst = (full / empty.max(1.0), name);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a handful of calls")]
    let [bare, again, empty, full] = sums.map(|sum| sum / NAMES.len() as f64);
    let ratio = full / empty.max(1.0);
    let (most, which) = worst;
    vec![
        Row::new(
            "one hook call without an agent, mean of the six kinds",
            format!("{bare:.0} ns (again: {again:.0} ns)"),
        ),
        Row::new(
            "the same with the agent, against an empty uprobe on the same mark",
            format!(
                "{full:.0} ns against {empty:.0} ns: {ratio:.2} ×; most for {which}: {most:.2} ×"
            ),
        )
        .goal("≤ 1.5 ×", ratio <= 1.5),
    ]
}
