//! Ids of traces and spans. Pure: the same stay has the same ids in every life of the agent.

use opentelemetry::trace::{SpanId, TraceId};

use crate::identity::{Identity, fnv1a};
use crate::names::{About, PeerName};
use inflightd_core::fact::Seq;

/// The trace of a stay, and the span that the stay itself hangs under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trace {
    /// The request's trace.
    pub(super) id: TraceId,
    /// The request's span, where the engine handed its context on.
    pub(super) parent: Option<SpanId>,
}

impl Trace {
    /// Reads a W3C `traceparent`; `None` for one that is not valid.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        // Later versions may add parts; the first version has none.
        let known = version != "00" || parts.next().is_none();
        let lengths = [(version, 2), (trace, 32), (span, 16), (flags, 2)];
        let digits = |text: &str| text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        let formed = lengths.iter().all(|(part, len)| part.len() == *len && digits(part));
        if !known || !formed || version == "ff" {
            return None;
        }
        let id = TraceId::from_hex(trace).ok().filter(|id| *id != TraceId::INVALID)?;
        let parent = SpanId::from_hex(span).ok().filter(|id| *id != SpanId::INVALID)?;
        Some(Self { id, parent: Some(parent) })
    }

    /// The trace of a room whose engine handed no context on. Where both ends know one host (that
    /// of the prefill's endpoint, at which the decode engine finds it), both come to the same trace,
    /// and so do the ranks on that host; else it is the stay's own.
    pub(super) fn of_room(
        identity: &Identity,
        about: &About,
        peers: &[&PeerName],
        seq: Seq,
        room: u64,
    ) -> Self {
        let text = match meeting_point(about, peers) {
            Some(host) => format!("room {host} {room}"),
            None => format!("stay {identity} {}", seq.0),
        };
        let hash = fnv1a(text.as_bytes());
        let (high, low) = halves(hash);
        let id = (u128::from(mix(high)) << 64) | u128::from(mix(low ^ high).max(1));
        Self { id: TraceId::from(id), parent: None }
    }

    /// Whether a healthy stay of this trace is exported. Every node says the same of a trace.
    pub(super) fn is_sampled(&self, share: f64) -> bool {
        let (high, low) = halves(u128::from_be_bytes(self.id.to_bytes()));
        // 53 bits are what a float holds exactly.
        let place = mix(high ^ low.rotate_left(32)) >> 11;
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit a float exactly")]
        let place = place as f64 / (1_u64 << 53) as f64;
        place < share
    }
}

/// The host by which the two ends of a room know each other: the prefill's. Its port is each rank's
/// own.
fn meeting_point<'a>(about: &'a About, peers: &[&'a PeerName]) -> Option<&'a str> {
    let mut endpoints: Box<dyn Iterator<Item = &PeerName>> = match about.role.as_str() {
        "prefill" => Box::new(about.identities.iter()),
        "decode" => Box::new(peers.iter().copied()),
        _ => return None,
    };
    endpoints.find(|name| name.kind == "endpoint").map(|name| host(&name.value))
}

fn host(endpoint: &str) -> &str {
    endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host)
}

/// The span of a stay, by the id of its lines.
pub(super) fn stay_span(id: &str) -> SpanId {
    span(&format!("stay {id}"))
}

/// The span of a verdict, by its id; `turn` counts how often a verdict about that stay was taken
/// back before: the same may be found again.
pub(super) fn verdict_span(id: &str, turn: u32) -> SpanId {
    match turn {
        0 => span(&format!("verdict {id}")),
        turn => span(&format!("verdict {id} {turn}")),
    }
}

fn span(text: &str) -> SpanId {
    let (high, low) = halves(fnv1a(text.as_bytes()));
    // All zeroes is no id.
    SpanId::from(mix(high ^ mix(low)).max(1))
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves are what is wanted")]
const fn halves(wide: u128) -> (u64, u64) {
    ((wide >> 64) as u64, wide as u64)
}

/// Spreads a difference in any bit over all bits, which FNV does not for the last bytes.
///
/// Source: the finaliser of `SplitMix64` (Steele, Lea, Flood 2014).
const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(pid: u32) -> Identity {
        Identity { boot: "b".to_owned(), pid, start: 9, index: 0 }
    }

    fn endpoint(value: &str) -> PeerName {
        PeerName { kind: "endpoint".to_owned(), value: value.to_owned() }
    }

    #[test]
    fn a_traceparent_is_read_and_a_bad_one_is_not() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let trace = Trace::read(good).unwrap();
        assert_eq!(trace.id.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(trace.parent.unwrap().to_string(), "00f067aa0ba902b7");
        assert!(Trace::read(&good.replacen("00-", "01-", 1)).is_some());
        assert!(Trace::read(&(good.replacen("00-", "01-", 1) + "-more")).is_some());
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
        ] {
            assert_eq!(Trace::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn both_ends_of_a_room_come_to_one_trace() {
        let prefill = About {
            role: "prefill".to_owned(),
            identities: vec![endpoint("10.0.0.1:8998")],
            ..About::unread()
        };
        let decode = About { role: "decode".to_owned(), ..About::unread() };
        // Another rank's port: a decode may have several senders.
        let (here, there) = (endpoint("10.0.0.1:9001"), endpoint("10.0.0.9:1"));
        let at_prefill = Trace::of_room(&identity(1), &prefill, &[&there], Seq(4), 77);
        let at_decode = Trace::of_room(&identity(2), &decode, &[&here], Seq(9), 77);
        assert_eq!(at_prefill, at_decode);
        assert_ne!(at_prefill, Trace::of_room(&identity(1), &prefill, &[], Seq(4), 78));
        let elsewhere = endpoint("10.0.0.2:8998");
        let other = Trace::of_room(&identity(2), &decode, &[&elsewhere], Seq(9), 77);
        assert_ne!(at_prefill, other, "the same room of another prefill");
        assert_eq!(host("[fd00::1]:8998"), "[fd00::1]");
    }

    #[test]
    fn without_a_meeting_point_each_stay_has_its_own_trace() {
        let about = About::unread();
        let of = |pid, seq| Trace::of_room(&identity(pid), &about, &[], Seq(seq), 7);
        assert_eq!(of(1, 1), of(1, 1));
        assert_ne!(of(1, 1), of(1, 2));
        assert_ne!(of(1, 1), of(2, 1));
    }

    #[test]
    fn a_share_is_met_and_decided_by_the_trace_alone() {
        let of = |seq| Trace::of_room(&identity(1), &About::unread(), &[], Seq(seq), 0);
        let taken = |share| (0..20_000).filter(|seq| of(*seq).is_sampled(share)).count();
        assert_eq!((taken(0.0), taken(1.0)), (0, 20_000));
        let (one, half) = (taken(0.01), taken(0.5));
        assert!((140..=260).contains(&one) && (9_600..=10_400).contains(&half), "{one} {half}");
        let kept: Vec<u64> = (0..100).filter(|seq| of(*seq).is_sampled(0.2)).collect();
        assert!(kept.iter().all(|seq| of(*seq).is_sampled(0.3)), "a larger share adds only");
    }

    #[test]
    fn span_ids_depend_on_what_they_are_of() {
        assert_ne!(stay_span("a"), verdict_span("a", 0));
        assert_ne!(verdict_span("a", 0), verdict_span("a", 1));
        assert_ne!(stay_span("a"), stay_span("b"));
        assert_eq!(stay_span("a"), stay_span("a"));
    }
}
