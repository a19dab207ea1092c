//! What the statuses of the libraries say.

/// Statuses by which UCX (-25 reset, -24 not connected, -6 unreachable, -80 time-out) and NIXL
/// (-10 remote disconnect) say that the far end is gone.
pub(super) const fn is_disconnect(code: i32) -> bool {
    matches!(code, -25 | -24 | -10 | -6 | -80)
}
