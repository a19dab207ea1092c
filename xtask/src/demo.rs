//! `demo`: faults of every kind on a real pair, each verdict shown as it is reached.

use anyhow::Result;
use clap::Args;

use crate::cases;
use crate::clock::Moment;
use crate::say;
use crate::{setup, surroundings};

/// Options of `cargo xtask demo`.
#[derive(Args)]
pub(crate) struct Options {
    /// Rather than run the cases keep one stalled pair and the agent up until Enter is pressed, to
    /// try `rooms`, `doctor` and curl on
    #[arg(long)]
    hold: bool,
}

/// What is shown: each kind of fault in its plainest form. `cargo xtask cases` runs all there are.
const SHOWN: [&str; 16] = [
    "healthy",
    "never_posted",
    "frozen_before",
    "frozen_before_small",
    "frozen_before_wired",
    "frozen_midway",
    "frozen_midway_one_chunk",
    "killed_handled",
    "killed_dropped",
    "lost_notice",
    "late_agent",
    "late_agent_before",
    "agent_killed",
    "queued_behind_frozen",
    "worker_thread_dead",
    "partition",
];

/// Set up, build, run the cases; an error unless every verdict is right.
pub(crate) fn run(options: &Options) -> Result<()> {
    cases::need_root()?;
    setup::run()?;
    cases::build_agent()?;
    if options.hold {
        return surroundings::hold();
    }
    let begun = Moment::now();
    say::line("\nA NIXL prefill and two decodes run beside the agent; faults hit one decode.");
    say::line("The deadline of a stall is shortened to 3 s (default 30 s).\n");
    let reports = cases::run_built(&cases::Options::of(SHOWN.map(str::to_owned).to_vec()), true)?;
    say::line(format_args!("\n{}", cases::table(&reports)));
    let (mut while_stalled, mut alerts) = (0, 0);
    for (yes, all) in reports.iter().map(cases::Report::while_stalled) {
        while_stalled += yes;
        alerts += all;
    }
    say::line(format_args!(
        "{while_stalled} of {alerts} verdicts came while the room still stalled"
    ));
    let took = Moment::now().seconds_after(begun) / 60.0;
    let right = reports.iter().filter(|report| report.is_right()).count();
    say::line(format_args!("{right} of {} cases right … {took:.1} min", reports.len()));
    cases::verdict(&reports)
}
