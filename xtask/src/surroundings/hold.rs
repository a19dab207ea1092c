//! `demo --hold`: a stall that stays, to try the agent's own commands on.

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use super::live::Agent;
use super::server::free_port;
use super::worker::Duo;
use crate::say;
use crate::tree::target;

/// Bytes of the room that hangs.
const LARGE: u64 = 64 << 20;

/// Freeze a decode in the middle of a transfer, and wait until Enter is pressed.
pub(crate) fn hold() -> Result<()> {
    let directory = tempfile::tempdir().context("making a directory")?;
    let mut duo = Duo::start(directory.path())?;
    let address = format!("127.0.0.1:{}", free_port()?);
    let _agent = Agent::shown(directory.path(), &address, &duo.pids())?;
    duo.append(1 << 20)?;
    duo.await_removal()?;
    duo.signal(Signal::STOP)?;
    duo.append(LARGE)?;
    duo.append(1 << 20)?;
    let [prefill, decode] = duo.pids();
    let program = target().join("release/inflightd");
    let (program, state) = (program.display(), directory.path().join("state"));
    let state = state.display();
    say::line(format_args!(
        "\nThe decode (pid {decode}) is stopped, two rooms of the prefill (pid {prefill}) hang; the \
         alert comes after 3 s.\nIn another terminal:\n\
         \x20 {program} rooms --state-dir {state}\n\
         \x20 {program} doctor --state-dir {state}\n\
         \x20 curl -s http://{address}/workers/{prefill}\n\
         \x20 curl -s http://{address}/metrics | grep ^inflight_rooms\n\
         \x20 kill -CONT {decode}     # the stall ends\n\
         Enter ends all.\n"
    ));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("waiting for Enter").map(drop)
}
