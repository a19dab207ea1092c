//! Two network namespaces joined by a pair of veth devices, for a decode that is another machine to
//! its prefill's network.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::clock::Moment;
use crate::shell::Step;

/// The device of the prefill's side, and its address.
const NEAR: (&str, &str) = ("near0", "10.231.0.1");
/// The device of the sick decode's side, and its address.
const FAR: (&str, &str) = ("far0", "10.231.0.2");
/// What may wait in the limited device: enough that no packet is dropped at once.
const BUCKET: [&str; 4] = ["burst", "256kb", "latency", "400ms"];

const STEP: Step<'static> =
    Step { what: "setting up network namespaces", fix: "run as root, with iproute2 and nftables" };

/// How long a device may take from being set up to running: the kernel tells of a carrier at most
/// once a second, and UCX leaves out a device that does not run yet.
const RUNS: Duration = Duration::from_secs(20);

/// What is lost on the way between the prefill and the sick decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// Everything.
    #[default]
    Both,
    /// What the prefill sends.
    There,
    /// What the decode sends: its answers.
    Back,
}

/// Where a process of the pair runs: in a network namespace or here, and the device it may use.
pub(crate) struct Place<'a> {
    pub(crate) space: Option<&'a str>,
    pub(crate) device: &'static str,
    pub(crate) address: &'static str,
}

/// Where a pair on one network runs.
pub(crate) const HERE: Place<'static> = Place { space: None, device: "lo", address: "127.0.0.1" };

/// The namespaces. They go away with this value, and with the runner however it ends.
pub(crate) struct Net {
    near: String,
    far: String,
    /// Deletes the namespaces once its stdin closes, which a killed runner's does, too.
    guard: Child,
}

impl Net {
    /// Make both namespaces; traffic from near to far is limited to `mbit` Mbit/s unless that is 0.
    pub(crate) fn make(mbit: u32) -> Result<Self> {
        let [near, far] =
            ["near", "far"].map(|side| format!("cases-{}-{side}", std::process::id()));
        let guard = guard(&near, &far)?;
        let net = Self { near, far, guard };
        for name in [&net.near, &net.far] {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        let peer = ["peer", "name", FAR.0, "netns", &net.far];
        ip(&[&["-n", &net.near, "link", "add", NEAR.0, "type", "veth"][..], &peer].concat())?;
        for (name, (device, address)) in [(&net.near, NEAR), (&net.far, FAR)] {
            let address = format!("{address}/24");
            ip(&["-n", name, "address", "add", &address, "dev", device])?;
            ip(&["-n", name, "link", "set", device, "up"])?;
        }
        if mbit > 0 {
            let rate = format!("{mbit}mbit");
            let tbf =
                ["-n", &net.near, "qdisc", "add", "dev", NEAR.0, "root", "tbf", "rate", &rate];
            STEP.quietly(Command::new("tc").args(tbf).args(BUCKET))?;
        }
        runs(&net.near, NEAR.0)?;
        runs(&net.far, FAR.0)?;
        Ok(net)
    }

    /// Where the prefill and the healthy decode run.
    pub(crate) fn near(&self) -> Place<'_> {
        Place { space: Some(&self.near), device: NEAR.0, address: NEAR.1 }
    }

    /// Where the sick decode runs.
    pub(crate) fn far(&self) -> Place<'_> {
        Place { space: Some(&self.far), device: FAR.0, address: FAR.1 }
    }

    /// Drop what arrives on either side, as a network does that is cut in two, or on one of them.
    pub(crate) fn cut(&self, way: Way) -> Result<()> {
        let sides = [(&self.near, NEAR, Way::There), (&self.far, FAR, Way::Back)];
        for (name, (device, _), spared_by) in sides {
            if way == spared_by {
                continue;
            }
            let rule = format!(
                "table inet cut {{\nchain arriving {{\n\
                 type filter hook input priority 0; iifname {device} drop;\n}}\n}}"
            );
            ip(&["netns", "exec", name, "nft", &rule])?;
        }
        Ok(())
    }

    /// Take the cut back.
    pub(crate) fn heal(&self) -> Result<()> {
        for name in [&self.near, &self.far] {
            // Made first where it is not there: what was cut on one side only heals as well.
            ip(&["netns", "exec", name, "nft", "table inet cut; delete table inet cut"])?;
        }
        Ok(())
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        drop(self.guard.wait());
    }
}

fn guard(near: &str, far: &str) -> Result<Child> {
    const SCRIPT: &str = "trap '' INT TERM HUP; cat > /dev/null; \
                          for name in \"$0\" \"$1\"; do ip netns del \"$name\" 2> /dev/null; done";
    let mut shell = Command::new("sh");
    shell.args(["-c", SCRIPT, near, far]).stdin(Stdio::piped()).stdout(Stdio::null());
    shell.spawn().context("starting the guard of the network namespaces")
}

/// Wait until the device has its carrier.
fn runs(space: &str, device: &str) -> Result<()> {
    let end = Moment::now().plus(RUNS);
    while !ip(&["-n", space, "link", "show", "dev", device])?.contains("state UP") {
        ensure!(Moment::now() < end, "{device} does not run {RUNS:?} after it was set up");
        thread::sleep(RUNS / 1000);
    }
    Ok(())
}

fn ip(arguments: &[&str]) -> Result<String> {
    STEP.quietly(Command::new("ip").args(arguments))
}
