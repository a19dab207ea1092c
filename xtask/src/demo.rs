//! `demo`: every fault on a real pair, each verdict shown as it is reached.

use anyhow::Result;

use crate::cases;
use crate::clock::Moment;
use crate::say;
use crate::setup;

/// Set up, build, run every case; an error unless every verdict is right.
pub(crate) fn run() -> Result<()> {
    setup::run()?;
    cases::build_agent()?;
    let begun = Moment::now();
    say::line("\nA NIXL prefill and two decodes run beside the agent; faults hit one decode.");
    say::line("The deadline of a stall is shortened to 3 s (default 30 s).\n");
    let reports = cases::run_built(&cases::Options::default(), true)?;
    say::line(format_args!("\n{}", cases::table(&reports)));
    let (mut while_stalled, mut alerts) = (0, 0);
    for (yes, all) in reports.iter().map(cases::Report::while_stalled) {
        while_stalled += yes;
        alerts += all;
    }
    say::line(format_args!("{while_stalled} of {alerts} alerts came while the room still stalled"));
    let took = Moment::now().seconds_after(begun) / 60.0;
    let right = reports.iter().filter(|report| report.is_right()).count();
    say::line(format_args!("{right} of {} verdicts right … {took:.1} min", reports.len()));
    cases::verdict(&reports)
}
