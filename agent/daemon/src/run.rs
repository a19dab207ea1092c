//! `inflightd run`: the loop.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use inflightd_core::Nanos;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::agent::{Agent, Parts, Teller, TellerParts};
use crate::cli;
use crate::clock::Clock;
use crate::config::Config;
use crate::desk::Desk;
use crate::discover::Census;
use crate::error::RunError;
use crate::health::Health;
use crate::heap;
use crate::hits::Hits;
use crate::http::{self, Front};
use crate::journal::Journal;
use crate::probe::{Options, Probes};
use crate::proc;
use crate::reload::{Reload, note};
use crate::sink::{Form, Outlet};
use crate::subject;
use crate::table;
use crate::tap::Tap;
use crate::telemetry::Telemetry;

/// How often the ring is read. Records come without a wake-up: that would be paid by the probed
/// thread.
const RING_EVERY: Nanos = Nanos::from_millis(20);
/// How often the tables are read.
const TABLES_EVERY: Nanos = Nanos::from_millis(500);
/// How often meters may be due: each worker has its own rhythm.
const METERS_EVERY: Nanos = Nanos::from_millis(50);
/// How often workers are looked for.
const CENSUS_EVERY: Nanos = Nanos::from_secs(1);
/// So late, the agent was stopped or starved, and what it knows is too old to judge by.
const OVERSLEPT: Nanos = Nanos::from_millis(500);

/// Everything that wakes the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    /// The ring may hold records.
    Ring,
    /// The ledger has a deadline.
    Due,
    /// The tables are to be read.
    Tables,
    /// Connections and processes are to be looked at.
    Meters,
    /// Workers may have come or gone.
    Census,
}

/// When each of them is next.
#[derive(Clone, Copy, Debug)]
struct Agenda {
    ring: Nanos,
    tables: Nanos,
    meters: Nanos,
    census: Nanos,
}

impl Agenda {
    const fn from(now: Nanos) -> Self {
        Self { ring: now, tables: now.plus(TABLES_EVERY), meters: now, census: now }
    }

    /// What comes next, and when.
    fn next(&self, due: Option<Nanos>) -> (Nanos, Wake) {
        let known = [
            (self.census, Wake::Census),
            (self.tables, Wake::Tables),
            (self.meters, Wake::Meters),
            (self.ring, Wake::Ring),
        ];
        let due = due.map(|due| (due, Wake::Due));
        let mut next = (Nanos::MAX, Wake::Ring);
        for candidate in known.into_iter().chain(due) {
            if candidate.0 < next.0 {
                next = candidate;
            }
        }
        next
    }

    /// `wake` has been served at `now`.
    const fn served(&mut self, wake: Wake, now: Nanos) {
        match wake {
            Wake::Ring => self.ring = now.plus(RING_EVERY),
            Wake::Tables => self.tables = now.plus(TABLES_EVERY),
            Wake::Meters => self.meters = now.plus(METERS_EVERY),
            Wake::Census => self.census = now.plus(CENSUS_EVERY),
            Wake::Due => {}
        }
    }
}

/// Runs the agent until it is told to stop.
pub fn run(args: &cli::Run) -> Result<(), RunError> {
    heap::settle();
    let mut config = Config::load(args)?;
    note(&config);
    say_what_is_in_force(args, &config);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RunError::io("starting the runtime"))?;
    // Before the probes are loaded, which takes a while: a SIGHUP that nobody waits for kills.
    let signals =
        runtime.block_on(async { Signals::new() }).map_err(RunError::io("waiting for signals"))?;
    let agent = prepare(args, &config)?;
    match runtime.block_on(serve(agent, signals, (args, &mut config))) {
        Ok(()) => Ok(()),
        // Nobody reads any more: that is how a pipeline ends.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(RunError::io("writing a line")(error)),
    }
}

/// The first question of whoever reads the log: with what the agent was started.
fn say_what_is_in_force(args: &cli::Run, config: &Config) {
    let file = Config::file(args.config.as_deref());
    let file = file.map_or_else(|| "none".to_owned(), |file| file.display().to_string());
    let otlp = config.otlp.as_ref().map_or("off", |otlp| otlp.endpoint.as_str());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        config = file,
        state_dir = %config.state_dir.display(),
        otlp,
        probes = config.probes,
        stall_s = config.policy.stall.secs_f64(),
        form = if args.json { "json" } else { "text" },
        "inflightd starts"
    );
}

