//! `inflightd runbook`: what to do about an alert, on a node that has nothing but this binary.

use std::fmt::Write as _;

use crate::cli;
use crate::error::RunError;
use crate::shown;

/// The name of a page, and the page.
macro_rules! page {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../dashboards/runbooks/", $name, ".md")))
    };
}

/// Every page of `dashboards/runbooks`. The names of causes, of findings without one, and of the
/// troubles that only alert rules tell.
pub const PAGES: [(&str, &str); 24] = [
    page!("agent_down"),
    page!("blind"),
    page!("config_refused"),
    page!("decode_backlogged"),
    page!("engine_thread_gone"),
    page!("events_lost"),
    page!("export_fails"),
    page!("force_fail"),
    page!("handshake_missing"),
    page!("link_fault"),
    page!("misconfig"),
    page!("moving_slowly"),
    page!("never_enqueued"),
    page!("orphaned"),
    page!("peer_dead"),
    page!("peer_frozen"),
    page!("queued_behind"),
    page!("remote_rank"),
    page!("scheduler_wedged"),
    page!("stale_peer"),
    page!("unknown"),
    page!("worker_thread_captive"),
    page!("worker_thread_dead"),
    page!("worker_wedged"),
];

/// Prints a page, or which there are.
pub fn runbook(args: &cli::Runbook) -> Result<(), RunError> {
    let page = PAGES.iter().find(|(name, _)| args.name.as_deref() == Some(*name));
    let text = page.map_or_else(list, |(_, page)| (*page).to_owned());
    shown::print(text.as_bytes(), "writing the runbook")
}

fn list() -> String {
    let title =
        |page: &'static str| page.lines().next().unwrap_or_default().trim_start_matches("# ");
    let mut list = String::new();
    for (name, page) in PAGES {
        let _infallible = writeln!(list, "{name:<22} {}", title(page));
    }
    list
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_page_is_there_and_no_other() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dashboards/runbooks");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
        let files: BTreeSet<String> = files.map(|name| name.into_string().unwrap()).collect();
        let pages: BTreeSet<String> = PAGES.iter().map(|(name, _)| format!("{name}.md")).collect();
        assert_eq!(files, pages);
    }

    #[test]
    fn the_list_has_a_title_for_each() {
        let list = list();
        assert_eq!(list.lines().count(), PAGES.len());
        assert!(list.contains("\npeer_frozen            The peer does not run\n"), "{list}");
    }
}
