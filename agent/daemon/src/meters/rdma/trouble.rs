//! What the ports of RDMA devices count of packets that went wrong: the only thing that the kernel
//! shows of a path that the hardware handles by itself.
//!
//! A port's counters are of everybody who uses it. Sources: the kernel's drivers, `counters.c` of mlx5
//! and `hw_counters.c` of `bnxt_re`, EFA's and soft-RoCE's, and NVIDIA's "Understanding mlx5 Linux
//! counters".

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use inflightd_core::fact::PortTroubles;

/// Requests that nobody acknowledged in time: mlx5, `bnxt_re`, EFA, soft-RoCE.
const TIMEOUTS: [&str; 6] = [
    "local_ack_timeout_err",
    "to_retransmits",
    "retrans_timeout_events",
    "unresponsive_remote_events",
    "completer_retry_err",
    "retry_exceeded_err",
];
/// Sends to a far end that had no receive posted.
const NOT_READY: [&str; 3] = ["rnr_nak_retry_err", "rnr_naks_rcvd", "rcvd_rnr_err"];
/// Packets that were missed or came out of their order.
const DISORDER: [&str; 6] = [
    "packet_seq_err",
    "out_of_sequence",
    "implied_nak_seq_err",
    "seq_err_naks_rcvd",
    "rcvd_seq_err",
    "out_of_seq_request",
];

/// The counts of all ports of the named devices, of all devices where none is named. `None` where no
/// port counts any of them.
pub(super) fn troubles(class: &Path, devices: &BTreeSet<String>) -> Option<PortTroubles> {
    let folders: Vec<PathBuf> = entries(class)
        .filter(|device| devices.is_empty() || devices.contains(&super::device::file_name(device)))
        .flat_map(|device| entries(&device.join("ports")).collect::<Vec<_>>())
        .map(|port| port.join("hw_counters"))
        .collect();
    let sum = |names: &[&str]| {
        let files = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
        let counts: Vec<u64> = files.filter_map(|file| count(&file)).collect();
        (!counts.is_empty()).then(|| counts.into_iter().fold(0, u64::saturating_add))
    };
    let all = [sum(&TIMEOUTS), sum(&NOT_READY), sum(&DISORDER)];
    if all.iter().all(Option::is_none) {
        return None;
    }
    let [timeouts, not_ready, disorder] = all.map(Option::unwrap_or_default);
    Some(PortTroubles { timeouts, not_ready, disorder })
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn count(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(class: &Path, device: &str, counters: &[(&str, &str)]) {
        let folder = class.join(device).join("ports/1/hw_counters");
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in counters {
            fs::write(folder.join(name), text).unwrap();
        }
    }

    #[test]
    fn counters_are_summed_by_what_they_mean_over_ports() {
        let class = tempfile::tempdir().unwrap();
        port(
            class.path(),
            "mlx5_0",
            &[("local_ack_timeout_err", "3\n"), ("out_of_sequence", "5\n")],
        );
        port(class.path(), "rxe0", &[("completer_retry_err", "4\n"), ("rcvd_rnr_err", "7\n")]);
        port(class.path(), "rxe1", &[("sent_pkts", "9\n"), ("rcvd_rnr_err", "not a number\n")]);
        let of = |names: &[&str]| {
            troubles(class.path(), &names.iter().map(|name| (*name).to_owned()).collect())
        };
        let sum =
            |timeouts, not_ready, disorder| Some(PortTroubles { timeouts, not_ready, disorder });
        assert_eq!(of(&[]), sum(7, 7, 5));
        assert_eq!(of(&["rxe0"]), sum(4, 7, 0));
        assert_eq!(of(&["rxe1"]), None, "what it counts is none of these");
        assert_eq!(troubles(&class.path().join("none"), &BTreeSet::new()), None);
    }
}