fn prepare(args: &cli::Run, config: &Config) -> Result<Agent, RunError> {
    let device = table::memfd_device().map_err(RunError::io("making a memfd"))?;
    let mut pids = args.pid.clone();
    pids.sort_unstable();
    pids.dedup();
    for pid in &pids {
        subject::check(*pid, device).map_err(|why| RunError::pid(*pid, &why))?;
    }
    let boot = proc::boot_id().map_err(RunError::io("reading the boot id"))?;
    let hits = hits(args, config)?;
    let journal = Journal::open(&config.state_dir, &boot)?;
    let clock = Clock::read();
    let tap = args
        .capture
        .as_deref()
        .map(|path| {
            let max = args.capture_max.saturating_mul(1 << 20);
            Tap::create(path, max, &config.policy, clock)
                .map_err(RunError::file("writing the capture", path))
        })
        .transpose()?;
    let telemetry = Telemetry::start(config)?;
    let (desk, asker) = Desk::new(Health::new(Clock::now()));
    let front = Front { scrape: telemetry.meters().scrape(), asker };
    let http = http::start(&front, config.http, (&config.state_dir, journal.holds()), &telemetry)?;
    let form = if args.json { Form::Json } else { Form::Text };
    let outlet = stdout()
        .and_then(|to| Outlet::new(Box::new(to)))
        .map_err(RunError::io("starting the thread of lines"))?;
    Ok(Agent::new(Parts {
        boot,
        census: Census::new(device, pids).around(),
        hits,
        config: config.clone(),
        clock,
        teller: Teller::new(TellerParts {
            form,
            outlet,
            output: config.output,
            journal,
            tap,
            telemetry,
        }),
        desk,
        http,
    }))
}

/// Standard output without the buffer of the standard library: after a failed write nobody could
/// say what is left in that.
fn stdout() -> io::Result<File> {
    io::stdout().as_fd().try_clone_to_owned().map(File::from)
}

fn hits(args: &cli::Run, config: &Config) -> Result<Hits, RunError> {
    if !config.probes {
        return Ok(Hits::Off);
    }
    let options = Options { debug: args.log >= tracing::Level::DEBUG, ..Options::default() };
    let probes = Probes::load(options).map_err(RunError::Probes)?;
    Ok(Hits::On(Box::new(probes)))
}

async fn serve(
    mut agent: Agent,
    mut signals: Signals,
    (args, config): (&cli::Run, &mut Config),
) -> io::Result<()> {
    let mut agenda = Agenda::from(Clock::now());
    let mut reload = Reload::default();
    loop {
        let (at, wake) = agenda.next(agent.deadline());
        let pause = at.since(Clock::now()).duration();
        let told = signals.within(pause).await;
        let now = Clock::now();
        match told {
            Some(Told::Stop) => return agent.finish(now),
            Some(Told::Reload) => {
                reload.ask(args);
                continue;
            }
            None => {}
        }
        if let Some(done) = reload.done(args, config) {
            agent.reloaded(done.map(|export| (&*config, export)));
        }
        if now.since(at) >= OVERSLEPT {
            agent.catch_up(now)?;
        }
        match wake {
            // Nothing is judged by what was so 20 ms ago.
            Wake::Ring | Wake::Due => agent.drain(now)?,
            Wake::Tables => agent.read_tables(now)?,
            Wake::Meters => agent.meters(now)?,
            Wake::Census => agent.census(now)?,
        }
        agenda.served(wake, now);
        agent.attend(at, now)?;
    }
}

/// What a signal says.
enum Told {
    Stop,
    Reload,
}

/// The signals that the agent answers to.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Sleeps, unless a signal comes.
    async fn within(&mut self, pause: Duration) -> Option<Told> {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Some(Told::Stop),
            _ = self.interrupt.recv() => Some(Told::Stop),
            _ = self.hangup.recv() => Some(Told::Reload),
            () = tokio::time::sleep(pause) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_next_and_a_due_room_is_not_starved() {
        let mut agenda = Agenda::from(Nanos::from_secs(1));
        assert_eq!(agenda.next(None), (Nanos::from_secs(1), Wake::Census));
        agenda.served(Wake::Census, Nanos::from_secs(1));
        agenda.served(Wake::Ring, Nanos::from_secs(1));
        agenda.served(Wake::Meters, Nanos::from_secs(1));
        let due = Nanos::from_secs(1).plus(Nanos(5));
        assert_eq!(agenda.next(Some(due)), (due, Wake::Due));
        let ring = Nanos::from_millis(1020);
        assert_eq!(agenda.next(Some(Nanos::from_secs(9))), (ring, Wake::Ring));
    }
}
